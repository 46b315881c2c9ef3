"""Missing room as CapacityBuffers, which ask an autoscaler to hold it ready.

Rule: kubernetes/autoscaler, apis/capacitybuffer/autoscaling.x-k8s.io/v1beta1. A buffer names a PodTemplate of
its namespace: so much room, `replicas` times. Here that is what each new node must have free, tied to its
zone by a nodeSelector; several of one kind keep off each other's node.
"""

from __future__ import annotations

from typing import Any

from rebalancer.report.room.document import NewNodesReport, RoomReport
from rebalancer.room.kinds import NEW

Json = dict[str, Any]
API_VERSION = "autoscaling.x-k8s.io/v1beta1"
STRATEGY = "buffer.x-k8s.io/active-capacity"
LABEL = "rebalancer.io/room"
_MANAGED = {"app.kubernetes.io/managed-by": "rebalancer"}
_IMAGE = "registry.k8s.io/pause:3.10"
_HOSTNAME = "kubernetes.io/hostname"


def to_buffers(room: RoomReport) -> tuple[list[Json], list[str]]:
    """The objects; and what cannot be said so, in sentences. Each buffer comes before its template: where the
    cluster knows no buffers nothing is left behind."""
    objects: list[Json] = []
    left_out: list[str] = []
    for i, new in enumerate(room.missing, 1):
        if any(value.startswith(NEW) for value in new.domains.values()):
            left_out.append(
                "a domain that does not exist yet has no name to ask for: add its node pool yourself"
            )
        elif not new.free or not new.pods:
            left_out.append(f"a node like {new.like} is needed for the way only: no buffer says how large")
        else:
            objects += _objects(f"rebalancer-room-{i}", new)
    return objects, left_out


def _objects(name: str, new: NewNodesReport) -> list[Json]:
    namespace = new.pods[0].workload.split("/")[1]
    metadata: Json = {"name": name, "namespace": namespace, "labels": {**_MANAGED, LABEL: name}}
    requests = {r: q for r, q in new.free.items() if r != "pods"}
    spec: Json = {
        "nodeSelector": dict(new.domains),
        "containers": [{"name": "room", "image": _IMAGE, "resources": {"requests": requests}}],
    }
    if new.taints:
        spec["tolerations"] = [_toleration(t) for t in new.taints]
    if new.nodes > 1:
        term = {"topologyKey": _HOSTNAME, "labelSelector": {"matchLabels": {LABEL: name}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = {"metadata": {"labels": {**_MANAGED, LABEL: name}}, "spec": spec}
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "CapacityBuffer",
            "metadata": metadata,
            "spec": {
                "podTemplateRef": {"name": name},
                "replicas": new.nodes,
                "provisioningStrategy": STRATEGY,
            },
        },
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template},
    ]


def _toleration(taint: str) -> Json:
    """Of `key=value:effect`, or `key:effect`."""
    left, _, effect = taint.rpartition(":")
    key, equals, value = left.partition("=")
    made: Json = {"key": key, "operator": "Equal" if equals else "Exists", "effect": effect}
    return {**made, "value": value} if equals else made
