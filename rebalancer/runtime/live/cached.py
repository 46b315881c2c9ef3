"""A cycle's view of the cluster through the watch cache.

The cache follows the API server at some distance, while evictions and replacements are seen by reading the
objects themselves. So a plan that follows a wave waits until the cache has seen what came of that wave.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from functools import cache

from msgspec import Struct

from rebalancer.findings import plan_with_findings
from rebalancer.kube.errors import CacheNotReadyError, KubeError
from rebalancer.kube.reading import Objects
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Fate, Observer, Outcome
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.policy.evictable import next_change
from rebalancer.policy.options import Method
from rebalancer.runtime.cycle.clock import Clock

log = logging.getLogger(__name__)

_PATIENCE = 15.0
"""Seconds that the cache may be behind what was read; then what it has is planned with, and every eviction is
looked at anew anyway."""
_REFRESH = 5.0
"""Seconds that a cache which was wrong is waited for to be confirmed."""
_SYNC = 600.0
"""Seconds that a cycle of the daemon waits for a cache that is not synced, or has become stale."""
_TRIES = 5
"""Lists of a kind that may fail, one after the other, before a single cycle gives up."""
_SOON, _TELL = 2.0, 15.0
"""Seconds before the first line about it, and between two. A daemon's cache is mostly there already."""


class CachedReader(Observer):
    """Snapshots from the cache, never older than what this cycle has seen itself.

    `patient`: the daemon waits for rights and servers that may come; a single cycle says at once what is
    wrong, with the error of the kind itself.
    """

    def __init__(self, cache: WatchCache, objects: Objects, clock: Clock, *, patient: bool) -> None:
        self._cache = cache
        self._objects = objects
        self._clock = clock
        self._patient = patient
        self._seen: list[Outcome] = []
        self._doubted = False

    def on_outcome(self, outcome: Outcome) -> None:
        if outcome.evicted and not outcome.kept:
            self._seen.append(outcome)
        elif outcome.status is Fate.SKIPPED or outcome.kept:
            self._doubted = True

    def snapshot(self) -> Snapshot:
        """The cluster as watched. Raises KubeError: CacheNotReadyError names the kinds that are missing."""
        self._wait_ready()
        if self._doubted:
            # The API server knew better than the cache: whatever kind that was, its connection may be dead.
            self._doubted = False
            self._cache.refresh(_REFRESH, self._clock.stopping)
        budgets = self._budgets_now() if self._seen else {}
        if self._seen and not self._shown(budgets):
            self._cache.follow_closely(("Pod", "PodDisruptionBudget"), _PATIENCE)
        if not self._cache.wait_for(lambda: self._shown(budgets), _PATIENCE, self._clock.stopping):
            log.info("the watch cache has not seen all that this cycle did yet")
        self._seen.clear()
        return self._cache.snapshot(self._clock.now())

    def _shown(self, budgets: dict[str, dict[str, int]]) -> bool:
        return all(self._shows(o) for o in self._seen) and self._has(budgets)

    def _wait_ready(self) -> None:
        """Waits until the cache is synced and fresh, and says what is missing."""
        waited, soon = 0.0, _SOON if self._patient else _TELL
        while not self._cache.wait_for(self._ready, soon, self._clock.stopping):
            missing = self._cache.not_ready()
            if missing is None:
                return
            waited, soon = waited + soon, _TELL
            if self._clock.stopping() or waited >= _SYNC:
                raise missing
            # Reading a large cluster for the first time takes a while, which is no reason to worry.
            log.log(
                logging.INFO if waited <= _SOON else logging.WARNING, "the cycle waits: %s", missing.message
            )

    def _ready(self) -> bool:
        """Whether a plan can be made. Raises what keeps a single cycle from it."""
        if self._cache.not_ready() is None:
            return True
        if not self._patient:
            for kind in self._cache.status():
                given_up = (kind.denied and kind.required) or (not kind.synced and kind.failures >= _TRIES)
                if given_up and kind.error is not None and not kind.add_on:
                    raise kind.error
        return False

    def _budgets_now(self) -> dict[str, dict[str, int]]:
        """Namespace → budget → resource version, for the namespaces of evicted pods: their allowances have
        changed."""
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
                late = outcome.move.method is Method.REPLACE_FIRST  # its replacement was there before
                return there.terminating and (late or outcome.status is not Fate.DONE)
            if outcome.status is not Fate.DONE or not outcome.replacement:
                return True
            namespace, _, name = outcome.replacement.partition("/")
            new = self._cache.pod(namespace, name)
        except CacheNotReadyError:
            return False
        # The watch has told of it, or the outcome would not name it: if it is gone, somebody else took it.
        return new is None or new.terminating or (bool(new.node_name) and new.ready)


