"""A drain takes pods away one after the other: a replacement finds its node whichever of them have gone."""

from __future__ import annotations

from itertools import chain, combinations
from random import Random

from hypothesis import event, given
from hypothesis import strategies as st

from rebalancer.planner import plan
from tests.support.build import decoded
from tests.support.clusters.random_clusters import clusters
from tests.support.scheduler.owners import replacement
from tests.support.scheduler.plain import Json, controller_of, key_of
from tests.support.scheduler.state import State, feasible

LEAVES = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
_MANY = 6
"""Of more pods not every choice is tried."""


@given(clusters("tiny"), st.integers(1, 2), st.integers(0, 1 << 16))
def test_of_those_that_have_to_leave_any_may_be_gone_before_a_replacement_lands(
    listed: list[Json], number: int, seed: int
) -> None:
    nodes = [o for o in listed if o["kind"] == "Node"]
    drained = Random(seed).sample(nodes, min(number, len(nodes)))
    for node in drained:
        node["spec"].setdefault("taints", []).append(dict(LEAVES))
    names = {n["metadata"]["name"] for n in drained}
    state, made = State.of(listed), plan(decoded(listed))
    on_them = (p for p in state.holding() if p["spec"].get("nodeName") in names)
    # A drain leaves those of DaemonSets.
    leaving = [p for p in on_them if (controller_of(p) or {}).get("kind") != "DaemonSet"][:_MANY]
    first = [m for m in made.waves[0] if m.certain] if made.waves else []
    for move in first:
        event("a move")
        new = replacement(state, state.pods[move.pod.key])
        there = [p for p in leaving if p["metadata"]["name"] != move.pod.name]
        for gone in chain.from_iterable(combinations(there, n) for n in range(len(there) + 1)):
            event("with some gone" if gone else "with all there")
            keys = {key_of(p) for p in gone}
            found = feasible(state.without({move.pod.key, *keys}), new)
            assert found, (move.pod.key, keys)
            assert set(found) <= set(move.destinations), (move.pod.key, keys)
