"""What begins after the plan, and has pods made, keeps the room for them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.build import daemon_set, deployment, node, objects, pod, snapshot, stateful_set
from tests.support.scheduler.plain import Json
from tests.unit.planner.cluster.test_bystanders import (
    BY_THE_NEXT,
    LEAVES,
    drained_beside_two,
    grows,
    rollout,
    surges,
)
from tests.unit.planner.cluster.test_made_before_long import BESIDE, half_done, released
from tests.unit.policy.test_vertical_autoscalers import vpa
from tests.unit.runtime.last_look.test_room import World, away

A, B = node("a-0").zone("a").cpu(2), node("b-1").zone("b").cpu("3200m")
"""b-1 has room for one of 3 cpu, or for web's."""
NEEDS = "could take the place that "


def web(pods: int) -> Any:
    return deployment("web").spread("zone").requests(cpu="500m").placed({"a-0": pods})


def full() -> Any:
    return node("b-0").zone("b").cpu("3200m")


def other(cpu: int = 3) -> Any:
    return deployment("other").requests(cpu=cpu).placed({"b-0": 1})


def database() -> Any:
    return stateful_set("db").requests(cpu=3).selects(**{"topology.kubernetes.io/zone": "b"})


def world(*more: Any) -> World:
    return World(snapshot(A, full(), B, web(2), *more))


def why_not(w: World) -> str:
    reason = w.look.why_not(w.plan.moves[-1], away(w.flying))
    return reason.message if reason is not None else ""


def ends(w: World, name: str) -> None:
    """Somebody deletes a pod."""
    w.change(next(p for p in w.pods.values() if p.name.startswith(name)), deleted=w.cluster.now)


def begins(w: World, made: Any) -> None:
    """These owners have been changed, and their controllers have yet to see it."""
    there, changed = snapshot(made).workloads, []
    for owner in there:
        metadata = msgspec.structs.replace(owner.metadata, generation=2)
        changed.append(msgspec.structs.replace(owner, metadata=metadata))
    keys = {owner.key for owner in there}
    kept = (owner for owner in w.cluster.workloads if owner.key not in keys)
    w.cluster = msgspec.structs.replace(w.cluster, workloads=(*kept, *changed))


def test_a_drain_keeps_room_once_it_has_begun() -> None:
    w = world(other(), deployment("one").placed({"b-0": 1}))
    w.nodes(A, full().cordoned(), B)
    assert not why_not(w), "a cordon alone is no drain"
    ends(w, "one")
    assert f"{NEEDS}default/other-" in why_not(w)


def test_so_does_a_node_that_has_come_to_go() -> None:
    w = world(other())
    assert not why_not(w)
    w.nodes(A, full().taint(LEAVES), B)
    assert f"{NEEDS}default/other-" in why_not(w)


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("other", BY_THE_NEXT.values(), ids=BY_THE_NEXT)
def test_a_pod_that_has_come_to_go_keeps_as_much_as_its_next_one_needs(other: Any, ended: bool) -> None:
    for cpu, goes in ((2700, True), (2800, False)):
        found = other(cpu)
        w = world(*found)
        assert not why_not(w)
        w.nodes(A, full().taint(LEAVES), B, *(o for o in found if o["kind"] == "Node"))
        for p in [p for p in w.pods.values() if ended and p.node_name == "b-0"]:
            w.change(p, deleted=w.cluster.now)
        assert (not why_not(w)) is goes, cpu


def test_where_a_rollouts_next_pod_could_go_back_to_no_more_it_keeps_room() -> None:
    """It takes more than the old one, and finds room beside b-1 on a-1 alone, once the old one is gone."""
    rolls = rollout(0, 1, whole=deployment("other").requests(cpu=1).placed({"a-1": 1}))
    for made in (rolls[0], rolls[-1]):
        made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    machines = node("a-1").zone("a").cpu("3200m"), node("a-2").zone("a").cpu(1)
    small = deployment("small").requests(cpu="400m").placed({"a-2": 1})
    w = World(snapshot(A, *machines, B, web(2), rolls, small))
    assert not why_not(w)
    w.change(next(p for p in w.pods.values() if p.name.startswith("small")), node_name="a-1")
    assert f"{NEEDS}default/other-" in why_not(w)


@pytest.mark.parametrize("of", [list, released], ids=["Deployment", "Argo Rollout"])
def test_a_release_that_has_come_to_make_more_pods_keeps_room_for_them(of: Any) -> None:
    w = World(snapshot(BESIDE, of(half_done(1)), web(2)))
    assert not why_not(w)
    begins(w, of(half_done(2)))
    said = why_not(w)
    assert NEEDS in said
    assert "default/other" in said


def test_an_autoscaler_that_has_come_to_recommend_more_for_a_drained_pod_is_heard() -> None:
    machines = full().taint(LEAVES), node("a-1").zone("a").cpu("3200m"), node("b-1").zone("b").cpu("3600m")
    w = World(snapshot(A, *machines, other(2), web(2), vpa(name="other", cpu="3")))
    assert not why_not(w)
    w.sized(vpa(name="other", cpu="3400m"))
    assert f"{NEEDS}default/other-" in why_not(w)