def _number(version: str) -> int:
    """Resource versions compare as numbers (KEP-5504). Anything else counts as the oldest."""
    return int(version) if version.isdigit() else 0


# Memory that is free within the process goes back to the system.
#
# A plan for a large cluster takes some hundred megabytes for seconds, in pieces of a size that the C
# library keeps for later. A daemon would hold them until its next plan, minutes or days after.


def give_back() -> None:
    """Gives back what is free; takes some milliseconds. Where the C library is not glibc, nothing is done."""
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    try:
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # musl, macOS, Windows
        return lambda _: None
    return found


# Plans are remembered from cycle to cycle, for as long as nothing changes that they rest on.

_NOT_PLANNED_FROM = frozenset({"now", "reads", "warnings"})
_RESTS_ON = tuple(f for f in Snapshot.__struct_fields__ if f not in _NOT_PLANNED_FROM)
_FEW, _SHARE = 10, 20
"""Objects that may be new, and one more for so many pods: with more, the cluster was listed again, and is
planned anew."""
_MOST = 4
"""A cycle makes a second plan if the first touches violations that are too young, and each once more within
what is approved."""


class _Made(Struct, eq=False):
    snapshot: Snapshot
    options: PlanOptions
    plan: Plan
    until: float


class LastPlan:
    """Plans as `make` does, unless it planned the same cluster under the same options just before.

    That is the common case of a daemon on a quiet cluster, and planning is what its cycle costs. Two
    snapshots are the same cluster if they have the same objects, as the watch cache hands them out, or others
    that differ in their version only: most of what is written into objects is nothing that is read here.
    """

    def __init__(self, make: Callable[[Snapshot, PlanOptions], Plan] = plan_with_findings) -> None:
        self._make = make
        self._made: list[_Made] = []

    def __call__(self, snapshot: Snapshot, options: PlanOptions) -> Plan:
        """The plan."""
        self._made = [m for m in self._made if snapshot.now < m.until and _holds(m, snapshot)]
        for made in self._made:
            made.snapshot = snapshot
        for made in self._made:
            if made.options == options:
                return made.plan
        plan = self._make(snapshot, options)
        give_back()
        until = next_change(snapshot, options.policy)
        self._made = [*self._made, _Made(snapshot, options, plan, until)][-_MOST:]
        return plan


def _holds(made: _Made, snapshot: Snapshot) -> bool:
    """Whether the plan is that of this snapshot, too, and speaks of none of the objects that are new."""
    before, plan = made.snapshot, made.plan
    new = [pair for f in _RESTS_ON for pair in _new(getattr(before, f), getattr(snapshot, f))]
    if len(new) > _FEW + len(snapshot.pods) // _SHARE:
        return False
    told = {id(o) for m in plan.moves for o in (m.pod, m.owner)} | {id(b.pod) for b in plan.blocked}
    return all(id(was) not in told and _same(was, now) for was, now in new)


def _new(before: object, now: object) -> list[tuple[object, object]]:
    """(what it was, what it is) where a field of a snapshot does not have the same object as before."""
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        return [(o, now[key]) for key, o in before.items() if now[key] is not o]
    if isinstance(before, tuple) and isinstance(now, tuple) and len(before) == len(now):
        return [pair for pair in zip(before, now, strict=True) if pair[0] is not pair[1]]
    return [] if before == now else [(before, now)]


def _same(one: object, other: object) -> bool:
    """Whether two values are equal but for the versions of objects."""
    if one is other:
        return True
    if isinstance(one, Struct) and type(one) is type(other):
        fields = (f for f in one.__struct_fields__ if f != "resource_version")
        return all(_same(getattr(one, f), getattr(other, f)) for f in fields)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other
