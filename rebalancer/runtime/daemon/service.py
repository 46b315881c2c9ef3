"""The daemon with everything around it: watch cache, election, memory, settings that change.

After a signal there is no new eviction, the current cycle settles, the lease is released, then the watches
end. The caller ends the probes and flushes telemetry.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rebalancer.engine.agreement import Comparison
from rebalancer.engine.config import DEFAULT_CONFIG
from rebalancer.errors import UserError
from rebalancer.kube.config_maps import Brakes
from rebalancer.kube.connection import Backoff, Connection, retriable, steady
from rebalancer.kube.election import Elector
from rebalancer.kube.errors import KubeError, StatusError, TransportError
from rebalancer.kube.leases import LeaseClient
from rebalancer.kube.patches import CostWriter
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.outcome import Observer, Observers
from rebalancer.planner.pace import Throttle
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.gates import PauseCheck, Pauses
from rebalancer.runtime.daemon.early import Early, Spread, SpreadNow
from rebalancer.runtime.daemon.health import HealthServer, Heartbeat, Metrics
from rebalancer.runtime.daemon.schedule import Daemon, silence_of, trigger_of
from rebalancer.runtime.last_look.health import SCHEDULER_LEASE, DecidingScheduler, Health
from rebalancer.runtime.live.agreement import AgreementWatch
from rebalancer.runtime.live.approval import Approvals
from rebalancer.runtime.live.assembly import LastPlan, Surroundings
from rebalancer.runtime.live.configured import (
    LiveOptions,
    Newest,
    Sources,
    circuit_limits,
    health_address,
    live_options,
    memory_of,
    memory_rules,
    own_name,
    steering_now,
    usable,
)
from rebalancer.runtime.live.once import run_once
from rebalancer.runtime.live.places import Places, elector_of, places_to_act
from rebalancer.runtime.observers.neighbours import NeighbourWatch
from rebalancer.runtime.prevention import ScaleInSteering, SteeringOptions, SteeringThread, Unpaused
from rebalancer.settings import Settings, plan_options

# Settings that change while the daemon runs. They are checked when noticed, and taken over between two
# cycles. What they forbid binds at once: `rebalancer.runtime.live.configured`.

log = logging.getLogger(__name__)

_FIXED = (
    "leader_election", "brake", "health.address", "ledger", "telemetry.otlp", "telemetry.cluster_name",
    "scope.read_namespaces",
)  # fmt: skip
"""Groups, and single settings, that are in force from the start of the process to its end: who it is to
others, what it listens on or is connected to, and what it watches."""


class Reloader:
    """Watches the settings file, and the scheduler's that it names, by their content.

    `settings`: those in force. `load` reads and checks all sources, and raises UserError. `follow` is called
    with settings that are taken over. `enabled`: what the file said of evictions when the command began.
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        *,
        file: Path | None,
        observer: Observer,
        follow: Callable[[Settings], object] = lambda _: None,
        enabled: bool | None = None,
    ) -> None:
        self.settings = settings
        self._wanted = settings
        self._load = load
        self.file = file
        self._observer = observer
        self._follow = follow
        self._enabled = enabled
        self._sources = Sources(self.file)
        self._sources.name(settings)
        self._sources.changed()
        self._asked = threading.Event()
        self._by_signal = False
        # `look` and `take` are called in different threads.
        self._lock = threading.Lock()
        self._new: Settings | None = None

    def ask(self) -> None:
        """Asks for a look at all sources (SIGHUP), even if the file is the same."""
        self._asked.set()

    def look(self) -> None:
        """Reads changed settings and keeps them for `take`. What cannot be used is reported and dropped."""
        changed, named = self._sources.changed()
        asked = self._asked.is_set() or named
        if not (changed or asked):
            return
        self._asked.clear()
        try:
            new = usable(self._checked)
        except UserError as e:
            with self._lock:
                self._new = None
            self._observer.on_reload(str(e))
            return
        with self._lock:
            self._new, self._by_signal = new, self._by_signal or asked

    def _checked(self) -> Settings:
        settings = self._sources.name(self._load())
        plan_options(settings)  # the scheduler's file is part of them
        return settings

    def take(self, accept: Callable[[Settings], object] = lambda _: None) -> Settings | None:
        """The new settings, once, or None. Called between two cycles.

        They always count as new after a change of the scheduler's file, and after a signal, because other
        files that they name may have changed. `accept` raises UserError if they cannot be used after all;
        they are refused then.
        """
        with self._lock:
            new, self._new = self._new, None
            asked, self._by_signal = self._by_signal, False
        if new is None or (new == self._wanted and not asked):
            return None
        told, self._wanted = self._wanted, new
        if late := _late(new, told):
            log.warning("%s: what changed there is in force after the next start only", ", ".join(late))
        now = _in_force(new, self.settings)
        if now == self.settings and not asked:
            return None
        try:
            usable(lambda: accept(now))
        except UserError as e:
            self._observer.on_reload(str(e))
            return None
        if changed := [*_differing(now.plain(), self.settings.plain())]:
            log.info("settings that changed: %s", ", ".join(changed))
        self.settings = now
        self._follow(now)
        self._observer.on_reload("")
        return now

    def newest(self, options: Callable[[Settings], LiveOptions]) -> Newest:
        """What the file says at any moment, for a cycle at work: it is not in force yet."""
        return Newest(self.file, self._load, options, self._enabled)


