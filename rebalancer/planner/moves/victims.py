"""Which of several pods that serve equally well is evicted.

In this order: not Ready before Ready; on a node that is being drained; preferred or refused by annotation;
lower priority; lower `controller.kubernetes.io/pod-deletion-cost`; more room in its budget; youngest. Ties
go by name. (Before all of these comes which node's loss helps most constraints: that is the search's part.)
"""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.model.deletion_cost import DELETION_COST, cost_of
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.leaving_nodes import is_leaving
from rebalancer.policy.annotations import preference
from rebalancer.policy.limits.budgets import Budgets

Order = tuple[bool, bool, int, int, int, int, float, str, str]


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
            cost_of(pod.annotations.get(DELETION_COST)),
            -headroom,
            -(pod.created or 0.0),
            pod.namespace,
            pod.name,
        )

    return order
