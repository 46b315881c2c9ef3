"""Compares what the scheduler does with what the engine says, pod by pod as the watch tells of them.

A thread of its own follows the pods in the order in which they changed, so that the engine is asked about
each moment as it was. What else it reads changes seldom. Then its state is built anew, and until then a
disagreement counts as unclear. Where it would cost too much, pods are left out: it is a check, not a need.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Self

from msgspec.structs import replace

from rebalancer.engine.agreement import Agreement, Comparison, Result
from rebalancer.engine.config import SchedulerConfig
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.store import Change
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.spread.constraint import SELECTING

log = logging.getLogger(__name__)

_POLL = 0.5
_BUDGET = 0.2
"""Seconds of one look after which the engine is asked about no further pod."""
_REBUILD_SHARE = 30
"""A state is built anew at the earliest after so many times what building the last one took, …"""
_REBUILD_AFTER = 10.0
"""… and after so many seconds."""
_IDLE = 600.0
"""Seconds without a waiting pod after which the state is given up, for the memory that it takes."""
_READ_BY_FILTERS = (
    "Namespace",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
)


class AgreementWatch:
    """Tells of every comparison, in its own thread between `start` and `stop`.

    `config`: the scheduler's as it is set now, None for its defaults. Nothing is compared while the cache is
    not ready. No eviction depends on it: an error is logged, and it begins anew.
    """

    def __init__(
        self,
        cache: WatchCache,
        config: Callable[[], SchedulerConfig | None],
        tell: Callable[[Comparison], None],
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache = cache
        self._feed = cache.follow_pods()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agreement", daemon=True)
        self._config = config
        self._tell = tell
        self._now = now
        self._monotonic = monotonic
        self._agreement: Agreement | None = None
        self._built_from: tuple[tuple[Node, ...], tuple[int, ...], SchedulerConfig | None] = ((), (), None)
        self._next_build = 0.0
        self._busy_at = 0.0

    def start(self) -> Self:
        """Begins."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends within a moment."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        self._cache.forget(self._feed)

    def look(self) -> None:
        """Compares what has happened since the last look."""
        changes, lost = self._feed.take()
        if lost or self._cache.not_ready() is not None:
            self._agreement = None
        if self._cache.not_ready() is not None:
            return
        if self._agreement is None:
            if not any(isinstance(pod, Pod) and pod.waits for _, pod, _ in changes):
                return
            self._build()
        stale = self._stale()
        self._follow(changes, stale)
        if stale and self._monotonic() >= self._next_build:
            self._build()
        self._rest()

    def _run(self) -> None:
        while not self._stop.wait(_POLL):
            try:
                self.look()
            except Exception:
                log.exception("what the scheduler does could not be compared")
                self._agreement = None

    def _follow(self, changes: list[Change], stale: bool) -> None:
        agreement = self._agreement
        if agreement is None:
            return
        until = self._monotonic() + _BUDGET
        for identity, pod, _ in changes:
            if not isinstance(pod, Pod):
                agreement.gone("/".join(identity[:2]))
                continue
            found = agreement.seen(pod, ask=self._monotonic() < until)
            if found is None:
                continue
            if stale and found.result is not Result.AGREES:
                found = replace(found, result=Result.UNCLEAR)
            self._tell(found)

    def _build(self) -> None:
        began = self._monotonic()
        # Changes that come from now on are told once more by the feed; that does no harm.
        snapshot = self._cache.snapshot(self._now())
        config = self._config()
        self._built_from = snapshot.nodes, self._generations(config), config
        self._agreement = Agreement(snapshot, config)
        ended = self._monotonic()
        self._next_build = ended + max(_REBUILD_AFTER, _REBUILD_SHARE * (ended - began))

    def _stale(self) -> bool:
        nodes, generations, config = self._built_from
        if config is not self._config() or generations != self._generations(config):
            return True
        current = self._cache.nodes()
        if not _alike(nodes, current):
            return True
        self._built_from = current, generations, config
        return False

    def _generations(self, config: SchedulerConfig | None) -> tuple[int, ...]:
        hard_defaults = config is not None and any(
            c.when_unsatisfiable == "DoNotSchedule" for p in config.profiles for c in p.default_constraints
        )
        kinds = (*_READ_BY_FILTERS, *SELECTING) if hard_defaults else _READ_BY_FILTERS
        return tuple(self._cache.generation(kind) for kind in kinds)

    def _rest(self) -> None:
        """Gives the state up where nothing has waited for long."""
        if self._agreement is not None and self._agreement.waiting:
            self._busy_at = self._monotonic()
        elif self._monotonic() - max(self._busy_at, self._next_build) > _IDLE:
            self._agreement = None


def _alike(before: tuple[Node, ...], now: tuple[Node, ...]) -> bool:
    """Whether the scheduler sees the same nodes: heartbeats change them all the time. Both sorted by name."""
    if len(before) != len(now):
        return False
    return all(a is b or _view(a) == _view(b) for a, b in zip(before, now, strict=True))


def _view(node: Node) -> tuple[object, ...]:
    return node.name, node.labels, node.spec.taints, node.spec.unschedulable, node.allocatable
