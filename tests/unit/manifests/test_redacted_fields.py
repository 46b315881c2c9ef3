"""Every field that is decoded has a rule in the redacted snapshot: none is lost on the way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import inspect

from rebalancer.manifests.documents import _GROUPS
from rebalancer.manifests.writing import _Collecting, learn, of_object
from rebalancer.model.decode import Decoder
from rebalancer.model.decode.pod_json import VolumeJson
from rebalancer.model.node import Node, ObjectMeta, Toleration, troubles
from rebalancer.model.pod import Affinity, TopologySpreadConstraint
from rebalancer.model.selectors import LabelSelector
from rebalancer.model.snapshot import KINDS, PLAIN, WORKLOADS

Json = dict[str, Any]
TIME = "2026-01-01T00:00:00Z"
RESOURCES = {"requests": {"cpu": "2", "acme.example/x": "1"}, "limits": {"cpu": "3"}}
DISKS = {"gcePersistentDisk": "pdName", "awsElasticBlockStore": "volumeID", "azureDisk": "diskName"}
DISKS |= dict.fromkeys(("cinder", "portworxVolume"), "volumeID")


def sample(type_: Any) -> Any:
    """A JSON value of a type with every field set, none to its default."""
    return _sample(inspect.type_info(type_), "")


def _sample(info: inspect.Type, field: str) -> Any:
    match info:
        case inspect.StructType():
            return {f.encode_name: _sample(f.type, f.encode_name) for f in info.fields}
        case inspect.UnionType():
            return _sample(next(t for t in info.types if not isinstance(t, inspect.NoneType)), field)
        case inspect.LiteralType():
            return info.values[-1]
        case inspect.DictType():
            if field == "annotations":
                return {"rebalancer.io/evict": "never"}
            if field in DISKS:
                return {DISKS[field]: "x"}
            amounts = {"hard", "used", "capacity", "allocatable", "requests", "target", "limits", "resources"}
            amounts.add("podFixed")
            return {"pods": "2"} if field in amounts else {"a": "b"}
        case inspect.VarTupleType() | inspect.ListType():
            return [_sample(info.item_type, field)]
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 7
        case inspect.DateTimeType():
            return TIME
        case inspect.StrType():
            return {
                "type": "Ready",
                "message": "",
                "capacity": "7",
                "maximumVolumeSize": "7",
                "quantity": "7",
            }.get(field, "Ab")
        case inspect.RawType() | inspect.AnyType():
            return {}
    raise TypeError(f"no sample of {info}")


def pod_spec() -> Json:
    port = {"hostPort": 80, "containerPort": 81, "protocol": "UDP", "hostIP": "10.0.0.1"}
    rules = [{"action": "RestartAllContainers"}]
    container = {
        **{"name": "c", "image": "i:1", "resources": RESOURCES, "ports": [port]},
        "imagePullPolicy": "Never",
        "restartPolicyRules": rules,
        "volumeMounts": [{"bindMountOptions": ["noexec"]}],
        "securityContext": {"seccompProfile": {"type": "Localhost"}},
    }
    volumes: list[Json] = [{"name": d, d: {key: "x", "readOnly": True}} for d, key in DISKS.items()]
    volumes += [
        {"name": "a", "persistentVolumeClaim": {"claimName": "x", "readOnly": True}},
        {"name": "b", "ephemeral": {}},
        {"name": "c", "hostPath": {}},
        {"name": "d", "emptyDir": {}},
        {"name": "e", "csi": {"driver": "x", "readOnly": True}},
        {"name": "f", "iscsi": {"iqn": "x", "readOnly": True}},
        {"name": "h", "image": {"reference": "i:1", "pullPolicy": "Never"}},
        {"name": "g", "rbd": {"pool": "x", "image": "y", "monitors": ["z"], "readOnly": True}},
        *({"name": k, k: {}} for k in ("fc", "flexVolume", "vsphereVolume")),
        *({"name": k, k: {}} for k in ("configMap", "downwardAPI", "projected")),
    ]
    # Secrets that a template names are asked of ServiceAccounts, which are read before evictions alone.
    assert {next(k for k in v if k != "name") for v in volumes} == {
        f.encode_name for f in msgspec.structs.fields(VolumeJson) if f.name not in ("name", "secret")
    }
    volumes.append({"name": "n", "nfs": {}})
    return {
        "containers": [container],
        "initContainers": [{**container, "restartPolicy": "Always"}],
        "nodeSelector": {"a": "b"},
        "affinity": sample(Affinity),
        "tolerations": [sample(Toleration)],
        "topologySpreadConstraints": [sample(TopologySpreadConstraint)],
        "overhead": {"cpu": "1"},
        "resources": RESOURCES,
        "volumes": volumes,
        "priority": 7,
        "priorityClassName": "x",
        "preemptionPolicy": "Never",
        "schedulerName": "x",
        "schedulingGates": [{"name": "x"}],
        "resourceClaims": [{"name": "x"}],
        "evictionResponders": [{"name": "x"}],
        "hostNetwork": True,
        "hostUsers": False,
        "securityContext": {"supplementalGroupsPolicy": "Strict", "sysctls": [{"name": "kernel.msgmax"}]},
        "terminationGracePeriodSeconds": 7,
    }


def whole(kind: str) -> Json:
    """An object of a kind with every field that is read."""
    meta = sample(ObjectMeta)
    if kind in PLAIN:
        return {**sample(PLAIN[kind]), "metadata": meta}
    if kind == "ControllerRevision":
        return {"metadata": meta}
    if kind == "Pod":
        conditions = [
            {"type": "Ready", "status": "True", "lastTransitionTime": TIME},
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "(redacted)"},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "(redacted)"},
        ]
        given = [{"name": "c", "allocatedResources": {"cpu": "9"}, "resources": {"requests": {"cpu": "8"}}}]
        status = {
            **{"phase": "Running", "conditions": conditions, "nominatedNodeName": "n", "startTime": TIME},
            **{"containerStatuses": given, "initContainerStatuses": given},
            **{"allocatedResources": {"cpu": "7"}, "resources": {"requests": {"cpu": "6"}}},
            "extendedResourceClaimStatus": {"resourceClaimName": "x"},
            "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "x"}],
        }
        return {"metadata": meta, "spec": {**pod_spec(), "nodeName": "n"}, "status": status}
    selector = {"a": "b"} if kind == "ReplicationController" else sample(LabelSelector)
    numbers = ["observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
    numbers += ["desiredNumberScheduled", "numberMisscheduled"]
    return {
        "metadata": meta,
        "spec": {
            "replicas": 7,
            "selector": selector,
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec()},
            "paused": True,
            "suspend": True,
            "minReadySeconds": 7,
            "updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 7}},
            "podManagementPolicy": "Parallel",
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
        },
        "status": {**dict.fromkeys(numbers, 7), "currentRevision": "x", "updateRevision": "y"},
    }


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_nothing_that_is_read_is_lost(kind: str) -> None:
    obj = {"apiVersion": f"{_GROUPS.get(kind, '')}/v1".lstrip("/"), "kind": kind, **whole(kind)}
    kept = of_object(obj, _Collecting().unchanged)
    assert kept is not None
    before, after = (Decoder().decode(kind, msgspec.json.encode(o)) for o in (obj, kept))
    assert msgspec.to_builtins(after) == msgspec.to_builtins(before)
    if kind in WORKLOADS | {"Pod"}:
        assert kept["spec"].keys() == obj["spec"].keys()


MARKER = "ask alice@acme.example, incident 4711"
ANNOTATIONS = {
    **dict.fromkeys((f"rebalancer.io/{name}" for name in ("pause", "evict", "told-by")), MARKER),
    **dict.fromkeys(("kubernetes.io/config.source", "karpenter.sh/do-not-disrupt"), MARKER),
    "descheduler.alpha.kubernetes.io/evict": MARKER,
    "controller.kubernetes.io/pod-deletion-cost": MARKER,
    "volume.kubernetes.io/selected-node": MARKER,
    "team.example/contact": MARKER,
}


def marked(value: Any) -> Any:
    """The value with the marker in place of every string, in annotations and in fields that nobody reads."""
    if isinstance(value, dict):
        made = {k: marked(v) for k, v in value.items()}
        return {**made, "annotations": ANNOTATIONS} if "annotations" in value else {**made, "note": MARKER}
    if isinstance(value, list):
        return [*map(marked, value), MARKER]
    return MARKER if isinstance(value, str) else value


def texts(value: Any) -> set[str]:
    """Every string in a JSON value, keys too."""
    if isinstance(value, dict):
        return set(value) | {t for v in value.values() for t in texts(v)}
    if isinstance(value, list):
        return {t for v in value for t in texts(v)}
    return {value} if isinstance(value, str) else set()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_people_wrote_is_in_no_field_of_a_redacted_object(kind: str) -> None:
    meta = {**marked(sample(ObjectMeta)), "name": "x", "namespace": "y", "annotations": ANNOTATIONS}
    head = {"apiVersion": f"{_GROUPS.get(kind, '')}/v1".lstrip("/"), "kind": kind, "metadata": meta}
    obj = {**marked(whole(kind)), **head}
    kept = of_object(obj, learn([obj]))
    assert kept is not None
    assert not [t for t in texts(kept) if "alice" in t or "acme" in t or "4711" in t]


@pytest.mark.parametrize("value", ["true", "never", "2026-01-01T00:00:00Z", "-5", "Prefer", ""])
def test_a_value_that_policy_reads_stays(value: str) -> None:
    meta = {"name": "x", "namespace": "y", "annotations": {"rebalancer.io/evict": value}}
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    kept = of_object(obj, learn([obj]))
    assert kept is not None
    assert kept["metadata"]["annotations"] == {"rebalancer.io/evict": value}


def test_a_pause_stays_a_pause_without_what_was_said_about_it() -> None:
    meta = {"name": "x", "annotations": {"rebalancer.io/pause": MARKER}}
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
    kept = of_object(obj, learn([obj]))
    assert kept is not None
    assert kept["metadata"]["annotations"] == {"rebalancer.io/pause": "(redacted)"}


@pytest.mark.parametrize(
    ("value", "stays"),
    [
        ("runtime/default", "runtime/default"),
        ("unconfined", "unconfined"),
        ("localhost/acme", "localhost/(redacted)"),
        ("acme", "(redacted)"),
    ],
)
def test_what_kind_of_profile_a_container_has_stays_without_names(value: str, stays: str) -> None:
    key = "container.apparmor.security.beta.kubernetes.io/"
    meta = {"name": "x", "namespace": "y", "annotations": {f"{key}acme": value}}
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    kept = of_object(obj, learn([obj]))
    assert kept is not None
    ((name, said),) = kept["metadata"]["annotations"].items()
    assert (name.startswith(key), "acme" in name, said) == (True, False, stays)


def test_that_a_node_is_not_well_stays_without_who_says_so() -> None:
    said = [("acme.example/GPUReady", "False"), ("AcmeFault", "True"), ("AcmeFault2", "False")]
    conditions = [{"type": type_, "status": what} for type_, what in said]
    obj = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "x"},
        "status": {"conditions": conditions},
    }
    kept = of_object(obj, learn([obj]))
    assert kept is not None
    assert not [t for t in texts(kept) if "acme" in t.lower()]
    decoded = Decoder().decode("Node", msgspec.json.encode(kept))
    assert isinstance(decoded, Node)
    assert len(troubles(decoded)) == 2