def test_a_pod_that_its_controller_is_yet_to_make_again_keeps_room() -> None:
    w = world(other())
    assert not why_not(w)
    ends(w, "other")
    assert "ends and is made again, and may take" in why_not(w)


def test_a_pod_of_a_set_that_is_made_again_keeps_room() -> None:
    w = world(database().placed({"b-0": 1}))
    assert not why_not(w)
    ends(w, "db")
    assert "default/db-0 ends and is made again, and may take" in why_not(w)


def test_a_daemon_that_comes_to_end_leaves_its_room_to_the_next_one_alone() -> None:
    agent = daemon_set("agent").requests(cpu="200m").placed(dict.fromkeys(("a-0", "b-0", "b-1"), 1))
    roomy = node("b-1").zone("b").cpu("3400m")
    w = World(snapshot(A, full(), roomy, web(2), other(), agent))
    assert not why_not(w)
    w.nodes(A, full().taint(LEAVES), roomy)
    assert NEEDS in why_not(w)
    w.change(next(p for p in w.pods.values() if p.node_name == "b-1"), deleted=w.cluster.now)
    assert NEEDS in why_not(w)


def test_where_a_pod_comes_to_end_a_replacement_may_land_once_it_is_gone() -> None:
    w = world(pod("old").on("b-0").requests(cpu=3))
    [move] = w.plan.moves
    for where in (("b-1",), ("b-0", "b-1")):
        assert not why_not(w)
        assert w.look.destinations(move) == where
        ends(w, "old")


LITTLE = deployment("little").requests(cpu=2).placed({"b-1": 1})
BEGUN: dict[str, tuple[Any, Any]] = {
    "a rollout that surges": (other(), rollout(1)),
    "a rollout to larger pods": ([other(2), LITTLE], grows(3, other(2), surges(0), updatedReplicas=0)),
    "a set that grows in order": (
        database().placed({"b-0": 1}),
        database().replicas(2).placed({"b-0": 1}),
    ),
}


@pytest.mark.parametrize(("was", "by_now"), BEGUN.values(), ids=BEGUN)
def test_what_was_changed_since_the_plan_keeps_room_for_its_next_pods(was: Any, by_now: Any) -> None:
    w = world(was)
    begins(w, was)
    assert not why_not(w), "it is as it was"
    begins(w, by_now)
    assert NEEDS in why_not(w)


@pytest.mark.parametrize(("by", "told"), [("the plan", False), ("others", True)])
def test_an_eviction_of_the_plan_is_no_drain(by: str, told: bool) -> None:
    machines = node("a-0").zone("a").cpu(6).cordoned(), node("b-0").zone("b").cpu("1500m"), B
    there = deployment("other").requests(cpu=3).placed({"a-0": 1}), deployment("one").placed({"a-0": 1})
    w = World(snapshot(*machines, web(4), *there))
    first, _ = w.plan.moves
    if by == "the plan":
        w.evict(first)
    else:
        ends(w, "one")
    assert bool(why_not(w)) is told


SSD = node("b-0").zone("b").cpu(2).label("disk", "ssd"), node("c-0").zone("b").cpu(2).label("disk", "ssd")


def both_in_the_plan() -> World:
    """b-0 has room for a pod of each."""
    a, f = node("a-0").zone("a").cpu(64), node("f-0").zone("f").cpu(64).label("disk", "ssd")
    api = deployment("api").spread("zone").requests(cpu=1).selects(disk="ssd").placed({"c-0": 2, "f-0": 4})
    one = deployment("web").spread("zone").requests(cpu=1).selects(pool="x").placed({"a-0": 3})
    w = World(snapshot(a.label("pool", "x"), SSD[0].label("pool", "x"), SSD[1], f, one, api))
    assert sorted(m.pod.name[:3] for m in w.plan.moves) == ["api", "web"]
    return w


@pytest.mark.parametrize("made", ["not yet", "and waits"])
def test_of_an_owner_in_the_plan_others_pods_keep_room_too(made: str) -> None:
    w = both_in_the_plan()
    api, moved = sorted(w.plan.moves, key=lambda m: m.pod.name)
    assert w.look.why_not(moved) is None
    for p in [p for p in w.pods.values() if p.node_name == "c-0"]:
        w.change(p, deleted=w.cluster.now)
        if made == "and waits":
            w.add(p, f"{p.name}-again", node_name="", template=api.replacement, phase="Pending")
    assert w.look.why_not(moved) is not None


def test_its_own_move_keeps_no_room_beside_what_the_plan_has_seen_to() -> None:
    w = both_in_the_plan()
    api, moved = sorted(w.plan.moves, key=lambda m: m.pod.name)
    w.evict(api)
    assert w.beside(moved, w.flying), "it is yet to be made"
    w.add(api.pod, "api-again", node_name="", template=api.replacement, phase="Pending")
    assert w.beside(moved, w.flying), "it waits"
    w.change(next(p for p in w.pods.values() if p.node_name == "c-0"), deleted=w.cluster.now)
    assert not w.beside(moved, w.flying), "another one has to be made"


