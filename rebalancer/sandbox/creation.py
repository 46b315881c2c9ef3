"""What a new object is before it is stored: named, admitted, defaulted."""

from __future__ import annotations

import random
from collections.abc import Iterable
from random import Random
from typing import Any

from rebalancer.admission import NotAdmittedError, admit_pod, pod_defaults
from rebalancer.bulk_work import bulk_work
from rebalancer.sandbox.objects import (
    Object,
    copied,
    key_of,
    new_uid,
    suffix,
    to_core,
)
from rebalancer.sandbox.resources import (
    EVENTS,
    NAMESPACES,
    NODE_STATUS_ZERO,
    NODES,
    PRIORITY_CLASSES,
    Cause,
    Resource,
    already_exists,
    forbidden,
    invalid,
    not_found,
    of_object,
)
from rebalancer.sandbox.storage import Record, Storage

# Defaults that the server writes into objects: what clients rely on reading back.


def _workload(obj: Object) -> None:
    kind, spec = obj["kind"], obj.setdefault("spec", {})
    template = spec.get("template") or {}
    template.setdefault("metadata", {})
    if "containers" in (template.get("spec") or {}):
        pod_defaults(template["spec"])
    if kind in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"):
        spec.setdefault("replicas", 1)
    if kind == "Deployment":
        strategy = spec.setdefault("strategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
    elif kind in ("StatefulSet", "DaemonSet"):
        update = spec.setdefault("updateStrategy", {})
        if update.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = update.setdefault("rollingUpdate", {})
            if kind == "StatefulSet":
                rolling.setdefault("partition", 0)
            else:
                rolling.setdefault("maxUnavailable", 1)
                rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        if kind == "StatefulSet":
            spec.setdefault("podManagementPolicy", "OrderedReady")
            keep = {"whenDeleted": "Retain", "whenScaled": "Retain"}
            spec.setdefault("persistentVolumeClaimRetentionPolicy", keep)
    elif kind == "ReplicationController" and "selector" not in spec:
        spec["selector"] = dict(template["metadata"].get("labels") or {})


def default(obj: Object) -> None:
    """Defaults of a new object beside pods, in place: what clients rely on reading back."""
    match obj["kind"]:
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "ReplicationController":
            _workload(obj)
        case "Node":
            obj.setdefault("spec", {})
            status = obj.setdefault("status", {})
            for key, value in NODE_STATUS_ZERO.items():
                status.setdefault(key, copied(value))
            status.setdefault("allocatable", dict(status.get("capacity") or {}))
            for condition in status.get("conditions") or ():
                condition.setdefault("lastHeartbeatTime", None)
                condition.setdefault("lastTransitionTime", None)
        case "Namespace":
            labels = obj["metadata"].setdefault("labels", {})
            labels.setdefault("kubernetes.io/metadata.name", obj["metadata"]["name"])
            obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
            obj["status"] = {"phase": "Active"}
        case "PodDisruptionBudget":
            zero = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
            obj["status"] = dict.fromkeys(zero, 0)
        case "PriorityClass":
            obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
        case "Service":
            spec = obj.setdefault("spec", {})
            spec.setdefault("type", "ClusterIP")
            spec.setdefault("sessionAffinity", "None")
            for port in spec.get("ports", ()):
                port.setdefault("protocol", "TCP")
                port.setdefault("targetPort", port.get("port"))
            obj.setdefault("status", {"loadBalancer": {}})
        case "StorageClass":
            obj.setdefault("reclaimPolicy", "Delete")
            obj.setdefault("volumeBindingMode", "Immediate")
        case "Job":
            spec = obj.setdefault("spec", {})
            for name, value in (("parallelism", 1), ("completions", 1), ("backoffLimit", 6)):
                spec.setdefault(name, value)


def defaulted_spec(obj: Object) -> Object:
    """`default` for an update: all but the status, which is not this write's to change."""
    status = obj.pop("status", None)
    default(obj)
    obj.pop("status", None)
    return obj if status is None else {**obj, "status": status}


_MUTABLE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates",
            "nodeSelector", "affinity")  # fmt: skip


