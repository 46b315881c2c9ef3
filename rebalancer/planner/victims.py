"""Which of several pods that serve equally well is evicted.

In this order: not Ready before Ready; on a node that is being drained; preferred or refused by annotation;
lower priority; lower `controller.kubernetes.io/pod-deletion-cost`; more room in its budget; youngest. Ties
go by name. (Before all of these comes which node's loss helps most constraints: that is the search's part.)
"""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.annotations import preference
from rebalancer.policy.budgets import Budgets

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
KARPENTER_TAINTS = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption"})
"""What Karpenter puts on a node that it is about to take away; the second until its v1."""
LEAVING_TAINTS = KARPENTER_TAINTS | {"ToBeDeletedByClusterAutoscaler"}
"""Taints of nodes that are about to go."""

Order = tuple[bool, bool, int, int, int, int, float, str, str]


def is_leaving(node: Node) -> bool:
    """Whether the node is cordoned or about to be removed: a good place to evict from, none to land on."""
    return node.spec.unschedulable or any(t.key in LEAVING_TAINTS for t in node.spec.taints)


def victim_order(snapshot: Snapshot, budgets: Budgets) -> Callable[[Pod], Order]:
    """A sort key: the best victim first."""
    going = {n.name for n in snapshot.nodes if is_leaving(n)}

    def order(pod: Pod) -> Order:
        headroom = min((b.allowed for b in budgets.of(pod)), default=1 << 30)
        return (
            pod.ready,
            pod.node_name not in going,
            preference(pod.annotations),
            pod.template.priority,
            _cost(pod),
            -headroom,
            -(pod.created or 0.0),
            pod.namespace,
            pod.name,
        )

    return order


def _cost(pod: Pod) -> int:
    """The deletion cost; 0 where it is absent or not a number, as the ReplicaSet controller has it."""
    try:
        return int(pod.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0
