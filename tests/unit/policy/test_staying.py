"""Pods that stay where they are for what they share, or for a node that may not let them go."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from rebalancer.model.node import ObjectMeta
from rebalancer.model.pod import REJECTED_FOR
from rebalancer.model.reason import ReasonCode
from rebalancer.model.workload import RuntimeClass
from rebalancer.planner import PlanOptions, plan
from rebalancer.policy.evictable import next_change
from rebalancer.policy.options import PolicyOptions
from tests.support.build import (
    ago,
    claim,
    decoded,
    deployment,
    node,
    nodes,
    objects,
    pod,
    replica_set,
    snapshot,
    stateful_set,
    volume,
    workload,
)
from tests.support.build.base import Builder, metadata
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import code, judged, patched, web

ONE, MANY = ["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"]


def mounting(things: Any, name: str = "data") -> list[Json]:
    """The pods, and their owners' templates, mounting one claim."""
    volumes = {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}}]}
    made = patched("Pod", {"spec": volumes}, things)
    for kind in ("ReplicaSet", "StatefulSet"):
        made = patched(kind, {"spec": {"template": {"spec": volumes}}}, made)
    return made


def stored(*, asked: list[str] = ONE, given: list[str] | None = ONE, name: str = "data") -> list[Json]:
    """The claim, bound to a volume that can do more, or less; `given` None: not bound yet."""
    spec = {"accessModes": asked, **({} if given is not None else {"volumeName": None})}
    made = patched("PersistentVolumeClaim", {"spec": spec}, claim(name, f"pv-{name}"))
    bound = volume(f"pv-{name}", name)
    return made + patched("PersistentVolume", {"spec": {"accessModes": given}}, bound) if given else made


def doomed() -> list[Json]:
    """The claim, and its volume, which somebody has deleted and the claim holds."""
    return patched("PersistentVolume", {"metadata": {"deletionTimestamp": "2026-05-31T23:59:59Z"}}, stored())


def driver(*, attaches: bool) -> Json:
    meta = metadata("CSIDriver", "", "csi.example")
    api = "storage.k8s.io/v1"
    return {"apiVersion": api, "kind": "CSIDriver", "metadata": meta, "spec": {"attachRequired": attaches}}


def alone() -> Any:
    return replica_set("web").placed({"a-0": 1})


def written_in(kind: str) -> list[Json]:
    """A pod with a volume of this kind in its own spec, and an owner that makes such pods."""
    volumes = {"spec": {"volumes": [{"name": "data", kind: {"volumeID": "d", "readOnly": True}}]}}
    return patched("ReplicaSet", {"spec": {"template": volumes}}, patched("Pod", volumes, alone()))


DISKS = "awsElasticBlockStore azureDisk cinder fc flexVolume gcePersistentDisk iscsi portworxVolume rbd"
PINNED = ReasonCode.PINNED_BY_VOLUME
SHARED: list[tuple[str, Any, ReasonCode | None]] = [
    ("pods of one owner share a claim of one node", [mounting(web()), stored()], PINNED),
    ("another owner's pod shares it", [mounting([alone(), pod("other").on("a-0")]), stored()], PINNED),
    ("a pod has it for itself", [mounting(alone()), stored()], None),
    ("the other has ended", [mounting([alone(), pod("other").on("a-0").phase("Failed")]), stored()], None),
    (
        "the other is on its way out",
        [mounting([alone(), pod("other").on("a-0").terminating()]), stored()],
        None,
    ),
    ("the other waits for a node", [mounting([alone(), pod("other")]), stored()], PINNED),
    (
        "the other is of another namespace",
        [mounting([alone(), pod("other", "ops").on("a-0")]), stored()],
        None,
    ),
    ("a claim for many nodes", [mounting(web()), stored(asked=MANY, given=MANY)], None),
    ("a volume for many nodes, asked for by one", [mounting(web()), stored(given=MANY)], None),
    ("readers on many nodes", [mounting(web()), stored(given=["ReadOnlyMany"])], None),
    ("a claim that has no volume yet, by its own modes", [mounting(web()), stored(given=None)], PINNED),
    ("a claim that is in no snapshot", mounting(web()), None),
    ("a driver that attaches", [mounting(web()), stored(), driver(attaches=True)], PINNED),
    ("a volume that is marked for deletion", [mounting(alone()), doomed()], PINNED),
    ("a driver that attaches nothing", [mounting(web()), stored(), driver(attaches=False)], None),
    *((f"{k}, written into the pod", written_in(k), PINNED) for k in (*DISKS.split(), "vsphereVolume")),
    *((f"{k}, which all nodes reach", written_in(k), None) for k in ("nfs", "cephfs", "azureFile")),
]


