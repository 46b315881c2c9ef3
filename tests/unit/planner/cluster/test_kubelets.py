"""What pods show of their nodes: where nothing starts or ends, nobody is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.policy.evictable import next_change
from rebalancer.policy.options import PolicyOptions
from tests.support.build import (
    ago,
    claim,
    daemon_set,
    decoded,
    deployment,
    node,
    nodes,
    objects,
    pod,
    stateful_set,
    volume,
)
from tests.support.build.volumes import attachment, csi_node
from tests.support.scheduler.plain import Json

HOUR = 3600
SANDBOX = "PodReadyToStartContainers"


def on_b(made: list[Json]) -> list[Json]:
    return [o for o in made if o["kind"] == "Pod" and o["spec"]["nodeName"].startswith("b")]


def creating(made: list[Json], age: int, *, sandbox: str | None = "False") -> list[Json]:
    """Its pods in b are being created for so long; the state of their sandboxes, None = none is told."""
    for o in on_b(made):
        o["metadata"]["creationTimestamp"] = o["status"]["startTime"] = ago(age)
        o["status"]["phase"] = "Pending"
        o["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(age)},
            {"type": "Ready", "status": "False", "lastTransitionTime": ago(age)},
        ]
        if sandbox:
            said = {"type": SANDBOX, "status": sandbox, "lastTransitionTime": ago(age)}
            o["status"]["conditions"].append(said)
    return made


def ending(made: list[Json], **metadata: Any) -> list[Json]:
    for o in on_b(made):
        o["metadata"] |= {"deletionTimestamp": ago(2 * HOUR), "deletionGracePeriodSeconds": 30, **metadata}
    return made


def crashing(made: list[Json]) -> list[Json]:
    """Those that are not Ready crash."""
    for o in made:
        if o["kind"] == "Pod" and any(
            c["type"] == "Ready" and c["status"] == "False" for c in o["status"]["conditions"]
        ):
            last = {"terminated": {"exitCode": 1, "finishedAt": ago(100)}}
            o["status"]["containerStatuses"] = [{"name": "c", "lastState": last}]
    return made


def unpulled(made: list[Json]) -> list[Json]:
    """Those pods say what they wait for, and no more."""
    for o in on_b(made):
        del o["status"]["startTime"]
        waiting = {"waiting": {"reason": "ImagePullBackOff"}}
        o["status"]["containerStatuses"] = [{"name": "c", "state": waiting}]
    return made


def started(age: int, *, host_network: bool = False) -> list[Json]:
    """A pod that runs in b since then."""
    made = objects(deployment("later").placed({"b-0": 1}))
    for o in on_b(made):
        o["metadata"]["creationTimestamp"] = o["status"]["startTime"] = ago(age)
        o["spec"]["hostNetwork"] = host_network
    return made


def other(**placed: int) -> list[Json]:
    return objects(deployment("other").placed({n.replace("_", "-"): c for n, c in placed.items()}))


def claiming(made: list[Json]) -> list[Json]:
    for o in on_b(made):
        o["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]
    return made


def agent(critical: str = "system-node-critical", priority: int = 2_000_001_000) -> list[Json]:
    made = objects(daemon_set("cni").placed({"a-0": 1, "b-0": 1}).unready(1))
    for o in made:
        if o["kind"] == "Pod":
            o["spec"] |= {"priorityClassName": critical, "priority": priority}
    return made


def sick(
    owners: int, age: int = HOUR, *, waits: str = "", away: int = 1, on: str = "b-0", well: int = 0
) -> list[Json]:
    """Pods of so many owners that came so long ago to a node, and are not Ready there after they had been so
    long; elsewhere they are."""
    made = []
    for i in range(owners):
        made += objects(deployment(f"sick{i}").placed({"a-0": away, on: 1}).unready(away))
    for o in on_b(made):
        o["metadata"]["creationTimestamp"] = o["status"]["startTime"] = ago(age)
        said = {"waiting": {"reason": waits}} if waits else {"running": {}}
        o["status"]["containerStatuses"] = [{"name": "c", "started": True, "state": said}]
        o["spec"]["containers"][0]["image"] = "registry.example/app:3" if not waits else o["metadata"]["name"]
        for c in o["status"]["conditions"]:
            c["lastTransitionTime"] = ago(age - well)
    return made


def later(number: int, age: int = 600) -> list[Json]:
    """So many pods of one owner that came later, and are Ready."""
    made = objects(deployment("fine").placed({"b-0": number}))
    for o in on_b(made):
        o["metadata"]["creationTimestamp"] = o["status"]["startTime"] = ago(age)
    return made


def refused(reason: str, number: int, **asked: str | int) -> list[Json]:
    """Pods of another owner that a kubelet has not admitted, and what they ask for and are limited to."""
    made = objects(deployment("other").asks(asked).placed({"a-0": 1, "b-0": number}))
    for o in made:
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec", {})):
            for c in spec.get("containers", ()):
                c["resources"]["limits"] = c["resources"]["requests"]
    for o in on_b(made):
        o["metadata"]["creationTimestamp"] = ago(60)
        o["status"] = {"phase": "Failed", "reason": reason}
    return made


def evicted(*ages: int, by: str = "TerminationByKubelet", node: str = "b-0") -> list[Json]:
    """Pods of web that a kubelet ended so long ago, and made conditions of `by`; "" = none."""
    found = []
    for i, age in enumerate(ages):
        o = next(o for o in objects(deployment("web").placed({"a-0": 1})) if o["kind"] == "Pod")
        o["metadata"] |= {"name": f"gone-{i}", "uid": f"gone-{i}", "creationTimestamp": ago(age + 9 * HOUR)}
        o["spec"]["nodeName"] = node
        why = {"type": "DisruptionTarget", "status": "True", "reason": by, "lastTransitionTime": ago(age)}
        o["status"] = {"phase": "Failed", "reason": "Evicted", "conditions": [why] if by else []}
        found.append(o)
    return found


BARRED: dict[str, Callable[[], list[Json]]] = {
    "three pods have no sandbox": lambda: creating(other(b_0=3), HOUR),
    "one has none, and another of its owner's is Ready elsewhere": lambda: creating(
        other(a_0=1, b_0=1), HOUR
    ),
    "only pods on the node's own network started since": lambda: [
        *creating(other(b_0=3), 2 * HOUR),
        *started(HOUR, host_network=True),
    ],
    "pods do not end": lambda: ending(other(b_0=5)),
    "the node-critical agent is not Ready": agent,
    "the cluster-critical agent is not Ready": lambda: agent("system-cluster-critical", 2_000_000_000),
    "of the pods that came later fewer are Ready": lambda: [*agent(), *later(2)],
    "pods of three owners are not Ready": lambda: sick(3),
    "more of them than came later and are Ready": lambda: [*sick(4), *later(4)],
    "they still were when others came": lambda: [*sick(3, 9 * HOUR, well=7 * HOUR), *later(9, 3 * HOUR)],
    "they were Ready two minutes ago": lambda: sick(3, HOUR, well=HOUR - 120),
    "their images cannot be pulled there": lambda: sick(3, waits="ImagePullBackOff"),
    "their containers are being created for an hour": lambda: sick(3, waits="ContainerCreating"),
    "three pods that came lately found too little cpu": lambda: refused("OutOfcpu", 3, cpu="1"),
    "its kubelet has evicted several, as it ran short of something": lambda: evicted(100, 1500),
}
FREE: dict[str, Callable[[], list[Json]]] = {
    "not for long": lambda: creating(other(b_0=3), 300),
    "images are slow": lambda: creating(other(b_0=3), HOUR, sandbox="True"),
    "an older kubelet does not say": lambda: creating(other(b_0=3), HOUR, sandbox=None),
    "images cannot be pulled": lambda: unpulled(creating(other(b_0=3), HOUR, sandbox=None)),
    "it hangs elsewhere as well": lambda: creating(other(b_0=2, b_1=2), HOUR),
    "a lone pod hangs": lambda: creating(other(b_0=1), HOUR),
    "its claim may be to blame": lambda: claiming(creating(other(a_0=3, b_0=3), HOUR)),
    "another has started since": lambda: [*creating(other(b_0=3), 2 * HOUR), *started(HOUR)],
    "a finalizer holds them": lambda: ending(other(b_0=5), finalizers=["x/y"]),
    "another has started since they should have ended": lambda: [*ending(other(b_0=5)), *started(HOUR)],
    "it is not Ready, and not critical": lambda: agent("important", 1_000_000_000),
    "three came later and are Ready": lambda: [*agent(), *later(3)],
    "two owners' pods are not Ready": lambda: sick(2),
    "not for long enough": lambda: sick(5, 500),
    "they were Ready half a minute ago": lambda: sick(5, HOUR, well=HOUR - 30),
    "they are Ready nowhere": lambda: sick(5, away=0),
    "more came with them, or later, and are Ready": lambda: [*sick(3), *later(4, HOUR)],
    "more came since they are not": lambda: [*sick(3, 9 * HOUR, well=7 * HOUR), *later(4)],
    "two pods found too little cpu": lambda: refused("OutOfcpu", 2, cpu="1"),
    "three found no room for what this does not ask for": lambda: refused("OutOfexample.com/gpu", 3, cpu="1"),
    "three found no cpus of their own, which this does not ask for": lambda: refused(
        "TopologyAffinityError", 3, cpu="1", memory="1Gi"
    ),
    "its kubelet has evicted one": lambda: evicted(100),
    "that was long ago": lambda: evicted(HOUR, 2 * HOUR),
    "that was on two nodes": lambda: [*evicted(100), *evicted(100, 2 * HOUR, node="b-1")],
    "they went beyond limits of their own": lambda: evicted(100, 1500, by=""),
}


def web() -> list[Json]:
    owner = deployment("web").spread("zone").asks({"cpu": "500m"})
    return objects(nodes(a=1, b=2), owner.placed({"a-0": 3}))


@pytest.mark.parametrize("case", BARRED)
def test_no_move_could_land_on_a_node_that_has_not_done_what_it_was_last_asked_to(case: str) -> None:
    found = decoded([*web(), *BARRED[case]()])
    assert not plan(found).moves
    assert {b.reason.code for b in plan(found).blocked if b.pod.name.startswith("web")} == {
        ReasonCode.NODE_UNFIT
    }


def allotted(phase: str = "Running", **metadata: Any) -> list[Json]:
    """A pod on b-0 that asks for nothing, and whose claims of devices take cpus of the node's."""
    (made,) = objects(pod("exact").on("b-0").phase(phase))
    made["metadata"] |= metadata
    takes = {"resourceClaimName": "cpus", "containers": ["c"], "mapping": [{"name": "cpu", "quantity": "3"}]}
    made["status"]["nodeAllocatableResourceClaimStatuses"] = [takes]
    return [made]


