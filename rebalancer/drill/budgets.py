"""PodDisruptionBudgets that a failure breaches: it asks nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rebalancer.drill.lost import Lost
from rebalancer.drill.results import Breach
from rebalancer.policy.limits.budgets import Budget

if TYPE_CHECKING:
    from rebalancer.drill.at_rest import AtRest


def breaches(rest: AtRest, lost: Iterable[Lost], placed: Iterable[Lost]) -> tuple[Breach, ...]:
    """The budgets with fewer healthy pods than they need, by name. `placed`: whose replacement has a node."""
    known: dict[str, Budget] = {}
    gone: Counter[str] = Counter()
    back: Counter[str] = Counter()
    for one in lost:
        if one.pod.ready:
            for budget in rest.budgets.of(one.pod):
                known[budget.key] = budget
                gone[budget.key] += 1
    for one in placed:
        for budget in rest.budgets.of(one.pod):
            back[budget.key] += 1
    found = []
    for key, budget in sorted(known.items()):
        status = budget.budget.status
        healthy = status.current_healthy - gone[key]
        if not budget.stale and healthy < status.desired_healthy:
            found.append(Breach(key, healthy, healthy + back[key], status.desired_healthy))
    return tuple(found)
