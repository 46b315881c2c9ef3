"""Do the budgets of now allow the eviction?"""

from __future__ import annotations

from collections.abc import Iterable

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import build_snapshot
from rebalancer.model.workload import PodDisruptionBudget
from rebalancer.policy.limits.budgets import Budgets


def why_not(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> Reason | None:
    """Why these budgets, all of the pod's namespace, refuse it; None if they let it go."""
    return Budgets(build_snapshot(budgets, now=0.0)).why_not(pod)
