"""What bounds the moves of one wave by number: budgets, shares of owners, quotas."""

from __future__ import annotations

from collections.abc import Iterable

from rebalancer.model.pod import Pod
from rebalancer.model.workload import Workload
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.limits.budgets import Allowance, Budget, Budgets
from rebalancer.policy.limits.in_flight import InFlight
from rebalancer.policy.limits.quota import Charged


class Limits:
    """How much of each one wave has used. `draining`: the budgets, by key, that a drain asks, too.

    `shares`: whether the shares of owners count.
    """

    def __init__(self, evictable: Evictable, draining: Iterable[str], *, shares: bool = True) -> None:
        self._shares = shares
        self._allowance = Allowance(evictable.budgets, draining)
        self._in_flight = InFlight(evictable.shares)
        self._charged = Charged(evictable.quotas)

    def fits(self, pod: Pod, owner: Workload | None) -> bool:
        """Whether the pod may go in this wave as well."""
        shared = not self._shares or self._in_flight.fits(pod)
        return shared and self._allowance.fits(pod) and self._charged.fits(pod, owner)

    def at_most(self, pod: Pod) -> int:
        """How many pods like this one may go together, in a wave without others."""
        return max(1, min(self._allowance.at_most(pod), self._in_flight.at_most(pod)))

    def of_budget(self, budget: Budget) -> int:
        """How many disruptions of the budget one wave may use."""
        return self._allowance.of(budget)

    def of_owner(self, pod: Pod) -> int:
        """How many pods of the pod's owner may go together."""
        return self._in_flight.at_most(pod)

    def spend(self, pod: Pod, owner: Workload | None) -> None:
        """Adds the pod to the wave."""
        self._allowance.spend(pod)
        self._in_flight.spend(pod)
        self._charged.spend(pod, owner)


def draining_budgets(simulation: Simulation, budgets: Budgets) -> frozenset[str]:
    """The keys of budgets that a drain needs: one of their pods is on a node that is cordoned or leaves."""
    going = {
        name for name, leaves in zip(simulation.state.table.names, simulation.leaving, strict=True) if leaves
    }
    return frozenset(
        b.key
        for pod in (simulation.snapshot.pods if going else ())
        if pod.node_name in going and not pod.finished
        for b in budgets.of(pod)
    )


def wave_limits(simulation: Simulation, evictable: Evictable) -> Limits:
    """The limits of a wave that has no move yet."""
    return Limits(evictable, draining_budgets(simulation, evictable.budgets))
