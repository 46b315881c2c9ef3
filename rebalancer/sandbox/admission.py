"""What the server adds to and refuses in an object before it is stored: defaults and validation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rebalancer.sandbox.errors import ApiError, Cause, invalid
from rebalancer.sandbox.objects import DNS_SUBDOMAIN, Object, copied, is_subdomain, required, wrong
from rebalancer.sandbox.resources import NODE_STATUS_ZERO, Resource

Lookup = Callable[[str, str], Object | None]
"""(plural, name) of a cluster-scoped object → the object, or None."""

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_CRITICAL = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")


def pod_defaults(spec: dict[str, Any]) -> None:
    """Defaults of a pod's spec, in place; also for templates, as the server does for workloads."""
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        image = container.get("image", "")
        latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")
        resources = container["resources"]
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **resources.get("requests", {})}
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")


def qos_class(spec: dict[str, Any]) -> str:
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    named = [(c.get("resources") or {}) for c in containers]
    if not any(r.get("requests") or r.get("limits") for r in named):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(r.get("limits") or ()) and (r.get("requests") or r["limits"]) == r["limits"]
        for r in named
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _priority(pod: Object, classes: dict[str, Object], resource: Resource) -> None:
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    found: Object | None = None
    if name:
        found = classes.get(name)
        if found is None and name not in _CRITICAL:
            why = f"no PriorityClass with name {name} was found"
            raise _forbidden_pod(resource, pod["metadata"].get("name", ""), why)
    else:
        defaults = [c for c in classes.values() if c.get("globalDefault")]
        found = min(defaults, key=lambda c: int(c["value"]), default=None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    value = found["value"] if found is not None else _CRITICAL.get(name, 0)
    spec["priority"] = value
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


def _forbidden_pod(resource: Resource, name: str, why: str) -> ApiError:
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, {"name": name, "kind": resource.plural})


def _tolerations(spec: dict[str, Any]) -> None:
    """DefaultTolerationSeconds: 300 s on nodes that stop answering, unless the pod says otherwise."""
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            t.get("key", "") in ("", key) and t.get("effect", "") in ("", "NoExecute") for t in tolerations
        ):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )


def _match_label_keys(pod: Object) -> None:
    """From 1.34 the keys' values are joined to the selector when the pod is created (KEP-3243)."""
    labels = pod["metadata"].get("labels") or {}
    for constraint in pod["spec"].get("topologySpreadConstraints", ()):
        # Without a selector the constraint counts nobody: nothing to narrow.
        if (selector := constraint.get("labelSelector")) is None:
            continue
        for key in constraint.get("matchLabelKeys") or ():
            if key in labels:
                term = {"key": key, "operator": "In", "values": [labels[key]]}
                selector.setdefault("matchExpressions", []).append(term)


def add_topology_labels(pod: Object, node: Object | None) -> None:
    """A bound pod carries its node's zone and region as labels (from 1.35)."""
    have = ((node or {}).get("metadata") or {}).get("labels") or {}
    for key in TOPOLOGY_LABELS:
        if key in have:
            pod["metadata"].setdefault("labels", {})[key] = have[key]


def admit_pod(pod: Object, resource: Resource, classes: dict[str, Object], node: Object | None) -> None:
    """A new pod, in place: priority, tolerations, merged selectors, defaults, first status."""
    spec = pod["spec"]
    pod_defaults(spec)
    spec.setdefault("enableServiceLinks", True)
    _priority(pod, classes, resource)
    _tolerations(spec)
    _match_label_keys(pod)
    if spec.get("nodeName"):
        add_topology_labels(pod, node)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}


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
