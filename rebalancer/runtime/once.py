"""One cycle: what a person or a CronJob runs.

It plans and evicts until nothing is left to do or the cycle's bounds are reached (see `cycle`); the last plan
shows what remains.
"""

from __future__ import annotations

from collections.abc import Iterable

from rebalancer.kube.connection import Connection
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import plan
from rebalancer.planner.plan import Plan
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.cycle import Cycle
from rebalancer.runtime.live import LiveOptions, live_parts
from rebalancer.runtime.observer import Observer, Observers
from rebalancer.runtime.outcome import CycleReport
from rebalancer.runtime.reviewed import Reviewed, ReviewedPlanner


def run_once(
    connection: Connection,
    options: LiveOptions,
    *,
    clock: Clock,
    observers: Iterable[Observer] = (),
    reviewed: Reviewed | None = None,
    number: int = 1,
) -> CycleReport:
    """Runs a cycle. `reviewed`: evict these pods only, each only if that is still right.

    Evicts nothing unless `options.execute`. Raises KubeError where the cluster cannot be read at all.
    """
    observer = Observers(observers)
    planner = None
    if reviewed is not None:

        def usual(snapshot: Snapshot) -> Plan:
            return plan(snapshot, options.planning)

        planner = _Telling(ReviewedPlanner(reviewed, usual), observer)
    observer.on_cycle(number)
    return Cycle(live_parts(connection, options, clock=clock, observer=observer, planner=planner)).run()


class _Telling:
    """Tells which approved evictions are not carried out, each once."""

    def __init__(self, planner: ReviewedPlanner, observer: Observer) -> None:
        self._planner = planner
        self._observer = observer
        self._told: set[str] = set()

    def __call__(self, snapshot: Snapshot) -> Plan:
        made = self._planner(snapshot)
        for uid, (eviction, reason) in self._planner.rejected.items():
            if uid not in self._told:
                self._told.add(uid)
                self._observer.on_rejected(eviction.namespace, eviction.pod, reason)
        return made