@pytest.mark.parametrize(("sentence", "things", "expected"), SHARED, ids=[c[0] for c in SHARED])
def test_a_shared_volume_of_one_node_keeps_its_pods(
    sentence: str, things: Any, expected: ReasonCode | None
) -> None:
    del sentence
    assert code(*things) is expected


def test_the_reason_names_the_claim_and_how_many_share_it() -> None:
    reason = judged(mounting(web()), stored())
    assert reason is not None
    assert reason.message.startswith("shares claim default/data with 2 other pods")
    assert reason.numbers == {"others": 2}
    assert "ReadWriteMany" in reason.remedy


def test_no_move_is_planned_for_pods_that_share_a_volume_of_one_node() -> None:
    spread = mounting(workload("web").spread("hostname", 1).placed({"a-0": 3}))
    made = plan(snapshot(nodes(a=2), spread, stored()))
    assert made.moves == ()
    assert {b.reason.code for b in made.blocked} == {PINNED}


def test_a_volume_that_is_a_directory_of_any_node_is_local_storage() -> None:
    where = stored()
    where[1]["spec"]["hostPath"] = {"path": "/mnt/data"}
    assert code(mounting(alone()), where) is ReasonCode.LOCAL_STORAGE


def silent(name: str) -> Builder:
    return node(name).zone("a").not_ready()


def db(name: str = "web") -> Any:
    return stateful_set(name).parallel()


NODES: list[tuple[str, Any, ReasonCode | None]] = [
    ("a StatefulSet's pod, on a silent node", db().placed({"dead": 1}), ReasonCode.NODE_NOT_READY),
    ("its pod on another node", db().placed({"a-0": 1, "dead": 1}), None),
    ("a ReplicaSet's pod, on a silent node", replica_set("web").placed({"dead": 1}), None),
    (
        "the same with a volume that is attached to the node",
        [mounting(replica_set("web").placed({"dead": 1})), stored()],
        ReasonCode.NODE_NOT_READY,
    ),
    (
        "the same with a volume that many nodes may have",
        [mounting(replica_set("web").placed({"dead": 1})), stored(given=MANY)],
        None,
    ),
]


@pytest.mark.parametrize(("sentence", "things", "expected"), NODES, ids=[c[0] for c in NODES])
def test_who_waits_for_a_pods_end_is_not_left_waiting(
    sentence: str, things: Any, expected: ReasonCode | None
) -> None:
    del sentence
    assert code(silent("dead"), things) is expected


@pytest.mark.parametrize(
    ("system", "selects", "moves"),
    [("windows", False, 0), ("linux", False, 2), ("windows", True, 0), ("", False, 2)],
)
@pytest.mark.parametrize("certainty", ["certain", "likely"])
def test_no_move_could_land_where_the_kubelet_rejects_the_pod(
    system: str, selects: bool, moves: int, certainty: Any
) -> None:
    """Pods say that they are for Linux, and the scheduler does not ask."""
    linux = {"kubernetes.io/os": "linux"}
    made = objects(nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 4}))
    for o in made:
        if o["kind"] == "Node" and (runs := system if o["metadata"]["name"] == "b-0" else "linux"):
            o["metadata"]["labels"]["kubernetes.io/os"] = runs
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec", {})) if o["kind"] != "Node" else ():
            spec |= {"os": {"name": "linux"}} | ({"nodeSelector": linux} if selects else {})
    found = plan(decoded(made), PlanOptions(certainty=certainty))
    assert len(found.moves) == moves
    if system and not moves and not selects:
        assert {b.reason.code for b in found.blocked} == {ReasonCode.NODE_UNFIT}
        assert "operating system" in found.blocked[0].reason.message