@pytest.mark.parametrize(
    ("made", "moves"),
    [
        (allotted, 0),
        (lambda: allotted(deletionTimestamp=ago(-20), deletionGracePeriodSeconds=30), 0),
        (lambda: allotted("Succeeded"), 1),
    ],
    ids=["runs", "ends", "has ended"],
)
def test_no_move_could_land_where_claims_of_devices_take_room_of_the_node(
    made: Callable[[], list[Json]], moves: int
) -> None:
    """Only the scheduler knows how much is left."""
    found = plan(decoded([*web(), *made()]))
    assert len(found.moves) == moves
    codes = {b.reason.code for b in found.blocked if b.pod.name.startswith("web")}
    assert (ReasonCode.NODE_UNFIT in codes) is not bool(moves)


@pytest.mark.parametrize("case", FREE)
def test_a_node_is_not_barred_where_the_pods_may_be_to_blame(case: str) -> None:
    assert len(plan(decoded([*web(), *FREE[case]()])).moves) == 1


@pytest.mark.parametrize(
    "made",
    [lambda: creating(other(b_0=3), 300), lambda: sick(3, 500), lambda: sick(5, HOUR, well=HOUR - 30)],
    ids=["no sandbox", "not Ready", "Ready until half a minute ago"],
)
@pytest.mark.parametrize(("apart", "moves"), [(0.0, 1), (360.0, 0)])
def test_what_has_lasted_by_one_of_two_clocks_has_lasted(
    made: Callable[[], list[Json]], apart: float, moves: int
) -> None:
    found = replace(decoded([*web(), *made()]), apart=apart)
    assert len(plan(found).moves) == moves
    if not apart:
        assert next_change(replace(found, apart=120.0), PolicyOptions()) <= next_change(
            found, PolicyOptions()
        )


