"""One cycle, as a person or a CronJob runs it.

It plans and evicts until nothing is left to do or a limit of the cycle is reached
(`rebalancer.runtime.cycle.loop`). The last plan shows what remains.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

import msgspec

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.events import EventRecorder
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import CycleReport
from rebalancer.outcome.observer import Observer, Observers
from rebalancer.policy.history.resting_owners import HistoryRules
from rebalancer.runtime.cycle.clock import Clock, Heed
from rebalancer.runtime.cycle.loop import Cycle
from rebalancer.runtime.cycle.memory.memory import Memory
from rebalancer.runtime.live.assembly import LiveOptions, Surroundings, live_parts, remembering
from rebalancer.runtime.live.single.reviewed import Reviewed, ReviewedPlanner
from rebalancer.runtime.observers.events import EventObserver
from rebalancer.telemetry.traces.current import trace_annotations

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
    afterwards: Callable[[Snapshot], object] = lambda _: None,
) -> CycleReport:
    """Runs a cycle. `reviewed`: evict only these pods, and each only if that is still right.
    `afterwards` is called with the last snapshot.

    Evicts nothing unless `options.execute`; then the cluster is watched, by `around.cache` or, where there is
    none, by one for this cycle. Raises KubeError if the cluster cannot be read.
    """
    seen = _Seen()
    observer = Observers([*observers, *_events(connection, options, clock), seen])
    if around.memory is None:
        # What the cycle itself has evicted counts against caps, but makes no owner rest.
        around = msgspec.structs.replace(around, memory=Memory(clock, HistoryRules(retry_after=0.0)))
    planner = None
    if reviewed is not None:
        planning = msgspec.structs.replace(options.planning, on_progress=Heed(clock))
        usual = remembering(planning, around.memory)
        planner = ReviewedPlanner(reviewed, usual, observer)
    observer.on_cycle(number)

    def run(around: Surroundings, *, patient: bool) -> CycleReport:
        parts = live_parts(
            connection,
            options,
            clock=clock,
            observer=observer,
            around=around,
            planner=planner,
            patient=patient,
        )
        report = Cycle(parts).run()
        if seen.last is not None and not clock.stopping():
            afterwards(seen.last)
        return report

    if around.cache is not None or not options.execute:
        return run(around, patient=True)
    cache = WatchCache(connection, namespaces=options.read.namespaces).start()
    try:
        return run(msgspec.structs.replace(around, cache=cache), patient=False)
    finally:
        cache.stop()


class _Seen(Observer):
    """Keeps the last snapshot."""

    last: Snapshot | None = None

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self.last = snapshot


def _events(connection: Connection, options: LiveOptions, clock: Clock) -> list[Observer]:
    if not options.execute or options.events == "none":
        return []
    recorder = EventRecorder(
        connection, instance=socket.gethostname(), now=clock.now, annotations=trace_annotations
    )
    return [EventObserver(recorder, failures=options.events == "all")]
