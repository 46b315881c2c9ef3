"""Workloads that were left alone and need not be any more: a rollout or scaling has ended, a budget is open.

What may be evicted is asked of the policy itself, over the namespaces in which something is violated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from msgspec.structs import replace

from rebalancer.model.kinds import WORKLOADS
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import Outcome
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import ConstraintResult, Plan
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import topmost
from rebalancer.runtime.cycle.gates.watched_limits import PASSING
from rebalancer.runtime.daemon.events.happening import Happening
from rebalancer.spread.constraint import Constraint

_PASSING = PASSING | {
    ReasonCode.ROLLOUT_IN_PROGRESS,
    ReasonCode.ON_DELETE,
    ReasonCode.PAUSED,
    ReasonCode.MULTIPLE_PDBS,
    ReasonCode.QUOTA,
    ReasonCode.NODE_NOT_READY,
    ReasonCode.NOT_RUNNING,
}
"""Reasons to leave a pod alone that end when something happens to its workload, budget or node."""
_KINDS = ("Pod", "Node", "PodDisruptionBudget", "ResourceQuota", *sorted(WORKLOADS))
_EVERY, _SHARE = 1.0, 20
"""Seconds between two looks at least, and so many times what a look took."""

_Key = tuple[Constraint, str]
"""A violated constraint, and the topmost owner of pods that it counts."""


class Watched(Protocol):
    """`rebalancer.kube.watch.cache.WatchCache`, as far as it is needed here. Raises CacheNotReadyError."""

    def snapshot(self, now: float) -> Snapshot:
        """Everything."""
        ...

    def generation(self, kind: str) -> int:
        """A number that differs whenever the objects of the kind do."""
        ...


class WorkloadEvents(Observer):
    """For constraints that were not violated in the last plan, and those of which it left workloads alone.

    `violated`: the constraints with an excess at this moment, None where that is not known. `wall`: seconds
    of the epoch.
    """

    def __init__(
        self,
        watched: Watched,
        violated: Callable[[], Mapping[Constraint, int] | None],
        policy: Callable[[], PolicyOptions],
        *,
        wall: Callable[[], float],
    ) -> None:
        self._watched = watched
        self._violated = violated
        self._policy = policy
        self._wall = wall
        self._known: frozenset[Constraint] | None = None
        self._constraints: tuple[ConstraintResult, ...] = ()
        self._closed: set[_Key] = set()
        self._open: set[_Key] = set()
        self._seen: object = None
        self._not_before = 0.0

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Takes down what the plan could not do because of the state that workloads and budgets are in."""
        violated = [c.constraint for c in plan.constraints if c.in_scope and c.excess]
        moved = {m.owner.key for m in plan.moves}
        passing, other = set[str](), set[str]()
        closed = set[_Key]()
        for b in plan.blocked:
            owner = topmost(snapshot, b.pod)
            if owner is None or owner.key in moved:
                continue
            if b.reason.code in _PASSING:
                passing.add(owner.key)
                closed |= {
                    (c, owner.key) for c in violated if c.counts(b.pod.namespace, b.pod.template.labels)
                }
            else:
                other.add(owner.key)
        # Where others of its pods may go, and do not for reasons of their own, nothing is waited for.
        self._closed = {key for key in closed if key[1] not in other}
        self._known, self._open, self._seen = frozenset(violated), set(), None
        self._constraints = plan.constraints

    def on_outcome(self, outcome: Outcome) -> None:
        """A move that the last look put off for such a reason waits, too."""
        if outcome.reason is not None and outcome.reason.code in PASSING and not outcome.evicted:
            owner = outcome.move.owner.key
            self._closed |= {(self._constraints[i].constraint, owner) for i in outcome.move.fixes}

    def news(self, now: float) -> Iterator[Happening]:
        """A happening for each workload that may be evicted from now and could not before."""
        if self._known is None or now < self._not_before:
            return
        waiting, in_view = {c for c, _ in self._closed}, self._policy().in_view
        asked = [
            c
            for c in self._violated() or ()
            if in_view(c.namespace) and (c in waiting or c not in self._known)
        ]
        seen = (asked, *(self._watched.generation(kind) for kind in _KINDS))
        if not asked or seen == self._seen:
            return
        self._seen = seen
        began = time.monotonic()
        found = self._may_go(asked)
        self._not_before = now + max(_EVERY, _SHARE * (time.monotonic() - began))
        new, self._open = found - self._open, found
        for key in sorted(new, key=lambda k: k[1]):
            yield Happening(key, f"{key[1]} violates its spread, and may be evicted from now")

    def _may_go(self, asked: Iterable[Constraint]) -> set[_Key]:
        by_namespace: dict[str, list[Constraint]] = {}
        for c in asked:
            by_namespace.setdefault(c.namespace, []).append(c)
        known = self._known or frozenset()
        snapshot = _of(self._watched.snapshot(self._wall()), by_namespace.keys())
        evictable = Evictable(snapshot, self._policy())
        found = set[_Key]()
        counting: dict[int, list[Constraint]] = {}
        for pod in snapshot.pods:
            t = pod.template
            if id(t) not in counting:
                counting[id(t)] = [c for c in by_namespace[pod.namespace] if c.counts(t.namespace, t.labels)]
            if not counting[id(t)] or (owner := topmost(snapshot, pod)) is None:
                continue
            every = ((c, owner.key) for c in counting[id(t)])
            keys = {key for key in every if key[0] not in known or key in self._closed}
            if not keys <= found and evictable.why_not(pod) is None:
                found |= keys
        return found


def _of(snapshot: Snapshot, namespaces: Iterable[str]) -> Snapshot:
    """What policy asks of some namespaces: the rest is left out, as it may be a hundred times as much."""
    wanted = frozenset(namespaces)
    return replace(
        snapshot,
        pods=tuple(p for p in snapshot.pods if p.namespace in wanted),
        workloads=tuple(w for w in snapshot.workloads if w.namespace in wanted),
        budgets=tuple(b for b in snapshot.budgets if b.metadata.namespace in wanted),
        quotas=tuple(q for q in snapshot.quotas if q.metadata.namespace in wanted),
    )
