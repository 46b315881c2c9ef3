"""A watch cache that shows one snapshot after the other, and what a daemon makes of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from msgspec.structs import replace

from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.store import Change, Feed, KindStatus
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Identity, Snapshot
from rebalancer.planner import plan
from rebalancer.planner.plan import PlanOptions
from rebalancer.runtime.daemon.early import Early, Spread, SpreadNow
from rebalancer.settings.settings import Schedule


class Moments(WatchCache):
    def __init__(self, first: Snapshot) -> None:
        self.current = first
        self.statuses: tuple[KindStatus, ...] = ()
        self.snapshots = 0
        self._generation = 0
        self._feed = Feed(threading.Lock())

    def show(self, snapshot: Snapshot) -> None:
        before, old, self.current = self.pods(), self.current, snapshot
        after = self.pods()
        gone: list[Change] = [(key, None, "") for key in before.keys() - after.keys()]
        self._feed.add(gone + [(key, pod, "") for key, pod in after.items() if before.get(key) != pod])
        read = ("budgets", "quotas", "workloads")
        self._generation += any(getattr(snapshot, f) != getattr(old, f) for f in read)

    def check(self) -> None:
        pass

    def status(self) -> tuple[KindStatus, ...]:
        return self.statuses

    def not_ready(self) -> CacheNotReadyError | None:
        return None

    def follow(self, _: str) -> Feed:
        return self._feed

    def nodes(self) -> tuple[Node, ...]:
        return self.current.nodes

    def snapshot(self, now: float) -> Snapshot:
        self.snapshots += 1
        return replace(self.current, now=now)

    def pods(self) -> Mapping[Identity, Pod]:
        return {(p.namespace, p.name): p for p in self.current.pods}

    def generation(self, kind: str) -> int:  # noqa: ARG002
        return self._generation


class Daemon:
    """What starts a cycle, moment after moment; `now` is the time of all clocks."""

    def __init__(self, first: Snapshot, options: PlanOptions | None = None) -> None:
        self.moments = Moments(first)
        self.schedule = Schedule()
        self.options = options or PlanOptions()
        self.now = first.now
        self.well = True
        self.spread = SpreadNow(self.moments, Spread, monotonic=lambda: self.now)
        self.early = Early(
            self.moments,
            self.spread,
            lambda: self.options,
            lambda: self.well,
            wall=lambda: self.now,
            monotonic=lambda: self.now,
        )

    def planned(self) -> None:
        """A cycle that does nothing but plan, in no time."""
        self.early.on_reading()
        self.early.on_snapshot(self.moments.current)
        self.early.on_plan(self.moments.current, plan(self.moments.current, self.options))

    def due(self, after: float = 100.0) -> str:
        """Why a cycle starts so many seconds later, asked every second until then."""
        until, why = self.now + after, ""
        while not why and self.now < until:
            self.now += 1
            self.spread.look()
            why = self.early.due(self.schedule)
        self.now = until
        return why

    def then(self, snapshot: Snapshot) -> str:
        self.moments.show(snapshot)
        return self.due()
