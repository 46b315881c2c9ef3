"""Pods of others that a move would leave without a node."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from typing import Any

import pytest

from rebalancer.engine.config import Profile, SchedulerConfig
from rebalancer.model.pod import TopologySpreadConstraint
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.cluster import enough_room
from rebalancer.planner.cluster.enough_room import all_filled
from tests.support.build import (
    ago,
    daemon_set,
    decoded,
    deployment,
    job,
    node,
    objects,
    pod,
    snapshot,
    stateful_set,
)
from tests.support.scheduler.plain import Json
from tests.unit.policy.test_vertical_autoscalers import vpa

A, B = node("a-0").zone("a").cpu(2), node("b-1").zone("b").cpu("3200m")
"""b-1 has room for one of 3 cpu, or for web's."""


ZONE_B = {"topology.kubernetes.io/zone": "b"}


def web(**placed: int) -> Any:
    return deployment("web").spread("zone").requests(cpu="500m").placed({"a-0": 3, **placed})


def other(at: str = "b-0", **fields: Any) -> Any:
    return deployment("other").requests(cpu=3).placed({at: 1}, **fields)


def gone(name: str = "b-0") -> Any:
    return node(name).zone("b").cpu(4)


def cordoned(seconds: int) -> Any:
    node = gone().cordoned()
    node.object["spec"]["taints"][0]["timeAdded"] = ago(seconds)
    return node


MCO = "machineconfiguration.openshift.io/"
LEAVES = "ToBeDeletedByClusterAutoscaler"
GOING = {
    "drained": lambda: (gone().cordoned(), pod("just-evicted").on("b-0").terminating()),
    "taken by Karpenter": lambda: gone().taint("karpenter.sh/disrupted"),
    "taken by cluster-autoscaler": lambda: gone().taint("ToBeDeletedByClusterAutoscaler"),
    "silent": lambda: gone().not_ready(),
    "cordoned an hour ago, and its drain waits for a budget": lambda: cordoned(3600),
    "about to be taken back by AWS": lambda: gone().taint("aws-node-termination-handler/spot-itn"),
}


@pytest.mark.parametrize("going", GOING.values(), ids=GOING)
def test_a_pod_that_will_be_expelled_keeps_the_only_room_that_it_will_have(going: Any) -> None:
    made = plan(snapshot(A, going(), B, other(), web()))
    assert not made.moves
    said = {r.reason.message for r in made.blocked}
    assert any("could take the place that default/other-" in m for m in said), said
    assert plan(snapshot(A, going(), B, web())).moves


@pytest.mark.parametrize(("xx", "yy", "priority"), [(800, 300, 100), (450, 1000, 0)], ids=["first", "larger"])
def test_who_finds_a_node_if_it_comes_before_another_keeps_it(xx: int, yy: int, priority: int) -> None:
    """xx can go to a-1 alone, yy to b-2, too, and it would come first if both came at once."""
    a, b = (
        node(n).zone(n[0]).cpu(f"{cpu}m") for n, cpu in (("a-1", 1000 if priority else 1400), ("b-2", yy))
    )
    full, drained = node("b-3").zone("b").cpu("400m"), node("b-4").zone("b").taint(LEAVES)
    crowded = deployment("crowded").requests(cpu=f"{300 if priority else 1000}m").spread("zone")
    both = [deployment("yy").requests(cpu=f"{yy}m").priority(priority).placed({"b-4": 1})]
    both.append(deployment("xx").requests(cpu=f"{xx}m").selects(disk="ssd").placed({"b-4": 1}))
    made = plan(snapshot(a.label("disk", "ssd"), b, full, drained, crowded.placed({"b-3": 2}), both))
    assert not made.moves
    assert plan(snapshot(a, b, full, drained, crowded.placed({"b-3": 2}), both[:1])).moves, "without xx"


@pytest.mark.parametrize("priority", [100, 1000])
def test_who_will_have_to_preempt_on_a_node_finds_no_replacement_there(priority: int) -> None:
    """xx can go to a-1 alone, and preempts bb, which has room elsewhere. With web there it would preempt
    both, or, of equal priority, find no place."""
    a, b = node("a-1").zone("a").cpu(4).label("disk", "ssd"), node("b-2").zone("b").cpu(4)
    full, drained = node("b-3").zone("b").cpu("600m"), node("b-4").zone("b").taint(LEAVES)
    crowded = deployment("web").requests(cpu="300m").priority(priority).spread("zone").placed({"b-3": 2})
    base = deployment("base").requests(cpu="2500m").priority(2000).placed({"a-1": 1, "b-2": 1})
    bb = deployment("bb").requests(cpu=1).priority(100).placed({"a-1": 1})
    xx = deployment("xx").requests(cpu="1500m").priority(1000).selects(disk="ssd").placed({"b-4": 1})
    made = plan(snapshot(a, b, full, drained, crowded, base, bb, xx))
    assert not made.moves
    assert any("default/xx-" in r.reason.message for r in made.blocked)
    assert plan(snapshot(a, b, full, drained, crowded, base, bb)).moves, "without xx"


@pytest.mark.parametrize(("drained", "moves"), [(0, 1), (1, 0), (2, 0)])
def test_a_move_opens_no_preemption_where_a_pod_can_preempt_anyway(drained: int, moves: int) -> None:
    """One of xx preempts low on a-1 in any case. Once web has left a-3 it could preempt there: more pods, for
    all that is known, or such as find no other node; and a second one would."""
    ssd = [node(n).zone("a").cpu(2).label("disk", "ssd") for n in ("a-1", "a-3")]
    rest = node("b-4").zone("b").cpu(2), node("c-5").zone("c").cpu("300m")
    leaves = node("c-2").zone("c").cpu(2).label("disk", "ssd").taint(LEAVES)
    crowded = (
        deployment("web").requests(cpu="250m").priority(1000).spread("zone").placed({"a-3": 2, "c-5": 1})
    )
    low = deployment("low").requests(cpu="100m").selects(disk="ssd").placed({"a-1": 1, "a-3": 1})
    full = [
        deployment(f"on-{at}").requests(cpu=cpu).priority(1000).placed({at: 1})
        for at, cpu in (("a-1", "1500m"), ("a-3", "1250m"), ("b-4", "1700m"))
    ]
    for kind in (deployment, stateful_set):
        xx = kind("xx").requests(cpu="500m").priority(1000).selects(disk="ssd").placed({"c-2": drained})
        made = plan(snapshot(*ssd, *rest, leaves, crowded, low, full, xx))
        assert len(made.moves) == moves, [b.reason.message for b in made.blocked]


def test_an_old_cordon_keeps_no_room() -> None:
    """Many are forgotten, and a full cluster would never be mended beside one."""
    assert plan(snapshot(A, cordoned(2 * 86_400), B, other(), web())).moves
    short = objects(stateful_set("db").requests(cpu=3).replicas(2).placed({"b-0": 1}))
    short[0]["status"] |= {"updatedReplicas": 1, "currentRevision": "db-1", "updateRevision": "db-1"}
    assert plan(snapshot(A, cordoned(2 * 86_400), B, short, web())).moves, "nor for a set that lacks one"


