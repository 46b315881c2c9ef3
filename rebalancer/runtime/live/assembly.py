"""The parts of a cycle, made for a live cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from rebalancer import __version__
from rebalancer.engine.config import DEFAULT_CONFIG
from rebalancer.findings import plan_with_findings
from rebalancer.kube.brakes import Brakes
from rebalancer.kube.connection import DEFAULT_BACKOFF, Backoff, Connection
from rebalancer.kube.evictor import REQUESTER, Evictor, LiveEvictor, RecordingEvictor
from rebalancer.kube.leases import LeaseClient
from rebalancer.kube.ledger_store import Place
from rebalancer.kube.lists import ReadOptions
from rebalancer.kube.reading import Objects, read_snapshot
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Observer, Observers
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.options import Approved
from rebalancer.policy.owners import not_looked_at
from rebalancer.policy.windows import Window
from rebalancer.runtime.cycle.carrying_out import CycleLimits, Parts
from rebalancer.runtime.cycle.clock import Clock, Heed, check_namespaces, check_readable, warned
from rebalancer.runtime.cycle.gates import (
    CircuitGate,
    FreshLook,
    Gate,
    Gates,
    LeaderGate,
    NoLook,
    PauseGate,
    RivalGate,
    TimeGate,
    WatchedLimits,
    WindowGate,
)
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.replacements import Replacements, SettleLimits
from rebalancer.runtime.last_look.health import SCHEDULER_LEASE, HealthGate
from rebalancer.runtime.last_look.look import Exists, LastLook, missing
from rebalancer.runtime.last_look.room import Room
from rebalancer.runtime.last_look.watch_age import SpotCheck, WatchAge
from rebalancer.runtime.live.cached import CachedReader, LastPlan
from rebalancer.runtime.observers.log import EventSetting
from rebalancer.runtime.observers.neighbours import held_by_descheduler, undone
from rebalancer.telemetry.logs import trace_annotations


class LiveOptions(Struct, frozen=True, kw_only=True):
    """How a live cluster is read, planned and acted on.

    `execute`: evict for real; otherwise record only, or with `ask_server` let the API server judge each
    eviction by itself. `windows`, `max_time` (seconds) and `brake` (where people pause evictions; None:
    pauses are not looked at) may forbid evictions. `grace_seconds`: of the evicted pods, None = their own.
    `events`: what is written as events. `beside_descheduler`: evict although a descheduler runs.
    `must_exist`: namespaces that somebody named.
    """

    execute: bool = False
    ask_server: bool = False
    planning: PlanOptions = PlanOptions()
    read: ReadOptions = ReadOptions()
    limits: CycleLimits = CycleLimits()
    settle: SettleLimits = SettleLimits()
    backoff: Backoff = DEFAULT_BACKOFF
    windows: tuple[Window, ...] = ()
    max_time: float | None = None
    brake: Place | None = None
    grace_seconds: int | None = None
    events: EventSetting = "none"
    beside_descheduler: bool = True
    breaker: CircuitLimits = CircuitLimits()
    must_exist: tuple[str, ...] = ()


class WatchingGate(Gate, Observer):
    """A gate that needs to know what happens in the cycle."""

    def breaker(self) -> CircuitLimits | None:
        """Limits of the cluster's health that hold beside those of the cycle; None: there are none."""
        return None


class DeschedulerGate(Gate):
    """Closed while a descheduler is seen in the cluster, as it is watched now."""

    def __init__(self, watched: WatchCache) -> None:
        self._watched = watched

    def closed(self) -> Reason | None:
        return held_by_descheduler(self._watched.pods().values())


class Surroundings(Struct, frozen=True, eq=False, kw_only=True):
    """What outlives a cycle: memory, watch cache, election, the last plan, settings that may change. None:
    there is none.

    Who evicts needs a watch cache: the last look rests on it. `lease`: the annotations of the lease.
    `newest(used, clock)`: the gate of the newest settings.
    """

    memory: Memory | None = None
    cache: WatchCache | None = None
    leading: Callable[[], bool] | None = None
    last_plan: LastPlan | None = None
    lease: Callable[[], Mapping[str, str]] = dict
    newest: Callable[[LiveOptions, Clock], WatchingGate] | None = None


_ALONE = Surroundings()