def check_pod_update(old: Object, new: Object, resource: Resource) -> None:
    """ApiError 422 where an update would change a field that a pod keeps for life."""

    def fixed(pod: Object) -> dict[str, Any]:
        spec = {key: value for key, value in (pod.get("spec") or {}).items() if key not in _MUTABLE}
        for name in ("containers", "initContainers"):
            kept = [{k: v for k, v in c.items() if k != "image"} for c in spec.get(name) or ()]
            spec[name] = kept
        return spec

    if old.get("spec") != new.get("spec") and fixed(old) != fixed(new):
        why = (
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions "
            "to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it "
            "was previously negative)"
        )
        cause = Cause("FieldValueForbidden", f"Forbidden: {why}", "spec")
        raise invalid(resource.kind, resource.group, new["metadata"]["name"], [cause])


_NOT_THE_CLIENTS = (
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
    "generation",
)
_LONGEST_PREFIX = 58  # of generateName: with five characters more it is still a label


def prepared(
    store: Storage, resource: Resource, obj: Object, namespace: str | None, rng: random.Random
) -> tuple[str, Object]:
    """(its key, the object to store); `obj` is the caller's to give away. The lock is held."""
    metadata = obj.setdefault("metadata", {})
    if resource.namespaced:
        metadata["namespace"] = namespace = namespace or metadata.get("namespace") or "default"
    else:
        namespace = None
        metadata.pop("namespace", None)
    generate = metadata.get("generateName", "")
    if generate and not metadata.get("name"):
        metadata["name"] = generate[:_LONGEST_PREFIX] + suffix(rng)
    name = metadata["name"]
    if namespace:
        _check_namespace(store, resource, name, namespace)
    key = key_of(namespace, name)
    if key in store.collection(resource).records:
        raise already_exists(resource, name)
    for field in _NOT_THE_CLIENTS:
        metadata.pop(field, None)
    metadata |= {"uid": new_uid(rng), "creationTimestamp": store.now()}
    if resource.generation:
        metadata["generation"] = 1
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    return key, _admitted(store, resource, obj)


def _check_namespace(store: Storage, resource: Resource, name: str, namespace: str) -> None:
    space = store.find(NAMESPACES, namespace)
    if space is None:
        raise not_found(NAMESPACES, namespace)
    if (space.get("status") or {}).get("phase") == "Terminating":
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise forbidden(resource, name, why)


def _admitted(store: Storage, resource: Resource, obj: Object) -> Object:
    if resource.storage == EVENTS.storage:
        return to_core(obj)
    if resource.kind == "Pod":
        if not obj.setdefault("spec", {}).get("containers"):
            cause = Cause("FieldValueRequired", "Required value", "spec.containers")
            raise invalid("Pod", "", obj["metadata"]["name"], [cause])
        classes = {found["metadata"]["name"]: found for found in store.list(PRIORITY_CLASSES)}
        node = store.find(NODES, obj["spec"].get("nodeName", ""))
        try:
            admit_pod(obj, classes, node)
        except NotAdmittedError as error:
            raise forbidden(resource, obj["metadata"].get("name", ""), str(error)) from None
        return obj
    default(obj)
    # A node or a volume may be made with its status; a workload's is the controllers' to tell.
    if resource.has_status and resource.generation and resource.kind != "PodDisruptionBudget":
        obj["status"] = copied(resource.zero.get("status", {}))
    return obj


# Loading: objects as they are into a store, before all history.

_BORN = ("default", "kube-node-lease", "kube-public", "kube-system")


