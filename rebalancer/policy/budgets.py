"""PodDisruptionBudgets: which pods they cover, and how many evictions they allow now.

Rule: kubernetes pkg/registry/core/pod/storage/eviction.go. A budget's `disruptionsAllowed` is spent by each
eviction of a Ready pod and given back when its replacement is Ready: so it limits a *wave*. Two budgets on
one pod make the API server refuse (500); a status older than the spec makes it refuse for now.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.selectors import Selector, canonical
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import PodDisruptionBudget


class Budget(Struct, frozen=True, eq=False):
    """A budget and its selector; None (absent) covers nothing, an empty one the whole namespace."""

    budget: PodDisruptionBudget
    selector: Selector | None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.budget.metadata.namespace}/{self.budget.metadata.name}"

    @property
    def allowed(self) -> int:
        """Evictions of Ready pods that it allows now."""
        return max(0, self.budget.status.disruptions_allowed)

    @property
    def stale(self) -> bool:
        """Whether the controller has not seen the present spec: the API server then refuses."""
        return self.budget.status.observed_generation < self.budget.metadata.generation

    def costs(self, pod: Pod) -> bool:
        """Whether evicting the pod spends an allowance.

        Unready pods are free under AlwaysAllow, and under IfHealthyBudget while the budget is met.
        """
        if pod.ready:
            return True
        if self.budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return False
        status = self.budget.status
        return not (status.desired_healthy > 0 and status.current_healthy >= status.desired_healthy)


class Budgets:
    """All budgets of a snapshot, looked up by pod."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._by_namespace: dict[str, list[Budget]] = defaultdict(list)
        self._memo: dict[int, tuple[Budget, ...]] = {}
        self._keep: list[object] = []
        for b in snapshot.budgets:
            s = canonical(b.spec.selector) if b.spec.selector is not None else None
            self._by_namespace[b.metadata.namespace].append(Budget(b, s))

    def of(self, pod: Pod) -> tuple[Budget, ...]:
        """The budgets that cover the pod."""
        found = self._memo.get(id(pod.template))
        if found is None:
            found = tuple(
                b
                for b in self._by_namespace.get(pod.namespace, ())
                if b.selector is not None and b.selector.matches(pod.template.labels)
            )
            self._memo[id(pod.template)] = found
            self._keep.append(pod.template)
        return found

    def why_not(self, pod: Pod) -> Reason | None:
        """Why no eviction of this pod can pass its budgets at present, if so."""
        covering = self.of(pod)
        if len(covering) > 1:
            names = ", ".join(b.key for b in covering)
            return Reason(
                ReasonCode.MULTIPLE_PDBS,
                f"covered by {len(covering)} PodDisruptionBudgets ({names}): the API server would refuse",
                {"budgets": len(covering)},
                "narrow the selectors until one budget covers the pod",
            )
        for b in covering:
            if b.stale:
                return Reason(
                    ReasonCode.PDB_STALE,
                    f"PodDisruptionBudget {b.key} has not been observed by its controller since it changed",
                    {},
                    "wait; if it stays so, look at kube-controller-manager",
                )
            if b.costs(pod) and b.allowed < 1:
                status = b.budget.status
                return Reason(
                    ReasonCode.PDB_EXHAUSTED,
                    f"PodDisruptionBudget {b.key} allows no disruption now: {status.current_healthy} of "
                    f"{status.expected_pods} pods healthy, {status.desired_healthy} needed",
                    {"healthy": status.current_healthy, "needed": status.desired_healthy},
                    "run more replicas than the budget needs, or allow maxUnavailable: 1",
                )
        return None


class Allowance:
    """What one wave has spent of each budget."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._spent: dict[str, int] = defaultdict(int)

    def fits(self, pod: Pod) -> bool:
        """Whether the pod can go in this wave as well."""
        return all(
            not b.stale and (not b.costs(pod) or self._spent[b.key] < b.allowed)
            for b in self._budgets.of(pod)
        )

    def spend(self, pod: Pod) -> None:
        """Takes the pod into the wave."""
        for b in self._budgets.of(pod):
            if b.costs(pod):
                self._spent[b.key] += 1
