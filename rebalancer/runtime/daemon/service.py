"""The daemon with everything around it: watch cache, election, memory, settings that change.

After a signal there is no new eviction, the current cycle settles, the lease is released, then the watches
end. The caller ends the probes and flushes telemetry.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rebalancer.engine.agreement import Comparison
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.coordination.brakes import Brakes
from rebalancer.kube.coordination.election import Elector
from rebalancer.kube.patch.deletion_cost import CostWriter
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.outcome.observer import Observer, Observers
from rebalancer.planner.results.pace import Gait
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.daemon.events.events import Events
from rebalancer.runtime.daemon.heartbeat import BeatingClock, Heartbeat
from rebalancer.runtime.daemon.reload import Reloader
from rebalancer.runtime.daemon.schedule import Daemon
from rebalancer.runtime.daemon.spread_now import Spread, SpreadNow
from rebalancer.runtime.daemon.steering import SteeringThread
from rebalancer.runtime.daemon.trigger import silence_of, trigger_of
from rebalancer.runtime.live.agreement import AgreementWatch
from rebalancer.runtime.live.assembly import LiveOptions, Surroundings
from rebalancer.runtime.live.configured import (
    circuit_limits,
    live_options,
    memory_of,
    memory_rules,
    own_name,
    steering_options,
)
from rebalancer.runtime.live.last_plan import LastPlan
from rebalancer.runtime.live.leading import elector_of
from rebalancer.runtime.live.newest import NewestGate
from rebalancer.runtime.live.places import Places
from rebalancer.runtime.live.single.once import run_once
from rebalancer.runtime.observers.neighbours import NeighbourWatch
from rebalancer.runtime.observers.planning import PlanningWatch
from rebalancer.runtime.prevention.pause import Unpaused
from rebalancer.runtime.prevention.scale_in import ScaleInSteering
from rebalancer.settings import Settings

log = logging.getLogger(__name__)

_WRITING = 2.0
"""Seconds that the end waits for policy reports that are being written."""


class Service:
    """Runs cycles on one cluster until `stop` is set.

    `reloader` holds the settings. `places`: of brake, ledger and lease, for as long as the process runs.
    `cycle` is called with each report, for tests and embedders.
    """

    def __init__(
        self,
        connection: Connection,
        reloader: Reloader,
        *,
        places: Places,
        stop: threading.Event,
        observers: Sequence[Observer],
        ask_server: bool = False,
        cycle: Callable[[Any], None] = lambda _: None,
    ) -> None:
        settings = reloader.settings
        self._connection = connection
        self._reloader = reloader
        self._stop = stop
        self._ask_server = ask_server
        self._cycle = cycle
        clock = SystemClock(stop, connection.time)
        self._heart = Heartbeat(clock, settings.health.hung_after)
        self._clock = BeatingClock(clock, self._heart)
        self.observer = Observers(observers)
        self._planning = PlanningWatch()
        self._observers = [
            self.observer,
            NeighbourWatch(self.observer),
            self._planning,
        ]
        self._at_work = threading.Lock()
        name = own_name()
        self.cache = WatchCache(connection, namespaces=settings.scope.read_namespaces)
        self._places = places
        self.memory = memory_of(
            settings,
            connection,
            self._places,
            self._clock,
            attended=False,
            writer=name,
            term=self._term,
            silent=silence_of(settings),
        )
        self._count = self.memory.listen()
        self.agreement = AgreementWatch(self.cache, lambda: self._live.planning.scheduler, self._compared)
        self.spread = SpreadNow(
            self.cache,
            lambda: Spread(self._live.planning.scheduler, self._live.planning.soft == "predicted"),
        )
        self.elector: Elector | None = None
        self._last_plan = LastPlan()
        self._name = name
        self._live = self._options(settings)
        self._scale_in = steering_options(settings, self._live)
        self.steering = SteeringThread(
            self.cache,
            ScaleInSteering(
                CostWriter(connection),
                clock,
                self.observer.on_steering,
                Unpaused(Brakes(connection, wait=stop.wait), places.brake, clock, self.leading),
            ),
            lambda: self._scale_in,
            self.leading,
            clock,
        )
        self._newest = reloader.newest(self._options)
        self._events = Events(self.cache, self.spread.violated, lambda: self._live.planning)
        self._observers += self._events.observers
        self._daemon = Daemon(
            self._run_one,
            trigger=trigger_of(settings),
            at_once=not settings.schedule.cron,
            stop=stop,
            observer=self.observer,
            idle=self._idle,
            on_stop=self._hand_back,
        )

    def run(self) -> None:
        """Blocks until `stop` is set. Raises UserError where it cannot begin."""
        try:
            self.cache.start()
            self.agreement.start()
            self.spread.start()
            self.steering.start()
            self._stand_for_election()
            self._daemon.run()
        finally:
            self.agreement.stop()
            self.spread.stop()
            self.steering.join()
            self.memory.leave()
            if self.elector is not None:
                self.elector.stop()
            self.cache.stop()

    def _hand_back(self) -> None:
        """Gives the lease back while a plan is made: nothing is in flight, and after a stop nothing will be.

        A cycle that evicts keeps it until what it did has settled.
        """
        if self.elector is not None and self._planning.on:
            self.elector.stop()

    def hung(self) -> str:
        """For how long nothing has happened although it should have, "" if all is well."""
        return self._heart.hung()

    def not_ready(self) -> str:
        """Why no cycle could begin now, "" if one could."""
        missing = self.cache.not_ready()
        return missing.message if missing is not None else ""

    def cache_ages(self) -> dict[str, float]:
        """Seconds since the last sign of life of each kind's watch."""
        return {s.kind: s.age for s in self.cache.status() if s.age is not None}

    def excess(self) -> dict[str, int] | None:
        """The excess of this moment by namespace in scope; None where it is not known."""
        return self.spread.excess(self._live.planning.policy.in_view)

    def gait(self) -> Gait:
        """What holds evictions back beside the plan."""
        return Gait(self._live.limits.per_second, self.memory.canary_left)

    def leading(self) -> bool:
        """Whether this process may act: it leads, or there is no election."""
        return self.elector is None or self.elector.still_leading()

    def _compared(self, comparison: Comparison) -> None:
        self._count(comparison)
        self.observer.on_comparison(comparison)

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
                    last_plan=self._last_plan,
                    lease=lambda: self.elector.annotations if self.elector is not None else {},
                    newest=lambda used, clock: NewestGate(self._newest, used, clock, self.memory.earlier),
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

    def _react(self) -> None:
        """Starts a cycle if something has happened that makes one worth while."""
        if why := self._events.due(self._reloader.settings.schedule):
            log.info("%s: a cycle starts before the interval is over", why)
            self._daemon.run_now()

    def _idle(self) -> None:
        """Called about once a second, in the main thread."""
        self._reloader.look()
        # Between two cycles; one at work takes over what is new when the next begins.
        if self._at_work.acquire(blocking=False):
            try:
                self._take_over()
                self._react()
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
        self._scale_in = steering_options(new, self._live)
        self._heart.patience = new.health.hung_after
        self.memory.reconfigure(
            memory_rules(new, attended=False),
            circuit_limits(new),
            read_only=not new.evictions.enabled,
            silent=silence_of(new),
        )
        if new.schedule != before.schedule:
            self._daemon.reschedule(trigger_of(new))
        self._stand_for_election()

    def _options(self, settings: Settings) -> LiveOptions:
        return live_options(settings, self._connection, self._places, ask_server=self._ask_server)

    def _stand_for_election(self) -> None:
        """A process that evicts nothing needs no lease, and must not keep others from it."""
        settings = self._reloader.settings
        wanted = settings.leader_election.enabled and settings.evictions.enabled
        if self.elector is not None or not wanted:
            return
        self.elector = elector_of(
            settings, self._connection, self._places, identity=self._name, on_change=self._led
        ).start()

    def _term(self) -> int:
        return self.elector.status().transitions if self.elector is not None else 0

    def _led(self, leading: bool) -> None:
        self.observer.on_leading(leading)
        if leading and not self._reloader.settings.schedule.cron:
            self._daemon.run_now()