def live_parts(
    connection: Connection,
    options: LiveOptions,
    *,
    clock: Clock,
    observer: Observer,
    around: Surroundings = _ALONE,
    planner: Callable[[Snapshot], Plan] | None = None,
    patient: bool = True,
) -> Parts:
    """Makes the parts of a cycle. `planner` replaces the usual one: a `ReviewedPlanner`, or a test's.

    Evictions for real need `around.cache`. `patient`: whether a cycle waits for a cache that is not ready.
    """
    objects = Objects(
        connection, wait=clock.wait, backoff=options.backoff, namespaces=options.read.namespaces
    )
    brakes = Brakes(connection, wait=clock.wait, backoff=options.backoff)
    cache, memory = around.cache, around.memory
    watched: Sequence[Observer] = ()
    if cache is not None:
        reader = CachedReader(cache, objects, clock, patient=patient)
        snapshot, watched = reader.snapshot, (reader,)
    else:

        def snapshot() -> Snapshot:
            return read_snapshot(connection, now=clock.now, wait=clock.wait, options=options.read)

    def checked() -> Snapshot:
        found = warned(snapshot(), clock.doubt())
        check_readable(found)
        check_namespaces(found, options.must_exist)
        return found

    watch_age = WatchAge(cache, clock.stopping) if cache is not None else None

    def look(snapshot: Snapshot, made: Plan) -> FreshLook:
        if not options.execute:
            return NoLook()
        if cache is None or watch_age is None:
            raise ValueError("nothing is evicted without a watch cache")
        planning = options.planning
        room = Room(snapshot, made, planning.scheduler, cache, planning.certainty)
        spot_check = SpotCheck(
            objects, cache, clock.stopping, server=snapshot.server_version, pods=len(snapshot.pods)
        )
        policy = planning.policy
        return LastLook(objects, brakes, watch_age, spot_check, room, cache.quotas, clock.now, policy)

    planning = replace(options.planning, on_progress=Heed(clock))
    newest = [around.newest(options, clock)] if around.newest is not None and options.execute else []
    watched = (*watched, *newest)
    health = _health(connection, options, clock, around, newest)
    alone = [DeschedulerGate(cache)] if cache is not None and not options.beside_descheduler else []
    gate = _gate(brakes, options, clock, around, [*health, *alone, *newest])
    until = clock.monotonic() + options.max_time if options.max_time is not None else None
    # What is only recorded burdens nobody.
    sends = options.execute or options.ask_server
    return Parts(
        snapshot=checked,
        plan=planner or remembering(planning, memory, around.last_plan or plan_with_findings, objects.exists),
        look=look,
        replacements=lambda snapshot: Replacements(cache, snapshot, clock, options.settle, until=until),
        limited=lambda snapshot: WatchedLimits(cache, snapshot),
        evictor=_evictor(connection, objects, options, clock, dry=not options.execute),
        clock=clock,
        observer=Observers([observer, *watched]) if watched else observer,
        limits=options.limits if sends else replace(options.limits, per_second=None),
        gate=gate,
        memory=memory,
        dry=not options.execute,
    )


class Planning(Protocol):
    """Plans a snapshot; `approved`: these pods only."""

    def __call__(self, snapshot: Snapshot, approved: Approved | None = None) -> Plan:
        """The plan."""
        ...


def remembering(
    planning: PlanOptions,
    memory: Memory | None,
    make: Callable[[Snapshot, PlanOptions], Plan] = plan_with_findings,
    exists: Exists | None = None,
) -> Planning:
    """The planner with the owners that memory leaves alone. `exists`: asked whether what their templates name
    is there; None: nobody can be asked, and the plan says so.

    Whether a violation is too young, or something is missing, is only seen in a plan. If it touches such
    owners, a second plan is made without them.
    """

    def without(snapshot: Snapshot, approved: Approved | None, resting: Mapping[str, Reason]) -> Plan:
        counted = memory.earlier() if memory is not None else planning.policy.earlier
        policy = replace(planning.policy, resting=resting, approved=approved, earlier=counted)
        return make(snapshot, replace(planning, policy=policy))

    def planned(snapshot: Snapshot, approved: Approved | None = None) -> Plan:
        if memory is None:
            return without(snapshot, approved, planning.policy.resting)
        resting = memory.resting(snapshot)
        made = without(snapshot, approved, resting)
        movers = {m.owner.key: m.owner for m in made.moves}
        refused, unseen = missing(movers.values(), exists) if exists is not None else ({}, ())
        away = {**refused, **memory.unsettled(snapshot, made)}
        if movers.keys() & away.keys():
            made = without(snapshot, approved, {**away, **resting})
        if exists is not None:
            asked = not_looked_at(movers.values())
            rests = tuple(a for a in made.assumptions if a not in asked)
            if unseen:
                say = f"whether each {' and '.join(unseen)} that a template names exists could not be seen"
                rests = (*rests, say)
            made = replace(made, assumptions=rests)
        more = undone(snapshot, made, memory.undone_moves(), memory.today)
        found = (*memory.dated(made.findings, planning.policy.in_view), *more)
        return replace(made, findings=found) if found != made.findings else made

    return planned


def _health(
    connection: Connection,
    options: LiveOptions,
    clock: Clock,
    around: Surroundings,
    newest: Sequence[WatchingGate],
) -> Sequence[Gate]:
    if not options.execute or around.cache is None:
        return ()

    def also() -> Sequence[CircuitLimits]:
        return [limits for g in newest if (limits := g.breaker()) is not None]

    config = options.planning.scheduler or DEFAULT_CONFIG
    lease = LeaseClient(connection, *SCHEDULER_LEASE)
    return (HealthGate(around.cache, around.memory, clock, config, lease, also),)


def _gate(
    brakes: Brakes, options: LiveOptions, clock: Clock, around: Surroundings, more: Sequence[Gate]
) -> Gate:
    gates: list[Gate] = []
    if around.leading is not None:
        gates.append(LeaderGate(around.leading))
    if options.max_time is not None:
        gates.append(TimeGate(options.max_time, clock))
    if options.windows:
        gates.append(WindowGate(options.windows, clock))
    if around.memory is not None:
        gates += [RivalGate(around.memory), CircuitGate(around.memory)]
    gates += more
    if options.brake is not None:
        gates.append(PauseGate(brakes, options.brake, clock, around.lease))
    if around.leading is not None:
        # Once more, and last for each pod too, as reading the brakes may have taken its time.
        gates.append(LeaderGate(around.leading))
    return Gates(gates)


def _evictor(
    connection: Connection, objects: Objects, options: LiveOptions, clock: Clock, *, dry: bool
) -> Evictor:
    if not options.execute and not options.ask_server:
        return RecordingEvictor()

    def annotations() -> dict[str, str]:
        return {REQUESTER: f"rebalancer/{__version__}", **trace_annotations()}

    return LiveEvictor(
        connection,
        objects.pod,
        wait=clock.wait,
        linger=clock.linger,
        monotonic=clock.monotonic,
        backoff=options.backoff,
        dry_run=dry,
        grace_seconds=options.grace_seconds,
        annotations=annotations,
    )