@pytest.mark.parametrize("by", ["Cluster API", "OpenShift"])
def test_of_nodes_that_are_replaced_one_by_one_the_pods_of_one_keep_room(by: str) -> None:
    """b-1 is new, and takes those of one; those of the other get the next new node, or b-2."""
    old = [node(n).zone("b").cpu(2) for n in ("b-8", "b-9")]
    for one in old:
        if by == "OpenShift":
            one.annotated({MCO + "currentConfig": "1", MCO + "desiredConfig": "2"})
        else:
            one.taint("node.cluster.x-k8s.io/outdated-revision", effect="PreferNoSchedule")
    both = deployment("other").requests(cpu=2).placed({"b-8": 1, "b-9": 1})
    for cpu, moves in (("2500m", 1), ("2400m", 0)):
        new = [node(n).zone("b").cpu(cpu) for n in ("b-1", "b-2")]
        assert len(plan(snapshot(A, old, new[:1], both, web())).moves) == moves, cpu
        assert len(plan(snapshot(A, old, new, both, web())).moves) == moves, f"two at once, {cpu}"
        new = [node(n).zone("b").cpu(f"{int(cpu[:-1]) + 100}m") for n in ("b-1", "b-2")]
        tiny = deployment("tiny").requests(cpu="100m").placed({"b-1": 1, "b-2": 1})
        assert len(plan(snapshot(A, old, new, tiny, both, web())).moves) == moves, f"a pod on each, {cpu}"
    new = [node(n).zone("b").cpu("4800m") for n in ("b-1", "b-2")]
    filled = deployment("filled").requests(cpu="2600m").placed({"b-1": 1, "b-2": 1})
    assert plan(snapshot(A, old, new, filled, both, web())).moves, "they have what others gave up"


def test_of_nodes_that_are_replaced_two_at_once_not_all_pods_keep_room() -> None:
    """The next two nodes have two of the six pods. Which two is not known: one of each owner counts."""
    outdated = "node.cluster.x-k8s.io/outdated-revision"
    old = [node(f"b-{i}").zone("b").cpu(2).taint(outdated, effect="PreferNoSchedule") for i in range(6)]
    pairs = [deployment(f"o{i}").requests(cpu=2).placed({f"b-{i}": 1, f"b-{i + 3}": 1}) for i in range(3)]
    for cpu, moves in (("4400m", 1), ("2400m", 0)):
        new = [node(n).zone("b").cpu(cpu) for n in ("b-7", "b-8")]
        assert len(plan(snapshot(A, old, new, pairs, web())).moves) == moves, cpu


def test_where_many_nodes_have_room_nothing_is_kept() -> None:
    """As with ten nodes of a large cluster that go, and pods that are tied to others."""
    many = [node(f"{z}-{i}").zone(z).cpu(4) for z in "ab" for i in range(60)]
    going = [node(f"b-9{i}").zone("b").cpu(4).taint(LEAVES) for i in range(10)]
    tied = [
        deployment(f"t{i}").requests(cpu=1).spread("zone").away_from("hostname", app=f"t{i}")
        .placed({f"b-9{i}": 1, f"a-{i + 1}": 1})
        for i in range(10)
    ]  # fmt: skip
    made = plan(snapshot(*many, *going, *tied, web(**{"a-1": 1})))
    assert (len(made.moves), made.residual_excess) == (2, 0)


def test_nor_are_moves_of_many_owners_together_made_that_would_take_all_of_it() -> None:
    """Each would go to the emptiest of 31 nodes; then none has 3 cpu left."""
    nodes = [node(f"{z}-{i:02d}").zone(z).cpu("3200m") for z in "ab" for i in range(31)]
    owners = [
        deployment(f"web{i:02d}").spread("zone").requests(cpu="500m").placed({f"a-{i % 10:02d}": 3})
        for i in range(31)
    ]
    pinned = deployment("other").requests(cpu=3).selects(zone="b").placed({"b-99": 1})
    made = plan(snapshot(*nodes, gone("b-99").taint(LEAVES), pinned, *owners))
    assert 10 < len({m.predicted for m in made.moves if m.certain}) < 31


def test_nor_where_there_are_more_nodes_than_pods_to_spread() -> None:
    """Two on each of ten nodes, and twenty new nodes for one of each two."""
    nodes = [node(f"{z}-{i:02d}").zone(z).cpu("3200m") for z in "ab" for i in range(20)]
    owners = [
        deployment(f"web{n}").spread("hostname").requests(cpu="500m")
        .placed({f"a-{10 * n + i:02d}": 2 for i in range(10)})
        for n in range(2)
    ]  # fmt: skip
    pinned = deployment("other").requests(cpu=3).selects(zone="b").placed({"b-99": 1})
    made = plan(snapshot(*nodes, gone("b-99").taint(LEAVES), pinned, *owners))
    assert 5 < len({m.predicted for m in made.moves if m.certain}) < 20


def test_nor_does_a_later_move_take_what_an_earlier_one_has_left_it() -> None:
    """Ten nodes have room for web, and two for the one of 3 cpu: the first move leaves one of these."""
    new = [node(f"b-{i}").zone("b").cpu("3200m" if i < 2 else 2) for i in range(10)]
    apps = [deployment(n).spread("zone").requests(cpu="500m").placed({"a-0": 2}) for n in "xy"]
    pinned = deployment("other").requests(cpu=3).selects(zone="b").placed({"b-99": 1})
    made = plan(snapshot(A, *new, gone("b-99").taint(LEAVES), pinned, *apps))
    assert len(made.moves) == 1


def two_that_move_to_one_node(
    large: str = "b-0", other: str = "1500m", takes: str = "500m", small: int = 0
) -> list[Json]:
    """The first move takes the one node that two drained pods would go to; then both need b-1, which is alike
    to what takes none of them (`large`) for the second move. `other`: what one of them asks for; `takes`:
    what the second move does; `small`: how many small ones there are beside them."""
    there = [
        node("a-0").zone("a").label("x", "").label("y", ""),
        node("b-x").zone("b").cpu("4700m").label("x", "").label("pool", "b"),
        node("b-1").zone("b").cpu(32).label("y", "").label("pool", "b"),
        node(large).zone("b").cpu(32).label("y", ""),
        node("z-old").zone("b").label("pool", "b").taint(LEAVES),
    ]
    sizes = {"d": "1500m", "e": other, **{f"s{i}": "1m" for i in range(small)}}
    drained = [deployment(n).requests(cpu=c).selects(pool="b").placed({"z-old": 1}) for n, c in sizes.items()]
    first = deployment("first").spread("zone").requests(cpu="3500m").selects(x="").placed({"a-0": 2})
    second = deployment("second").spread("zone").requests(cpu=takes).selects(y="").placed({"a-0": 2})
    fill = deployment("fill").requests(cpu="28800m").placed({"b-1": 1, large: 1})
    return objects(*there, *drained, first, second, fill)


@pytest.mark.parametrize(
    ("other", "takes", "small"), [("1500m", "500m", 0), ("1700m", "100m", 0), ("1690m", "100m", 8)]
)
@pytest.mark.parametrize("large", ["b-0", "b-2"])
def test_nor_what_it_has_left_two_of_them(large: str, other: str, takes: str, small: int) -> None:
    """Beside the second move b-1 has room for each of them, and not for both."""
    made = plan(decoded(two_that_move_to_one_node(large, other, takes, small)))
    assert [m.owner.metadata.name for m in made.moves] == ["first"]


@pytest.mark.parametrize(
    ("small", "b", "moves"), [("200m", "300m", 0), ("200m", "400m", 2), ("100m", "300m", 2), ("", "300m", 2)]
)
def test_nor_what_the_larger_needs_if_the_smaller_comes_first(small: str, b: str, moves: int) -> None:
    """The larger has b-0, and a-0, where the smaller can go first."""
    machines = [node("a-0").zone("a").cpu("700m"), node("b-0").zone("b").cpu(b), gone("z-0").taint(LEAVES)]
    sizes = {"large": "300m", **({"small": small} if small else {})}
    drained = [deployment(n).requests(cpu=c).placed({"z-0": 1}) for n, c in sizes.items()]
    web = deployment("web").spread("zone").requests(cpu="100m").placed({"a-0": 4})
    assert len(plan(snapshot(machines, drained, web)).moves) == moves, small