@pytest.mark.parametrize(("system", "moves"), [("windows", 0), ("linux", 2)])
def test_a_pod_that_names_its_system_goes_to_no_other_though_its_image_runs_there(
    system: str, moves: int
) -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    there = on_platform("a-0", "linux"), on_platform("b-0", system), pod("other").on("b-0")
    made = objects(*there, web)
    for o in made:
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec", {})):
            if "containers" in spec and o["metadata"]["name"] != "other":
                spec["os"] = {"name": "linux"}
    assert len(plan(decoded(made)).moves) == moves


ARCH = "kubernetes.io/arch"
ELSE = {"spec": {"containers": [{"name": "c", "image": "registry.example/app:2"}]}}
OTHER = pod("other").on("b-0")
ARCHITECTURES: dict[str, tuple[str, list[Any], bool, int]] = {
    "no pod runs the image on the other one": ("arm64", [], False, 0),
    "one does, but is not Ready": ("arm64", [pod("other").on("b-0").unready()], False, 0),
    "one runs another image": ("arm64", patched("Pod", ELSE, OTHER), False, 0),
    "one does, whoever owns it": ("arm64", [OTHER], False, 2),
    "there is only one": ("amd64", [], False, 2),
    "the node does not say": ("", [], False, 2),
    "nor where there are two": ("", [node("c-0").label(ARCH, "arm64").cordoned()], False, 0),
    "the pods go to one only": ("arm64", [node("b-1").zone("b").label(ARCH, "amd64")], True, 2),
    "they could go to both": ("arm64", [node("b-1").zone("b").label(ARCH, "amd64")], False, 0),
}


@pytest.mark.parametrize("certainty", ["certain", "likely"])
@pytest.mark.parametrize(("away", "others", "selects", "moves"), ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_no_move_could_land_where_the_image_was_not_seen_to_run(
    away: str, others: list[Any], selects: bool, moves: int, certainty: Any
) -> None:
    b = node("b-0").zone("b")
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    if selects:
        web.selects(**{ARCH: "amd64"})
    things = node("a-0").zone("a").label(ARCH, "amd64"), b.label(ARCH, away) if away else b, web, others
    found = plan(snapshot(*things), PlanOptions(certainty=certainty))
    assert len(found.moves) == moves
    if not moves:
        assert {r.reason.code for r in found.blocked} == {ReasonCode.NODE_UNFIT}
        assert "architecture" in found.blocked[0].reason.message


def test_where_no_pod_is_ready_each_counts_as_one_that_runs() -> None:
    nodes_ = node("a-0").zone("a").label(ARCH, "amd64"), node("b-0").zone("b").label(ARCH, "amd64")
    web = deployment("web").spread("zone", 1).placed({"a-0": 4}).unready(0, 1, 2, 3)
    assert plan(snapshot(nodes_, node("c-0").label(ARCH, "arm64").cordoned(), web)).moves


def on_platform(name: str, system: str, build: str = "") -> Any:
    builder = node(name).zone(name[0]).label("kubernetes.io/os", system).label(ARCH, "amd64")
    return builder.label("node.kubernetes.io/windows-build", build) if build else builder


@pytest.mark.parametrize(
    ("here", "away", "moves"),
    [
        (("linux",), ("windows",), 0),
        (("windows", "10.0.17763"), ("windows", "10.0.20348"), 0),
        (("windows", "10.0.20348"), ("windows", "10.0.20348"), 2),
        (("linux",), ("linux",), 2),
    ],
)
def test_an_image_is_seen_to_run_on_a_system_and_a_build_of_it(
    here: tuple[str, ...], away: tuple[str, ...], moves: int
) -> None:
    """Nor need pods say which system they are for."""
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    third = on_platform("b-1", "linux").cordoned()
    found = plan(snapshot(on_platform("a-0", *here), on_platform("b-0", *away), third, web))
    assert len(found.moves) == moves
    if not moves:
        assert {r.reason.code for r in found.blocked} == {ReasonCode.NODE_UNFIT}
        assert "/".join((away[0], "amd64", *away[1:])) in found.blocked[0].reason.message


WHOLE = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}
PROXY = {"initContainers": [{"name": "proxy", "image": "p:1", "restartPolicy": "Always"}]}
IMAGES = {"volumes": [{"name": "m", "image": {"reference": "r.example/m:1"}}]}
AGED: dict[str, tuple[Json, str, str, int]] = {
    "resources of the pod": (WHOLE, "v1.36.2", "v1.33.9-eks-113cf36", 0),
    "which it knows": (WHOLE, "v1.36.2", "v1.34.1+k3s1", 2),
    "a sidecar": (PROXY, "v1.29.3", "v1.28.9", 0),
    "a sidecar, for long": (PROXY, "v1.36.2", "v1.33.9", 2),
    "an image as a volume": (IMAGES, "v1.36.2", "v1.34.2", 0),
    "which kubelets as old were made to know": (IMAGES, "v1.34.2", "v1.34.2", 2),
    "nothing of that": ({}, "v1.36.2", "v1.30.0", 2),
    "a version that cannot be read": (WHOLE, "v1.36.2", "built by hand", 2),
}


