"""What admission adds to a new pod: priority, tolerations, merged selectors, its node's labels.

Pods and PriorityClasses are plain dicts, as JSON gives them.
"""

from __future__ import annotations

from typing import Any

# Defaults that the API server writes into a pod's spec.


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


Object = dict[str, Any]
TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_CRITICAL = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class NotAdmittedError(Exception):
    """The API server would refuse this pod; the message says why, in its words."""


def _priority(spec: Object, classes: dict[str, Object]) -> None:
    name = spec.get("priorityClassName", "")
    found: Object | None = None
    if name:
        found = classes.get(name)
        if found is None and name not in _CRITICAL:
            raise NotAdmittedError(f"no PriorityClass with name {name} was found")
    else:
        defaults = [c for c in classes.values() if c.get("globalDefault")]
        found = min(defaults, key=lambda c: int(c["value"]), default=None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    value = found["value"] if found is not None else _CRITICAL.get(name, 0)
    spec["priority"] = value
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


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


def admit_pod(pod: Object, classes: dict[str, Object], node: Object | None) -> None:
    """Give a new pod its priority, tolerations, merged selectors, defaults and first status, in place.

    `classes`: PriorityClasses by name. `node`: the pod's, where it names one. Raises NotAdmittedError.
    """
    spec = pod["spec"]
    pod_defaults(spec)
    spec.setdefault("enableServiceLinks", True)
    _priority(spec, classes)
    _tolerations(spec)
    _match_label_keys(pod)
    if spec.get("nodeName"):
        add_topology_labels(pod, node)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
