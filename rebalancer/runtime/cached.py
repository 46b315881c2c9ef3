"""A cycle's view of the cluster through the watch cache.

The cache follows the API server at some distance, while evictions and replacements are seen by reading the
objects themselves. So a plan that follows a wave waits until the cache has seen what came of that wave.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rebalancer.kube.cache import WatchCache
from rebalancer.kube.errors import CacheNotReadyError, KubeError
from rebalancer.kube.objects import Objects
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import PodDisruptionBudget, Workload
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.observer import Observer
from rebalancer.runtime.outcome import MoveStatus, Outcome
from rebalancer.spread.constraint import Constraint

log = logging.getLogger(__name__)

_PATIENCE = 15.0
"""Seconds that the cache may be behind what was read; then what it has is planned with, and every eviction is
looked at anew anyway."""
_SYNC = 600.0
"""Seconds that a cycle waits for a cache that is not synced, or has become stale, before it gives up."""
_TELL = 15.0
"""Seconds between two lines about it."""
_POLL = 0.1
_ABREAST = 10.0
"""Seconds for which a watch that was abreast is taken to be so still."""
_CATCH_UP = 5.0
"""Seconds that it may take to catch up; mostly it is milliseconds."""


class CachedReader(Observer):
    """Snapshots from the cache, never older than what this cycle has seen."""

    def __init__(self, cache: WatchCache, objects: Objects, clock: Clock) -> None:
        self._cache = cache
        self._objects = objects
        self._clock = clock
        self._seen: list[Outcome] = []

    def on_outcome(self, outcome: Outcome) -> None:
        """Something that the cache has to show."""
        if outcome.evicted:
            self._seen.append(outcome)

    def snapshot(self) -> Snapshot:
        """The cluster as watched. Raises CacheNotReadyError, which names the kinds that are missing."""
        self._wait_ready()
        until = self._clock.monotonic() + _PATIENCE
        budgets = self._budgets_now() if self._seen else {}
        while any(not self._shows(o) for o in self._seen) or not self._has(budgets):
            if self._clock.monotonic() >= until or self._clock.wait(_POLL):
                log.info("the watch cache has not seen all that this cycle did yet")
                break
        self._seen.clear()
        return self._cache.snapshot(self._clock.now())

    def _wait_ready(self) -> None:
        """Waits until the cache is synced and fresh, and says what is missing."""
        until = self._clock.monotonic() + _SYNC
        told = self._clock.monotonic() - _TELL + 2.0
        while (missing := self._cache.not_ready()) is not None:
            now = self._clock.monotonic()
            if now - told >= _TELL:
                told = now
                log.warning("the cycle waits: %s", missing.message)
            if now >= until or self._clock.wait(_POLL):
                raise missing

    def _budgets_now(self) -> dict[str, dict[str, int]]:
        """Namespace → budget → resource version, of what was evicted from: allowances were spent there."""
        try:
            return {
                n: {b.metadata.name: _number(b.metadata.resource_version) for b in self._objects.budgets(n)}
                for n in {o.move.pod.namespace for o in self._seen}
            }
        except KubeError as e:
            log.info("budgets are taken as watched: %s", e.message)
            return {}

    def _has(self, read: dict[str, dict[str, int]]) -> bool:
        """Whether the cache has these budgets, or later ones."""
        try:
            return all(
                _number(b.metadata.resource_version) >= versions.get(b.metadata.name, 0)
                for n, versions in read.items()
                for b in self._cache.budgets(n)
            )
        except CacheNotReadyError:
            return False

    def _shows(self, outcome: Outcome) -> bool:
        victim = outcome.move.pod
        try:
            there = self._cache.pod(victim.namespace, victim.name)
            if there is not None and there.uid == victim.uid:
                return False
            if outcome.status is not MoveStatus.DONE or not outcome.replacement:
                return True
            namespace, _, name = outcome.replacement.partition("/")
            new = self._cache.pod(namespace, name)
        except CacheNotReadyError:
            return False
        return new is not None and (new.terminating or (bool(new.node_name) and new.ready))


class Abreast:
    """Whether the watch has come as far as the server, for the pods on which a move hangs.

    A connection that is half open is silent for minutes before it is found out, and a cluster can be another
    one by then: what a plan and the last look at it rest on would be old, although the cache counts as fresh.
    """

    def __init__(self, cache: WatchCache, objects: Objects, clock: Clock) -> None:
        self._cache = cache
        self._objects = objects
        self._clock = clock
        self._seen: dict[Constraint, float] = {}

    def why_not(self, constraints: Iterable[Constraint]) -> Reason | None:
        """What it has not seen of the pods that these count; None if it has seen all. Raises KubeError."""
        for constraint in constraints:
            now = self._clock.monotonic()
            if now - self._seen.get(constraint, -_ABREAST) < _ABREAST:
                continue
            version, there = self._objects.pods_as_of(constraint.namespace, str(constraint.selector or ""))
            while what := self._behind(constraint, version, there):
                if self._clock.monotonic() - now >= _CATCH_UP or self._clock.wait(_POLL):
                    return Reason(ReasonCode.CHANGED_SINCE_PLAN, f"the watch of pods is behind: {what}")
            self._seen[constraint] = now
        return None

    def _behind(self, constraint: Constraint, version: str, there: Iterable[Pod]) -> str:
        seen = {p.uid: p for p in self._cache.pods() if constraint.counts(p.namespace, p.template.labels)}
        for pod in there:
            known = seen.pop(pod.uid, None)
            if known is None:
                return f"it has not seen pod {pod.key}"
            if _number(known.resource_version) < _number(pod.resource_version):
                return f"pod {pod.key} has changed since"
        # What is left came after the list, or is gone by it.
        old = (p for p in seen.values() if _number(p.resource_version) <= _number(version))
        return next((f"pod {p.key} is gone" for p in old), "")


def _number(version: str) -> int:
    """Resource versions can be compared as numbers (KEP-5504); what is none is the oldest."""
    return int(version) if version.isdigit() else 0


class CachedNodes:
    """What is looked at just before an eviction: nodes as watched, everything else read from the server."""

    def __init__(self, objects: Objects, cache: WatchCache) -> None:
        self._objects = objects
        self._cache = cache

    def nodes(self) -> tuple[Node, ...]:
        """All nodes. Raises CacheNotReadyError where the watch is stale."""
        return self._cache.nodes()

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Read."""
        return self._objects.pod(namespace, name)

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        """Read."""
        return self._objects.workload(kind, namespace, name)

    def budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        """Read."""
        return self._objects.budgets(namespace)
