"""Nodes that come and go: cordoned or about to be removed, not ready for pods yet, or candidates for removal.

The taints, labels and conditions are those of Karpenter (pkg/apis/v1), of cluster-autoscaler (its FAQ,
utils/taints) and of Kubernetes' cloud providers.
"""

from __future__ import annotations

from collections.abc import Iterable

from rebalancer.model.node import NODEPOOL, Node
from rebalancer.model.snapshot import Snapshot

KARPENTER_TAINTS = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption"})
"""What Karpenter puts on a node that it is about to take away; the second until its v1."""
LEAVING_TAINTS = KARPENTER_TAINTS | {"ToBeDeletedByClusterAutoscaler"}
"""Taints of nodes that are about to go."""
LEAVING_CONDITIONS = frozenset(
    {"DrainInProgress", "Drained", "MaintenancePlanned", "MaintenanceInProgress"}
    | {"GracefulNodeShutdownInProgress"}
)
"""Conditions of such nodes (NodeLifecycleConditions, from Kubernetes 1.37 on)."""
STARTING_TAINTS = frozenset({"karpenter.sh/unregistered", "node.cloudprovider.kubernetes.io/uninitialized"})
"""Taints of nodes that are being set up, …"""
STARTING_PREFIXES = (
    "readiness.k8s.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
"""… and what the keys of others begin with."""
CANDIDATE_TAINT = "DeletionCandidateOfClusterAutoscaler"
"""A node that cluster-autoscaler does not need at present; the effect is PreferNoSchedule."""
INITIALIZED = "karpenter.sh/initialized"


def is_leaving(node: Node) -> bool:
    """Whether the node is cordoned, drained or about to go: a good place to evict from, none to land on."""
    return (
        node.spec.unschedulable
        or any(t.key in LEAVING_TAINTS for t in node.spec.taints)
        or any(c.type in LEAVING_CONDITIONS and c.status == "True" for c in node.status.conditions)
    )


def is_starting(node: Node) -> bool:
    """Whether the node is still being set up: who tolerates everything may land there, and should not.

    Karpenter labels its nodes as initialized once their startup taints are gone and their devices are there.
    """
    if NODEPOOL in node.labels and node.labels.get(INITIALIZED) != "true":
        return True
    return any(t.key in STARTING_TAINTS or t.key.startswith(STARTING_PREFIXES) for t in node.spec.taints)


def candidates(snapshot: Snapshot) -> frozenset[str]:
    """The nodes that an autoscaler may remove unless pods come: the last choice among equal ones.

    cluster-autoscaler taints them, Karpenter says so in their NodeClaims. That a node is empty says nothing:
    the nodes of a zone that came back are empty, and pods end the candidacy.
    """
    tainted = {n.name for n in snapshot.nodes if any(t.key == CANDIDATE_TAINT for t in n.spec.taints)}
    return frozenset(tainted.union(c.status.node_name for c in snapshot.node_claims if c.consolidatable))


def autoscaled(nodes: Iterable[Node]) -> bool:
    """Whether the nodes show that an autoscaler is at work: a pod that waits may buy one.

    cluster-autoscaler marks nothing until it means to remove a node.
    """
    return any(
        NODEPOOL in n.labels
        or any(t.key == CANDIDATE_TAINT or t.key in LEAVING_TAINTS for t in n.spec.taints)
        or any(t.key.startswith(STARTING_PREFIXES[1:]) for t in n.spec.taints)
        for n in nodes
    )