@pytest.mark.parametrize(("number", "moves"), [(3, 0), (2, 1)])
@pytest.mark.parametrize("reason", ["TopologyAffinityError", "UnexpectedAdmissionError"])
def test_who_needs_cpus_of_its_own_hears_of_others_that_found_none(
    reason: str, number: int, moves: int
) -> None:
    asks: dict[str, str | int] = {"cpu": "2", "memory": "1Gi"}
    made = objects(nodes(a=1, b=1), deployment("web").spread("zone").asks(asks).placed({"a-0": 3}))
    for o in made:
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec", {})) if o["kind"] != "Node" else ():
            for c in spec.get("containers", ()):
                c["resources"]["limits"] = asks
    assert len(plan(decoded([*made, *refused(reason, number, **asks)])).moves) == moves


@pytest.mark.parametrize(
    ("namespace", "image", "moves"),
    [("default", "registry.example/app:1", 0), ("default", "x:1", 1), ("ops", "registry.example/app:1", 1)],
)
@pytest.mark.parametrize("on", ["b-0", "c-0"])
def test_an_image_that_another_cannot_pull_is_no_certain_one(
    namespace: str, image: str, on: str, moves: int
) -> None:
    """In its namespace: elsewhere there may be other secrets. Nor does it matter where a node has it, unless
    it is pulled each time; then it does until one that was pulled is Ready."""
    made = objects(deployment("other", namespace).placed({"a-0": 1, on: 1}).unready(1))
    for o in made:
        if o["kind"] == "Pod":
            o["spec"]["containers"][0]["image"] = image
            if o["spec"]["nodeName"] == on:
                said = {"waiting": {"reason": "ErrImagePull"}}
                o["status"]["containerStatuses"] = [{"name": "c", "state": said}]
                o["metadata"]["creationTimestamp"] = o["status"]["startTime"] = ago(9 * HOUR)
                o["status"]["conditions"] = [
                    {"type": "Ready", "status": "False", "lastTransitionTime": ago(HOUR)}
                ]
    owner = deployment("web").spread("zone").placed({"a-0": 3, "c-0": 3})
    there = objects(nodes(a=1, b=1, c=1), owner)
    assert len(plan(decoded([*there, *made])).moves) == 2 * moves
    late = objects(pod("late", namespace).on("a-0"))
    late[0]["metadata"]["creationTimestamp"] = late[0]["status"]["startTime"] = ago(60)
    late[0]["spec"]["containers"][0]["image"] = image
    assert len(plan(decoded([*there, *made, *late])).moves) == 2 * moves, "it may not have been pulled"
    for o in there:
        if o["kind"] == "Node":
            o["status"]["images"] = [{"names": [image], "sizeBytes": 1}]
    assert plan(decoded([*there, *made])).moves
    for o in there:
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec", {})):
            for c in spec.get("containers", ()):
                c["imagePullPolicy"] = "Always"
    assert len(plan(decoded([*there, *made])).moves) == 2 * moves
    assert len(plan(decoded([*there, *made, *late])).moves) == 2 * moves, "it may not have been pulled"
    late[0]["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    late[0]["status"]["startTime"] = late[0]["metadata"]["creationTimestamp"] = ago(2 * HOUR)
    assert len(plan(decoded([*there, *made, *late])).moves) == 2 * moves, "it could be pulled then"
    late[0]["status"]["startTime"] = ago(60)
    assert len(plan(decoded([*there, *made, *late])).moves) == 2


def storing(name: str, **placed: int) -> Any:
    owner = stateful_set(name).zonal_volumes({"a-0": "a", "a-1": "a"})
    return owner.placed({n.replace("_", "-"): c for n, c in placed.items()})


def hanging(made: list[Json]) -> list[Json]:
    """Their pods on a-1 have no sandbox for an hour."""
    for o in made:
        if o["kind"] == "Pod" and o["spec"]["nodeName"] == "a-1":
            o["status"] = {"phase": "Pending", "startTime": ago(HOUR)}
            o["metadata"]["creationTimestamp"] = ago(HOUR)
            said = {"type": SANDBOX, "status": "False", "lastTransitionTime": ago(HOUR)}
            o["status"]["conditions"] = [said]
    return made


def attaching(number: int, on: str = "a-1", driver: str = "csi.example", age: int = HOUR) -> list[Json]:
    """Volumes that are not attached yet."""
    made = objects(*(attachment(f"pv-{i}", on, driver=driver) for i in range(number)))
    for o in made:
        o["metadata"]["creationTimestamp"], o["status"] = ago(age), {"attached": False}
    return made


def detaching(number: int, on: str = "a-0") -> list[Json]:
    made = attaching(number, on)
    for o in made:
        o["metadata"]["deletionTimestamp"], o["status"] = ago(HOUR), {"attached": True}
    return made


def plugin(*, bad: bool = True) -> list[Json]:
    made = objects(daemon_set("csi").placed({"a-0": 1, "a-1": 1}).unready(*((1,) if bad else ())))
    for o in made:
        if o["kind"] == "Pod":
            o["spec"]["containers"].append({"name": "node-driver-registrar", "image": "r:1"})
    return made


STORED: dict[str, tuple[Callable[[], list[Json]], bool]] = {
    "nothing": (list, True),
    "three owners' volumes have not come": (
        lambda: hanging(objects(*(storing(f"s{i}", a_0=2, a_1=1) for i in range(3)))),
        False,
    ),
    "nor have one owner's: its own fault": (lambda: hanging(objects(storing("s", a_0=4, a_1=3))), True),
    "volumes of three owners, and there are no others": (
        lambda: hanging(objects(*(storing(f"s{i}", a_1=1) for i in range(3)))),
        True,
    ),
    "three are not attached": (lambda: attaching(3), False),
    "two are not": (lambda: attaching(2), True),
    "another driver's": (lambda: attaching(3, driver="other.example"), True),
    "on another node": (lambda: attaching(3, "a-0"), True),
    "not for long": (lambda: attaching(3, age=300), True),
    "three do not come off the node that it would leave": (lambda: detaching(3), False),
    "three do not come off the other": (lambda: detaching(3, "a-1"), True),
    "its driver's agent is not Ready": (plugin, False),
    "it is": (lambda: plugin(bad=False), True),
}


@pytest.mark.parametrize(("made", "moves"), STORED.values(), ids=STORED)
def test_nobody_is_sent_where_volumes_of_its_driver_do_not_come(
    made: Callable[[], list[Json]], moves: bool
) -> None:
    db = storing("db", a_0=3).spread("hostname")
    found = decoded([*objects(nodes(a=2), csi_node("a-0"), csi_node("a-1"), db), *made()])
    assert bool(plan(found).moves) is moves


def test_a_volume_has_been_on_its_way_for_long_if_one_of_two_clocks_says_so() -> None:
    db = storing("db", a_0=3).spread("hostname")
    made = decoded([*objects(nodes(a=2), csi_node("a-0"), csi_node("a-1"), db), *attaching(3, age=300)])
    assert not plan(replace(made, apart=360.0)).moves
    assert next_change(replace(made, apart=120.0), PolicyOptions()) == made.now + 180


@pytest.mark.parametrize(
    ("said", "moves"),
    [
        ([csi_node("a-0"), csi_node("a-1", driver="other.example")], False),
        ([csi_node("a-0")], False),
        ([], True),
    ],
    ids=["another driver", "no CSINode", "no CSINode anywhere: none is kept"],
)
def test_a_volume_is_not_attached_to_a_node_without_its_driver(said: list[Any], moves: bool) -> None:
    db = storing("db", a_0=3).spread("hostname")
    assert bool(plan(decoded(objects(nodes(a=2), said, db))).moves) is moves


def test_the_agent_of_a_csi_driver_is_nothing_to_pods_without_its_volumes() -> None:
    owner = deployment("web").spread("hostname").placed({"a-0": 3})
    assert plan(decoded([*objects(nodes(a=2), owner), *plugin()])).moves


def test_a_claim_that_hangs_for_others_is_no_certain_one() -> None:
    made = objects(volume("pv", "shared"), claim("shared", "pv"), nodes(a=1, b=2))
    for o in made[:2]:
        o["spec"]["accessModes"] = ["ReadWriteMany"]
    web, others = (
        deployment("web").spread("zone").placed({"a-0": 3}),
        [deployment(f"o{i}").placed({"a-0": 1, f"b-{i}": 1}) for i in range(2)],
    )
    for o in (mounting := objects(web, others)):
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec", {})):
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}]
    assert plan(decoded([*made, *objects(web)])).moves
    assert not plan(decoded([*made, *creating(mounting, HOUR)])).moves


