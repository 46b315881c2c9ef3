"""Pods that owners make before long keep their room, at whatever moment the plan finds them."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.cluster.enough_room import all_filled
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.to_be_made import to_be_made
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.pods_to_come import PodsToCome
from rebalancer.policy.replacement import Replacements
from tests.support.build import (
    ago,
    deployment,
    job,
    node,
    nodes,
    objects,
    pod,
    snapshot,
    stateful_set,
    workload,
)
from tests.support.scheduler.plain import Json
from tests.unit.planner.cluster.test_bystanders import HASH, LEAVES, ZONE_B, given, gone, other, rollout, web


def late() -> list[Json]:
    """A rollout one of whose pods takes long to become Ready: it goes on as soon as it is."""
    found = rollout(1)
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    found[0]["status"]["conditions"] = [condition]
    return found


DRAINED = gone().taint(LEAVES)


def larger(found: list[Json]) -> list[Json]:
    """The rollout is to pods of 3 cpu."""
    for made in (found[0], found[-1]):
        made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    return found


@pytest.mark.parametrize(("age", "moves"), [(1800, 0), (7200, 1)])
def test_a_rollout_whose_newest_pod_is_broken_keeps_no_room_for_good(age: int, moves: int) -> None:
    both = deployment("other").requests(cpu=2).placed({"b-0": 1, "b-2": 1})
    found = larger(rollout(1, whole=both, new=["b-2"]))
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    found[0]["status"]["conditions"] = [condition]
    newest = next(o for o in found if o["spec"].get("nodeName") == "b-2")
    newest["metadata"]["creationTimestamp"] = ago(age)
    newest["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    full = [node("b-0").zone("b").cpu(2), node("b-2").zone("b").cpu(3)]
    machines = [node("a-0").zone("a").cpu(2), node("b-1").zone("b").cpu("3200m"), *full]
    assert len(plan(snapshot(machines, found, web())).moves) == moves


BESIDE = [
    node(n).zone(zone).cpu(cpu)
    for n, zone, cpu in (("a-0", "a", 2), ("b-1", "b", "3200m"), ("c-0", "a", 1), ("c-1", "a", 3))
]


def half_done(wanted: int) -> list[Json]:
    """Beside an old pod, on c-0, there is a new one of 3 cpu, on c-1."""
    both = deployment("other").requests(cpu=1).placed({"c-0": 1, "c-1": 1})
    found = larger(rollout(1, whole=both, new=["c-1"]))
    found[0]["spec"]["replicas"] = wanted
    return found


def released(found: list[Json]) -> list[Json]:
    """The rollout as Argo's Rollout has it, which is not read: its ReplicaSets say what it wants."""
    deploy, *found = found
    for one in (o for o in found if o["kind"] == "ReplicaSet"):
        one["metadata"]["ownerReferences"][0].update(
            apiVersion="argoproj.io/v1alpha1", kind="Rollout", uid="rollout"
        )
        revision = one["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
        one["metadata"]["annotations"] = {
            "rollout.argoproj.io/revision": revision,
            "rollout.argoproj.io/desired-replicas": str(deploy["spec"]["replicas"]),
        }
    return found


@pytest.mark.parametrize(
    ("wanted", "age", "unready", "moves"),
    [(2, 60, None, 0), (1, 60, None, 1), (2, 7200, 7000, 1), (2, 7200, 5, 0)],
    ids=["next", "all there", "broken", "not Ready for a moment"],
)
@pytest.mark.parametrize("of", [list, released], ids=["Deployment", "Argo Rollout"])
def test_a_release_of_larger_pods_keeps_the_room_for_its_next_one(
    of: Any, wanted: int, age: int, unready: int | None, moves: int
) -> None:
    """The next one has b-1 alone. One that has not been Ready for an hour keeps the release where it is."""
    found = half_done(wanted)
    newest = next(o for o in found if o["spec"].get("nodeName") == "c-1")
    newest["metadata"]["creationTimestamp"] = ago(age)
    ready = {"type": "Ready", "status": str(unready is None), "lastTransitionTime": ago(unready or 0)}
    newest["status"]["conditions"] = [ready]
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    found[0]["status"]["conditions"] = [condition] if age > 3600 else []
    assert len(plan(snapshot(BESIDE, of(found), web())).moves) == moves


def resized() -> list[Any]:
    """A drained pod that was given more in place than its template asks for, and than another node has."""
    found = objects(other())
    found[-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3900m"
    return [DRAINED, *found]


def with_a_sidecar_of_former_times() -> list[Any]:
    """A drained pod has a container more than the one that was made after it."""
    found = given(objects(other().placed({"b-3": 1})), b_0="900m")
    found[-1]["metadata"]["creationTimestamp"] = ago(3600)
    return [DRAINED, node("b-3").zone("b").cpu(3), *found]


def in_order(node_of_second: str, **status: Any) -> list[Json]:
    """A set that was scaled to three: its second pod is not Ready yet, and the third comes after it."""
    db = stateful_set("db").requests(cpu=3).selects(**ZONE_B).replicas(3)
    found = objects(db.placed({"b-0": 1}).placed({node_of_second: 1}).unready(1))
    found[-1]["metadata"]["creationTimestamp"] = ago(8)
    found[-1]["status"] = {"phase": "Pending", **status}
    return found


def starting() -> list[Json]:
    found = in_order("b-2")
    found[-1]["metadata"]["creationTimestamp"] = ago(1800)
    found[-1]["spec"]["containers"][0]["startupProbe"] = {"tcpSocket": {"port": 1}, "failureThreshold": 720}
    runs = {"running": {"startedAt": ago(1790)}}
    found[-1]["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "c", "ready": False, "started": False, "state": runs}],
    }
    return found


def blinking() -> list[Json]:
    """Its first pod, an old one, has not been Ready for some seconds."""
    found = in_order("b-2", conditions=[{"type": "Ready", "status": "True"}])
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": ago(5)}
    found[-2]["status"]["conditions"] = [ready]
    return found


def broken_behind() -> list[Json]:
    """Its last pod, which comes after the third, has been broken for a day."""
    db = (
        stateful_set("db").requests(cpu=3).selects(**ZONE_B).on_nodes(["b-0", "b-2", "b-0", "b-0"]).unready(3)
    )
    found = [o for o in objects(db) if o["metadata"]["name"] != "db-2"]
    found[2]["metadata"]["creationTimestamp"] = ago(8)
    found[2]["status"] = {"phase": "Pending"}
    return found


def scaled_in() -> list[Json]:
    """It comes to want three of its four pods while one ends: that is made anew before the last one goes."""
    found = objects(
        stateful_set("db").requests(cpu=3).selects(**ZONE_B).on_nodes(["b-0", "b-2", "b-0", "b-0"])
    )
    found[0]["spec"]["replicas"] = 3
    found[2]["metadata"] |= {"deletionTimestamp": ago(-20), "deletionGracePeriodSeconds": 30}
    return found


def partitioned() -> list[Json]:
    """It keeps its first two pods of the former revision; the second one comes after the first, which is not
    Ready for a moment."""
    db = stateful_set("db").requests(cpu=1).selects(**ZONE_B).on_nodes(["b-0", "b-2", "b-0", "b-0"])
    found = [o for o in objects(db) if o["metadata"]["name"] != "db-1"]
    found[0]["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    found[0]["status"] |= {"currentRevision": "db-1", "updateRevision": "db-2", "updatedReplicas": 2}
    for i, one in enumerate(found[1:]):
        one["metadata"]["labels"]["controller-revision-hash"] = "db-2" if i else "db-1"
        one["metadata"]["creationTimestamp"] = ago(3600 if i else 7200)
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": ago(5)}
    found[1]["status"]["conditions"] = [ready]
    found[1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    return found


def refused_a_moment_ago() -> list[Json]:
    """While its pod ended that counted in a quota, a ReplicaSet was refused the next: it tries again soon."""
    found = objects(deployment("other").requests(cpu=3).selects(**ZONE_B).replicas(1).placed({}))
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    for owner in found:
        owner["status"]["conditions"] = [condition | {"lastTransitionTime": ago(20)}]
    return found


def refused() -> list[Json]:
    """A rollout to larger pods whose surge pod a quota refuses: it goes on with others that it takes away."""
    found = larger(rollout(1, 1, whole=deployment("other").requests(cpu=2).placed({"b-0": 1})))
    for made in (found[0], found[-1]):
        made["status"]["conditions"] = [
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
        ]
    return found


def beside_a_new_one() -> list[Any]:
    """A drained pod, and one that was made a moment ago, which the scheduler has not looked at."""
    found = objects(other(), deployment("new").requests(cpu=3).selects(**ZONE_B).placed({"": 1}))
    found[-1]["metadata"]["creationTimestamp"] = ago(8)
    found[-1]["status"] = {"phase": "Pending"}
    return [DRAINED, *found]


FULL = gone().cpu(3)


def beside_a_new_sister() -> list[Any]:
    """A drained pod, a new one like it, and a small drained one, which may take what one of them needs."""
    both = objects(deployment("other").requests(cpu=3).selects(**ZONE_B).placed({"b-0": 1, "": 1}))
    both[-1]["metadata"]["creationTimestamp"] = ago(8)
    both[-1]["status"] = {"phase": "Pending"}
    machines = [DRAINED.cpu(8), node("a-1").zone("a").cpu("3200m")]
    little = [
        deployment(n).requests(cpu=cpu).placed({at: 1})
        for n, cpu, at in (("x", "500m", "b-0"), ("y", "10m", "a-0"))
    ]
    return [*machines, *both, *little]


def tried_again() -> list[Json]:
    """A Job whose only pod has failed: the next one, with the same sidecar, comes in some minutes."""
    found = given(objects(job("batch").requests(cpu=2).placed({"b-1": 1})), b_1="1")
    found[0]["status"], found[-1]["status"] = {"failed": 1}, {"phase": "Failed"}
    return found


def recreated() -> list[Any]:
    """A Deployment all of whose pods end before it makes the next ones, with the same sidecar."""
    found = given(objects(deployment("other").requests(cpu=2).placed({"b-0": 1})), b_0="1")
    found[0]["spec"]["strategy"] = {"type": "Recreate"}
    found[0]["status"] |= {"replicas": 0, "updatedReplicas": 0}
    found[1]["spec"]["replicas"] = 0
    found[-1]["metadata"] |= {"deletionTimestamp": ago(-20), "deletionGracePeriodSeconds": 30}
    return [DRAINED, *found]


def recreated_late() -> list[Any]:
    """It takes long, and the last pod was broken."""
    found = recreated()
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    found[1]["status"]["conditions"] = [condition]
    found[-1]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    return found


MOMENTS: dict[str, tuple[list[Any], int]] = {
    "a rollout that is late": ([FULL, *late()], 1),
    "a drained pod that was resized": (resized(), 1),
    "one with a sidecar of former times": (with_a_sidecar_of_former_times(), 1),
    "a set in order whose next pod has no node yet": ([FULL, *in_order("")], 2),
    "one whose next pod has come to a node": ([FULL, *in_order("b-2")], 2),
    "one whose next pod starts for half an hour": ([FULL, *starting()], 2),
    "one whose first pod is not Ready for a moment": ([FULL, *blinking()], 2),
    "one that is scaled in": ([gone().cpu(9), *scaled_in()], 2),
    "one with a partition": ([gone().cpu(5), *partitioned()], 1),
    "one whose last pod is broken": ([gone().cpu(6), *broken_behind()], 2),
    "one that a quota refused a pod a moment ago": (refused_a_moment_ago(), 1),
    "a set that may have been refused its only pod": (
        objects(stateful_set("db").requests(cpu=3).selects(**ZONE_B).replicas(1).placed({})),
        1,
    ),
    "a rollout that a quota slows": ([gone().cpu("2500m"), *refused()], 1),
    "a drained pod beside a new one": (beside_a_new_one(), 2),
    "one beside a new one that is alike": (beside_a_new_sister(), 3),
    "a Job whose pod has failed": (tried_again(), 1),
    "a Deployment that recreates its pods": (recreated(), 1),
    "one that does, and is late": (recreated_late(), 1),
}


@pytest.mark.parametrize(("made", "nodes"), MOMENTS.values(), ids=MOMENTS)
def test_a_replacement_leaves_it_the_room_that_it_will_need(made: list[Any], nodes: int) -> None:
    for cpu, moves in (("3200m", 0), ("3700m", 1)):
        roomy = [node(f"b-{i + 1}").zone("b").cpu(cpu) for i in range(nodes)]
        assert len(plan(snapshot(node("a-0").zone("a").cpu(2), *roomy, *made, web())).moves) == moves, cpu


@pytest.mark.parametrize(("kind", "moves"), [("StatefulSet", 0), ("Deployment", 1)])
def test_while_a_victim_ends_one_that_its_constraint_counts_may_be_made_elsewhere(
    kind: str, moves: int
) -> None:
    """A canary of the same label leaves b-9. If it comes to c-0 first, a set's next pod may return to a-0."""
    machines = [node(n).zone(n[0]).cpu(8) for n in ("a-0", "b-0", "c-0")]
    leaves = node("b-9").zone("b").taint(LEAVES)
    canary = deployment("canary").labels(app="web").placed({"b-9": 1})
    whole = workload("web", kind).spread("zone").placed({"a-0": 2, "b-0": 1})
    made = plan(snapshot(*machines, leaves, canary, whole))
    assert len(made.moves) == moves
    said = {b.reason.message for b in made.blocked}
    assert any(m.startswith("its constraints will count default/canary-") for m in said) is not bool(moves)


def all_made() -> list[Json]:
    """A rollout all of whose three new pods are there, on a node of their own, beside an old one."""
    found = rollout(1, whole=deployment("other").requests(cpu=1).placed({"b-1": 1, "c-0": 3}), new=["c-0"])
    found[0]["spec"]["replicas"] = found[0]["status"]["updatedReplicas"] = found[-1]["spec"]["replicas"] = 3
    found[1]["spec"]["replicas"] = 1
    return found


@pytest.mark.parametrize("drained", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_a_pod_that_waits_for_the_end_of_a_rollouts_last_old_pod_keeps_its_room(
    waits: bool, drained: bool
) -> None:
    late = deployment("late").requests(cpu=3).placed({"": 1} if waits else {})
    machines = [node(n).zone(n[0]).cpu(cpu) for n, cpu in (("a-0", 2), ("b-1", "3200m"), ("c-0", 3))]
    if drained:
        machines[1].taint(LEAVES)
        machines.append(node("b-2").zone("b").cpu("3200m"))
    assert bool(plan(snapshot(machines, all_made(), late, web())).moves) is not waits


APART: dict[str, Any] = {
    "anti-affinity": lambda other: other.away_from("hostname", owner="other"),
    "a spread constraint": lambda other: other.spread("hostname"),
    "one of each revision by itself": lambda other: other.spread("hostname", match_label_keys=(HASH,)),
}


@pytest.mark.parametrize("apart", APART.values(), ids=APART)
def test_where_the_last_old_pod_stands_a_new_one_will_need_the_room(apart: Any) -> None:
    """Four nodes for four pods that do not share one: the one more finds none before an old one goes."""
    machines = [node(n).zone(n[0]).cpu("3200m") for n in ("a-1", "a-2", "a-3", "b-1")]
    at = [n.object["metadata"]["name"] for n in machines]
    for last in range(4):
        old = apart(deployment("other").requests(cpu=2).on_nodes([*at[last:], *at[:last]]))
        found = larger(rollout(1, 1, whole=old))
        assert plan(snapshot(node("a-0").zone("a").cpu(2), machines, found, web())).moves == (), last


def test_but_not_where_a_set_keeps_its_first_pods_as_they_are() -> None:
    machines = [node(n).zone(n[0]).cpu("3200m") for n in ("b-1", "a-1")]
    whole, *pods = objects(stateful_set("other").requests(cpu=2).on_nodes(["b-1", "a-1"]))
    whole["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    whole["status"] |= {"updateRevision": "other-2", "updatedReplicas": 0}
    whole["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    assert plan(snapshot(node("a-0").zone("a").cpu(2), machines, whole, *pods, web())).moves


@pytest.mark.parametrize("waits", ["Pending", "drained", ""])
@pytest.mark.parametrize("rolls", [True, False])
def test_who_waits_does_not_get_the_room_of_a_pod_that_a_rollout_makes_anew(rolls: bool, waits: str) -> None:
    """It fits on b-1 only if both db's old pod and web's are gone: db's next one would find no node then."""
    rooms = [node(n).zone(n[0]).cpu(cpu) for n, cpu in (("a-1", "800m"), ("b-1", "1200m"), ("c-1", "500m"))]
    whole, *pods = objects(stateful_set("db").requests(cpu="500m").on_nodes(["a-1", "b-1", "c-1"]))
    if rolls:
        whole["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
        whole["status"] |= {"currentRevision": "db-1", "updateRevision": "db-2", "updatedReplicas": 1}
        for i, one in enumerate(pods):
            one["metadata"]["labels"]["controller-revision-hash"] = "db-2" if i == 2 else "db-1"
    skewed = deployment("web").spread("zone").requests(cpu="300m").placed({"b-1": 2})
    waiting = {
        "Pending": [pod("w").requests(cpu="900m")],
        "drained": [
            node("c-9").zone("c").taint(LEAVES),
            deployment("w").requests(cpu="900m").placed({"c-9": 1}),
        ],
    }.get(waits, [])
    made = plan(snapshot(rooms, whole, *pods, skewed, waiting))
    assert bool(made.moves) is not (rolls and bool(waits))
    assert made.moves or any("default/db-1" in b.reason.message for b in made.blocked)


def test_that_end_may_take_long_and_nobody_relies_on_it() -> None:
    """The drained one has b-2 now, and b-1 as well once the old pod has gone: if a new one gets Ready."""
    machines = [node(n).zone(n[0]).cpu(cpu) for n, cpu in (("a-0", 2), ("b-1", "3200m"), ("c-0", 3))]
    api = deployment("api").requests(cpu=3).placed({"b-0": 1})
    assert (
        plan(snapshot(DRAINED, machines, node("b-2").zone("b").cpu("3200m"), all_made(), api, web())).moves
        == ()
    )


@pytest.mark.parametrize("cpu", ["3100m", "2"], ids=["as large as its next one", "smaller"])
def test_nor_on_the_end_of_those_that_it_takes_away_next(cpu: str) -> None:
    """The old ones on b-0 and b-2 stay until the small new one is Ready; the drained one has b-1 alone."""
    found = rollout(
        1, whole=deployment("other").requests(cpu=3).placed({"b-0": 1, "b-2": 1, "c-0": 1}), new=["c-0"]
    )
    found[0]["spec"]["replicas"] = found[1]["spec"]["replicas"] = 2
    for one in (found[0], found[-1], next(o for o in found if o["spec"].get("nodeName") == "c-0")):
        spec = one["spec"].get("template", one)["spec"]
        spec["nodeSelector"] = {"pool": "new"}
        spec["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    pool = [node(n).zone("a").cpu("400m").label("pool", "new") for n in ("c-0", "c-1")]
    roomy = [node(n).zone("b").cpu("3200m") for n in ("b-0", "b-1", "b-2")]
    leaves = node("b-9").zone("b").taint(LEAVES)
    api = objects(stateful_set("api").on_delete().requests(cpu="3100m").selects(**ZONE_B).placed({"b-9": 1}))
    api[0]["status"] |= {"updateRevision": "api-2", "updatedReplicas": 0}
    api[-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    machines = [node("a-0").zone("a").cpu(2), *roomy, *pool, leaves]
    assert plan(snapshot(machines, found, api, web())).moves == ()


def test_where_a_new_pod_finds_its_node_first_it_is_a_drained_one_that_would_find_none() -> None:
    """Two of them have b-1, and the one of 3100m b-2; web can go to b-1 alone."""
    new, *drained = (
        deployment(name).requests(cpu=cpu).selects(**ZONE_B).placed({at: 1})
        for name, cpu, at in (("new", 3, ""), ("api", "3100m", "b-0"), ("apj", 3, "b-0"))
    )
    fresh = objects(new)
    fresh[-1]["metadata"]["creationTimestamp"] = ago(8)
    fresh[-1]["status"] = {"phase": "Pending"}
    for cpu, moves in ((6, 0), ("6600m", 1)):
        machines = [node(n).zone(n[0]).cpu(c).label("web", "") for n, c in (("a-0", 2), ("b-1", cpu))]
        machines += [node("b-2").zone("b").cpu("3200m"), gone().cpu(8).taint(LEAVES)]
        found = plan(snapshot(machines, fresh, drained, web().selects(web="")))
        assert len(found.moves) == moves, cpu


@pytest.mark.parametrize(("cpu", "moves"), [("2200m", 0), ("2500m", 1)])
def test_a_new_pod_finds_its_node_before_the_old_one_of_its_rollout_ends(cpu: str, moves: int) -> None:
    """It has room on b-1 or b-2 only: what the old one leaves on a-0 is api's, whose pod leaves its node."""
    found = rollout(
        1, whole=deployment("other").requests(cpu="1500m").placed({"a-0": 1, "b-1": 1}), new=["b-1"]
    )
    found[0]["spec"]["replicas"] = 1
    new = next(o for o in found if o["spec"].get("nodeName") == "b-1")
    new["metadata"]["creationTimestamp"] = ago(8)
    new["status"] = {"phase": "Pending"}
    del new["spec"]["nodeName"]
    sizes = {"a-0": cpu, "b-0": "2", "b-1": "1800m", "b-2": "1800m"}
    machines = [node(n).zone(n[0]).cpu(size) for n, size in sizes.items()]
    leaves = node("z-0").zone("b").cpu(8).taint(LEAVES)
    api = deployment("api").requests(cpu=2).placed({"z-0": 1})
    skewed = deployment("web").spread("zone").requests(cpu="500m").placed({"b-0": 3})
    assert len(plan(snapshot(machines, leaves, found, api, skewed)).moves) == moves


@pytest.mark.parametrize("how", ["scaled in", "deleted", "its Deployment is deleted"])
@pytest.mark.parametrize(("cpu", "moves"), [("1100m", 0), (2, 1)])
def test_a_drained_pod_that_nobody_wants_any_more_does_not_hide_that_another_needs_the_node(
    cpu: str | int, moves: int, how: str
) -> None:
    """A set gives up its last pods one after the other; whose owner is deleted go before long."""
    owner = deployment("db") if "Deployment" in how else stateful_set("db")
    found = objects(owner.requests(cpu="700m").on_nodes(["a-0", "z-0", "z-0"]))
    if "deleted" in how:
        for one in (o for o in found if o["kind"] != "Pod"):
            one["metadata"].update(deletionTimestamp=ago(5), finalizers=["foregroundDeletion"])
    else:
        found[0]["spec"]["replicas"] = 1
        found[-1]["metadata"].update(deletionTimestamp=ago(-100), deletionGracePeriodSeconds=300)
    machines = [node("a-0").zone("a").cpu(4), node("b-0").zone("b").cpu(cpu)]
    leaves = node("z-0").zone("b").cpu(8).taint(LEAVES)
    skewed = deployment("web").spread("zone", taints_policy="Honor").requests(cpu="500m")
    skewed = skewed.placed({"a-0": 4, "z-0": 2})
    assert bool(plan(snapshot(machines, leaves, found, skewed)).moves) is bool(moves)


@pytest.mark.parametrize(("cpu", "moves"), [(2, 0), (3, 1)])
def test_whose_deployment_a_finalizer_keeps_from_being_deleted_makes_its_pods_as_before(
    cpu: int, moves: int
) -> None:
    """Its ReplicaSet is deleted after it. b-0 alone takes the drained one."""
    found = objects(deployment("db").requests(cpu="1800m").selects(**ZONE_B).placed({"z-0": 1}))
    found[0]["metadata"].update(deletionTimestamp=ago(3600), finalizers=["example.com/cleanup"])
    machines = [node("a-0").zone("a").cpu(4), node("b-0").zone("b").cpu(cpu)]
    leaves = node("z-0").zone("b").cpu(8).taint(LEAVES)
    assert bool(plan(snapshot(machines, leaves, found, web())).moves) is bool(moves)


def workflow() -> list[Json]:
    (ours,) = objects(
        pod("step").owned_by("Workflow", "w", "argoproj.io/v1alpha1").requests(cpu="700m").on("z-0")
    )
    return [ours]


def job_of_one_try() -> list[Json]:
    found = objects(job("batch").requests(cpu="700m").placed({"z-0": 1}))
    found[0]["spec"]["backoffLimit"] = 0
    return found


def job_between_tries() -> list[Json]:
    found = objects(job("batch").requests(cpu="700m").placed({"a-0": 1}))
    found[0]["status"] = {"failed": 1}
    found[-1]["status"] = {"phase": "Failed"}
    return found


def refused_by_a_quota() -> list[Json]:
    found = objects(deployment("api").requests(cpu="700m").placed({"z-0": 1}))
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    found[1]["status"]["conditions"] = [condition]
    return found


def of_a_class_that_is_gone() -> list[Json]:
    """The API server would refuse its next pod."""
    found = objects(deployment("api").requests(cpu="700m").placed({"z-0": 1}))
    found[1]["spec"]["template"]["spec"]["priorityClassName"] = "gone"
    return found


def set_without_a_pod() -> list[Json]:
    """It cannot make its first one, which no condition says."""
    return objects(stateful_set("db").requests(cpu="700m").replicas(1).placed({}))


def set_with_a_broken_pod() -> list[Json]:
    """One in any order that cannot make the other one either."""
    db = stateful_set("db").parallel().requests(cpu="700m").replicas(2).placed({"a-0": 1}).unready(1)
    found = objects(db)
    found[-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "10m"
    return found


def job_of_many_tries() -> list[Json]:
    """It comes again after a while: the others come first."""
    return objects(job("batch").requests(cpu="700m").placed({"z-0": 1}))


def canary() -> list[Json]:
    """A release that stops at its first step, for somebody to say that it may go on."""
    whole = deployment("step").requests(cpu="700m").placed({"a-1": 1, "b-1": 1})
    full = node("a-1").zone("a").cpu("700m"), node("b-1").zone("b").cpu("700m")
    return [*objects(*full), *released(rollout(1, whole=whole, new=["b-1"]))]


@pytest.mark.parametrize(
    "ghost",
    [
        workflow,
        job_of_one_try,
        job_of_many_tries,
        job_between_tries,
        refused_by_a_quota,
        of_a_class_that_is_gone,
        set_without_a_pod,
        set_with_a_broken_pod,
        canary,
    ],
)
@pytest.mark.parametrize(("cpu", "moves"), [(1, 0), (3, 1)])
def test_one_that_may_never_be_made_does_not_hide_that_others_need_the_node(
    ghost: Any, cpu: int, moves: int
) -> None:
    """web's two drained ones have b-0 alone, with or without it."""
    machines = [node("a-0").zone("a").cpu("2500m"), node("b-0").zone("b").cpu(cpu)]
    leaves = node("z-0").zone("b").cpu(8).taint(LEAVES)
    skewed = deployment("web").spread("zone", taints_policy="Honor").requests(cpu="500m")
    skewed = skewed.placed({"a-0": 4, "z-0": 2})
    assert bool(plan(snapshot(machines, leaves, ghost(), skewed)).moves) is bool(moves)


def test_one_reading_is_without_those_that_may_never_come_and_one_without_late_ones_too() -> None:
    things = snapshot(nodes(a=1), DRAINED, other(), job_of_many_tries(), workflow())
    drained = [p for p in things.pods if p.node_name in ("b-0", "z-0")]
    to_come = PodsToCome(Owners(things, PolicyOptions()))
    made = to_be_made(to_come, Replacements(things), Simulation(things, None), drained)
    names = {frozenset(p.name.partition("-")[0] for p in reading.pods) for reading in made}
    assert names == {frozenset(n.split()) for n in ("other batch step", "other batch", "other")}


@pytest.mark.parametrize("ghost", [workflow, job_of_one_try])
def test_nor_beside_a_jobs_pod_that_is_tried_again(ghost: Any) -> None:
    """Both jobs' pods would rather be on b-0; beside the one that comes there is room for web's alone."""
    again, never = objects(job("again").requests(cpu=1).placed({"z-0": 1})), ghost()
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}
    rather = {"weight": 100, "preference": {"matchExpressions": [zone]}}
    for spec in (o["spec"].get("template", o)["spec"] for o in (*again, *never)):
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [rather]}}
        spec["containers"][0]["resources"]["requests"]["cpu"] = "1"
    machines = [node("a-0").zone("a").cpu(4), node("b-0").zone("b").cpu(2)]
    leaves = node("z-0").zone("b").cpu(8).taint(LEAVES)
    skewed = deployment("web").spread("zone", taints_policy="Honor").requests(cpu="500m")
    skewed = skewed.placed({"a-0": 4, "z-0": 2})
    assert plan(snapshot(machines, leaves, again, never, skewed)).moves == ()


@pytest.mark.parametrize("ghost", [workflow, job_of_one_try, refused_by_a_quota])
def test_nor_beside_one_that_a_rollout_has_replaced(ghost: Any) -> None:
    """Each of the two would fill b-0, where the rollout's new pod is; in truth web's drained ones do."""
    found = rollout(1, whole=deployment("other").requests(cpu=1).placed({"b-0": 1, "z-0": 1}), new=["b-0"])
    found[0]["spec"]["replicas"] = 1
    never = ghost()
    never[-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    machines = [node("a-0").zone("a").cpu("2500m"), node("b-0").zone("b").cpu("2200m")]
    leaves = node("z-0").zone("b").cpu(8).taint(LEAVES)
    skewed = deployment("web").spread("zone", taints_policy="Honor").requests(cpu="500m")
    skewed = skewed.placed({"a-0": 4, "z-0": 2})
    assert plan(snapshot(machines, leaves, found, never, skewed)).moves == ()


@pytest.mark.parametrize("ghost", [workflow, job_of_one_try])
@pytest.mark.parametrize(("cpu", "moves"), [("1900m", 0), ("3200m", 1)])
def test_nor_that_a_sets_next_pod_does(ghost: Any, cpu: str, moves: int) -> None:
    """The set is updated to larger pods: the one on b-1 has b-0 alone, as would the one that never comes."""
    never = ghost()
    for spec in (o["spec"].get("template", o)["spec"] for o in never):
        spec["nodeSelector"] = ZONE_B
        spec["containers"][0]["resources"]["requests"]["cpu"] = "900m"
    whole, *pods = objects(stateful_set("t").requests(cpu="500m").spread("zone").on_nodes(["a-0", "b-1"]))
    whole["status"] |= {"updateRevision": "t-2", "updatedReplicas": 0}
    whole["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
    whole["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1200m"
    machines = [node(n).zone(n[0]).cpu(c) for n, c in (("a-0", 8), ("b-0", cpu), ("b-1", "600m"))]
    leaves = node("z-0").zone("b").cpu(8).taint(LEAVES)
    skewed = deployment("web").spread("zone").requests(cpu=1).placed({"a-0": 3})
    assert bool(plan(snapshot(machines, leaves, whole, *pods, never, skewed)).moves) is bool(moves)


def test_a_drained_pod_that_a_rollout_has_replaced_does_not_hide_that_another_needs_the_node() -> None:
    """Of the other's three pods two are to be: one on a-0, one on b-0, and web's drained one there alone."""
    whole = deployment("other").requests(cpu="1500m").placed({"z-0": 2, "b-0": 1})
    found = rollout(1, 1, whole=whole, new=["b-0"])
    found[0]["spec"]["replicas"] = 2
    new = next(o for o in found if o["spec"].get("nodeName") == "b-0")
    new["metadata"]["creationTimestamp"] = ago(8)
    new["status"] = {"phase": "Pending"}
    del new["spec"]["nodeName"]
    sizes = {"a-0": 6, "a-1": 2, "b-0": 4, "c-0": 2}
    machines = [node(n).zone(n[0]).cpu(cpu) for n, cpu in sizes.items()]
    leaves = node("z-0").zone("b").cpu(8).taint(LEAVES)
    apart = deployment("web").spread("hostname").requests(cpu="1500m")
    apart.placed({"a-0": 2, "a-1": 1, "c-0": 1, "z-0": 1})
    assert plan(snapshot(machines, leaves, found, apart)).moves == ()


@pytest.mark.parametrize(("cpu", "moves"), [("1500m", 0), ("2200m", 1)])
def test_nor_do_drained_ones_that_find_their_nodes_in_another_order(cpu: str, moves: int) -> None:
    """They have b-0 and a-1. The two small ones never fill both, whole as they are; with web's they may."""
    sizes = {"big": "1000m", "mid": "500m", "small": "200m"}
    drained = [deployment(n).requests(cpu=size).placed({"a-3": 1}) for n, size in sizes.items()]
    rooms = {"a-0": "1500m", "a-1": "1000m", "b-0": cpu}
    machines = [node(n).zone(n[0]).cpu(room) for n, room in rooms.items()]
    leaves = node("a-3").zone("a").cpu("1700m").taint(LEAVES)
    assert len(plan(snapshot(machines, leaves, web(), drained)).moves) == moves


def apart(sized: Any) -> Any:
    """With a constraint of its own, that binds it to its siblings, and to nobody who is to come."""
    return sized.spread("hostname", 1).placed({"a-3": 1, "c-0": 1, "c-1": 1})


@pytest.mark.parametrize("own", [apart, lambda sized: sized.placed({"a-3": 1})], ids=["bound", "free"])
@pytest.mark.parametrize("many", [2, 9])
def test_nor_do_many_drained_ones_beside_one_that_has_siblings(own: Any, many: int) -> None:
    big = own(deployment("big").requests(cpu="1000m"))
    sizes = {2: ["500m", "200m"], 9: ["50m"] * 9}[many]
    drained = [deployment(f"d{i}").requests(cpu=n).placed({"a-3": 1}) for i, n in enumerate(sizes)]
    rooms = {"a-0": "1500m", "a-1": "1000m", "b-0": "1500m", "c-0": "1000m", "c-1": "1000m"}
    machines = [node(n).zone("b" if n == "b-0" else "a").cpu(room) for n, room in rooms.items()]
    leaves = node("a-3").zone("a").cpu(2).taint(LEAVES)
    others = [] if own is apart else [workload("full").requests(cpu="1000m").placed({"c-0": 1, "c-1": 1})]
    assert plan(snapshot(machines, leaves, web(), big, drained, others)).moves == ()


def waiting(**cpu: str) -> list[Any]:
    return [deployment(n).requests(cpu=c).selects(pool="x").placed({"": 1}) for n, c in cpu.items()]


def ends_too() -> list[Json]:
    """A pod of 300m on the victim's node that somebody has deleted, and nobody makes again."""
    found = objects(workload("e").requests(cpu="300m").replicas(0).placed({"a-0": 1}))
    found[-1]["metadata"] |= {"deletionTimestamp": ago(-20), "deletionGracePeriodSeconds": 30}
    return found


def drained_too(cpu: str) -> Any:
    return deployment("wide").requests(cpu=cpu).placed({"z-0": 1})


LET_IN: dict[str, tuple[str, list[Any]]] = {
    "one that waits": ("500m", waiting(w1="1000m")),
    "two of two owners that wait": ("500m", waiting(w1="450m", w2="460m")),
    "one that waits, once another pod has ended, too": ("500m", [*waiting(w1="1200m"), *ends_too()]),
    "a drained one that has no other node": ("500m", [drained_too("1000m")]),
    "a drained one that has another node": (
        "300m", [drained_too("600m"), node("a-1").zone("a").cpu("600m")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("method", ["evict", "replaceFirst"])
@pytest.mark.parametrize(("left", "others"), LET_IN.values(), ids=LET_IN)
def test_whoever_the_victims_room_lets_in_takes_no_drained_pods_node(
    left: str, others: list[Any], method: Any
) -> None:
    """The drained one has a-0 alone, without the move."""
    drained = deployment("d0").requests(cpu="250m").selects(pool="x").placed({"z-0": 1})
    ending = "300m" if any(isinstance(o, dict) for o in others) else "0"
    room = 1000 + int(left.removesuffix("m")) + int(ending.removesuffix("m"))
    machines = [node("a-0").zone("a").cpu(f"{room}m").label("pool", "x"), node("b-0").zone("b").cpu("500m")]
    leaves = node("z-0").zone("a").cpu(4).taint(LEAVES)
    one = deployment("web").spread("zone", 1, selector={"owner": "web"}).requests(cpu="500m")
    things = snapshot(machines, leaves, one.placed({"a-0": 2}), drained, others)
    options = PlanOptions(policy=PolicyOptions(method=method))
    assert plan(things, options).moves == ()
    alone = snapshot(machines, leaves, one.placed({"a-0": 2}), drained)
    assert plan(alone, options).moves


@pytest.mark.parametrize("seed", range(200))
def test_whole_pods_fill_nodes_or_do_not_as_by_trying_every_way(seed: int) -> None:
    rng = Random(seed)
    room = np.array([[rng.randint(2, 10) for _ in range(2)] for _ in range(rng.randint(1, 3))])
    asks = np.array([rng.randint(1, 2) for _ in range(2)])
    takes = np.array([[rng.randint(0, 6) for _ in range(2)] for _ in range(rng.randint(1, 3))])
    numbers = tuple(rng.randint(1, 2) for _ in takes)
    may = np.array([[rng.random() < 0.8 for _ in room] for _ in takes])
    pods = [i for i, n in enumerate(numbers) for _ in range(n)]

    def full(way: tuple[int, ...]) -> bool:
        held = np.zeros_like(room)
        for pod_, at in zip(pods, way, strict=True):
            if at < len(room):
                held[at] += takes[pod_] * may[pod_, at]
        return bool((held + asks > room).any(axis=1).all() and (held <= room).all())

    ways = product(range(len(room) + 1), repeat=len(pods))
    assert all_filled(room, asks, takes, may, numbers) is any(map(full, ways))
