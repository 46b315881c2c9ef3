"""Pods that others have to be near, by required affinity."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import PlanOptions, plan
from tests.support.build import deployment, node, nodes, objects, snapshot

HOST = "hostname"


def web(name: str = "web", **on: int) -> Any:
    placed = {where.replace("_", "-"): number for where, number in on.items()}
    return deployment(name).labels(tier="x").spread("zone", selector={"app": name}).placed(placed)


def side(key: str = HOST, **on: int) -> Any:
    placed = {where.replace("_", "-"): number for where, number in on.items()}
    return deployment("side").labels(app="side").near(key, tier="x").placed(placed)


def test_the_last_pod_that_another_has_to_be_near_stays() -> None:
    things = nodes(a=2, b=1), web(a_0=1, a_1=1), side(a_0=1, a_1=1)
    found = plan(snapshot(*things))
    assert not found.moves
    assert {b.reason.code for b in found.blocked} == {ReasonCode.WOULD_WORSEN}
    assert "required affinity" in found.blocked[0].reason.message


CHOSEN: dict[str, tuple[tuple[Any, ...], set[str]]] = {
    "one whom nobody needs goes instead": ((nodes(a=2, b=1), web(a_0=1, a_1=1), side(a_1=1)), {"a-0"}),
    "two are near, and one is enough": ((nodes(a=1, b=1), web(a_0=2), side(a_0=1)), {"a-0"}),
    "whoever had to be near is on another node": (
        (nodes(a=2, b=1), web(a_1=2), side(a_0=1)),
        {"a-1"},
    ),
    "it stays in the same region": (
        (
            [node(f"{zone}-0").zone(zone).label("region", "r") for zone in "ab"],
            web(a_0=2),
            side("region", a_0=1),
        ),
        {"a-0"},
    ),
    "they have to be near their own kind": (
        (nodes(a=1, b=1), web(a_0=3, b_0=1).near(HOST, tier="x")),
        {"a-0"},
    ),
}


@pytest.mark.parametrize(("things", "leaves"), CHOSEN.values(), ids=CHOSEN)
def test_others_go(things: tuple[Any, ...], leaves: set[str]) -> None:
    assert {m.pod.node_name for m in plan(snapshot(*things)).moves} == leaves


def preferred(things: list[Any], on: str) -> list[Any]:
    for o in things:
        if o["kind"] == "Pod" and o["spec"].get("nodeName") == on:
            o["metadata"]["annotations"] = {"rebalancer.io/evict": "prefer"}
    return things


@pytest.mark.parametrize("soft", ["ignore", "predicted"])
def test_moves_of_a_plan_do_not_take_the_last_ones_together(soft: Any) -> None:
    workloads = web("web", a_0=1, a_1=1), web("db", a_0=1, a_1=1)
    things = preferred(objects(nodes(a=2, b=1), *workloads, side(a_0=1)), "a-0")
    found = plan(snapshot(things), PlanOptions(soft=soft))
    left = sorted(m.pod.node_name for m in found.moves)
    assert left in (["a-0"], ["a-0", "a-1"])