@pytest.mark.parametrize(("age", "pods", "moves"), [(2 * HOUR, 3, 1), (2 * HOUR, 2, 0), (HOUR - 60, 3, 0)])
def test_a_node_that_karpenter_never_labels_is_set_up_if_pods_are_ready_there(
    age: int, pods: int, moves: int
) -> None:
    made = objects(node("b-0").zone("b").label("karpenter.sh/nodepool", "default"))
    made[0]["metadata"]["creationTimestamp"] = ago(age)
    owner = deployment("web").spread("zone").placed({"a-0": 3})
    others = deployment("others").placed({"b-0": pods})
    found = decoded([*made, *objects(nodes(a=1), owner, others, daemon_set("ds").placed({"b-0": 1}))])
    assert len(plan(found).moves) == moves
    if age < HOUR:
        assert next_change(found, PolicyOptions()) <= found.now + 60


@pytest.mark.parametrize(("in_b", "moves"), [(1, False), (2, True)])
def test_nobody_is_sent_where_all_siblings_crash(in_b: int, moves: bool) -> None:
    """As soon as one is Ready there, the node does."""
    owner = deployment("web").spread("zone").placed({"b-0": in_b, "a-0": 7})
    assert plan(decoded(objects(nodes(a=1, b=1), owner))).moves
    broken = crashing(objects(nodes(a=1, b=1), owner.unready(0)))
    assert bool(plan(decoded(broken)).moves) is moves


@pytest.mark.parametrize(("kind", "moves"), [("fargate", 0), ("ec2", 1)])
def test_a_node_that_was_made_for_one_pod_takes_no_other(kind: str, moves: int) -> None:
    there = node("b-0").zone("b").label("eks.amazonaws.com/compute-type", kind)
    taint = "eks.amazonaws.com/compute-type"
    owner = deployment("web").spread("zone").tolerates(taint).placed({"a-0": 3})
    made = decoded(objects(nodes(a=1), there.taint(taint, kind), owner))
    assert len(plan(made).moves) == moves


@pytest.mark.parametrize(
    "made", [creating(other(b_0=3), 300), evicted(100, HOUR - 300), attaching(3, age=300), sick(3, 300)]
)
def test_it_is_known_when_what_pods_show_of_nodes_changes_with_time(made: list[Json]) -> None:
    found = decoded([*web(), *made])
    assert next_change(found, PolicyOptions()) <= found.now + 300
