"""PodDisruptionBudgets: which pods they cover, and how many evictions they allow now.

Rule: kubernetes pkg/registry/core/pod/storage/eviction.go. Each eviction of a Ready pod takes one from the
budget's `disruptionsAllowed`. It is given back when the replacement is Ready, so a budget limits a *wave*,
not a whole plan. The API server refuses to evict a pod that two budgets cover (500), and a pod whose budget
has a status older than its spec (429).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import inf

from msgspec import Struct

from rebalancer.bulk_work import remembered
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.selectors import Selector, canonical
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import PodDisruptionBudget, Workload
from rebalancer.policy.annotations import BEING_EVICTED
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.policy.owners import Owners, available


class Budget(Struct, frozen=True, eq=False):
    """A budget and its selector. An absent selector (None) covers nothing, an empty one the whole
    namespace. `lost`: pods on nodes that are gone, which its controller takes for healthy."""

    budget: PodDisruptionBudget
    selector: Selector | None
    lost: int = 0

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.budget.metadata.namespace}/{self.budget.metadata.name}"

    @property
    def allowed(self) -> int:
        """How many evictions of Ready pods it allows now."""
        return max(0, self.budget.status.disruptions_allowed - self.lost)

    @property
    def healthy(self) -> int:
        """How many of its pods are healthy."""
        return self.budget.status.current_healthy - self.lost

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
        desired = self.budget.status.desired_healthy
        return not (desired > 0 and self.healthy >= desired)

    def why_not(self, pod: Pod) -> Reason | None:
        """Why it allows no eviction of this pod at present; None if it does."""
        if self.stale:
            return Reason(
                ReasonCode.PDB_STALE,
                f"PodDisruptionBudget {self.key} has not been observed by its controller since it changed",
                {},
                "wait; if it stays so, look at kube-controller-manager",
            )
        if self.allowed > 0 or not self.costs(pod):
            return None
        status = self.budget.status
        return Reason(
            ReasonCode.PDB_EXHAUSTED,
            f"PodDisruptionBudget {self.key} allows no disruption now: {self.healthy} of "
            f"{status.expected_pods} pods healthy, {status.desired_healthy} needed",
            {"healthy": self.healthy, "needed": status.desired_healthy},
            "run more replicas than the budget needs, or allow maxUnavailable: 1",
        )


class Budgets:
    """All budgets of a snapshot, looked up by pod."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._by_namespace: dict[str, list[Budget]] = defaultdict(list)
        lost: dict[str, list[PodTemplate]] = defaultdict(list)
        for p in snapshot.stranded:
            if p.ready:
                lost[p.namespace].append(p.template)
        for b in snapshot.budgets:
            s = canonical(b.spec.selector) if b.spec.selector is not None else None
            namespace = b.metadata.namespace
            gone = sum(s.matches(t.labels) for t in lost[namespace]) if s is not None else 0
            self._by_namespace[namespace].append(Budget(b, s, gone))

    def of(self, pod: Pod) -> tuple[Budget, ...]:
        """The budgets that cover the pod."""
        return self._of(pod.template)

    @remembered()
    def _of(self, template: PodTemplate) -> tuple[Budget, ...]:
        there = self._by_namespace.get(template.namespace, ())
        return tuple(b for b in there if b.selector is not None and b.selector.matches(template.labels))

    def forbids(self, pod: Pod, instead_of: Pod) -> bool:
        """Whether a budget keeps the pod from going in place of another one, which it does not cover."""
        others = {b.key for b in self.of(instead_of)}
        return any(b.why_not(pod) for b in self.of(pod) if b.key not in others)

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
        return next(filter(None, (b.why_not(pod) for b in covering)), None)


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


# How many pods of one owner may be away together, whether a budget covers them or not; and that an owner
# which has lost as many already loses no Ready one.

_SPREAD = "pod topology spread constraints"
"""In the scheduler's message for a pod that a spread constraint keeps from nodes."""
_NAMED = 3
"""So many pods are named in a reason."""


