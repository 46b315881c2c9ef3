"""What cannot be known if a kind is missing, because a file has no object of it or it may not be listed."""

from __future__ import annotations

from collections.abc import Iterable

from rebalancer.model.node import NODEPOOL, Node

ADD_ONS = {"NodeClaim": NODEPOOL}
"""Kinds that a cluster need not have, each with the label of nodes that shows that it has them. They say
which of several equal nodes is the better one, so that no plan waits for them."""
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
    (("Namespace",), "namespace selectors of affinity terms cannot be resolved"),
    (("PriorityClass",), "priorities are taken from the pods alone"),
    (("HorizontalPodAutoscaler",), "a change of replicas that is under way is not seen"),
    (("ResourceQuota",), "a quota that would stop a replacement is not seen"),
    (("NodeClaim",), "which nodes Karpenter may remove is not seen"),
)
"""Kinds whose absence has the same consequence, and that consequence: the end of a sentence whose beginning
names the missing kinds."""

_OF = {kind: consequence for kinds, consequence in CONSEQUENCES for kind in kinds}


def consequence(kind: str) -> str:
    """The consequence of not reading this kind; "" for nodes and pods, without which nothing is planned."""
    return _OF.get(kind, "")


def missed(kind: str, nodes: Iterable[Node]) -> bool:
    """Whether it matters that this kind was not read: that of an add-on only where the nodes show it."""
    label = ADD_ONS.get(kind)
    return label is None or any(label in n.labels for n in nodes)
