"""What may keep a move from going now and passes by itself, as it is watched: asked without a request.

The API server counts an eviction against a budget at once. The disruption controller gives it back, and the
owner counts its Ready pods anew, some time after the replacement is Ready. The watch shows all of it a moment
later. So a move that was refused for such a reason waits until budgets or owner have changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from rebalancer.kube.errors import KubeError
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot, build_snapshot
from rebalancer.model.workload import PodDisruptionBudget, ResourceQuota, Workload
from rebalancer.planner.plan import Move
from rebalancer.policy.limits.budgets import Budget, Budgets
from rebalancer.policy.limits.quota import Charged, Quotas

log = logging.getLogger(__name__)

PASSING = frozenset(
    {
        ReasonCode.PDB_EXHAUSTED,
        ReasonCode.PDB_STALE,
        ReasonCode.REPLACEMENT_NOT_READY,
        ReasonCode.OWNER_SCALING,
        ReasonCode.OWNER_DEGRADED,
    }
)
"""Reasons for which a move may wait a little."""


class Limiting(Protocol):
    """`rebalancer.kube.watch.cache.WatchCache`, as far as it is needed here. Raises CacheNotReadyError."""

    def budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        """All budgets of a namespace."""
        ...

    def quotas(self, namespace: str) -> tuple[ResourceQuota, ...]:
        """All quotas of a namespace."""
        ...

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        """The owner of that kind and name."""
        ...


class WatchedLimits:
    """Budgets, quotas and owners of one plan's moves, made from `snapshot`. What is new is for the last look.

    `watched`: None in dry runs, where nothing is limited.
    """

    def __init__(self, watched: Limiting | None, snapshot: Snapshot) -> None:
        self._watched = watched
        self._snapshot = snapshot
        self._planned = Budgets(snapshot)
        self._refused: dict[str, tuple[str, ...]] = {}

    def allow(self, move: Move) -> bool:
        """Whether the move's budgets have room, and something has changed since it was refused."""
        try:
            budgets = self._budgets([move])
            if move.pod.uid in self._refused and self._refused[move.pod.uid] == self._versions(move):
                return False
        except KubeError as e:
            log.info("waiting for the watch: %s", e.message)
            return False
        return all(not b.stale and (not b.costs(move.pod) or b.allowed > 0) for b in budgets)

    def admit(self, move: Move, coming: Sequence[Move]) -> bool:
        """Whether the quotas have room for its replacement beside those that are still to be made."""
        if self._watched is None:
            return True
        try:
            charged = Charged(Quotas(build_snapshot(self._watched.quotas(move.pod.namespace), now=0.0)))
        except KubeError as e:
            log.info("waiting for the watch: %s", e.message)
            return False
        for other in coming:
            charged.spend(other.pod, other.owner)
        return charged.fits(move.pod, move.owner)

    def refused(self, move: Move) -> None:
        """Takes down that the move was refused with budgets and owner as they are."""
        try:
            self._refused[move.pod.uid] = self._versions(move)
        except KubeError as e:
            log.info("waiting for the watch: %s", e.message)

    def as_planned(self, moves: Iterable[Move]) -> bool:
        """Whether the budgets of these moves allow as much again as when they were planned.

        A plan made before would take them for exhausted.
        """
        moves = list(moves)
        planned = {b.key: b.allowed for m in moves for b in self._planned.of(m.pod)}
        try:
            return all(b.allowed >= planned[b.key] for b in self._budgets(moves))
        except KubeError as e:
            log.info("waiting for budgets: %s", e.message)
            return False

    def _budgets(self, moves: Iterable[Move]) -> list[Budget]:
        """The budgets that cover these pods, as they are."""
        covering = {b.key: b for m in moves for b in self._planned.of(m.pod)}
        if not covering or self._watched is None:
            return []
        there = {
            f"{n}/{b.metadata.name}": b
            for n in {key.partition("/")[0] for key in covering}
            for b in self._watched.budgets(n)
        }
        return [Budget(there[key], b.selector) for key, b in sorted(covering.items()) if key in there]

    def _versions(self, move: Move) -> tuple[str, ...]:
        owner = self._snapshot.owner_of(move.pod.namespace, move.pod.owner)
        found = [b.budget.metadata.resource_version for b in self._budgets([move])]
        if self._watched is not None and owner is not None:
            live = self._watched.workload(owner.kind, owner.namespace, owner.name)
            found.append(live.metadata.resource_version if live is not None else "")
        return tuple(found)
