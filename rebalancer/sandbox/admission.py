"""What admission adds to a new pod: priority, tolerations, merged selectors, its node's labels."""

from __future__ import annotations

from typing import Any

from rebalancer.sandbox.defaults import pod_defaults, qos_class
from rebalancer.sandbox.errors import ApiError
from rebalancer.sandbox.objects import Object
from rebalancer.sandbox.resources import Resource

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_CRITICAL = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


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
