"""One cycle: what a person or a CronJob runs.

It plans and evicts until nothing is left to do or the cycle's bounds are reached (see `cycle`); the last plan
shows what remains.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from rebalancer.kube.connection import Connection
from rebalancer.kube.events import EventRecorder
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Plan
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.cycle import Cycle
from rebalancer.runtime.live import LiveOptions, Surroundings, live_parts, remembering
from rebalancer.runtime.notes import EventObserver
from rebalancer.runtime.observer import Observer, Observers
from rebalancer.runtime.outcome import CycleReport
from rebalancer.runtime.reviewed import Reviewed, ReviewedPlanner
from rebalancer.telemetry.current import trace_annotations

_ALONE = Surroundings()


def run_once(
    connection: Connection,
    options: LiveOptions,
    *,
    clock: Clock,
    observers: Iterable[Observer] = (),
    reviewed: Reviewed | None = None,
    number: int = 1,
    around: Surroundings = _ALONE,
) -> CycleReport:
    """Runs a cycle. `reviewed`: evict these pods only, each only if that is still right.

    Evicts nothing unless `options.execute`. Raises KubeError where the cluster cannot be read at all.
    """
    observer = Observers([*observers, *_events(connection, options, clock)])
    planner = None
    if reviewed is not None:
        usual = remembering(options.planning, around.memory)
        planner = _Telling(ReviewedPlanner(reviewed, usual), observer)
    observer.on_cycle(number)
    parts = live_parts(connection, options, clock=clock, observer=observer, around=around, planner=planner)
    return Cycle(parts).run()


def _events(connection: Connection, options: LiveOptions, clock: Clock) -> list[Observer]:
    if not options.execute or options.events == "none":
        return []
    recorder = EventRecorder(
        connection, instance=socket.gethostname(), now=clock.now, annotations=trace_annotations
    )
    return [EventObserver(recorder, failures=options.events == "all")]


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
