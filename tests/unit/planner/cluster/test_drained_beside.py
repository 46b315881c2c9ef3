"""Pods that have to leave their nodes may do so before a replacement has landed, one of them or all."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from tests.support.build import deployment, node, pod, snapshot
from tests.unit.planner.cluster.test_bystanders import LEAVES
from tests.unit.runtime.last_look.test_room import World

A, B, C = (node(f"{z}-0").zone(z).cpu(8) for z in "abc")
MORE = node("a-1").zone("a").cpu(8)
FULL = node("c-1").zone("c").cpu(1)


def drained(name: str = "a-0") -> Any:
    return node(name).zone(name[0]).cpu(8).taint(LEAVES)


def web(**placed: int) -> Any:
    web = deployment("web").spread("zone").requests(cpu=1)
    return web.placed({name.replace("_", "-"): n for name, n in placed.items()})


def extra(name: str) -> Any:
    return pod("one").labels(app="web").on(name)


TABLE: dict[str, tuple[tuple[Any, ...], set[tuple[str, ...]]]] = {
    "without it no other zone may have more than one": (
        (drained(), B, C, web(a_0=1, b_0=3, c_0=1)),
        set(),
    ),
    "its zone has another node": ((drained(), MORE, B, C, web(a_0=1, b_0=3, c_0=1)), {("a-1", "c-0")}),
    "as many stay in its zone": (
        (drained(), MORE, B, C, web(a_0=1, a_1=1, b_0=3, c_0=1)),
        {("a-1", "c-0")},
    ),
    "without it the replacement could return": (
        (A, drained("b-0"), node("b-1").zone("b").cpu(8), C, web(a_0=1, b_0=2, b_1=1, c_0=1)),
        set(),
    ),
    "nobody makes it anew": ((drained(), B, C, extra("a-0"), web(b_0=3, c_0=1)), set()),
    "with those of both zones it is fine, without c's alone a may have no more": (
        (drained(), MORE, B, drained("c-0"), FULL, web(a_0=1, a_1=1, b_0=4, c_0=1, c_1=1)),
        set(),
    ),
    "of two zones, one opens its own": (
        (drained(), MORE, B, drained("c-0"), node("c-2").zone("c"), web(a_0=1, b_0=4, c_0=1, c_2=1)),
        {("a-1", "c-2")},
    ),
}


@pytest.mark.parametrize(("things", "destinations"), TABLE.values(), ids=TABLE)
def test_a_move_whose_constraint_counts_a_drained_pod(
    things: tuple[Any, ...], destinations: set[tuple[str, ...]]
) -> None:
    made = plan(snapshot(*things))
    assert {m.destinations for m in made.moves} == destinations
    if not destinations:
        assert {b.reason.code for b in made.blocked} & {ReasonCode.NODE_LEAVING, ReasonCode.WOULD_RETURN}


def test_the_reason_names_the_pod_and_its_node() -> None:
    made = plan(snapshot(drained(), B, C, web(a_0=1, b_0=3, c_0=1)))
    (said,) = {(b.reason.message, b.reason.remedy) for b in made.blocked}
    assert said[0].startswith("its replacement may find no node once default/web-")
    assert said[0].endswith(" leaves a-0, as it has to")
    assert said[1] == "let the drain end"
    made = plan(snapshot(drained(), B, C, web(a_0=2, b_0=4, c_0=2)))
    assert any("such pods as default/web-" in b.reason.message for b in made.blocked)


@pytest.mark.parametrize(("more", "moves"), [((), 0), ((extra("a-1").labels(app="db"),), 1)])
def test_a_move_near_a_drained_pod(more: tuple[Any, ...], moves: int) -> None:
    """It has to be in the zone of a db: that in a is about to go, and is made anew no one knows where."""
    near = deployment("web").spread("zone").near("zone", app="db").placed({"b-0": 3, "c-0": 1})
    db = deployment("db").placed({"a-0": 1, "b-0": 1, "c-0": 1})
    assert len(plan(snapshot(drained(), MORE, B, C, near, db, *more)).moves) == moves


@pytest.mark.parametrize("again", [False, True], ids=["begins after the plan", "and others have gone since"])
def test_a_drain_that_begins_after_the_plan(again: bool) -> None:
    """Of two in zone a one is drained: once the other has gone by itself, all rests on that."""
    w = World(snapshot(A, MORE, B, C, web(a_0=1, **({"a_1": 1} if again else {}), b_0=4, c_0=1)))
    move = w.plan.moves[0]
    assert w.look.why_not(move) is None
    w.nodes(drained(), *((MORE,) if again else (node("a-1").zone("a").cpu(8).cordoned(),)), B, C)
    found = w.look.why_not(move)
    assert (found is None) is again
    if again:
        w.nodes(drained(), node("a-1").zone("a").cpu(8).cordoned(), B, C)
        del w.pods[next(uid for uid, p in w.pods.items() if p.node_name == "a-1")]
        found = w.look.why_not(move)
    assert found is not None
    assert "leaves a-0, as it has to" in found.message
