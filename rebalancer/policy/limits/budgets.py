"""PodDisruptionBudgets: which pods they cover, and how many evictions they allow now.

Rule: kubernetes pkg/registry/core/pod/storage/eviction.go. Each eviction of a Ready pod takes one from the
budget's `disruptionsAllowed`. It is given back when the replacement is Ready, so a budget limits a *wave*,
not a whole plan. The API server refuses to evict a pod that two budgets cover (500), and a pod whose budget
has a status older than its spec (429).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.selectors import Selector, canonical
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import PodDisruptionBudget


class Budget(Struct, frozen=True, eq=False):
    """A budget and its selector. An absent selector (None) covers nothing, an empty one the whole
    namespace."""

    budget: PodDisruptionBudget
    selector: Selector | None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.budget.metadata.namespace}/{self.budget.metadata.name}"

    @property
    def allowed(self) -> int:
        """How many evictions of Ready pods it allows now."""
        return max(0, self.budget.status.disruptions_allowed)

    @property
    def stale(self) -> bool:
        """Whether its controller has not seen the present spec yet. The API server then refuses evictions."""
        return self.budget.status.observed_generation < self.budget.metadata.generation

    def costs(self, pod: Pod) -> bool:
        """Whether evicting the pod takes one of the allowed disruptions.

        A pod that is not Ready takes none under AlwaysAllow, nor under IfHealthyBudget while enough pods are
        healthy.
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
        """Why its budgets allow no eviction of this pod at present; None if they do."""
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
    """How many disruptions of each budget one wave has used.

    `draining`: budgets, by key, with a pod on a node that is being drained. After the first of a wave their
    last disruption is left to the drain.
    """

    def __init__(self, budgets: Budgets, draining: Iterable[str] = ()) -> None:
        self._budgets = budgets
        self._draining = frozenset(draining)
        self._spent: dict[str, int] = defaultdict(int)

    def fits(self, pod: Pod) -> bool:
        """Whether the budgets allow evicting the pod in this wave as well."""
        return all(
            not b.stale and (not b.costs(pod) or self._spent[b.key] < self.of(b))
            for b in self._budgets.of(pod)
        )

    def at_most(self, pod: Pod) -> int:
        """How many pods like this one the budgets let go together; a large number if nothing covers it."""
        return min((self.of(b) for b in self._budgets.of(pod) if b.costs(pod)), default=1 << 30)

    def of(self, budget: Budget) -> int:
        """How many disruptions of the budget a wave may use."""
        if budget.allowed > 1 and budget.key in self._draining:
            return budget.allowed - 1
        return budget.allowed

    def spend(self, pod: Pod) -> None:
        """Adds the pod to the wave."""
        for b in self._budgets.of(pod):
            if b.costs(pod):
                self._spent[b.key] += 1
