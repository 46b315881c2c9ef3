"""Pending pods: whose place is settled, and whom a move would let in."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner import plan
from rebalancer.policy.owners import ARRIVAL
from tests.support.build import ago, claim, node, nodes, objects, pod, snapshot, volume, workload
from tests.support.scheduler.plain import Json
from tests.unit.planner.posed import Posed

web = workload("web").spread("zone").placed({"a-0": 3, "b-0": 1})
ZONES = [node("a-0").zone("a").label("slot", "x"), node("b-0").zone("b")]


def placed(posed: Posed) -> list[object]:
    return [key for key in posed.simulation.state.pods if isinstance(key, tuple) and key[0] == "placed"]


def tried(waits: Any, unschedulable: bool) -> list[Json]:
    """As it is before the scheduler has found no node for it, or after that."""
    found = objects(waits)
    for one in found:
        if not unschedulable:
            one["status"].pop("conditions", None)
    return found


@pytest.mark.parametrize("unschedulable", [False, True])
def test_a_pod_with_one_node_to_go_to_is_there_already(unschedulable: bool) -> None:
    """One for which the scheduler found no node is on its way, too: it may come late."""
    posed = Posed(ZONES, web, tried(pod("late").selects(slot="x"), unschedulable))
    assert len(placed(posed)) == 1
    assert bool(posed.judge.waiting.templates) is unschedulable


def test_one_with_several_nodes_waits() -> None:
    posed = Posed(ZONES, web, pod("late"))
    assert not placed(posed)
    assert len(posed.judge.waiting.templates) == 1


def test_one_that_no_node_would_take_is_in_nobodys_way() -> None:
    posed = Posed(ZONES, web, pod("late").selects(slot="nowhere"))
    assert not placed(posed)
    assert not posed.judge.waiting.templates


def test_one_of_lower_priority_than_a_replacement_is_not_settled() -> None:
    posed = Posed(
        ZONES,
        workload("web").priority(10).spread("zone").placed({"a-0": 3, "b-0": 1}),
        pod("late").selects(slot="x"),
    )
    assert not placed(posed)
    assert posed.judge.waiting.any_placeable()


def test_the_last_room_of_the_replacement_may_be_taken_by_one_that_waits() -> None:
    full = [node("a-0").zone("a").pods(3), node("b-0").zone("b").pods(2), node("c-0").zone("b").pods(0)]
    held = Posed(full, web, pod("one"), pod("two"))
    candidate = held.on("a-0")
    replacement, _ = held.judge.landing(candidate)
    assert held.judge.waiting.interferes(candidate.pod, replacement)
    free = Posed(nodes(a=1, b=2), web, pod("one"), pod("two"))
    candidate = free.on("a-0")
    replacement, _ = free.judge.landing(candidate)
    assert not free.judge.waiting.interferes(candidate.pod, replacement)


@pytest.mark.parametrize(("waiting", "moves"), [(3, 1), (4, 0)])
def test_pods_that_wait_block_only_what_all_of_them_can_fill(waiting: int, moves: int) -> None:
    """Three of them have no room beside the replacement on either node of zone b, and cannot fill both."""
    machines = [node("a-0").zone("a").cpu("1500m"), *(node(n).zone("b").cpu(2) for n in ("b-0", "b-1"))]
    web = workload("web").requests(cpu="500m").spread("zone").placed({"a-0": 3})
    late = workload("batch").requests(cpu=1).placed({"": waiting})
    assert len(plan(snapshot(*machines, web, late)).moves) == moves


DRAINED = [node("a-0").zone("a").cpu(2), node("c-0").zone("c").cpu(1), node("d-0").zone("c").cordoned()]
ENDS: dict[str, tuple[str, int, Json, int]] = {
    "a StatefulSet's": ("StatefulSet", 1, {}, 0),
    "a ReplicaSet's, with none in its place yet": ("ReplicaSet", 1, {}, 0),
    "of a set that is scaled down": ("StatefulSet", 0, {}, 1),
    "of a set that is being deleted": ("StatefulSet", 1, {"deletionTimestamp": "2026-05-31T23:59:59Z"}, 1),
}


@pytest.mark.parametrize(("kind", "wanted", "marks", "moves"), ENDS.values(), ids=ENDS)
def test_the_last_room_is_left_to_a_pod_that_ends_and_is_made_again(
    kind: str, wanted: int, marks: Json, moves: int
) -> None:
    web = workload("web", "StatefulSet").requests(cpu=1).spread("zone", 1).placed({"a-0": 2})
    owner, ends = objects(workload("u", kind).replicas(wanted).requests(cpu=1).placed({"d-0": 1}))
    ends["metadata"]["deletionTimestamp"] = "2026-05-31T23:59:59Z"
    owner["metadata"].update(marks)
    made = plan(snapshot(*DRAINED, web, owner, ends))
    assert len(made.moves) == moves
    said = {r.message for c in made.constraints for r in c.reasons}
    assert moves or any("ends and is made again, and may take what the" in m for m in said), said
    assert len(plan(snapshot(*DRAINED, web)).moves) == 1


CLAIMS: dict[str, tuple[list[Any], float, bool]] = {
    "one that is not there yet": ([], 0.0, True),
    "one that is not there, for ten minutes": ([], ARRIVAL + 1, False),
    "one that waits for its volume": ([claim("data", "")], 0.0, True),
    "one whose volume is in a zone where there is no room": (
        [claim("data", "v"), volume("v", "data", zone="a")],
        0.0,
        False,
    ),
}


@pytest.mark.parametrize(("storage", "age", "stays"), CLAIMS.values(), ids=CLAIMS)
def test_the_last_room_is_left_to_a_pod_that_waits_for_a_claim(
    storage: list[Any], age: float, stays: bool
) -> None:
    web = workload("web", "StatefulSet").requests(cpu=1).spread("zone", 1).placed({"a-0": 2})
    (late,) = objects(pod("late").requests(cpu=1).mounts("data"))
    late["metadata"]["creationTimestamp"] = ago(age)
    assert len(plan(snapshot(*DRAINED, web, late, *storage)).moves) == (0 if stays else 1)


TIGHT = [node("a-0").zone("a").cpu("200m"), node("b-0").zone("b").cpu("200m")]
"""Room for one more pod in zone a; zone b is full."""
FIRST: dict[str, tuple[list[Any], int]] = {
    "one that is placed raises the minimum for another of its own": (
        [workload("w").requests(cpu="100m").spread("zone", 1).placed({"a-0": 1, "": 2})],
        0,
    ),
    "or brings one that wants to be near it": (
        [
            workload("w").requests(cpu="100m").placed({"a-0": 1}),
            workload("x").requests(cpu="100m").near("region", app="w2").placed({"": 1}),
            workload("w2").requests(cpu="100m").selects(zone="b").placed({"": 1}),
        ],
        0,
    ),
    "alone it opens nothing": (
        [workload("w").requests(cpu="100m").spread("zone", 1).placed({"a-0": 1, "": 1})],
        1,
    ),
}


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet"])
@pytest.mark.parametrize(("waiting", "moves"), FIRST.values(), ids=FIRST)
def test_pods_that_wait_open_nodes_to_one_another(waiting: list[Any], moves: int, kind: str) -> None:
    """The first of them takes the room that the victim leaves, and lets the next one into the last room."""
    web = workload("web", kind).requests(cpu="100m").spread("zone", 1).placed({"b-0": 2})
    tight = [n.label("region", "r") for n in TIGHT]
    assert len(plan(snapshot(*tight, web, *waiting)).moves) == moves


def test_a_pod_that_waits_for_one_replacement_is_kept_from_the_room_of_the_next() -> None:
    """The first goes to either node of zone a; on a-0 it lets `x` into the room of both that is left."""
    full = [node("a-0").zone("a").cpu("100m"), node("a-1").zone("a").cpu("200m"), node("b-0").zone("b")]
    web = workload("web").requests(cpu="100m").spread("zone", 1).placed({"b-0": 4})
    late = workload("x").requests(cpu="200m").near("zone", app="web").placed({"": 1})
    made = plan(snapshot(*full[:2], full[2].cpu("400m"), web, late))
    assert not made.moves[-1].certain
    assert [m.certain for m in plan(snapshot(*full, web)).moves] == [True, True]


@pytest.mark.parametrize(("key", "moves"), [("zone", 0), ("hostname", 1)])
def test_pods_that_wait_keep_a_replacement_off_their_whole_domain(key: str, moves: int) -> None:
    """Each of `x` has two nodes to go to, and there is a third, but with one of them in zone a."""
    sizes = {"a-0": "200m", "a-1": "200m", "a-2": "100m", "b-0": "300m"}
    machines = [node(n).zone(n[0]).cpu(cpu) for n, cpu in sizes.items()]
    web = workload("web").requests(cpu="100m").spread("zone", 2).away_from(key, app="x").placed({"b-0": 3})
    late = tried(workload("x").requests(cpu="200m").placed({"": 2}), unschedulable=False)
    assert len(plan(snapshot(*machines, web, late)).moves) == moves


@pytest.mark.parametrize(("waits", "moves"), [(0, 1), (1, 0)])
def test_a_pod_that_waits_may_open_a_zone_to_a_replacement_that_has_to_be_near_it(
    waits: int, moves: int
) -> None:
    """It may go to zone b, where the move is not planned to go."""
    machines = [node(n).zone(n[0]).cpu(8) for n in ("a-0", "b-0", "c-0")]
    api = workload("api").placed({"a-0": 1, "c-0": 1, **({"": 1} if waits else {})})
    web = workload("web").spread("zone", 1).near("zone", app="api").placed({"a-0": 3})
    assert len(plan(snapshot(*machines, web, tried(api, unschedulable=False))).moves) == moves


NARROW = [node("a-0").zone("a"), node("b-0").zone("b"), node("c-0").zone("c").cpu(1)]
"""c-0 is the only node of its zone, for one of two."""


def wide(cpu: str) -> Any:
    return workload("web").requests(cpu=cpu).spread("zone").placed({"a-0": 3, "b-0": 1})


def batch(cpu: str, priority: int = 0, nominated: bool = False) -> Json:
    (waits,) = objects(pod("batch").priority(priority).requests(cpu=cpu).selects(hostname="c-0"))
    if nominated:
        waits["status"]["nominatedNodeName"] = "c-0"
    return waits


@pytest.mark.parametrize("nominated", [False, True])
def test_a_pod_that_waits_is_not_in_its_own_way(nominated: bool) -> None:
    """What it is nominated for is free to it: it takes c-0, and no other node is open to a replacement."""
    assert plan(snapshot(*NARROW, wide("600m"))).moves
    assert not plan(snapshot(*NARROW, wide("600m"), batch("600m", -10, nominated))).moves


@pytest.mark.parametrize("priority", [10, 0, -10])
def test_room_is_left_to_one_that_waits_for_anothers_end(priority: int) -> None:
    old = pod("old").on("c-0").requests(cpu="200m")
    late = batch("900m", priority)
    assert not plan(snapshot(*NARROW, wide("300m"), old.terminating(), late)).moves
    assert plan(snapshot(*NARROW, wide("300m"), pod("old").on("c-0").requests(cpu="200m"), late)).moves


@pytest.mark.parametrize("nominated", [False, True])
def test_nor_does_a_replacement_of_higher_priority_take_it(nominated: bool) -> None:
    """The pod has preempted `old` for it; c-1 has room for the replacement alone."""
    machines, web = [*NARROW, node("c-1").zone("c").cpu("300m")], wide("300m").priority(1000)
    old, late = pod("old").on("c-0").requests(cpu="200m"), batch("900m", 10, nominated)
    assert not plan(snapshot(*machines, web, old.terminating(), late)).moves
    assert plan(snapshot(*machines, web, old.terminating())).moves


def test_one_that_is_nominated_keeps_its_node_beside_a_replacement_that_it_keeps_away_from() -> None:
    (late,) = objects(batch("600m", 10, nominated=True))
    away = pod("x").away_from("hostname", app="web").build()[0]
    late["spec"]["affinity"] = away["spec"]["affinity"]
    old = pod("old").on("c-0").requests(cpu="600m").terminating()
    made = plan(snapshot(*NARROW, node("c-1").zone("c"), wide("500m"), old, late))
    assert [m.destinations for m in made.moves] == [("c-1",)]


@pytest.mark.parametrize("unschedulable", [False, True])
def test_one_that_found_no_node_may_be_placed_later_than_a_replacement(unschedulable: bool) -> None:
    """It is in backoff: if the replacement takes c-0 first, its eviction was for nothing."""
    late = tried(pod("late").labels(app="web").selects(hostname="c-0"), unschedulable)
    spread = workload("web").spread("zone").placed({"a-0": 3, "b-0": 1, "c-0": 1})
    assert bool(plan(snapshot(*NARROW, spread, late)).moves) is not unschedulable


@pytest.mark.parametrize(("cpu", "nodes"), [("800m", set()), ("700m", {"c-0", "c-1"})])
def test_until_it_is_placed_a_replacement_may_go_where_it_will_be(cpu: str, nodes: set[str]) -> None:
    """`late` may be placed on c-0 after it: where there is no room for both, it would wait on."""
    web = workload("web").requests(cpu="300m").spread("zone").placed({"a-0": 3, "b-0": 1, "c-0": 0})
    machines = [*NARROW, node("c-1").zone("c")]
    made = plan(snapshot(*machines, web, batch(cpu)))
    assert {d for m in made.moves for d in m.destinations} == nodes


@pytest.mark.parametrize(("number", "moves"), [(3, 1), (6, 0)])
def test_a_replacement_brings_no_pods_that_raise_the_excess(number: int, moves: int) -> None:
    """They wait for one of `app` near them, and are counted with it: c would get 1 + 6, against 2 and 2."""
    web = workload("web").spread("zone").placed({"a-0": 3, "b-0": 2})
    near = [pod(f"p-{i}").labels(app="web").selects(zone="c").near("zone", app="web") for i in range(number)]
    assert len(plan(snapshot(*nodes(a=1, b=1, c=1), web, *near)).moves) == moves
