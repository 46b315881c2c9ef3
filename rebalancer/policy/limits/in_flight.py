"""How many pods of one owner may be away together, whether a budget covers them or not; and that an owner
which has lost as many already loses no Ready one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.policy.owners import Owners

_MAX_UNAVAILABLE = "25%"
"""Of a Deployment that says nothing of it: kubernetes pkg/apis/apps/v1/defaults.go."""
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
        self._degraded: dict[str, Reason | None] = {}
        for group in snapshot.live:
            if (top := self.top(group.one)) is not None:
                broken = [p for p in group.pods if not p.ready]
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
        if owner is None:
            return None
        if owner.key not in self._degraded:
            self._degraded[owner.key] = degraded(
                owner, self._ready[owner.key], self._missing(owner), self._limit, self._unready[owner.key]
            )
        return self._degraded[owner.key]

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
    others = [p.name for p in unready if _SPREAD not in p.unschedulable]
    named = [
        f"{len(names)} {what} ({', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''})"
        for names, what in ((by_constraint, "Pending for a spread constraint"), (others, "not Ready"))
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
    """What a Deployment allows to be unavailable in a rolling update, rounded down; 0 counts as one, for it
    surges then. One that recreates its pods allows no more at a time either."""
    written = deployment.max_unavailable
    if deployment.update_strategy == "Recreate":
        return 1
    written = _MAX_UNAVAILABLE if written is None else written
    if isinstance(written, int):
        return max(1, written)
    share = written.removesuffix("%")
    return max(1, int(share) * deployment.replicas // 100 if share.isdigit() else 1)
