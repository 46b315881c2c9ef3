"""A drain takes pods away one after the other: a replacement finds its node whichever of them have gone."""

from __future__ import annotations

from itertools import chain, combinations
from random import Random

from hypothesis import event, given
from hypothesis import strategies as st

from rebalancer.planner import plan
from tests.support.build import decoded, deployment, node, objects
from tests.support.clusters.random_clusters import clusters
from tests.support.scheduler.owners import replacement
from tests.support.scheduler.plain import Json, controller_of, key_of
from tests.support.scheduler.state import State, feasible
from tests.unit.planner.cluster.test_bystanders import LEAVES

_MANY = 6
"""Of more pods not every choice is tried."""


@given(clusters("tiny"), st.integers(1, 2), st.integers(0, 1 << 16))
def test_of_those_that_have_to_leave_any_may_be_gone_before_a_replacement_lands(
    listed: list[Json], number: int, seed: int
) -> None:
    nodes = [o for o in listed if o["kind"] == "Node"]
    drained = Random(seed).sample(nodes, min(number, len(nodes)))
    for n in drained:
        n["spec"].setdefault("taints", []).append({"key": LEAVES, "value": "1", "effect": "NoSchedule"})
    moves = lands_whichever_have_gone(listed, {n["metadata"]["name"] for n in drained})
    event("a move" if moves else "no move")


def test_what_opens_a_node_by_one_constraint_bars_it_by_the_next() -> None:
    """One of the two gone opens their zone, and only both make their node the one with the fewest pods."""
    both = {"tier": "web"}
    nodes = [node(n).zone(n[0]).cpu(8) for n in ("a-0", "a-1", "a-2", "b-1", "c-0", "c-1")]
    web = (
        deployment("web")
        .label_map(both)
        .spread("zone", 2, selector=both)
        .spread("hostname", 2, selector=both)
    )
    web.placed({"a-0": 2, "a-1": 2, "a-2": 1, "b-1": 2, "c-0": 1, "c-1": 1})
    canary = deployment("canary").label_map(both).placed({"b-0": 2})
    listed = objects(*nodes, node("b-0").zone("b").cpu(8).taint(LEAVES), web, canary)
    assert lands_whichever_have_gone(listed, {"b-0"})


def lands_whichever_have_gone(listed: list[Json], names: set[str]) -> int:
    """How many moves there are, each of which holds for every choice of the pods on these nodes."""
    state, made = State.of(listed), plan(decoded(listed))
    on_them = (p for p in state.holding() if p["spec"].get("nodeName") in names)
    # A drain leaves those of DaemonSets.
    leaving = [p for p in on_them if (controller_of(p) or {}).get("kind") != "DaemonSet"][:_MANY]
    first = [m for m in made.waves[0] if m.certain] if made.waves else []
    for move in first:
        new = replacement(state, state.pods[move.pod.key])
        there = [p for p in leaving if p["metadata"]["name"] != move.pod.name]
        for gone in chain.from_iterable(combinations(there, n) for n in range(len(there) + 1)):
            keys = {key_of(p) for p in gone}
            found = feasible(state.without({move.pod.key, *keys}), new)
            assert found, (move.pod.key, keys)
            assert set(found) <= set(move.destinations), (move.pod.key, keys)
    return len(first)
