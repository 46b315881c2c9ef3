"""The state changed pod by pod is the state built afresh, and each step is undone by its inverse.

The clusters are the recorded ones (tests/conformance), the steps are drawn.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.engine.framework import Frameworks
from rebalancer.engine.state.cluster import ClusterState, Placed
from rebalancer.model.pod import PodTemplate
from tests.conformance.recordings import families
from tests.conformance.replay import Replay
from tests.support.scheduler.engine_states import answers, contents, rebuilt, shares_a_port

CLUSTERS = families("first", "1.36.2")
BUSY = (
    "mixed",
    "pod_affinity",
    "ports",
    "volumes",
    "csi_limits",
    "defaults_system",
    "spread_score",
    "nominated",
)


@cache
def recorded(family: str, number: int) -> tuple[Replay, list[PodTemplate]]:
    """A recorded cluster, and every template in it."""
    case = CLUSTERS[family][number].case
    run = Replay(case)
    templates = [run.pod(p).template for p in (*case["objects"].get("pods", ()), *case["incoming"])]
    return run, templates


class Walker:
    """Takes drawn steps on a state and remembers how to undo them."""

    def __init__(self, state: ClusterState, templates: list[PodTemplate]) -> None:
        self.state = state
        self.templates = templates
        self.undo: list[tuple[str, Hashable, Placed | None]] = []
        self.next = 0

    def step(self, data: st.DataObject) -> None:
        """One step."""
        state = self.state
        placed = sorted(state.pods, key=str)
        op = data.draw(st.sampled_from(("add", "nominate", "terminate", "remove", "restore")))
        if op in ("add", "nominate") or not placed:
            self.next += 1
            key: Hashable = ("drawn", self.next)
            template = data.draw(st.sampled_from(self.templates))
            row = data.draw(st.integers(0, state.table.size - 1))
            if op == "nominate" or shares_a_port(state, key, template, row):
                state.nominate(key, template, row)
                self.undo.append(("unnominate", key, None))
            else:
                state.add(key, template, row)
                self.undo.append(("remove", key, None))
            return
        key = data.draw(st.sampled_from(placed))
        was = state.pods[key]
        if shares_a_port(state, key, was.template, was.row):
            return
        if op == "remove":
            state.remove(key)
            self.undo.append(("put back", key, was))
        elif op == "terminate" and not was.terminating:
            state.terminate(key)
            self.undo.append(("restore", key, None))
        elif op == "restore" and was.terminating:
            state.restore(key)
            self.undo.append(("terminate", key, None))

    def back(self) -> None:
        """Undoes everything."""
        for op, key, was in reversed(self.undo):
            if was is not None:
                self.state.add(key, was.template, was.row)
                if was.terminating:
                    self.state.terminate(key)
            else:
                getattr(self.state, op)(key)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BUSY), st.integers(0, 49), st.data())
def test_steps_give_what_building_afresh_gives_and_are_undone(
    family: str, number: int, data: st.DataObject
) -> None:
    run, templates = recorded(family, number)
    state = run.state.copy()
    if not state.table.size:
        return
    frameworks = Frameworks(state)
    asked = data.draw(st.lists(st.sampled_from(templates), min_size=1, max_size=3))
    before, start = contents(state), answers(frameworks, asked)
    walker = Walker(state, templates)
    for _ in range(data.draw(st.integers(1, 8))):
        walker.step(data)
        answers(frameworks, asked)
    fresh = rebuilt(state)
    assert answers(frameworks, asked) == answers(Frameworks(fresh), asked)
    assert contents(state) == contents(fresh)
    walker.back()
    assert contents(state) == before
    assert answers(frameworks, asked) == start


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(BUSY), st.integers(0, 49), st.data())
def test_a_branch_leaves_its_origin_alone(family: str, number: int, data: st.DataObject) -> None:
    run, templates = recorded(family, number)
    if not run.state.table.size:
        return
    origin = run.state.copy()
    before = contents(origin)
    column = next(iter(origin.requested), None)
    shared = origin.requested[column].copy() if column is not None else np.zeros(0)
    walker = Walker(origin.copy(), templates)
    for _ in range(5):
        walker.step(data)
    assert contents(origin) == before
    assert column is None or np.array_equal(origin.requested[column], shared)
