"""The daemon with everything around it: watch cache, election, memory, probes, settings that change.

What ends when, after a signal: no new eviction; the cycle at work settles; the lease is handed back; watches
and probes end; whoever called flushes telemetry.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from rebalancer.kube.cache import WatchCache
from rebalancer.kube.connection import Connection
from rebalancer.kube.election import ElectionOptions, Elector
from rebalancer.policy.cron import parse_cron
from rebalancer.runtime.clock import SystemClock
from rebalancer.runtime.configured import (
    circuit_limits,
    health_address,
    lease_place,
    live_options,
    memory_of,
    memory_rules,
    own_name,
)
from rebalancer.runtime.daemon import Daemon
from rebalancer.runtime.health import HealthServer, Metrics
from rebalancer.runtime.heartbeat import BeatingClock, Heartbeat
from rebalancer.runtime.live import LiveOptions, Surroundings
from rebalancer.runtime.neighbours import NeighbourWatch
from rebalancer.runtime.observer import Observer, Observers
from rebalancer.runtime.once import run_once
from rebalancer.runtime.reload import Reloader
from rebalancer.runtime.trigger import CronTrigger, every
from rebalancer.settings import Settings

log = logging.getLogger(__name__)


class Service:
    """Runs cycles on one cluster until `stop` is set.

    `reloader` holds the settings. `metrics`: what /metrics answers. `cycle`: called with each report, for
    tests and embedders.
    """

    def __init__(
        self,
        connection: Connection,
        reloader: Reloader,
        *,
        stop: threading.Event,
        observers: Sequence[Observer],
        ask_server: bool = False,
        metrics: Metrics | None = None,
        cycle: Callable[[Any], None] = lambda _: None,
    ) -> None:
        settings = reloader.settings
        self._connection = connection
        self._reloader = reloader
        self._stop = stop
        self._ask_server = ask_server
        self._cycle = cycle
        self._heart = Heartbeat(SystemClock(stop), settings.health.hung_after)
        self._clock = BeatingClock(SystemClock(stop), self._heart)
        self.observer = Observers(observers)
        self._observers = [self.observer, NeighbourWatch(self.observer)]
        self._at_work = threading.Lock()
        name = own_name()
        self.cache = WatchCache(connection)
        self.memory = memory_of(settings, connection, self._clock, attended=False, writer=name)
        self.elector: Elector | None = None
        self._name = name
        # For as long as the process runs: who stands for a lease must also heed its annotation.
        self._lease = lease_place(settings, connection)
        self._live = self._options(settings)
        self._daemon = Daemon(
            self._run_one,
            trigger=trigger_of(settings),
            at_once=not settings.schedule.cron,
            stop=stop,
            observer=self.observer,
            idle=self._idle,
        )
        address = health_address(settings, connection)
        self.health = (
            HealthServer(address, healthz=self._heart.hung, readyz=self.not_ready, metrics=metrics)
            if address is not None
            else None
        )

    def run(self) -> None:
        """Blocks until `stop` is set. Raises UserError where it cannot begin."""
        if self.health is not None:
            self.health.start()
        try:
            self.cache.start()
            self._stand_for_election()
            self._daemon.run()
        finally:
            if self.elector is not None:
                self.elector.stop()
            self.cache.stop()
            if self.health is not None:
                self.health.stop()

    def not_ready(self) -> str:
        """Why no cycle could begin now, "" if one could."""
        missing = self.cache.not_ready()
        return missing.message if missing is not None else ""

    def cache_ages(self) -> dict[str, float]:
        """Seconds since the last sign of life of each kind's watch."""
        return {s.kind: s.age for s in self.cache.status() if s.age is not None}

    def leading(self) -> bool:
        """Whether this process may act, as far as other processes are concerned."""
        return self.elector is None or self.elector.still_leading()

    def _run_one(self, number: int) -> None:
        with self._at_work:
            self._clock.works_here()
            try:
                self._take_over()
                if not self.leading():
                    log.debug("this instance does not lead: no cycle")
                    return
                around = Surroundings(
                    memory=self.memory,
                    cache=self.cache,
                    leading=self.leading if self.elector is not None else None,
                )
                self._cycle(
                    run_once(
                        self._connection,
                        self._live,
                        clock=self._clock,
                        observers=self._observers,
                        number=number,
                        around=around,
                    )
                )
            finally:
                # When the next is due is known to the main thread only: the scheduler's lock is taken by who
                # waits for this thread to end.
                self._heart.rest(None)

    def _idle(self) -> None:
        """About once a second, in the main thread."""
        self._reloader.look()
        # Between two cycles; one at work takes over what is new when the next begins.
        if self._at_work.acquire(blocking=False):
            try:
                self._take_over()
                due = self._daemon.next_run()
                self._heart.rest(None if due is None else time.monotonic() + max(0.0, due - time.time()))
            finally:
                self._at_work.release()

    def _take_over(self) -> None:
        before, live = self._reloader.settings, list[LiveOptions]()
        # Files that they name are read once more by that, and may be gone by now.
        new = self._reloader.take(lambda settings: live.append(self._options(settings)))
        if new is None:
            return
        self._live = live[-1]
        self._heart.patience = new.health.hung_after
        self.memory.reconfigure(
            memory_rules(new, attended=False), circuit_limits(new), read_only=not new.evictions.enabled
        )
        if new.schedule != before.schedule:
            self._daemon.reschedule(trigger_of(new))
        self._stand_for_election()

    def _options(self, settings: Settings) -> LiveOptions:
        options = live_options(settings, self._connection, ask_server=self._ask_server)
        return replace(options, lease=self._lease)

    def _stand_for_election(self) -> None:
        """Who only looks needs no lease, and must not keep others from theirs."""
        settings = self._reloader.settings
        wanted = settings.leader_election
        if self.elector is not None or not (wanted.enabled and settings.evictions.enabled):
            return
        self.elector = Elector(
            self._connection,
            self._lease.namespace,
            self._lease.name,
            identity=self._name,
            options=ElectionOptions(
                duration=wanted.lease_duration,
                renew_deadline=wanted.renew_deadline,
                retry=wanted.retry_period,
            ),
            on_change=self._led,
        ).start()

    def _led(self, leading: bool) -> None:
        self.observer.on_leading(leading)
        if leading and not self._reloader.settings.schedule.cron:
            self._daemon.run_now()


def trigger_of(settings: Settings) -> Any:
    """When cycles start."""
    s = settings.schedule
    if s.cron:
        return CronTrigger(parse_cron(s.cron), ZoneInfo(s.time_zone), s.jitter)
    return every(s.interval, s.jitter)
