"""Pods of a drained node of which each surely finds another, and with a move one perhaps none: in whatever
order they come, and wherever they go."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rebalancer.planner import plan
from rebalancer.planner.cluster import enough_room
from tests.support.build import deployment, node, snapshot
from tests.support.build.owners import OwnerBuilder

LEAVES = "ToBeDeletedByClusterAutoscaler"
GOING = "a-9"
"""The node that is drained."""

Owners = dict[str, tuple[OwnerBuilder, int, dict[str, int]]]
"""By name: how it is, its CPU in thousandths, and how many pods it has on which node."""


def app(name: str) -> OwnerBuilder:
    return deployment(name).selects(pool="y")


def web(honors: str = "Honor") -> OwnerBuilder:
    return app("web").spread("zone", 1, taints_policy=honors)


def cluster(free: dict[str, int], owners: Owners, *more: Any) -> Any:
    """Nodes of pool y, in the zone that their name begins with, on which so much CPU is free."""
    used = Counter[str]()
    for _, cpu, placed in owners.values():
        used.update({at: cpu * n for at, n in placed.items()})
    nodes = [node(n).zone(n[0]).cpu(f"{room + used[n]}m").label("pool", "y") for n, room in free.items()]
    going = node(GOING).zone("a").cpu(8).label("pool", "y").taint(LEAVES)
    pods = [o.requests(cpu=f"{cpu}m").placed(placed) for o, cpu, placed in owners.values()]
    return snapshot(*nodes, going, *pods, *more)


def others(zone: str, number: int) -> list[Any]:
    return [node(f"{zone}-other-{i}").zone(zone).cpu(4) for i in range(number)]


def scenes() -> dict[str, tuple[dict[str, int], Owners, list[Any], str]]:
    """What is free, who is there, other nodes, and who must not come first."""
    return {
        "its sibling keeps one off the node of another": (
            {"a-0": 800, "b-0": 400, "c-0": 500},
            {
                "web": (web("Ignore"), 500, {"b-0": 2, "c-0": 1}),
                "big": (app("big"), 800, {GOING: 1}),
                "api": (app("api").away_from("hostname", app="api"), 200, {GOING: 1, "a-0": 1}),
            },
            [],
            "api",
        ),
        "one that finds a node in any case takes the room that the moved pod leaves": (
            {"b-0": 300, "c-0": 500, "a-0": 600},
            {
                "web": (web("Ignore"), 500, {"a-0": 2, "b-0": 1}),
                "xx": (app("xx"), 600, {GOING: 1}),
                "yy": (deployment("yy"), 1000, {GOING: 1}),
            },
            others("c", 18),
            "yy",
        ),
        "the move shuts a zone with several nodes to a sibling of the moved pod": (
            {"a-0": 1300, "b-0": 200, "b-1": 100, "c-0": 200, "c-1": 1000},
            {
                "web": (web(), 100, {"a-0": 3, "b-0": 1, "c-1": 1, GOING: 1}),
                "two": (app("two"), 200, {"b-1": 1, GOING: 1}),
                "one": (app("one"), 100, {"c-0": 1, GOING: 1}),
            },
            [],
            "two",
        ),
        "one has a port of its node": (
            {"a-0": 0, "a-1": 600, "b-0": 600, "c-0": 1300, "c-1": 0, "c-2": 1300},
            {
                "web": (web("Ignore"), 100, {"a-1": 1, "b-0": 2}),
                "port": (app("port").host_port(8080), 1000, {"c-1": 1, "c-2": 1, GOING: 1}),
                "api": (app("api"), 300, {"c-0": 1, GOING: 1}),
            },
            [],
            "api",
        ),
        "one shuts its zone to another": (
            {"a-0": 500, "a-1": 600, "b-0": 1000, "c-0": 500},
            {
                "web": (web("Ignore"), 500, {"b-0": 2}),
                "one": (deployment("one").away_from("hostname", app="web"), 100, {GOING: 1}),
                "far": (
                    app("far").away_from("zone", app="one").away_from("hostname", app="web"),
                    200,
                    {GOING: 1},
                ),
            },
            others("c", 4),
            "one",
        ),
        "one shuts its node to another": (
            {"a-0": 200, "a-1": 800, "b-0": 600, "b-1": 400},
            {
                "web": (web(), 100, {"a-1": 3}),
                "far": (app("far").away_from("hostname", app="one"), 600, {GOING: 1}),
                "one": (app("one").spread("hostname", 1), 300, {"a-0": 1, GOING: 1}),
            },
            [],
            "one",
        ),
        "the moved pod leaves room for two where one had room": (
            {"a-0": 1600, "b-0": 800, "b-1": 1600, "c-0": 1000},
            {
                "web": (web(), 200, {"a-0": 1, "b-1": 1, "c-0": 3}),
                "small": (app("small"), 300, {"b-1": 1, GOING: 1}),
                "each": (
                    app("each").away_from("hostname", app="each"),
                    200,
                    {"a-0": 1, "b-0": 1, "b-1": 1, GOING: 1},
                ),
                "large": (
                    app("large").away_from("hostname", app="large"),
                    800,
                    {"a-0": 1, "b-0": 1, GOING: 1},
                ),
            },
            [],
            "small",
        ),
        "the move opens a zone to a sibling of the moved pod": (
            {"a-0": 400, "a-1": 400, "a-2": 300, "b-0": 300, "b-1": 300, "c-0": 600, "c-1": 400},
            {
                "web": (web(), 300, {"b-0": 2, "b-1": 1, "c-0": 1, GOING: 1}),
                "small": (app("small"), 200, {GOING: 1}),
                "each": (
                    app("each").away_from("hostname", app="each"),
                    400,
                    {"a-1": 1, "b-0": 1, "c-1": 1, GOING: 1},
                ),
            },
            others("c", 4),
            "web",
        ),
        "the first of two siblings opens all zones to the second": (
            {"a-0": 0, "a-1": 1300, "b-0": 1300, "b-1": 800, "c-0": 0, "c-1": 1100},
            {
                "web": (web("Ignore"), 200, {"a-0": 3, "b-0": 1, "b-1": 1, "c-0": 1}),
                "two": (
                    app("two").spread("zone", 1, taints_policy="Honor"),
                    800,
                    {GOING: 2, "a-0": 1, "c-0": 1},
                ),
                "big": (app("big"), 1000, {GOING: 1}),
            },
            [],
            "two",
        ),
        "the move draws one to another zone": (
            {"a-0": 0, "a-1": 1300, "b-0": 600, "b-1": 1600},
            {
                "web": (web(), 200, {"b-0": 2, "b-1": 1}),
                "near": (deployment("near").near("zone", app="web"), 600, {GOING: 1}),
                "each": (deployment("each").away_from("zone", app="each"), 1000, {"b-1": 1, GOING: 1}),
            },
            [],
            "near",
        ),
    }


@pytest.mark.parametrize("scene", scenes())
def test_no_move_leaves_one_to_come_to_the_order_of_the_others(scene: str) -> None:
    """Without the pod that would come before it there is a move."""
    free, owners, more, _ = scenes()[scene]
    made = plan(cluster(free, owners, *more))
    assert not made.moves, [(m.pod.name, m.destinations) for m in made.moves]
    free, owners, more, other = scenes()[scene]
    app_, cpu, placed = owners[other]
    owners[other] = (app_, cpu, {at: n for at, n in placed.items() if at != GOING})
    assert plan(cluster(free, owners, *more)).moves


@pytest.mark.parametrize("apart", ["web", "large"])
def test_a_node_that_the_moved_pod_shuts_to_another_is_no_longer_shut_when_it_has_gone(apart: str) -> None:
    """big has a-0 and c-0. Who finds a node in any case is kept off a-0 by web's pod there alone."""
    free = {"a-0": 1000, "a-1": 0, "b-0": 0, "c-0": 1000}
    apps = {"web": web("Ignore"), "large": deployment("large")}
    apps[apart].away_from("hostname", app=({*apps} - {apart}).pop())
    owners = {
        "web": (apps["web"], 200, {"a-0": 1, "a-1": 2, "b-0": 1}),
        "big": (app("big"), 1000, {GOING: 1}),
        "large": (apps["large"], 500, {GOING: 1}),
    }
    made = plan(cluster(free, owners, *others("b", 18)))
    assert [m.pod.node_name for m in made.moves] == ["a-1"]


def test_nodes_that_so_few_can_never_fill_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is kept off the zone of another, and six more come, of six sizes: 90 nodes have room."""
    tried = []

    def counting(numbers: tuple[int, ...]) -> Any:
        tried.append(numbers)
        return asked(numbers)

    asked = enough_room._unions
    monkeypatch.setattr(enough_room, "_unions", counting)
    free = {f"{zone}-{i}": 700 + i for zone in "abc" for i in range(30)}
    owners = {
        "web": (web("Ignore"), 300, {"a-1": 1, "a-2": 1, "c-3": 1}),
        "far": (app("far").away_from("zone", app="one"), 500, {GOING: 1}),
        "one": (app("one"), 200, {GOING: 1}),
        **{f"of-{n}": (app(f"of-{n}"), 310 + 10 * n, {GOING: 1}) for n in range(6)},
    }
    assert plan(cluster(free, owners)).moves
    assert not tried