class Shares:
    """The share of each topmost owner (the Deployment, not its ReplicaSet)."""

    def __init__(self, snapshot: Snapshot, options: PolicyOptions, owners: Owners) -> None:
        self._limit = options.in_flight_per_owner
        self._owners = owners
        self._ready: Counter[str] = Counter()
        self._unready: dict[str, list[Pod]] = defaultdict(list)
        self._pods: dict[str, list[Sequence[Pod]]] = defaultdict(list)
        self._silent = {n.name for n in snapshot.nodes if not n.ready}
        here = snapshot.node_names
        for group in snapshot.live:
            if (top := self.top(group.one)) is not None:
                self._pods[top.key].append(group.pods)
                broken = [
                    p
                    for p in group.pods
                    if not available(p, top, snapshot.now)
                    or p.node_name not in here
                    or BEING_EVICTED in p.annotations
                ]
                self._ready[top.key] += len(group.pods) - len(broken)
                if broken:
                    self._unready[top.key] += broken

    def top(self, pod: Pod) -> Workload | None:
        """The topmost owner of the pod."""
        owner = self._owners.of(pod)
        return self._owners.top(owner) if owner is not None else None

    def of(self, owner: Workload) -> int:
        """How many pods of a topmost owner may be away together: the setting's share of its replicas, or what
        its rolling update allows to be unavailable, less those that are unavailable now. At least one, be it
        one that is not Ready: `why_not` says whether a Ready one may go at all."""
        missing, ready = self._missing(owner), self._ready[owner.key]
        most = min(self._limit.share(owner.replicas), most_unavailable(owner, self._limit))
        return max(1, min(most - missing, ready - 1) if missing else most)

    def why_not(self, pod: Pod) -> Reason | None:
        """Why a Ready pod stays for the others' sake. What is not Ready takes no capacity when it goes."""
        owner = self.top(pod) if pod.ready else None
        return self._degraded(owner) or self._does_not_start(owner) if owner is not None else None

    @remembered(by=lambda owner: owner.key)
    def _degraded(self, owner: Workload) -> Reason | None:
        return degraded(
            owner, self._ready[owner.key], self._missing(owner), self._limit, self._unready[owner.key]
        )

    @remembered(by=lambda owner: owner.key)
    def _does_not_start(self, owner: Workload) -> Reason | None:
        """Where the newest pod is not Ready: nothing shows that one that is made now would start. Of pods on
        nodes that have gone silent nobody knows."""
        waits = [p for p in self._unready[owner.key] if not p.ready and p.node_name not in self._silent]
        newest = max((p for p in waits if p.node_name), key=lambda p: p.created or -inf, default=None)
        if newest is None:
            return None
        ready = (p.created for pods in self._pods[owner.key] for p in pods if p.ready)
        if (newest.created or -inf) <= max((c for c in ready if c is not None), default=-inf):
            return None
        why = newest.symptoms.stuck or (
            "it has crashed" if newest.symptoms.crashed is not None else "it is not Ready"
        )
        return Reason(
            ReasonCode.REPLACEMENT_NOT_READY,
            f"{owner.kind} {owner.name}: its newest pod {newest.name} does not start ({why}), and neither "
            "may one that is made now",
            {"notReady": len(waits)},
            f"see kubectl -n {newest.namespace} describe pod {newest.name}, and repair or delete it",
        )

    def _missing(self, owner: Workload) -> int:
        """How many of its pods are not Ready, or not there."""
        return max(owner.replicas - self._ready[owner.key], len(self._unready[owner.key]))


def most_unavailable(owner: Workload, limit: Limit) -> int:
    """How many pods of a topmost owner may be unavailable, for whatever reason, when a Ready one goes: what a
    Deployment says itself, of others the share that may be away together."""
    return _max_unavailable(owner) if owner.kind == "Deployment" else limit.share(owner.replicas)


def degraded(
    owner: Workload, ready: int, missing: int, limit: Limit, unready: Sequence[Pod] = ()
) -> Reason | None:
    """Why no Ready pod of a topmost owner goes that has so many `ready` and `missing`; None if one may.

    `unready`: those of the missing that are there, to be named.
    """
    most = most_unavailable(owner, limit)
    if missing == 0 or (missing < most and ready > 1):
        return None
    name = f"{owner.kind} {owner.name}"
    by_constraint = [p.name for p in unready if _SPREAD in p.unschedulable]
    leaving = [p.name for p in unready if BEING_EVICTED in p.annotations]
    others = [p.name for p in unready if _SPREAD not in p.unschedulable and p.name not in leaving]
    named = [
        f"{len(names)} {what} ({', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''})"
        for names, what in (
            (by_constraint, "Pending for a spread constraint"),
            (leaving, "being evicted"),
            (others, "not Ready"),
        )
        if names
    ]
    enough = f"as many as may be ({most})" if missing >= most else "and one that is Ready"
    raise_it = "its maxUnavailable" if owner.kind == "Deployment" else "evictions.inFlightPerOwner"
    return Reason(
        ReasonCode.OWNER_DEGRADED,
        f"{name} has {missing} of {owner.replicas} pods unavailable, {enough}: its Ready pods stay"
        + (f"; {', '.join(named)}" if named else ""),
        {"unavailable": missing, "most": most, "ready": ready},
        f"mend those that are not Ready{f', or raise {raise_it}' if missing >= most else ''}"
        + ("; until then the constraint stays violated" if by_constraint else ""),
    )


class InFlight:
    """How much of the shares one wave has used."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._away: Counter[str] = Counter()

    def fits(self, pod: Pod) -> bool:
        """Whether the pod may go in this wave as well."""
        owner = self._shares.top(pod)
        return owner is None or self._away[owner.key] < self._shares.of(owner)

    def at_most(self, pod: Pod) -> int:
        """How many pods of its owner may go together."""
        owner = self._shares.top(pod)
        return self._shares.of(owner) if owner is not None else 1

    def spend(self, pod: Pod) -> None:
        """Adds the pod to the wave."""
        if (owner := self._shares.top(pod)) is not None:
            self._away[owner.key] += 1


def _max_unavailable(deployment: Workload) -> int:
    """What a Deployment allows to be unavailable in a rolling update; 0 counts as one, for it surges then.
    One that recreates its pods allows no more at a time either."""
    return 1 if deployment.update_strategy == "Recreate" else max(1, deployment.unavailable)