def load(store: Storage, objects: Iterable[Object], rng: Random) -> list[str]:
    """As `Store.load`; `rng` makes uids. The lock is held."""
    skipped: dict[str, None] = {}
    batches: dict[Resource, list[Record]] = {}
    known = set(store.collection(NAMESPACES).records)
    namespaces = dict.fromkeys(name for name in _BORN if name not in known)
    with bulk_work():
        for obj in _flat(objects):
            try:
                resource = of_object(obj)
            except KeyError:
                skipped[f"{obj.get('apiVersion')}/{obj.get('kind')}"] = None
                continue
            obj = copied(obj)
            metadata = obj.setdefault("metadata", {})
            if resource.namespaced:
                namespaces[metadata.setdefault("namespace", "default")] = None
            elif resource is NAMESPACES:
                known.add(metadata["name"])
            stored = EVENTS if resource.storage == EVENTS.storage else resource
            batches.setdefault(stored, []).append(_adopted(store, resource, obj, rng))
    for name in sorted(set(namespaces) - known):
        space: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        default(space)
        batches.setdefault(NAMESPACES, []).append(_adopted(store, NAMESPACES, space, rng))
    have = {*store.collection(PRIORITY_CLASSES).records}
    have |= {record.key for record in batches.get(PRIORITY_CLASSES, ())}
    for born in _priority_classes():
        if born["metadata"]["name"] not in have:
            batches.setdefault(PRIORITY_CLASSES, []).append(_adopted(store, PRIORITY_CLASSES, born, rng))
    # What has a version first, so that what gets one is newer than all of it.
    for versioned in (True, False):
        for resource, batch in batches.items():
            store.settle(resource, [record for record in batch if bool(record.rv) is versioned])
    return list(skipped)


def _adopted(store: Storage, resource: Resource, obj: Object, rng: Random) -> Record:
    metadata = obj["metadata"]
    metadata.setdefault("uid", new_uid(rng))
    metadata.setdefault("creationTimestamp", store.now())
    observed = (obj.get("status") or {}).get("observedGeneration")
    if resource.generation and observed is not None:
        # Without it, nothing may look as if its controller were behind.
        metadata.setdefault("generation", observed)
    if resource.storage == EVENTS.storage:
        obj = to_core(obj)
    version = str(metadata.get("resourceVersion", ""))
    key = key_of(metadata.get("namespace") if resource.namespaced else None, metadata["name"])
    return Record(key, obj, int(version) if version.isdecimal() else 0)


def _flat(objects: Iterable[Object]) -> Iterable[Object]:
    for obj in objects:
        items = obj.get("items")
        if isinstance(items, list) and str(obj.get("kind", "")).endswith("List"):
            # Items of a typed list come without their kind.
            kind = {"apiVersion": obj.get("apiVersion"), "kind": str(obj["kind"]).removesuffix("List")}
            yield from _flat(item if "kind" in item else {**kind, **item} for item in items)
        else:
            yield obj


def _priority_classes() -> list[Object]:
    cluster = "but can be moved to another node if necessary."
    rows = (
        (
            "system-cluster-critical",
            2_000_000_000,
            f"Used for system critical pods that must run in the cluster, {cluster}",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    )
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": text,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, value, text in rows
    ]


# metadata.managedFields, as far as annotations go: which client has set which one.
#
# Rule: structured-merge-diff as the API server uses it for updates: what a write changes belongs to its
# manager from then on; what it removes belongs to nobody.

Json = dict[str, Any]


def tracked(old: Json, new: Json, manager: str, now: str) -> list[Json]:
    """The managedFields of the new metadata. `manager`: who writes; "" for somebody who is not told of."""
    before, after = old.get("annotations") or {}, new.get("annotations") or {}
    changed = {f"f:{k}" for k in {*before, *after} if before.get(k) != after.get(k)}
    owned: dict[str, set[str]] = {}
    times: dict[str, str] = {}
    for entry in old.get("managedFields") or ():
        # A manager may have several: for updates and for applies, for the object and for its status.
        fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:annotations") or {}
        own = owned.setdefault(entry.get("manager", ""), set())
        times[entry.get("manager", "")] = entry.get("time", now)
        own |= {field for field in fields if field.startswith("f:")} - changed
    if manager and changed:
        times[manager] = now
        there = {field for field in changed if field[2:] in after}
        owned[manager] = owned.get(manager, set()) | there
    return [
        {
            "manager": name,
            "operation": "Update",
            "apiVersion": "v1",
            "time": times[name],
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {field: {} for field in sorted(fields)}}},
        }
        for name, fields in sorted(owned.items())
        if fields
    ]