@pytest.mark.parametrize(("asked", "here", "away", "moves"), AGED.values(), ids=AGED)
def test_no_move_could_land_where_the_kubelet_is_too_old_for_the_pod(
    asked: Json, here: str, away: str, moves: int
) -> None:
    made = objects(nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 4}))
    for kind in ("Deployment", "ReplicaSet"):
        made = patched(kind, {"spec": {"template": {"spec": asked}}}, made)
    made = patched("Pod", {"spec": asked}, made)
    for name, version in (("a-0", here), ("b-0", away)):
        made = patched("Node", {"status": {"nodeInfo": {"kubeletVersion": version}}}, made, name=name)
    found = plan(decoded(made))
    assert len(found.moves) == moves
    if not moves:
        assert {r.reason.code for r in found.blocked} == {ReasonCode.NODE_UNFIT}
        assert "too old" in found.blocked[0].reason.message


REJECTED: dict[str, tuple[str, int, bool, bool, int | None, int]] = {
    "by the topology manager": ("TopologyAffinityError", 60, False, True, None, 0),
    "for a sysctl": ("SysctlForbidden", 3600, False, True, None, 0),
    "a day ago": ("SysctlForbidden", 90_000, False, True, None, 2),
    "but a later one is Ready": ("OutOfcpu", 3600, False, True, 60, 1),
    "and an earlier one is Ready": ("OutOfcpu", 3600, False, True, 7200, 0),
    "of another owner": ("TopologyAffinityError", 60, False, False, None, 2),
    "which ran before": ("UnexpectedAdmissionError", 60, True, True, None, 2),
    "which was evicted": ("Evicted", 60, False, True, None, 2),
}


@pytest.mark.parametrize(("reason", "age", "ran", "own", "ready", "moves"), REJECTED.values(), ids=REJECTED)
def test_no_move_could_land_where_the_kubelet_has_just_rejected_a_pod_of_the_owner(
    reason: str, age: int, ran: bool, own: bool, ready: int | None, moves: int
) -> None:
    placed = {"a-0": 4} if ready is None else {"a-0": 4, "b-0": 1}
    made = objects(nodes(a=1, b=1), deployment("web").spread("zone", 1).placed(placed))
    other = objects(deployment("other").placed({"b-0": 1}))
    pods = [o for o in (made if own else other) if o["kind"] == "Pod"]
    for o in made:
        if o["kind"] == "Pod" and o["spec"]["nodeName"] == "b-0":
            o["metadata"]["creationTimestamp"] = ago(ready or 0)
    failed = deepcopy(pods[0])
    failed["metadata"] |= {"name": "failed", "uid": "failed", "creationTimestamp": ago(age)}
    failed["spec"]["nodeName"] = "b-0"
    failed["status"] = {"phase": "Failed", "reason": reason}
    if ran:
        failed["status"]["containerStatuses"] = [{"name": "c", "state": {"terminated": {"exitCode": 1}}}]
    found = decoded([*made, *([] if own else other), failed])
    assert len(plan(found).moves) == moves
    if not moves:
        assert reason in plan(found).blocked[0].reason.message
        assert next_change(found, PolicyOptions()) <= found.now + REJECTED_FOR - age