@pytest.mark.parametrize("leaves", [False, True])
def test_a_set_one_of_whose_pods_is_moved_keeps_room_for_its_last_one_too(leaves: bool) -> None:
    big = node("b-1").zone("b").cpu("6200m").label("pool", "db").label("w", "x")
    machines = [node("a-0").zone("a").cpu(11).label("pool", "db").label("w", "x"), big]
    last = node("z-0").zone("b").cpu(3).label("pool", "db")
    db = stateful_set("db").requests(cpu=3).spread("zone").selects(pool="db").on_nodes([*["a-0"] * 3, "z-0"])
    one = deployment("web").requests(cpu="500m").spread("zone").selects(w="x").placed({"a-0": 2})
    w = World(snapshot(*machines, last, db, one))
    moved, ours = sorted(w.plan.moves, key=lambda m: m.pod.name)
    w.evict(moved)
    w.nodes(*machines, last.taint(LEAVES) if leaves else last)
    assert w.beside(ours, w.flying) is not leaves


@pytest.mark.parametrize("drained", [False, True])
def test_a_replacement_that_came_while_the_look_was_asked_again_keeps_no_room_for_others(
    drained: bool,
) -> None:
    w = both_in_the_plan()
    api, moved = sorted(w.plan.moves, key=lambda m: m.pod.name)
    w.evict(api)
    asked = away(w.flying)
    w.land(api)
    assert w.look.why_not(moved, asked) is None, "b-0 has room for one more"
    if drained:
        w.change(next(p for p in w.pods.values() if p.node_name == "c-0"), deleted=w.cluster.now)
    assert (w.look.why_not(moved, asked) is not None) is drained


def ending(cpu: str, at: str) -> Any:
    return pod("old").on(at).requests(cpu=cpu).terminating()


def nominated(node: str) -> Json:
    (found,) = objects(pod("late").priority(-1).requests(cpu=3))
    found["status"]["nominatedNodeName"] = node
    return found


KNOWN: dict[str, list[Any]] = {
    "a drained pod": [full().taint(LEAVES), other()],
    "one that ends and is made again": [full().taint(LEAVES), ending("3", "b-0").owned_by("Job", "old")],
    "one that waits for another's end": [full(), other(), ending("2500m", "b-1"), nominated("b-1")],
    "the next one of a rollout": [full(), rollout(1)],
}


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_what_the_plan_knew_keeps_its_room_when_others_come_to_the_node(known: list[Any]) -> None:
    roomy = node("b-1").zone("b").cpu("3800m")
    w = World(snapshot(A, roomy, deployment("small").requests(cpu="400m").placed({"a-0": 1}), *known, web(2)))
    assert not why_not(w), "there is room for both"
    small = next(p for p in w.pods.values() if p.name.startswith("small"))
    w.change(small, node_name="b-1")
    assert why_not(w)


def spare(cpu: str = "3200m") -> Any:
    """Another node that what needs room could use, and the replacement could not."""
    return node("a-1").zone("a").cpu(cpu)


def ssd(built: Any) -> Any:
    return built.label("disk", "ssd")


@pytest.mark.parametrize("known", ["a drained pod", "the next one of a rollout"])
def test_so_it_does_when_they_come_to_another_node_that_it_could_use(known: str) -> None:
    small = deployment("small").requests(cpu="400m").placed({"a-0": 1})
    w = World(snapshot(A, spare(), B, small, *KNOWN[known], web(2)))
    assert not why_not(w)
    w.change(next(p for p in w.pods.values() if p.name.startswith("small")), node_name="a-1")
    assert NEEDS in why_not(w)


CHANGED: dict[str, list[Any]] = {
    "has lost the label": [spare()],
    "has got a taint": [ssd(spare()).taint("kept")],
    "has become smaller": [ssd(spare("2"))],
    "is gone": [],
}


@pytest.mark.parametrize("by_now", CHANGED.values(), ids=CHANGED)
def test_so_it_does_when_that_node_is_no_place_for_it_any_more(by_now: list[Any]) -> None:
    """Nobody else asks for the label, or for so much."""
    drained = deployment("other").requests(cpu=3).selects(disk="ssd").placed({"b-0": 1})
    there = A, ssd(node("b-1").zone("b").cpu("3200m")), full().taint(LEAVES)
    w = World(snapshot(*there, ssd(spare()), drained, web(2)))
    w.nodes(*there, *by_now)
    assert NEEDS in why_not(w)


def test_before_a_sets_next_pod_nothing_goes_that_with_a_drained_pod_takes_its_room() -> None:
    w = World(snapshot(drained_beside_two("700m")))
    first, second = w.plan.moves
    assert (first.owner.kind, first.wave, second.wave) == ("StatefulSet", 1, 2)
    w.evict(first)
    assert not w.beside(second, w.flying)
    w.land(first)
    assert w.beside(second, w.flying)
    assert not why_not(w)