def _in_force(new: Settings, old: Settings) -> Settings:
    """The new settings, with the old values of what cannot change while the process runs."""
    for place in _FIXED:
        group, _, field = place.partition(".")
        kept = getattr(old, group)
        if field:
            kept = getattr(new, group).model_copy(update={field: getattr(kept, field)})
        new = new.model_copy(update={group: kept})
    return new


def _late(new: Settings, old: Settings) -> list[str]:
    """What changed and needs a restart."""
    return [*_differing(new.plain(), _in_force(new, old).plain())]


def _differing(new: Mapping[str, Any], old: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Dotted names as YAML has them. Never the values, which may be secret."""
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            yield from _differing(value, before, f"{above}{key}.")
        elif value != before:
            yield above + key


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
        self._heart = Heartbeat(settings.health.hung_after)
        self._clock = clock = SystemClock(stop, connection.time, self._heart.beat)
        self.observer = Observers(observers)
        self._observers = [self.observer, NeighbourWatch(self.observer)]
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
            elsewhere=lambda: self.elector.other_ledger() if self.elector is not None else None,
        )
        self._count = self.memory.listen()
        lease = LeaseClient(connection, *SCHEDULER_LEASE)
        self.memory.scheduler = DecidingScheduler(self.cache, lease)
        self.agreement = AgreementWatch(
            self.cache,
            lambda: self._live.planning.scheduler,
            self._compared,
            scheduler=self.memory.scheduler,
        )
        self.spread = SpreadNow(
            self.cache,
            lambda: Spread(self._live.planning.scheduler, self._live.planning.soft == "predicted"),
            monotonic=steady,
        )
        self.memory.followed = self.spread.followed
        self.elector: Elector | None = None
        self._steerer: Elector | None = None
        self._last_plan, self._pauses = LastPlan(), Pauses()
        self._name = name
        self._live = self._options(settings)
        self.steering = self._steering(connection, places, clock)
        self._newest = reloader.newest(self._options)
        self._approvals = Approvals(
            connection, places.brake.namespace, lambda: self._live.planning.policy.approval, self._clock
        )
        self._early = Early(self.cache, self.spread, lambda: self._live.planning, lambda: self._well(clock))
        self._observers.append(self._early)
        self._daemon = Daemon(
            self._run_one,
            trigger=trigger_of(settings),
            at_once=not settings.schedule.cron,
            stop=stop,
            observer=self.observer,
            idle=self._idle,
            on_stop=self._hand_back,
        )

    def _steering(self, connection: Connection, places: Places, clock: SystemClock) -> SteeringThread:
        """What writes deletion costs, while this instance leads and nothing is paused."""
        newest = self._reloader.newest(self._options)  # its thread's own

        def options() -> SteeringOptions:
            return steering_now(self._live.steering, newest)

        pause = PauseCheck(Brakes(connection, wait=self._stop.wait), places.brake, clock)
        steering = ScaleInSteering(
            CostWriter(connection, places.installation),
            clock,
            self.observer.on_steering,
            Unpaused(pause, clock, lambda: self.steers() and options().writes),
            newest=lambda pod: self.cache.pod(pod.namespace, pod.name),
        )
        return SteeringThread(
            self.cache,
            steering,
            options,
            self.steers,
            clock,
            elector=lambda: self.elector or self._steerer,
        )

    def _well(self, clock: SystemClock) -> bool:
        """Whether the cluster is well enough for evictions; asked by another thread than the cycle's."""
        config = self._live.planning.scheduler or DEFAULT_CONFIG
        return Health(self.cache, self.memory, clock, config).unwell() is None

    def run(self) -> None:
        """Blocks until `stop` is set. Raises UserError where it cannot begin."""
        try:
            self.cache.start()
            self.agreement.start()
            self._stand_for_election()
            self.steering.start()
            self._daemon.run()
        finally:
            self.agreement.stop()
            self.steering.join()
            self.memory.leave()
            for elector in (self.elector, self._steerer):
                if elector is not None:
                    elector.stop()
            self.cache.stop()

    def _hand_back(self) -> None:
        """Gives the lease back while a plan is made: nothing is in flight, and after a stop nothing will be.

        A cycle that evicts keeps it until what it did has settled.
        """
        if self.elector is not None and self._last_plan.at_work:
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

    def throttle(self) -> Throttle:
        """What holds evictions back beside the plan."""
        return Throttle(self._live.limits.per_second, self.memory.canary_left)

    def leading(self) -> bool:
        """Whether this process may act: it leads, or there is no election, or it evicts nothing."""
        return self._leads(self.elector) or (self.elector is None and not self._live.execute)

    def steers(self) -> bool:
        """Whether this process may write deletion costs: it leads, by the one lease or the other."""
        return self._leads(self.elector or self._steerer)

    def _leads(self, elector: Elector | None) -> bool:
        """Without an elector only where there is no election: one that is wanted may not have begun."""
        if elector is None:
            return not self._reloader.settings.leader_election.enabled
        return elector.still_leading()

    def _compared(self, comparison: Comparison) -> None:
        self._count(comparison)
        self.observer.on_comparison(comparison)

    def _run_one(self, number: int) -> None:
        with self._at_work:
            self._heart.works_here()
            try:
                self._take_over()
                if not self.leading():
                    log.debug("this instance does not lead: no cycle")
                    return
                around = Surroundings(
                    memory=self.memory,
                    cache=self.cache,
                    leading=self.leading,
                    last_plan=self._last_plan,
                    approvals=self._approvals if self._live.execute else None,
                    lease=lambda: self.elector.annotations if self.elector is not None else {},
                    pauses=self._pauses,
                    newest=self._newest,
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
                self._heart.expect_nothing(None)

    def _react(self, between: bool) -> None:
        """Follows the spread; between two cycles, starts one if something has happened that makes it worth
        while. No eviction depends on it, so what goes wrong there must not end the process."""
        try:
            self.spread.look()
            if between and self._live.planning.policy.approval.required and self._approvals.changed():
                log.info("somebody has approved or refused: a cycle starts")
                self._daemon.run_now()
            if between and (why := self._early.due(self._reloader.settings.schedule)):
                log.info("%s: a cycle starts before the interval is over", why)
                self._daemon.run_now()
        except Exception:
            log.exception("what happens between cycles could not be followed")
            self.spread.forget()

    def _idle(self) -> None:
        """Called about once a second, in the main thread."""
        self._reloader.look()
        # Between two cycles; one at work takes over what is new when the next begins.
        between = self._at_work.acquire(blocking=False)
        try:
            if between:
                self._take_over()
            self._react(between)
            if between:
                due = self._daemon.next_run()
                self._heart.expect_nothing(
                    None if due is None else time.monotonic() + max(0.0, due - time.time())
                )
        finally:
            if between:
                self._at_work.release()

    def _take_over(self) -> None:
        before, live = self._reloader.settings, list[LiveOptions]()
        # Files that they name are read once more by that, and may be gone by now.
        new = self._reloader.take(lambda settings: live.append(self._options(settings)))
        if new is not None:
            self._live = live[-1]
            self._heart.patience = new.health.hung_after
            self.memory.reconfigure(
                memory_rules(new, attended=False),
                circuit_limits(new),
                read_only=not new.evictions.enabled,
                silent=silence_of(new),
            )
            if new.schedule != before.schedule:
                self._daemon.reschedule(trigger_of(new))
        try:
            self._stand_for_election()
        except (UserError, RuntimeError) as e:  # no thread could be started
            log.warning("the election cannot begin yet: %s", e)

    def _options(self, settings: Settings) -> LiveOptions:
        return live_options(settings, self._connection, self._places, ask_server=self._ask_server)

    def _stand_for_election(self) -> None:
        """A process that evicts nothing must not keep others from the lease: for deletion costs alone there
        is another one."""
        settings = self._reloader.settings
        if not settings.leader_election.enabled:
            return
        if settings.evictions.enabled and self.elector is None:
            if self._steerer is not None:
                self._steerer.stop()
            self.elector = elector_of(
                settings, self._connection, self._places, identity=self._name, on_change=self._led
            ).start()
            self._steerer = None
        elif not settings.evictions.enabled:
            if self._live.steering.on and self._steerer is None:
                self._steerer = elector_of(
                    settings, self._connection, self._places, identity=self._name, component="scale-in"
                ).start()
            if self.elector is not None:
                self.elector.stop()
                self.elector = None

    def _term(self) -> int:
        return self.elector.term if self.elector is not None else 0

    def _led(self, leading: bool) -> None:
        self.observer.on_leading(leading)
        if leading and not self._reloader.settings.schedule.cron:
            self._daemon.run_now()


# The first requests of a daemon: asked until the API server answers.
#
# A daemon is often started together with the API server or the network, so an answer that does not come is
# no reason to end. A refusal is tried again a few times, because an API server that has just been started
# refuses everything for a moment.

T = TypeVar("T")

PATIENT = Backoff(first=1.0, cap=30.0)
_REFUSALS = 3


def until_answered(
    call: Callable[[], T],
    *,
    stop: threading.Event,
    told: Callable[[str], None] = lambda _: None,
    backoff: Backoff = PATIENT,
) -> T | None:
    """The result of `call`, which is tried again as long as its error may pass; None once `stop` is set.

    `told` gets the words of each error, as does the log. Raises what does not pass by itself: UserError, a
    refusal (401, 403, 410) that came three times in a row.
    """
    tried = refused = 0
    while not stop.is_set():
        tried += 1
        try:
            return call()
        except KubeError as e:
            may_pass = isinstance(e, TransportError) or retriable(e)
            refused = refused + 1 if isinstance(e, StatusError) and not may_pass else 0
            if not may_pass and not 0 < refused < _REFUSALS:
                raise
            if stop.is_set():
                break
            delay = backoff.delay(min(tried, 16), getattr(e, "retry_after", None))
            told(str(e))
            log.warning("%s; the daemon cannot begin, and tries again in %.1f s", e, delay)
            stop.wait(delay)
    return None


# The daemon from its first request to its end. Probes are answered all the time.

_EACH_IS_TOLD = Backoff(tries=1)


def serve(
    connection: Connection,
    reloader: Reloader,
    *,
    stop: threading.Event,
    observers: Sequence[Observer],
    ask_server: bool = False,
    metrics: Metrics | None = None,
    cycle: Callable[[Any], None] = lambda _: None,
    begun: Callable[[Service], None] = lambda _: None,
    patient: Backoff = PATIENT,
) -> None:
    """Runs cycles on one cluster until `stop` is set.

    `metrics`: what /metrics answers. `begun` is called with the service before its first cycle, `cycle` with
    the report of each. `patient`: how long it waits between tries of its first requests. Raises UserError
    where the daemon cannot begin.
    """
    settings = reloader.settings
    probes = _Probes()
    address = health_address(settings, connection)
    health = None
    if address is not None:
        health = HealthServer(address, healthz=probes.hung, readyz=probes.not_ready, metrics=metrics).start()
    try:
        places = until_answered(
            lambda: places_to_act(settings, connection, wait=stop.wait, backoff=_EACH_IS_TOLD),
            stop=stop,
            told=probes.waits,
            backoff=patient,
        )
        if places is None:
            return
        service = Service(
            connection,
            reloader,
            places=places,
            stop=stop,
            observers=observers,
            ask_server=ask_server,
            cycle=cycle,
        )
        begun(service)
        probes.service = service
        service.run()
    finally:
        if health is not None:
            health.stop()


class _Probes:
    """What they say: of the first requests, and then of the service."""

    def __init__(self) -> None:
        self.service: Service | None = None
        self._why = "the daemon has not begun"

    def waits(self, why: str) -> None:
        """The first requests fail because of this."""
        self._why = f"the daemon has not begun: {why}"

    def hung(self) -> str:
        return self.service.hung() if self.service is not None else ""

    def not_ready(self) -> str:
        return self.service.not_ready() if self.service is not None else self._why