USERS, GROUPS = {"hostUsers": False}, {"securityContext": {"supplementalGroupsPolicy": "Strict"}}
MOUNT = {"name": "m", "mountPath": "/m", "readOnly": True, "recursiveReadOnly": "Enabled"}
THROUGHOUT = {"containers": [{"name": "c", "image": "i", "volumeMounts": [MOUNT]}]}
ABLE = {"name": "", "features": {"userNamespaces": True}}
FEATURES: dict[str, tuple[Json, Json, int]] = {
    "a runtime without user namespaces": (USERS, {"runtimeHandlers": [{**ABLE, "features": {}}]}, 0),
    "only another handler has them": (USERS, {"runtimeHandlers": [{"name": ""}, {**ABLE, "name": "vm"}]}, 0),
    "a runtime that does not say": (USERS, {}, 0),
    "a runtime with them": (USERS, {"runtimeHandlers": [ABLE]}, 2),
    "a pod with the users of its node": ({"hostUsers": True}, {"runtimeHandlers": [{"name": ""}]}, 2),
    "a runtime without recursive read-only mounts": (THROUGHOUT, {"runtimeHandlers": [ABLE]}, 0),
    "a runtime with these": (
        THROUGHOUT,
        {"runtimeHandlers": [{"name": "", "features": {"recursiveReadOnlyMounts": True}}]},
        2,
    ),
    "a runtime that merges groups": (GROUPS, {"features": {"supplementalGroupsPolicy": False}}, 0),
    "a node that names no features": (GROUPS, {}, 0),
    "a runtime that can do without": (GROUPS, {"features": {"supplementalGroupsPolicy": True}}, 2),
    "a pod with merged groups": (
        {"securityContext": {"supplementalGroupsPolicy": "Merge"}},
        {"features": {"supplementalGroupsPolicy": False}},
        2,
    ),
}


@pytest.mark.parametrize(("asked", "status", "moves"), FEATURES.values(), ids=FEATURES)
def test_no_move_could_land_where_the_runtime_cannot_do_what_the_pod_asks_for(
    asked: Json, status: Json, moves: int
) -> None:
    made = objects(nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 4}))
    for kind in ("Deployment", "ReplicaSet"):
        made = patched(kind, {"spec": {"template": {"spec": asked}}}, made)
    made = patched("Node", {"status": status}, patched("Pod", {"spec": asked}, made), name="b-0")
    found = plan(decoded(made))
    assert len(found.moves) == moves
    if not moves:
        assert {r.reason.code for r in found.blocked} == {ReasonCode.NODE_UNFIT}


def armored(type_: str) -> Json:
    return {"spec": {"securityContext": {"appArmorProfile": {"type": type_}}}}


def annotated(value: str) -> Json:
    """As up to 1.29."""
    return {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": value}}}


ARMOR: dict[str, tuple[Json, str, Json, int]] = {
    "another system": (armored("RuntimeDefault"), "Other Linux", {}, 0),
    "another system, by annotation": (annotated("runtime/default"), "Other Linux", {}, 0),
    "a node that does not say": (armored("RuntimeDefault"), "", {}, 0),
    "the same system": (armored("RuntimeDefault"), "Some Linux 24.04 LTS", {}, 2),
    "another release of it": (armored("RuntimeDefault"), "Some Linux 24.10", {}, 2),
    "another version of it": (armored("RuntimeDefault"), "Some Linux 25.04 LTS", {}, 0),
    "another on which such a pod runs": (
        armored("RuntimeDefault"), "Other Linux", annotated("runtime/default"), 2,
    ),
    "another on which a pod without runs": (
        armored("RuntimeDefault"), "Other Linux", armored("Unconfined"), 0,
    ),
    "a pod without": (armored("Unconfined"), "Other Linux", {}, 2),
    "a pod without, by annotation": (annotated("unconfined"), "Other Linux", {}, 2),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "system", "there", "moves"), ARMOR.values(), ids=ARMOR)
def test_no_move_of_a_pod_with_an_apparmor_profile_could_land_where_none_was_seen_to_run(
    asked: Json, system: str, there: Json, moves: int
) -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    made = patched("Pod", asked, objects(nodes(a=1, b=1), web))
    made += patched("Pod", there, deployment("other").placed({"b-0": 1}))
    for name, image in (("a-0", "Some Linux 24.04 LTS"), ("b-0", system)):
        made = patched("Node", {"status": {"nodeInfo": {"osImage": image}}}, made, name=name)
    found = plan(decoded(made))
    assert len(found.moves) == moves
    if not moves:
        assert {b.reason.code for b in found.blocked} == {ReasonCode.NODE_UNFIT}


