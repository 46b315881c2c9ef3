"""The scheduler's filters other than spread, as plain loops: each says whether a node takes a pod.

Named after the upstream plugins. `around` are the pods that hold room: assigned, not finished, terminating
ones among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tests.support.scheduler.plain import (
    REGION,
    ZONE,
    Json,
    admits,
    amounts,
    labels_of,
    namespace_of,
    node_of,
    requests,
    tolerates,
    untolerated,
    volume_reaches,
)

_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_ZONE_LABELS = (
    ZONE,
    REGION,
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_GA = dict(zip(_ZONE_LABELS[2:], _ZONE_LABELS[:2], strict=True))

Objects = Mapping[str, Json]
"""By name, namespaced ones by namespace/name."""


def node_unschedulable(pod: Json, node: Json) -> bool:
    """A cordoned node takes only pods that tolerate the cordon's taint."""
    if not node["spec"].get("unschedulable"):
        return True
    return tolerates(pod["spec"].get("tolerations") or (), _CORDON)


def taint_toleration(pod: Json, node: Json) -> bool:
    """No NoSchedule or NoExecute taint that the pod does not tolerate."""
    return not untolerated(pod, node)


def node_affinity(pod: Json, node: Json) -> bool:
    """nodeSelector and required node affinity."""
    return admits(pod, node)


def node_resources_fit(pod: Json, node: Json, around: Iterable[Json]) -> bool:
    """What is asked for, and only that, must be free; zero requests never fail."""
    name = node["metadata"]["name"]
    free = amounts(node["status"].get("allocatable"))
    for other in around:
        if node_of(other) == name:
            for resource, value in requests(other).items():
                free[resource] = free.get(resource, 0) - value
    return all(value <= 0 or free.get(resource, 0) >= value for resource, value in requests(pod).items())


def node_ports(pod: Json, node: Json, around: Iterable[Json]) -> bool:
    """No host port that a pod on the node has taken."""
    name = node["metadata"]["name"]
    mine = host_ports(pod)
    return not any(
        clash(a, b) for other in around if node_of(other) == name for a in mine for b in host_ports(other)
    )


def host_ports(pod: Json) -> list[tuple[int, str, str]]:
    """(port, protocol, address) of every host port; with hostNetwork each container port is one."""
    spec = pod["spec"]
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    found = []
    for container in [*spec.get("containers", ()), *sidecars]:
        for p in container.get("ports") or ():
            port = p.get("hostPort") or (p.get("containerPort") if spec.get("hostNetwork") else 0)
            if port:
                found.append((port, p.get("protocol") or "TCP", p.get("hostIP") or "0.0.0.0"))
    return found


def clash(a: tuple[int, str, str], b: tuple[int, str, str]) -> bool:
    """Whether two host ports cannot be on one node."""
    return a[:2] == b[:2] and (a[2] == b[2] or "0.0.0.0" in (a[2], b[2]))


def volume_binding(pod: Json, node: Json, claims: Objects, volumes: Objects) -> bool:
    """Bound volumes must reach the node, by their node affinity and by their zone labels.

    A claim that is unknown or unbound rejects every node: this judge does not bind volumes.
    """
    labels = labels_of(node)
    for v in pod["spec"].get("volumes") or ():
        name = (v.get("persistentVolumeClaim") or {}).get("claimName")
        if not name:
            continue
        claim = claims.get(f"{namespace_of(pod)}/{name}")
        volume = volumes.get(((claim or {}).get("spec") or {}).get("volumeName") or "")
        if volume is None or not volume_reaches(volume, node):
            return False
        if not any(key in labels for key in _ZONE_LABELS):
            continue
        for key in _ZONE_LABELS:
            wanted = labels_of(volume).get(key)
            if wanted is not None and labels.get(key, labels.get(_GA.get(key, ""))) not in wanted.split("__"):
                return False
    return True


STATIC: tuple[Callable[[Json, Json], bool], ...] = (node_unschedulable, taint_toleration, node_affinity)
"""Filters that look at nothing but the pod and the node."""
