"""The kinds of API objects that the tool reads, and the type of the value that each becomes."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from rebalancer.model.node import NODEPOOL, DeviceClass, Node, NodeClaim, NodePool, ObjectMeta
from rebalancer.model.pod import Pod
from rebalancer.model.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from rebalancer.model.workload import (
    HorizontalPodAutoscaler,
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    Service,
    VerticalPodAutoscaler,
    Workload,
)

Object = (
    Node
    | Pod
    | Workload
    | Namespace
    | Service
    | PodDisruptionBudget
    | PriorityClass
    | HorizontalPodAutoscaler
    | ResourceQuota
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | NodeClaim
    | NodePool
    | VerticalPodAutoscaler
    | DeviceClass
    | ObjectMeta
)
"""Any value that is read. ObjectMeta stands for a ControllerRevision, of which only the metadata is read."""

PLAIN: dict[str, type[Struct]] = {
    "Node": Node,
    "Namespace": Namespace,
    "Service": Service,
    "PodDisruptionBudget": PodDisruptionBudget,
    "PersistentVolume": PersistentVolume,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "StorageClass": StorageClass,
    "CSINode": CSINode,
    "CSIDriver": CSIDriver,
    "CSIStorageCapacity": CSIStorageCapacity,
    "PriorityClass": PriorityClass,
    "HorizontalPodAutoscaler": HorizontalPodAutoscaler,
    "ResourceQuota": ResourceQuota,
    "NodeClaim": NodeClaim,
    "NodePool": NodePool,
    "VerticalPodAutoscaler": VerticalPodAutoscaler,
    "DeviceClass": DeviceClass,
}
"""Kinds whose value has the fields of the API, so that one generic decoder reads them."""
WORKLOADS = frozenset(
    {"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"}
)
"""Kinds that become a `Workload`."""
ONLY_MAKE_PODS = frozenset({"ReplicaSet", "ReplicationController"})
"""Those that make pods by their template, and leave the pods that are there as they are."""
BUILT_IN = frozenset({"", "apps", "batch"})
"""Their API groups; others have kinds of the same names (apps.kruise.io has a StatefulSet)."""
KINDS = frozenset({"Pod", "ControllerRevision", *PLAIN, *WORKLOADS})
"""Every kind that is read. Objects of other kinds are ignored."""


# What cannot be known if a kind is missing, because a file has no object of it or it may not be listed.

ADD_ONS = {"NodeClaim": NODEPOOL, "NodePool": NODEPOOL, "VerticalPodAutoscaler": "", "DeviceClass": ""}
"""Kinds that a cluster need not have, and that no plan waits for; each with the label of nodes that shows in
a file that its cluster had them, "" where nothing does."""
CONSEQUENCES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("PodDisruptionBudget",),
        "budgets are not planned with, and the API server may refuse evictions that are planned",
    ),
    (
        ("ReplicaSet", "StatefulSet", "ReplicationController"),
        "their pods have no known owner and stay where they are",
    ),
    (("Deployment", "ControllerRevision"), "rollouts and pauses are told from ReplicaSets and pods alone"),
    (("DaemonSet", "Job"), "their pods are recognised by the owner reference alone"),
    (("Service",), "constraints that pods get by default through one are not seen"),
    (("PersistentVolume", "PersistentVolumeClaim"), "pods that mount a claim are not moved"),
    (
        ("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity"),
        "where new volumes can be made and attached is not known",
    ),
    (("Namespace",), "evictions that they forbid and namespace selectors of affinity terms are not seen"),
    (("PriorityClass",), "priorities are taken from the pods alone"),
    (("HorizontalPodAutoscaler",), "who changes an owner's replicas all the time is not told"),
    (("ResourceQuota",), "a quota that would stop a replacement is not seen"),
    (("VerticalPodAutoscaler",), "requests that one gives to a replacement are not seen"),
    (("DeviceClass",), "which extended resources claims may serve is not seen"),
    (("NodeClaim", "NodePool"), "which nodes Karpenter is about to replace, or may add, is not seen"),
)
"""Kinds whose absence has the same consequence, and that consequence: the end of a sentence whose beginning
names the missing kinds."""

DECIDING = frozenset(
    {"Namespace", "PodDisruptionBudget", "PersistentVolume", "PersistentVolumeClaim"}
    | {"ReplicaSet", "StatefulSet", "ReplicationController", "Deployment"}
)
"""Kinds that decide which pods may go: where one of them may not be read, nobody can say that no eviction
helps."""

_OF = {kind: consequence for kinds, consequence in CONSEQUENCES for kind in kinds}


def consequence(kind: str) -> str:
    """The consequence of not reading this kind; "" for nodes and pods, without which nothing is planned."""
    return _OF.get(kind, "")


def missed(kind: str, nodes: Iterable[Node]) -> bool:
    """Whether a file with these nodes lacks this kind: of an add-on only where the nodes show it."""
    return kind not in ADD_ONS or any(ADD_ONS[kind] in n.labels for n in nodes)
