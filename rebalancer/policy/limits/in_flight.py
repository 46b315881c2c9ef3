"""How many pods of one owner may be away together, whether a budget covers them or not."""

from __future__ import annotations

from collections import Counter

from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners

_MAX_UNAVAILABLE = "25%"
"""Of a Deployment that says nothing of it: kubernetes pkg/apis/apps/v1/defaults.go."""


class Shares:
    """The share of each topmost owner (the Deployment, not its ReplicaSet)."""

    def __init__(self, snapshot: Snapshot, options: PolicyOptions, owners: Owners) -> None:
        self._limit = options.in_flight_per_owner
        self._owners = owners
        self._ready: Counter[str] = Counter()
        for group in snapshot.live:
            if (top := self.top(group.one)) is not None:
                self._ready[top.key] += sum(p.ready for p in group.pods)

    def top(self, pod: Pod) -> Workload | None:
        """The topmost owner of the pod."""
        owner = self._owners.of(pod)
        return self._owners.top(owner) if owner is not None else None

    def of(self, owner: Workload) -> int:
        """How many pods of a topmost owner may be away together: the setting's share of its replicas, or what
        its rolling update allows to be unavailable, less those that are unavailable now. At least one."""
        most = self._limit.share(owner.replicas)
        if owner.kind == "Deployment":
            most = min(most, _max_unavailable(owner))
        return max(1, most - max(0, owner.replicas - self._ready[owner.key]))


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