HANDLERS: dict[str, tuple[list[str] | None, str | None, int]] = {
    "the node lacks it": (["", "runc"], "kata", 0),
    "the node has it": (["", "runc", "kata"], "kata", 2),
    "the node does not say what it has": (None, "kata", 2),
    "the RuntimeClass could not be read": (["", "runc"], None, 2),
}


@pytest.mark.parametrize(("listed", "handler", "moves"), HANDLERS.values(), ids=HANDLERS)
def test_no_move_could_land_where_no_runtime_has_the_handler_of_the_pods_class(
    listed: list[str] | None, handler: str | None, moves: int
) -> None:
    made = objects(nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 4}))
    for o in made:
        if o["kind"] == "Node" and listed is not None and o["metadata"]["name"] == "b-0":
            o["status"]["runtimeHandlers"] = [{"name": name, "features": {}} for name in listed]
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec", {})) if o["kind"] != "Node" else ():
            spec["runtimeClassName"] = "vm"
    runs = {"vm": RuntimeClass(ObjectMeta("vm"), handler=handler)} if handler else {}
    found = plan(decoded(made), PlanOptions(policy=PolicyOptions(runtime_classes=runs)))
    assert len(found.moves) == moves
    if not moves:
        assert {b.reason.code for b in found.blocked} == {ReasonCode.NODE_UNFIT}
        assert "RuntimeClass" in found.blocked[0].reason.message


@pytest.mark.parametrize(
    ("seconds", "effect", "moves"),
    [(60, "NoExecute", 0), (None, "NoExecute", 2), (60, "NoSchedule", 0), (None, "NoSchedule", 2)],
)
def test_no_move_could_land_where_the_pod_cannot_stay(seconds: int | None, effect: str, moves: int) -> None:
    """The scheduler takes a toleration that ends for one, and then the pod is deleted."""
    bears = {"key": "repair", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    bears = {k: v for k, v in bears.items() if v is not None}
    if seconds is None:
        bears.pop("effect")
    made = objects(nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 4}))
    for o in made:
        if o["kind"] == "Node" and o["metadata"]["name"] == "b-0":
            o["spec"]["taints"] = [{"key": "repair", "effect": effect}]
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec", {})) if o["kind"] != "Node" else ():
            spec["tolerations"] = [bears]
    found = plan(decoded(made))
    assert len(found.moves) == moves
    if not moves and effect == "NoExecute":
        assert {b.reason.code for b in found.blocked} == {ReasonCode.NODE_UNFIT}
        assert "leave again" in found.blocked[0].reason.message


@pytest.mark.parametrize(("there", "moves"), [(None, 2), (["csi.example"], 2), ([], 0)])
def test_no_move_could_land_where_the_driver_of_its_volumes_is_not(
    there: list[str] | None, moves: int
) -> None:
    """Before 1.37 the scheduler does not ask, later only if the driver wants it to."""
    web = mounting(deployment("web").spread("zone", 1).placed({"a-0": 4}))
    meta = metadata("CSINode", "", "b-0")
    csi_node: Json = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta}
    csi_node["spec"] = {"drivers": [{"name": name, "nodeID": "b-0"} for name in there or ()]}
    known = [] if there is None else [csi_node]
    found = plan(snapshot(nodes(a=1, b=1), web, stored(asked=MANY, given=MANY), known))
    assert len(found.moves) == moves


def test_no_move_is_planned_off_a_silent_node_for_a_stateful_set() -> None:
    things = db().spread("zone", 1, affinity_policy="Honor").tolerates("node.kubernetes.io/unreachable")
    made = plan(snapshot(silent("a-0"), nodes(b=1), things.placed({"a-0": 3, "b-0": 1}).unready(0, 1, 2)))
    assert made.moves == ()
    assert {b.reason.code for b in made.blocked} == {ReasonCode.NODE_NOT_READY}
    assert "StatefulSet web makes no replacement" in made.blocked[0].reason.message
    assert made.blocked[0].reason.remedy
