"""Nodes that are cordoned, or that somebody is about to remove."""

from __future__ import annotations

from rebalancer.model.node import Node

KARPENTER_TAINTS = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption"})
"""What Karpenter puts on a node that it is about to take away; the second until its v1."""
LEAVING_TAINTS = KARPENTER_TAINTS | {"ToBeDeletedByClusterAutoscaler"}
"""Taints of nodes that are about to go."""


def is_leaving(node: Node) -> bool:
    """Whether the node is cordoned or about to be removed: a good place to evict from, none to land on."""
    return node.spec.unschedulable or any(t.key in LEAVING_TAINTS for t in node.spec.taints)
