"""What a new object is before it is stored: named, admitted, defaulted, validated."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from random import Random
from typing import Any

from rebalancer.admission import NotAdmittedError, admit_pod, pod_defaults
from rebalancer.bulk_work import bulk_work
from rebalancer.model.pod import DELETION_COST
from rebalancer.sandbox import objects
from rebalancer.sandbox import objects as events
from rebalancer.sandbox.objects import (
    DNS_SUBDOMAIN,
    Object,
    copied,
    is_subdomain,
    key_of,
    new_uid,
    required,
    suffix,
    wrong,
)
from rebalancer.sandbox.resources import (
    EVENTS,
    NAMESPACES,
    NODE_STATUS_ZERO,
    NODES,
    PRIORITY_CLASSES,
    ApiError,
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


# Validation of objects, as far as callers of this project could get them wrong.

LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")


def check_name(resource: Resource, name: str, generate: str) -> None:
    """ApiError 422 for a name that the server would not take."""
    if not name:
        what = required("metadata.name")
        raise invalid(
            resource.kind,
            resource.group,
            name,
            [Cause(what.reason, "Required value: name or generateName is required", what.field)],
        )
    rbac = resource.group == "rbac.authorization.k8s.io"
    if is_subdomain(name) or rbac:
        return
    causes = [wrong("metadata.name", f'"{name}"', DNS_SUBDOMAIN)]
    if generate and not is_subdomain(generate + "x"):
        causes.insert(0, wrong("metadata.generateName", f'"{generate}"', DNS_SUBDOMAIN))
    raise invalid(resource.kind, resource.group, name, causes)


def validate(obj: Object, resource: Resource) -> None:
    """What clients of the rebalancer can get wrong; ApiError 422 with the server's causes."""
    causes: list[Cause] = []
    metadata = obj["metadata"]
    if resource.kind == "Pod":
        cost = (metadata.get("annotations") or {}).get(DELETION_COST)
        if cost is not None and not _is_int32(cost):
            field = f"metadata.annotations[{DELETION_COST}]"
            # The server validates it twice and says so.
            causes += [wrong(field, f'"{cost}"', "must be a 32bit integer")] * 2
        if not (obj.get("spec") or {}).get("containers"):
            causes.append(required("spec.containers"))
    for where in ("labels", "annotations"):
        for value in (metadata.get(where) or {}).values():
            if not isinstance(value, str):
                raise ApiError(
                    400,
                    "BadRequest",
                    f'{resource.kind} in version "{resource.version}" cannot be '
                    f"handled as a {resource.kind}: json: cannot unmarshal {type(value).__name__} into "
                    f"Go struct field ObjectMeta.metadata.{where} of type string",
                )
            if where == "labels" and value and not (_NAME.match(value) and len(value) <= 63):
                why = LABEL_VALUE
                causes.append(wrong("metadata.labels", f'"{value}"', why))
    if resource.kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"):
        causes += _selector_matches(obj)
    if causes:
        raise invalid(resource.kind, resource.group, metadata.get("name", ""), causes)


def _selector_matches(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    have = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not spec.get("selector"):
        return [required("spec.selector")]
    if any(have.get(key) != value for key, value in wanted.items()):
        text = ",".join(f'"{key}":"{value}"' for key, value in sorted(have.items()))
        why = "`selector` does not match template `labels`"
        return [wrong("spec.template.metadata.labels", f"{{{text}}}", why)]
    return []


def _is_int32(text: object) -> bool:
    # Leading "+" and zeros are refused, as strconv would not print them so.
    return (
        isinstance(text, str)
        and re.fullmatch(r"0|-?[1-9][0-9]*", text) is not None
        and -(2**31) <= int(text) < 2**31
    )


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
    name = metadata.get("name", "")
    check_name(resource, name, generate)
    if metadata.get("resourceVersion"):
        why = "resourceVersion should not be set on objects to be created"
        details = {"causes": [{"message": why}]}
        raise ApiError(500, "InternalError", f"Internal error occurred: {why}", details)
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
        obj = objects.to_core(obj)
        causes = objects.problems(obj, obj["metadata"]["namespace"], new_api=bool(resource.group))
        if causes:
            raise invalid("Event", "", obj["metadata"]["name"], causes)
        return obj
    if resource.kind == "Pod":
        obj.setdefault("spec", {})
        validate(obj, resource)
        classes = {found["metadata"]["name"]: found for found in store.list(PRIORITY_CLASSES)}
        node = store.find(NODES, obj["spec"].get("nodeName", ""))
        try:
            admit_pod(obj, classes, node)
        except NotAdmittedError as error:
            raise forbidden(resource, obj["metadata"].get("name", ""), str(error)) from None
        return obj
    default(obj)
    validate(obj, resource)
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
        obj = events.to_core(obj)
    version = str(metadata.get("resourceVersion", ""))
    key = key_of(metadata.get("namespace") if resource.namespaced else None, metadata["name"])
    return Record(key, obj, int(version) if version.isdigit() else 0)


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