def test_what_a_drained_pod_asks_for_and_does_not_hold_ends_no_plan() -> None:
    """A resize that adds memory, and cannot be had."""
    cluster = two_that_move_to_one_node()
    for p in cluster:
        if p["kind"] == "Pod" and p["metadata"]["name"][0] in "de":
            (c,) = p["spec"]["containers"]
            said = {"name": c["name"], "allocatedResources": dict(c["resources"]["requests"]), "ready": True}
            p["status"]["containerStatuses"] = [{**said, "resources": c["resources"]}]
            c["resources"] = {"requests": {**said["allocatedResources"], "memory": "1Gi"}}
            p["status"]["conditions"].append(
                {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
            )
    assert len(plan(decoded(cluster)).moves) == 1


def test_where_a_second_node_takes_it_the_move_is_made() -> None:
    assert plan(snapshot(A, gone().taint(LEAVES), B, gone("b-2"), other(), web())).moves


def test_nor_is_the_room_given_away_where_the_replacement_could_go_elsewhere_too() -> None:
    small = node("b-2").zone("b").cpu("600m")
    made = plan(snapshot(A, gone().taint(LEAVES), B, small, other(), web()))
    assert not made.moves
    assert plan(snapshot(A, gone().taint(LEAVES), B, small, web())).moves[0].destinations == ("b-1", "b-2")


def test_the_room_that_the_victim_frees_serves_as_well() -> None:
    """Once web has left a-0, the one of 3 cpu fits there."""
    wide = node("a-0").zone("a").cpu(4)
    assert plan(snapshot(wide, gone().taint(LEAVES), B, other(), web())).moves


def given(found: list[Json], **sidecars: str) -> list[Json]:
    """Admission gave the pod on each node a sidecar; those that come first are older."""
    for i, (name, cpu) in enumerate(sidecars.items()):
        one = next(o for o in found if o["kind"] == "Pod" and o["spec"]["nodeName"] == name.replace("_", "-"))
        one["metadata"]["creationTimestamp"] = ago(86_400 - i)
        beside = {"name": "proxy", "image": "proxy", "resources": {"requests": {"cpu": cpu}}}
        one["spec"]["containers"].append(beside)
    return found


def edited(whole: Any, cpu: str) -> list[Json]:
    """A set by OnDelete, or a ReplicaSet of nobody, whose template has come to ask for so much."""
    owner, *found = [o for o in objects(whole) if o["kind"] != "Deployment"]
    owner["metadata"].pop("ownerReferences", None)
    owner["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    if owner["kind"] == "StatefulSet":
        owner["status"] |= {"updateRevision": "other-2", "updatedReplicas": 0}
    return [owner, *found]


def of_two(kind: Any, **more: int) -> Any:
    return kind("other").requests(cpu=2).placed({"b-0": 1, **more})


def under(kind: str, found: list[Json]) -> list[Json]:
    """The Deployment is a custom resource's, which an autoscaler has to name: it scales the whole."""
    found[0]["metadata"]["ownerReferences"] = [
        {"apiVersion": "example.org/v1", "kind": kind, "name": "shop", "uid": "shop", "controller": True}
    ]
    return found


def paused(rolls: list[Json]) -> list[Json]:
    rolls[0]["spec"]["paused"] = True
    return rolls


BY_THE_NEXT: dict[str, Any] = {
    "an autoscaler": lambda cpu: [*objects(of_two(deployment)), vpa(name="other", cpu=f"{cpu}m")],
    "an autoscaler of what is above": lambda cpu: [
        *under("Shop", objects(of_two(deployment))),
        vpa("Shop", "shop", cpu=f"{cpu}m"),
    ],
    "a bare ReplicaSet's template": lambda cpu: edited(of_two(deployment), f"{cpu}m"),
    "a set's template, by OnDelete": lambda cpu: edited(of_two(stateful_set).on_delete(), f"{cpu}m"),
    "that, and what admission gave it": lambda cpu: given(
        edited(of_two(stateful_set).on_delete(), f"{cpu - 100}m"), b_0="100m"
    ),
    "what admission gave a younger one": lambda cpu: [
        *objects(node("b-2").zone("b").cpu(f"{cpu}m")),
        *given(objects(of_two(deployment, **{"b-2": 1})), b_0="100m", b_2=f"{cpu - 2000}m"),
    ],
    "what it gave one of another revision": lambda cpu: [
        *objects(node("b-2").zone("b").cpu(f"{cpu}m")),
        *given(
            paused(rollout(1, whole=of_two(deployment, **{"b-2": 1}), new=["b-2"])),
            b_0="100m",
            b_2=f"{cpu - 2000}m",
        ),
    ],
}


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("other", BY_THE_NEXT.values(), ids=BY_THE_NEXT)
def test_it_keeps_as_much_as_it_will_need_not_what_it_has(other: Any, ends: bool) -> None:
    for cpu, moves in ((2700, 1), (2800, 0)):
        found = other(cpu)
        for one in found:
            if ends and one["kind"] == "Pod" and one["spec"]["nodeName"] == "b-0":
                one["metadata"]["deletionTimestamp"] = ago(5)
        assert len(plan(snapshot(A, gone().taint(LEAVES), B, *found, web())).moves) == moves, cpu


@pytest.mark.parametrize("kind", ["StrimziPodSet", "Job"])
def test_one_that_ends_is_made_again_by_any_kind_of_owner(kind: str) -> None:
    found = [o for o in objects(other("b-1")) if o["kind"] == "Pod"]
    owner = {"kind": kind, "name": "o", "uid": "o", "apiVersion": "example.org/v1", "controller": True}
    found[0]["metadata"] |= {"deletionTimestamp": ago(5), "ownerReferences": [owner]}
    small = node("b-2").zone("b").cpu("600m")
    assert not plan(snapshot(A, B, small, found, web())).moves
    found[0]["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    assert plan(snapshot(A, B, small, found, web())).moves


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Running"])
@pytest.mark.parametrize("restart", ["Never", "Always"])
def test_one_that_has_done_its_work_is_not_made_again(phase: Any, restart: str) -> None:
    """As a workflow's pod whose deletion waits for a finalizer. One that is always started again is finished
    once its kubelet has ended it, too, and its controller makes the next one when it is gone."""
    done = pod("p").requests(cpu=3).selects(zone="b").on("b-1").phase(phase).restarts(restart)
    found = objects(done.owned_by("Workflow", "w", "argoproj.io/v1alpha1"))
    found[0]["metadata"] |= {"deletionTimestamp": ago(86400), "finalizers": ["argoproj.io/status"]}
    small = node("b-2").zone("b").cpu("600m")
    made = plan(snapshot(A, B, small, found, web()))
    assert bool(made.moves) == (phase != "Running" and restart == "Never")


JOBS: dict[str, tuple[Json, Json, int]] = {
    "waits out its backoff": ({"completions": 1, "backoffLimit": 6}, {"failed": 3}, 0),
    "has one to go": ({"parallelism": 5, "completions": 5}, {"succeeded": 4}, 0),
    "is of workers that go on": ({}, {}, 0),
    "has workers that found no more to do": ({}, {"succeeded": 1}, 1),
    "has all": ({"parallelism": 5, "completions": 5}, {"succeeded": 5}, 1),
    "is suspended": ({"suspend": True}, {}, 1),
    "runs elsewhere": ({"managedBy": "kueue.x-k8s.io/multikueue"}, {}, 1),
    "has failed": ({}, {"conditions": [{"type": "Failed", "status": "True"}]}, 1),
    "is about to fail": ({}, {"conditions": [{"type": "FailureTarget", "status": "True"}]}, 1),
}


@pytest.mark.parametrize(("spec", "status", "moves"), JOBS.values(), ids=JOBS)
def test_the_next_pod_of_a_job_keeps_room(spec: Json, status: Json, moves: int) -> None:
    found = objects(job("batch").requests(cpu=3).selects(zone="b").restarts("Never").placed({"b-1": 1}))
    found[0]["spec"] |= spec
    found[0]["status"] = status
    found[1]["status"]["phase"] = "Failed"
    small = node("b-2").zone("b").cpu("600m")
    assert bool(plan(snapshot(A, B, small, found, web())).moves) == bool(moves)
    found[1]["status"]["phase"] = "Running"
    found[1]["spec"]["containers"][0]["resources"] = {}
    assert plan(snapshot(A, B, small, found, web())).moves, "one of them runs"


@pytest.mark.parametrize("owner", ["DaemonSet", "", "Node"])
def test_one_that_is_not_made_elsewhere_takes_no_room(owner: str) -> None:
    found = objects(other())
    for one in found:
        if one["kind"] == "Pod":
            one["metadata"]["ownerReferences"] = [
                {"kind": owner, "name": "o", "uid": "o", "apiVersion": "v1", "controller": True}
            ] * bool(owner)
    assert plan(snapshot(A, gone().taint(LEAVES), B, *(o for o in found if o["kind"] == "Pod"), web())).moves


def test_two_moves_that_may_meet_there_are_not_both_planned() -> None:
    """Beside 3 cpu there is room on b-1 for one of the two; either may go there or to b-2."""
    machines = [
        A,
        gone().taint(LEAVES),
        node("b-1").zone("b").cpu("3600m"),
        node("b-2").zone("b").cpu("600m"),
    ]
    apps = [deployment(n).spread("zone").requests(cpu="500m").placed({"a-0": 2}) for n in "xy"]
    made = plan(snapshot(*machines, other(), *apps))
    assert [m.destinations for m in made.moves] == [("b-1", "b-2")]
    roomy = [*machines[:2], node("b-1").zone("b").cpu(4), machines[3]]
    assert len(plan(snapshot(*roomy, other(), *apps)).moves) == 2


@pytest.mark.parametrize("whose", ["other", "web"])
def test_nor_are_two_that_each_close_another_node_to_it(whose: str) -> None:
    """One alone leaves it the other node; after it only the next plan knows which."""
    machines = [A, gone().taint(LEAVES), node("b-1").zone("b"), node("b-2").zone("b")]
    zone = {"topology.kubernetes.io/zone": "b"}
    stays = deployment("other").labels(tier="o").selects(**zone)
    apps = [deployment(n).labels(tier="w").spread("zone", selector={"app": n}) for n in "xy"]
    if whose == "other":
        stays = stays.away_from("hostname", tier="w")
    else:
        apps = [a.away_from("hostname", tier="o") for a in apps]
    pods = [stays.placed({"b-0": 1}), *(a.placed({"a-0": 2}) for a in apps)]
    made = plan(snapshot(*machines[:3], *pods))
    assert "could take the place that default/other-" in made.blocked[0].reason.message
    made = plan(snapshot(*machines, *pods))
    assert [m.certain for m in made.moves if m.wave == 1] == [True]
    assert not any(m.certain for m in made.moves if m.wave > 1)


def rollout(
    surge: int, unavailable: int = 0, *, pods: int = 1, whole: Any = None, new: Collection[str] = ()
) -> list[Json]:
    """The template has just changed: the pods on these nodes are new."""
    whole = whole or deployment("other").requests(cpu=3).placed({"b-0": pods})
    deploy, old, *there = objects(whole)
    (_, young, *_) = objects(whole)
    young["metadata"].update(name="other-0", uid="new")
    for labels in (young["metadata"]["labels"], young["spec"]["template"]["metadata"]["labels"]):
        labels["pod-template-hash"] = "0"
    young["spec"]["replicas"] = len(new)
    young["status"] = {"replicas": len(new), "observedGeneration": 1}
    old["spec"]["replicas"] -= len(new)
    for one, revision in ((deploy, "2"), (old, "1"), (young, "2")):
        one["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": revision}
    for one in there:
        if one["spec"]["nodeName"] in new:
            one["metadata"]["ownerReferences"][0].update(name="other-0", uid="new")
            one["metadata"]["labels"]["pod-template-hash"] = "0"
            one["metadata"]["creationTimestamp"] = ago(900)
    deploy["status"]["updatedReplicas"] = len(new)
    deploy["spec"]["strategy"] = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }
    return [deploy, old, *there, young]


@pytest.mark.parametrize(("surge", "moves"), [(1, 0), (0, 1)])
def test_a_rollout_keeps_the_room_for_its_next_pod(surge: int, moves: int) -> None:
    machines = [A, node("b-0").zone("b").cpu("3200m"), B]
    assert len(plan(snapshot(*machines, *rollout(surge, 1 - surge), web())).moves) == moves


def drained(**placed: int) -> Any:
    return deployment("other").requests(cpu=3).spread("zone").placed({"z-0": 1, **placed})


def cache(at: str) -> Any:
    return deployment("cache").requests(cpu="100m").placed({at: 1})


COMING_FIRST: dict[str, tuple[list[Any], dict[str, str], list[str]]] = {
    "a drained one": ([other("z-0")], {"c-0": "3500m"}, []),
    "where there is room for both": ([other("z-0")], {"c-0": "3900m"}, ["c-0"]),
    "where there is another node": ([other("z-0")], {"c-0": "3500m", "c-1": "3500m"}, ["c-0", "c-1"]),
    "two drained ones": ([other("z-0").placed({"z-0": 2})], {"c-0": "3500m", "c-1": "3500m"}, []),
    "one that goes to another zone": ([other("z-0").selects(**ZONE_B)], {"c-0": "3500m"}, ["c-0"]),
    "one whose constraint keeps it in its zone": (
        [drained(**{"a-0": 1, "c-0": 1})],
        {"c-0": "6500m"},
        ["c-0"],
    ),
    "two whose constraint does": ([drained(**{"a-0": 1, "c-0": 1, "z-0": 2})], {"c-0": "6500m"}, []),
    "one that does not share a node": (
        [other("z-0").away_from("hostname", app="db")],
        {"c-0": "3900m"},
        [],
    ),
    "one that has to be near another drained one": (
        [cache("z-0"), other("z-0").near("zone", app="cache")],
        {"c-0": "3500m"},
        [],
    ),
    "one that has to be near one in its zone": (
        [cache("b-1"), other("z-0").near("zone", app="cache")],
        {"c-0": "3500m"},
        ["c-0"],
    ),
    "the next one of a rollout": (rollout(1), {"c-0": "3500m"}, []),
    "the one after the next": (rollout(1, pods=2), {"c-0": "6500m"}, []),
    "the next ones, where there is room for all": (rollout(1, pods=2), {"c-0": "6900m"}, ["c-0"]),
    "one that a rollout takes away first": (rollout(0, 1), {"c-0": "3500m"}, []),
}


@pytest.mark.parametrize(("coming", "zone_c", "nodes"), COMING_FIRST.values(), ids=COMING_FIRST)
def test_what_comes_while_a_victim_ends_may_take_the_room_of_its_replacement(
    coming: list[Any], zone_c: dict[str, str], nodes: list[str]
) -> None:
    """Each has b-1, too. The replacement of a Deployment is made at once."""
    machines = [
        node("a-0").zone("a").cpu("4800m"),
        node("b-0").zone("b").cpu(4),
        node("b-1").zone("b").cpu(8),
    ]
    machines += [node(n).zone("c").cpu(cpu) for n, cpu in zone_c.items()]
    machines += [node("z-0").zone("b").cpu(8).taint(LEAVES)]
    for kind in (deployment, stateful_set):
        db = kind("db").spread("zone").requests(cpu="900m").placed({"a-0": 2, "b-0": 1})
        made = plan(snapshot(machines, *coming, db))
        found = [n for m in made.moves for n in m.destinations if m.certain]
        assert found == (sorted(zone_c) if kind is deployment else nodes), kind


@pytest.mark.parametrize(("at", "cpu", "moves"), [("z-0", "700m", 0), ("b-0", "1600m", 1)])
def test_whom_a_sets_next_pod_has_to_be_near_may_have_left_by_then(at: str, cpu: str, moves: int) -> None:
    machines = [
        node("a-0").zone("a").cpu(4),
        node("b-0").zone("b").cpu(cpu),
        node("z-0").zone("b").cpu(2).taint(LEAVES),
    ]
    near = stateful_set("db").spread("zone").near("zone", app="cache").requests(cpu="300m")
    caches = deployment("cache").requests(cpu="900m").placed({at: 1, "a-0": 1})
    made = plan(snapshot(machines, caches, near.placed({"a-0": 3, "b-0": 1})))
    assert len(made.moves) == moves


def updated(whole: Any, new: Collection[str]) -> list[Json]:
    """A set's pods on these nodes are of its next revision."""
    owner, *there = objects(whole)
    owner["status"] |= {"updateRevision": "other-2", "updatedReplicas": len(new)}
    for one in there:
        if one["spec"]["nodeName"] in new:
            one["metadata"]["labels"]["controller-revision-hash"] = "other-2"
            one["metadata"]["creationTimestamp"] = ago(900)
    return [owner, *there]


HALF_DONE = {
    "a Deployment": lambda whole, new: rollout(0, 1, whole=whole(deployment), new=new),
    "a set": lambda whole, new: updated(whole(stateful_set), new),
}


@pytest.mark.parametrize("new", [(), ("a-0", "b-0")], ids=["none is new", "two are new"])
@pytest.mark.parametrize("rolls", HALF_DONE.values(), ids=HALF_DONE)
def test_of_a_rollout_it_is_the_old_pods_that_come(rolls: Any, new: Collection[str]) -> None:
    """The old one in zone c goes last, and comes back on c-0, or c-1."""

    def whole(kind: Any) -> Any:
        return kind("other").requests(cpu=3).spread("zone").on_nodes(["c-1", "b-0", "a-0"])

    ssd = [
        node(f"{z}-0").zone(z).label("disk", "ssd").cpu(cpu)
        for z, cpu in (("a", 8), ("b", 8), ("c", "3500m"))
    ]
    db = (
        stateful_set("db")
        .spread("zone")
        .requests(cpu="900m")
        .selects(disk="ssd")
        .placed({"a-0": 2, "b-0": 1})
    )
    made = plan(snapshot(ssd, node("c-1").zone("c").cpu(3), rolls(whole, new), db))
    assert not [m for m in made.moves if m.certain]


def anew(affinity: bool, other: Any, rolls: Any) -> list[Json]:
    """All are old; `affinity`: they have that of the template, too."""
    found: list[Json] = rolls(lambda kind: other(kind("other").requests(cpu=2)).placed({"a-1": 3}), ())
    for spec in (o["spec"] for o in found if o["kind"] == "Pod" and not affinity):
        spec.pop("affinity")
    return found


NEXT_ONE: dict[str, tuple[Any, str, bool, int]] = {
    "asks nothing of where others are": (lambda other: other, "a-1", True, 1),
    "would have too many in its zone": (lambda other: other.spread("zone"), "a-1", True, 0),
    "has to be near those that are here": (lambda other: other.near("zone", app="cache"), "a-1", True, 1),
    "has to be near those that are there": (lambda other: other.near("zone", app="cache"), "b-0", True, 0),
    "keeps off others, as it did": (lambda other: other.away_from("zone", app="none"), "a-1", True, 1),
    "has come to keep off others": (lambda other: other.away_from("zone", app="cache"), "a-1", False, 0),
}


@pytest.mark.parametrize(("other", "caches", "same", "moves"), NEXT_ONE.values(), ids=NEXT_ONE)
@pytest.mark.parametrize("rolls", HALF_DONE.values(), ids=HALF_DONE)
def test_where_a_rollouts_next_pod_cannot_return_its_room_elsewhere_is_kept(
    rolls: Any, other: Any, caches: str, same: bool, moves: int
) -> None:
    machines = [node(n).zone(n[0]).cpu(cpu) for n, cpu in (("a-0", "3400m"), ("a-1", 7), ("b-0", "3100m"))]
    web = deployment("web").spread("zone").requests(cpu=1).placed({"a-0": 3, "b-0": 1})
    made = plan(snapshot(machines, web, cache(caches), anew(same, other, rolls)))
    assert len(made.moves) == moves


HASH = "pod-template-hash"
SET_HASH = "controller-revision-hash"


def half_rolled_out(
    other: Any, on: Sequence[str] = ("a-0", "b-0", "a-0", "b-0"), *, number: int = 2
) -> list[Json]:
    """Zone c has come back. The Deployment has two old pods, and one of the new revision in a and in b each;
    as its rule is about each revision by itself, the next one may go to c alone. `number`: of the old."""
    found = objects(other.requests(cpu="1800m").on_nodes(on))
    top, old, pods = found[0], found[1], [o for o in found if o["kind"] == "Pod"]
    new = deepcopy(old)
    new["metadata"].update(name="other-new", uid="new")
    for labels in (new["spec"]["selector"]["matchLabels"], new["spec"]["template"]["metadata"]["labels"]):
        labels[HASH] = "new"
    for o, revision in ((top, "2"), (new, "2"), (old, "1")):
        o["metadata"].setdefault("annotations", {})["deployment.kubernetes.io/revision"] = revision
    for o in (top, new):
        o["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
    for o in pods[number:]:
        o["metadata"]["labels"][HASH] = "new"
        o["metadata"]["ownerReferences"][0].update(name="other-new", uid="new")
        o["spec"]["containers"][0]["image"] = "app:2"
    for o, n in ((new, 4 - number), (old, number)):
        o["spec"]["replicas"] = n
        o["status"].update(replicas=n, readyReplicas=n, availableReplicas=n)
    top["spec"]["replicas"] = 3
    top["status"].update(replicas=4, updatedReplicas=4 - number, readyReplicas=4, availableReplicas=4)
    for o in pods:
        for kind in o["spec"].get("affinity", {}).values():
            # As the API server merges matchLabelKeys.
            (term,) = kind["requiredDuringSchedulingIgnoredDuringExecution"]
            own = {"key": HASH, "operator": "In", "values": [o["metadata"]["labels"][HASH]]}
            term["labelSelector"]["matchExpressions"] = [own]
    return [*found, new]


def half_updated() -> list[Json]:
    """The same of a set."""
    ruled = stateful_set("other").spread("zone", match_label_keys=(SET_HASH,)).requests(cpu="1800m")
    found = updated(ruled.on_nodes(["a-1", "b-0", "a-0"]), ("a-0", "b-0"))
    found[1]["metadata"]["labels"][SET_HASH] = "other-1"
    return found


NEXT_BY_REVISION: dict[str, Any] = {
    "a spread constraint": half_rolled_out(deployment("other").spread("zone", match_label_keys=(HASH,))),
    "a set's": half_updated(),
    "anti-affinity": half_rolled_out(deployment("other").away_from("hostname", owner="other")),
}


@pytest.mark.parametrize("other", NEXT_BY_REVISION.values(), ids=NEXT_BY_REVISION)
def test_a_rollouts_next_pod_goes_by_its_own_revision(other: list[Json]) -> None:
    names = sorted({o["spec"]["nodeName"] for o in other if o["kind"] == "Pod"})
    machines = [*(node(n).zone(n[0]).cpu(16) for n in names), node("c-0").zone("c").cpu(3)]
    web = deployment("web").spread("zone").requests(cpu="1500m").placed({"a-0": 2, "b-0": 1})
    assert plan(snapshot(machines, web, other)).moves == ()


@pytest.mark.parametrize("cpu", ["3700m", "5100m"])
@pytest.mark.parametrize("key", [HASH, None], ids=["by its own revision", "with the old ones"])
def test_a_surge_comes_beside_the_old_pods_where_its_constraint_does_not_count_them(
    key: str | None, cpu: str
) -> None:
    """None goes before another is Ready. One new one is in b; another has to go to c, where an old one is."""
    surging = deployment("other").spread("zone", match_label_keys=(key,) if key else ())
    other = half_rolled_out(surging, ["a-0", "b-0", "c-0", "b-0"], number=3)
    machines = [*(node(n).zone(n[0]).cpu(16) for n in ("a-0", "b-0")), node("c-0").zone("c").cpu(cpu)]
    web = deployment("web").spread("zone").requests(cpu="1500m").placed({"a-0": 2, "b-0": 1})
    assert len(plan(snapshot(machines, web, other)).moves) == (key is None or cpu == "5100m")


@pytest.mark.parametrize(("cpu", "moves"), [("3700m", 0), ("5100m", 1)])
def test_so_it_does_under_hard_constraints_by_default_which_count_its_own_replica_set(
    cpu: str, moves: int
) -> None:
    hard = TopologySpreadConstraint(
        max_skew=1, topology_key="topology.kubernetes.io/zone", when_unsatisfiable="DoNotSchedule"
    )
    profile = Profile(system_defaulted=False, default_constraints=(hard,))
    other = half_rolled_out(deployment("other"), ["a-0", "b-0", "c-0", "b-0"], number=3)
    machines = [*(node(n).zone(n[0]).cpu(16) for n in ("a-0", "b-0")), node("c-0").zone("c").cpu(cpu)]
    web = deployment("web").requests(cpu="1500m").placed({"a-0": 2, "b-0": 1})
    options = PlanOptions(scheduler=SchedulerConfig(profiles=(profile,)))
    assert len(plan(snapshot(machines, web, other), options).moves) == moves


@pytest.mark.parametrize("rolls", HALF_DONE.values(), ids=HALF_DONE)
def test_a_rollouts_next_pod_keeps_no_rule_that_its_revision_has_dropped(rolls: Any) -> None:
    """It takes 2 cpu, and c-0 alone has them, where the first of the new revision is."""

    def whole(kind: Any) -> Any:
        return kind("other").away_from("hostname", owner="other").requests(cpu=1).on_nodes(["a-1", "c-0"])

    found = rolls(whole, ["c-0"])
    for o in found:
        spec = o["spec"].get("template", o)["spec"]
        old = o["metadata"].get("annotations", {}).get("deployment.kubernetes.io/revision") == "1"
        if spec.get("nodeName") != "a-1" and not old:
            spec.pop("affinity")
            spec["containers"][0]["resources"]["requests"]["cpu"] = "2"
    machines = [node(n).zone(n[0]).cpu(c) for n, c in (("a-0", "1600m"), ("a-1", "1200m"), ("c-0", "4200m"))]
    web = deployment("web").spread("zone").requests(cpu="500m").placed({"a-0": 3})
    assert plan(snapshot(machines, found, web)).moves == ()


def drained_beside_two(cpu: str) -> list[Any]:
    """A set and a Deployment have a move each to b-0, which has room for so much; a third pod is drained."""
    return [
        node("a-0").zone("a").cpu("2500m"),
        node("b-0").zone("b").cpu(cpu),
        node("z-0").zone("b").cpu(2).taint(LEAVES),
        stateful_set("db").spread("zone").requests(cpu="400m").placed({"a-0": 2}),
        deployment("web").spread("zone").requests(cpu="200m").placed({"a-0": 2}),
        deployment("other").requests(cpu="200m").placed({"z-0": 1}),
    ]


@pytest.mark.parametrize(("cpu", "waves"), [("700m", [1, 2]), ("800m", [1, 1])])
def test_nor_does_a_move_of_another_owner_take_it_with_that(cpu: str, waves: list[int]) -> None:
    made = plan(snapshot(drained_beside_two(cpu)))
    assert [(m.pod.name[:2], m.wave) for m in made.moves] == list(zip(("db", "we"), waves, strict=True))


def test_a_victim_that_has_to_leave_its_node_is_not_in_its_own_way() -> None:
    machines = [node(n).zone(n[0]).cpu(1) for n in ("a-0", "b-0", "c-0")]
    db = stateful_set("db").spread("zone").requests(cpu=1).placed({"a-0": 1, "b-0": 1, "z-0": 1})
    made = plan(snapshot(machines, node("z-0").zone("b").taint(LEAVES), db))
    assert [(m.pod.node_name, m.destinations) for m in made.moves] == [("z-0", ("c-0",))]


@pytest.mark.parametrize("strategy", [{"type": "Recreate"}, {"rollingUpdate": {"maxSurge": 0}}, {}])
def test_a_rollout_to_other_nodes_keeps_the_room_for_all_of_them(strategy: Json) -> None:
    """The second pod finds what the first leaves nowhere: the new revision selects zone b."""
    rolls = objects(deployment("other").requests(cpu=3).placed({"a-0": 2}))
    for selector, moves in (({}, 1), (ZONE_B, 0)):
        rolls[0]["spec"]["strategy"] = strategy
        rolls[0]["spec"]["template"]["spec"]["nodeSelector"] = selector
        rolls[0]["status"]["updatedReplicas"] = 0
        machines = [node("a-0").zone("a").cpu(16), *(node(n).zone("b").cpu("3200m") for n in ("b-1", "b-2"))]
        assert len(plan(snapshot(machines, rolls, web())).moves) == moves


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("marks", [{}, {"deployment.kubernetes.io/revision": "1"}], ids=["bare", "marked"])
@pytest.mark.parametrize(("cpu", "moves"), [(2, 1), (3, 0)])
def test_between_two_revisions_room_is_kept_for_the_next_one(
    cpu: int, moves: int, marks: Json, ends: bool
) -> None:
    """By Recreate the pods of the old one, of 2 cpu, have to be gone first, and only then the Deployment's
    mark moves on."""
    rolls = objects(deployment("other").requests(cpu=2).selects(**ZONE_B).placed({"b-1": 1}))
    deploy, old, last = rolls
    deploy["spec"]["strategy"] = {"type": "Recreate"}
    deploy["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(cpu)}}
    deploy["status"] |= {"replicas": 0, "updatedReplicas": 0}
    old["spec"]["replicas"] = 0
    for one in (deploy, old):
        one["metadata"]["annotations"] = marks
    if ends:
        last["metadata"] |= {"deletionTimestamp": ago(-20), "deletionGracePeriodSeconds": 30}
    else:
        deploy["status"]["replicas"] = 1
    assert len(plan(snapshot(A, node("b-1").zone("b").cpu(3), rolls, web())).moves) == moves


@pytest.mark.parametrize("rolls", [False, True])
def test_the_next_pod_is_as_large_as_admission_made_the_last(rolls: bool) -> None:
    """All have a sidecar of 1 cpu, which the template lacks."""
    if rolls:
        found = objects(deployment("other").requests(cpu=2).selects(**ZONE_B).placed({"b-0": 1}))
        found[0]["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        found[0]["status"]["updatedReplicas"] = 0
    else:
        found = objects(stateful_set("db").requests(cpu=2).selects(**ZONE_B).placed({"b-0": 1}).replicas(2))
        found[-1]["metadata"]["creationTimestamp"] = ago(60)
    machines = [A, node("b-0").zone("b").cpu("3200m"), B]
    assert plan(snapshot(machines, found, web())).moves
    sidecar = {"name": "proxy", "image": "proxy", "resources": {"requests": {"cpu": "1"}}}
    found[-1]["spec"]["containers"].append(sidecar)
    assert not plan(snapshot(machines, found, web())).moves


def grows(cpu: int, whole: Any, strategy: Json, **status: Any) -> list[Json]:
    """Its template has just been changed to ask for so much."""
    found = objects(whole)
    for one in found:
        if one["kind"] in ("Deployment", "StatefulSet", "DaemonSet"):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            container["resources"] = {"requests": {"cpu": str(cpu)}}
            key = "strategy" if one["kind"] == "Deployment" else "updateStrategy"
            one["spec"][key] = {"type": "RollingUpdate", **strategy}
            one["status"].update(status)
    return found


def two(built: Any) -> Any:
    return built.requests(cpu=1).selects(**ZONE_B).placed({"b-0": 2})


def surges(pods: int) -> Json:
    return {"rollingUpdate": {"maxSurge": pods, "maxUnavailable": 1 - pods}}


NEWER = {"updateRevision": "db-2", "updatedReplicas": 0}
GROWING: dict[str, tuple[Any, int]] = {
    "a set": (lambda: grows(2, two(stateful_set("db")), {}, **NEWER), 4500),
    "a set, down to a partition": (
        lambda: grows(2, two(stateful_set("db")), {"rollingUpdate": {"partition": 1}}, **NEWER),
        3500,
    ),
    "a set, never by itself": (
        lambda: grows(2, two(stateful_set("db")), {"type": "OnDelete"}, **NEWER),
        2500,
    ),
    "a Deployment, one after the other": (
        lambda: grows(2, two(deployment("api")), surges(0), updatedReplicas=0),
        4500,
    ),
    "a Deployment, the new one first": (
        lambda: grows(2, two(deployment("api")), surges(1), updatedReplicas=0),
        5500,
    ),
    "a DaemonSet": (
        lambda: grows(2, daemon_set("agent").requests(cpu=1).placed({"a-0": 1, "b-0": 1}), {}),
        2500,
    ),
}


def by_limits(found: list[Json]) -> list[Json]:
    """Templates state limits alone: the API server makes requests of them in each pod, in no template."""
    for one in (o for o in found if o["kind"] != "Pod"):
        (container,) = one["spec"]["template"]["spec"]["containers"]
        container["resources"] = {"limits": container["resources"]["requests"]}
    return found


@pytest.mark.parametrize(("rolls", "enough"), GROWING.values(), ids=GROWING)
@pytest.mark.parametrize("stated", [list, by_limits], ids=["by requests", "by limits alone"])
def test_a_rollout_to_larger_pods_keeps_the_room_for_all_of_them(
    stated: Any, rolls: Any, enough: int
) -> None:
    for cpu, moves in ((enough, 1), (enough - 1, 0)):
        machines = [node("a-0").zone("a").cpu(9), node("b-0").zone("b").cpu(f"{cpu}m")]
        assert len(plan(snapshot(*machines, *stated(rolls()), web())).moves) == moves, cpu


@pytest.mark.parametrize(("sidecar", "moves"), [(1500, 1), (1600, 0)])
def test_so_does_one_that_gives_them_a_larger_sidecar(sidecar: int, moves: int) -> None:
    """As a restart does after an upgrade of a mesh: a pod of the new revision shows it."""
    both = deployment("other").requests(cpu=1).placed({"b-0": 2, "b-2": 1})
    rolls = given(rollout(0, 1, whole=both, new=["b-2"]), b_2=f"{sidecar}m")
    full = [node("b-0").zone("b").cpu(2), node("b-2").zone("b").cpu("2600m")]
    assert len(plan(snapshot(A, full, node("b-1").zone("b").cpu(3), rolls, web())).moves) == moves


@pytest.mark.parametrize(("cpu", "moves"), [(4500, 1), (4499, 0)])
def test_so_does_one_of_pods_that_have_to_leave_their_node(cpu: int, moves: int) -> None:
    machines = [node("a-0").zone("a").cpu(9), node("b-1").zone("b").cpu(f"{cpu}m"), gone().taint(LEAVES)]
    rolls = grows(2, two(deployment("api")), surges(0), updatedReplicas=0)
    assert len(plan(snapshot(*machines, *rolls, web())).moves) == moves


@pytest.mark.parametrize(("age", "moves"), [(20, 0), (100_000, 1)])
def test_a_set_that_grows_in_order_keeps_the_room_for_its_next_pods(age: int, moves: int) -> None:
    """Unless it waits for one that is broken: then none of them comes."""
    db = objects(
        stateful_set("db")
        .labels(app="db")
        .requests(cpu=1)
        .replicas(5)
        .placed({"a-0": 2, "b-0": 1})
        .unready(2)
    )
    db[-1]["metadata"]["creationTimestamp"] = ago(age)
    machines = [node("a-0").zone("a").cpu("3500m"), node("b-0").zone("b").cpu("3300m")]
    assert len(plan(snapshot(*machines, *db, web())).moves) == moves


@pytest.mark.parametrize(
    ("age", "differs", "moves"),
    [
        (1200, {}, 1),
        (300, {}, 0),
        (1200, {"observedGeneration": 0}, 0),
        (1200, {"replicas": 2}, 0),
        (1200, {"availableReplicas": 0}, 0),
    ],
    ids=["tried in vain", "one has just come", "has yet to look", "has just lost one", "waits for one"],
)
def test_a_set_that_cannot_make_its_next_pods_keeps_no_room(age: int, differs: Json, moves: int) -> None:
    """No condition says it. Its status is of after it has tried."""
    db = objects(stateful_set("db").requests(cpu=3).selects(**ZONE_B).replicas(3).placed({"b-0": 1}))
    db[0]["metadata"]["generation"] = 1
    db[0]["status"] = {"observedGeneration": 1, "replicas": 1, "availableReplicas": 1, **differs}
    db[-1]["metadata"]["creationTimestamp"] = ago(age)
    assert len(plan(snapshot(A, node("b-0").zone("b").cpu("3200m"), B, db, web())).moves) == moves


def test_a_pod_that_waits_for_anothers_end_gets_its_room() -> None:
    small = node("b-0").zone("b").cpu("600m")
    ends = pod("old").requests(cpu=3).on("b-1").terminating()
    assert not plan(snapshot(A, small, B, ends, pod("late").requests(cpu=3), web())).moves
    assert plan(snapshot(A, small, B, ends, web())).moves


def late(**asks: Any) -> Any:
    return pod("late").priority(1000).requests(**asks)


PREEMPTS: dict[str, tuple[list[Any], Any]] = {
    "by the room that the victim frees": (
        [
            node("a-0").zone("a").cpu(4),
            node("b-0").zone("b").cpu(2),
            deployment("batch").requests(cpu="2900m").placed({"a-0": 1}),
            deployment("web").spread("zone").priority(1000).requests(cpu="500m").placed({"a-0": 2}),
        ],
        late(cpu="3500m"),
    ),
    "by a count that the move raises": (
        [
            node("a-0").zone("a").cpu(2),
            node("b-0").zone("b").cpu(8),
            node("c-0").zone("c").taint("kept").cpu(8),
            deployment("batch").requests(cpu=2).placed({"b-0": 3}),
            deployment("web")
            .spread("zone")
            .priority(1000)
            .tolerates("kept")
            .placed({"a-0": 3, "b-0": 2, "c-0": 1}),
        ],
        late(cpu=4).labels(app="web").spread("zone", selector={"app": "web"}),
    ),
    "near the replacement": (
        [
            node("a-0").zone("a").cpu(2),
            node("c-0").zone("c").cpu(4),
            deployment("batch").requests(cpu="3500m").placed({"c-0": 1}),
            deployment("web").spread("zone").priority(1000).placed({"a-0": 2}),
        ],
        late(cpu="3900m").near("zone", app="web"),
    ),
}


@pytest.mark.parametrize(("cluster", "waits"), PREEMPTS.values(), ids=PREEMPTS)
@pytest.mark.parametrize("policy", ["PreemptLowerPriority", "Never"])
def test_no_move_lets_a_pod_preempt_others(cluster: list[Any], waits: Any, policy: str) -> None:
    (one,) = objects(waits)
    one["spec"]["preemptionPolicy"] = policy
    made = plan(snapshot(*cluster, one))
    assert bool(made.moves) is (policy == "Never")
    said = {r.reason.message for r in made.blocked}
    assert made.moves or any("could then preempt pods of lower priority" in m for m in said), said


def beside(*others: Any) -> list[Any]:
    """What a pod of medium priority could preempt would be on a-0, once one of web has gone."""
    web = deployment("web").spread("zone", 1).requests(cpu="100m").priority(1000)
    small = deployment("batch").requests(cpu="200m").placed({"a-0": 1})
    return [
        node("a-0").zone("a").cpu(1),
        node("b-0").zone("b").cpu("150m"),
        web.placed({"a-0": 3}),
        small,
        *others,
    ]


def medium(name: str, cpu: str) -> Any:
    return pod(name).requests(cpu=cpu).priority(10)


OPENS: dict[str, tuple[list[Any], bool]] = {
    "once another has ended": (
        [pod("ends").requests(cpu="300m").priority(1000).on("a-0").terminating(), medium("m", "750m")], False,
    ),
    "where a second one takes the node that one has": (
        [pod("x").requests(cpu="300m").priority(1000).on("a-0"), node("c-0").zone("c").cpu("450m").taint("t"),
         medium("m", "450m").tolerates("t"), medium("n", "450m").tolerates("t")], False,
    ),
    "but that the only one has a node": (
        [pod("x").requests(cpu="300m").priority(1000).on("a-0"), node("c-0").zone("c").cpu("450m").taint("t"),
         medium("m", "450m").tolerates("t")], True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OPENS)
def test_a_move_would_open_a_preemption(case: str) -> None:
    more, moves = OPENS[case]
    made = plan(snapshot(*beside(*more)))
    assert bool(made.moves) is moves
    assert moves or "could then preempt pods of lower priority" in made.blocked[0].reason.message


@pytest.mark.parametrize("priority", [100, 99], ids=["higher", "as high"])
def test_no_replacement_takes_the_room_of_a_pod_that_has_preempted_for_it(priority: int) -> None:
    """It would have a node in the end, once the victim has gone, and preempts yet another until then."""
    web = deployment("web").spread("zone", 1).requests(cpu="100m").priority(priority)
    ends = pod("old").requests(cpu="350m").on("a-0").terminating()
    (waits,) = objects(pod("waits").requests(cpu="400m").priority(99))
    waits["status"]["nominatedNodeName"] = "a-0"
    low = pod("low").requests(cpu="150m").priority(-10).on("b-0")
    rooms = [
        node("a-0").zone("a").cpu("450m"),
        node("a-1").zone("a").cpu("150m"),
        node("b-0").zone("b").cpu("800m"),
    ]
    made = plan(snapshot(*rooms, web.placed({"b-0": 3}), ends, waits, low))
    assert [m.destinations for m in made.moves] == ([] if priority == 100 else [("a-1",)])
    assert made.moves or "could take the place that default/waits" in made.blocked[0].reason.message


@pytest.mark.parametrize(("low", "moves"), [(0, 0), (100, 1)], ids=["lower ones", "no lower ones"])
def test_no_replacement_leaves_a_pod_that_will_be_made_to_preempt_until_the_victim_has_ended(
    low: int, moves: int
) -> None:
    """The only other node for it is the victim's, later."""
    rooms = [
        node("b-4").zone("b").cpu("900m"),
        node("c-5").zone("c").cpu("500m"),
        node("c-6").zone("c").cpu("450m"),
        node("b-9").zone("b").cpu("500m").taint(LEAVES),
    ]
    web = deployment("web").spread("zone", 1).requests(cpu="450m").priority(100).placed({"b-4": 2})
    big = deployment("big").requests(cpu="450m").priority(100).placed({"b-9": 1})
    small = deployment("small").requests(cpu="400m").priority(low).placed({"c-6": 1})
    made = plan(snapshot(*rooms, web, big, small))
    assert len(made.moves) == moves
    assert moves or "could then preempt" in made.blocked[0].reason.message


ZONE_A = {"topology.kubernetes.io/zone": "a"}


def high(name: str = "high") -> Any:
    return deployment(name).labels(high="").requests(cpu=3).priority(1000).selects(**ZONE_A)


EXPELLED: dict[str, list[Any]] = {
    "by the room that the victim frees": [high()],
    "though there is room yet that another will take": [
        node("a-2").zone("a").cpu(3),
        high("first").priority(2000).placed({"a-1": 1}),
        high(),
    ],
    "once its own pod is gone, which it keeps away from": [high().away_from("zone", high="")],
}


@pytest.mark.parametrize("policy", ["PreemptLowerPriority", "Never"])
@pytest.mark.parametrize("more", EXPELLED.values(), ids=EXPELLED)
def test_no_move_lets_a_pod_that_will_be_expelled_preempt_others(more: list[Any], policy: str) -> None:
    *others, expelled = more
    found = objects(
        node("a-0").zone("a").cpu(5),
        node("a-1").zone("a").cpu(6).taint(LEAVES),
        node("b-0").zone("b").cpu(2),
        deployment("batch").requests(cpu=2).placed({"a-0": 1}),
        deployment("web").spread("zone").priority(1000).requests(cpu=1).placed({"a-0": 3}),
        *others,
        expelled.placed({"a-1": 1}),
    )
    for one in found:
        if one["kind"] == "Pod" and one["metadata"]["name"].startswith("high"):
            one["spec"]["preemptionPolicy"] = policy
    made = plan(snapshot(*found))
    assert bool(made.moves) is (policy == "Never")
    said = {r.reason.message for r in made.blocked}
    assert made.moves or any(
        "default/high" in m and "could then preempt pods of lower priority" in m for m in said
    ), said


def test_the_questions_that_are_asked_exactly_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine pods of nine sizes leave a node for others with little room, beside workloads that spread."""
    asked = []

    def counting(*question: Any) -> bool:
        asked.append(question)
        return all_filled(*question)

    monkeypatch.setattr(enough_room, "all_filled", counting)
    drained = node("b-drain").zone("b").cpu(64).taint("karpenter.sh/disrupted")
    rooms = [node(f"b-{i}").zone("b").cpu("1600m" if i else "3200m") for i in range(8)]
    leave = [deployment(f"o{i}").requests(cpu=f"{1000 + i}m").placed({"b-drain": 1}) for i in range(9)]
    full = [node(f"a-{i}").zone("a").cpu("40m") for i in range(4)]
    few = {f"a-{i}": 1 for i in range(4)}
    webs = [deployment(f"w{i}").spread("zone", 1).requests(cpu="10m").placed(few) for i in range(4)]
    assert plan(snapshot(drained, *rooms, *full, *leave, *webs)).moves
    assert len(asked) < 2_000
