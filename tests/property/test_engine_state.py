"""The state changed pod by pod is the state built afresh, and each step is undone by its inverse.

The clusters are the recorded ones (tests/conformance), the steps are drawn.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.engine.cluster import ClusterState, Placed
from rebalancer.engine.framework import Frameworks, Scores
from rebalancer.model.pod import PodTemplate
from tests.conformance.replay import Replay
from tests.conformance.test_conformance import FAMILIES

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
    case, _ = FAMILIES[family][number]
    run = Replay(json.loads(json.dumps(case)))
    templates = [run.pod(p).template for p in (*case["objects"].get("pods", ()), *case["incoming"])]
    return run, templates


def rebuilt(state: ClusterState) -> ClusterState:
    """A fresh state with the same pods."""
    fresh = ClusterState(state.snapshot, state.config)
    for key, placed in state.pods.items():
        fresh.add(key, placed.template, placed.row)
        if placed.terminating:
            fresh.terminate(key)
    for key, placed in state.nominated.items():
        fresh.nominate(key, placed.template, placed.row)
    return fresh


def answers(frameworks: Frameworks, templates: list[PodTemplate]) -> list[object]:
    """Feasible nodes and scores of some templates, as plain values."""
    found: list[object] = []
    for template in templates:
        framework = frameworks.of(template)
        feasible = framework.feasible(template)
        scores: Scores = framework.score(template, feasible)
        by_plugin = {name: values[feasible].tolist() for name, values in scores.by_plugin.items()}
        found.append((feasible.tolist(), by_plugin, scores.totals[feasible].tolist()))
    return found


def contents(state: ClusterState) -> object:
    """All that the state holds, as plain values."""
    columns = {str(k): state.requested[k].tolist() for k in state.requested if state.requested[k].any()}
    ports = {k: state.ports[k].tolist() for k in state.ports if state.ports[k].any()}
    volumes = state.volumes
    held = {k: v for k, v in volumes.holders.items() if v}
    attached = {k: volumes.attached[k].tolist() for k in volumes.attached if volumes.attached[k].any()}
    return columns, ports, held, attached, volumes.claims, dict(state.pods), dict(state.nominated)


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
            if op == "nominate":
                state.nominate(key, template, row)
                self.undo.append(("unnominate", key, None))
            else:
                state.add(key, template, row)
                self.undo.append(("remove", key, None))
            return
        key = data.draw(st.sampled_from(placed))
        was = state.pods[key]
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
