"""The kinds of API objects that the tool reads, and the type of the value that each becomes."""

from __future__ import annotations

from msgspec import Struct

from rebalancer.model.node import DeviceClass, Node, NodeClaim
from rebalancer.model.object_meta import ObjectMeta
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
    "VerticalPodAutoscaler": VerticalPodAutoscaler,
    "DeviceClass": DeviceClass,
}
"""Kinds whose value has the fields of the API, so that one generic decoder reads them."""
WORKLOADS = frozenset(
    {"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"}
)
"""Kinds that become a `Workload`."""
BUILT_IN = frozenset({"", "apps", "batch"})
"""Their API groups; others have kinds of the same names (apps.kruise.io has a StatefulSet)."""
KINDS = frozenset({"Pod", "ControllerRevision", *PLAIN, *WORKLOADS})
"""Every kind that is read. Objects of other kinds are ignored."""
