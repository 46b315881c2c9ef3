"""Defaults that the server writes into objects: what clients rely on reading back."""

from __future__ import annotations

from rebalancer.admission.defaults import pod_defaults
from rebalancer.sandbox.api.objects import Object, copied
from rebalancer.sandbox.api.resources import NODE_STATUS_ZERO


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
