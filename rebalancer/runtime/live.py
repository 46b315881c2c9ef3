"""The parts of a cycle, made for a live cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rebalancer import __version__
from rebalancer.kube.brakes import Brakes
from rebalancer.kube.cache import WatchCache
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import KubeError
from rebalancer.kube.evict import REQUESTER, LiveEvictor
from rebalancer.kube.eviction import Evictor, RecordingEvictor
from rebalancer.kube.foresight import Foresight
from rebalancer.kube.fresh import Reads, Revalidation
from rebalancer.kube.ledger import Place
from rebalancer.kube.objects import Objects
from rebalancer.kube.read import ReadOptions, read_snapshot
from rebalancer.kube.retry import DEFAULT_BACKOFF, Backoff
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.windows import Window
from rebalancer.runtime.cached import Abreast, CachedNodes, CachedReader
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.gates import CircuitGate, Gate, Gates, LeaderGate, PauseGate, TimeGate, WindowGate
from rebalancer.runtime.memory import Memory
from rebalancer.runtime.notes import EventSetting
from rebalancer.runtime.observer import Observer, Observers
from rebalancer.runtime.parts import CycleLimits, Parts
from rebalancer.runtime.settle import SettleLimits, Settler
from rebalancer.telemetry.current import trace_annotations


class LiveOptions(Struct, frozen=True, kw_only=True):
    """How a live cluster is read, planned and acted on.

    `execute`: evict for real; otherwise record only, or with `ask_server` let the API server judge each
    eviction by itself. `windows`, `max_time` (seconds), `lease` (whose annotation pauses) and `brakes`
    (whether annotations are looked at) may forbid evictions. `grace_seconds`: of the evicted pods, None =
    their own. `events`: what is written as events. `lasts`: seconds that one reading of the cluster serves
    where it is not watched.
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
    brakes: bool = False
    lease: Place | None = None
    grace_seconds: int | None = None
    events: EventSetting = "none"
    lasts: float = 30.0


class Surroundings(Struct, frozen=True, eq=False, kw_only=True):
    """What lasts longer than a cycle: memory, the watch cache, the election; None where there is none."""

    memory: Memory | None = None
    cache: WatchCache | None = None
    leading: Callable[[], bool] | None = None


_ALONE = Surroundings()


def live_parts(
    connection: Connection,
    options: LiveOptions,
    *,
    clock: Clock,
    observer: Observer,
    around: Surroundings = _ALONE,
    planner: Callable[[Snapshot], Plan] | None = None,
) -> Parts:
    """Everything a cycle needs. `planner` instead of the usual one: `ReviewedPlanner`, or a test's."""
    objects = Objects(connection, wait=clock.wait, backoff=options.backoff)
    cache, memory = around.cache, around.memory
    watched: Sequence[Observer] = ()
    looked_at: Reads = objects
    if cache is not None:
        reader = CachedReader(cache, objects, clock)
        snapshot, watched, looked_at = reader.snapshot, (reader,), CachedNodes(objects, cache)
    else:

        def snapshot() -> Snapshot:
            return read_snapshot(connection, now=clock.now, wait=clock.wait, options=options.read)

    gate = _gate(connection, options, clock, around)
    return Parts(
        snapshot=snapshot,
        plan=planner or remembering(options.planning, memory),
        look=lambda snapshot, made: Revalidation(
            looked_at,
            snapshot,
            made.moves,
            monotonic=clock.monotonic,
            **(_watched_look(cache, objects, clock, snapshot, made, options) if cache is not None else {}),
        ),
        waiter=lambda snapshot: Settler(objects, snapshot, clock, options.settle),
        evictor=_evictor(connection, objects, options, clock, gate),
        clock=clock,
        observer=Observers([observer, *watched]) if watched else observer,
        policy=options.planning.policy,
        limits=options.limits,
        gate=gate,
        memory=memory,
        lasts=options.lasts if cache is None else None,
        dry=not options.execute,
    )


def _watched_look(
    cache: WatchCache, objects: Objects, clock: Clock, snapshot: Snapshot, made: Plan, options: LiveOptions
) -> dict[str, Any]:
    """What a fresh look gains from the cache: nodes at any time, and where the scheduler would go now.

    The latter only where the waves before really happened, and the cache is known to be up to date.
    """
    look: dict[str, Any] = {"nodes_max_age": 0.0}
    if options.execute:
        abreast = Abreast(cache, objects, clock)
        foresight = Foresight(
            snapshot, made, options.planning.scheduler, cache.pods, options.planning.certainty
        )

        def foresee(move: Move) -> Reason | None:
            behind = abreast.why_not(made.constraints[i].constraint for i in move.fixes)
            return behind or foresight.why_not(move)

        look["foresee"] = foresee
    return look


def remembering(planning: PlanOptions, memory: Memory | None) -> Callable[[Snapshot], Plan]:
    """The planner, told by memory who is to be left alone.

    Whether a violation is too young shows only in a plan; then it is planned once more without its owners.
    """
    if memory is None:
        return lambda snapshot: plan(snapshot, planning)

    def without(snapshot: Snapshot, resting: dict[str, object]) -> Plan:
        policy = replace(planning.policy, resting=resting)
        return plan(snapshot, replace(planning, policy=policy))

    def planned(snapshot: Snapshot) -> Plan:
        resting = memory.resting(snapshot)
        made = without(snapshot, dict(resting))
        unsettled = memory.unsettled(snapshot, made)
        touched = {m.owner.key for m in made.moves} & unsettled.keys()
        return without(snapshot, {**unsettled, **resting}) if touched else made

    return planned


def _gate(connection: Connection, options: LiveOptions, clock: Clock, around: Surroundings) -> Gate:
    gates: list[Gate] = []
    if around.leading is not None:
        gates.append(LeaderGate(around.leading))
    if options.max_time is not None:
        gates.append(TimeGate(options.max_time, clock))
    if options.windows:
        gates.append(WindowGate(options.windows, clock))
    if around.memory is not None:
        gates.append(CircuitGate(around.memory))
    if options.brakes:
        brakes = Brakes(connection, wait=clock.wait, backoff=options.backoff)
        gates.append(PauseGate(brakes, options.lease, clock))
    if around.leading is not None:
        # Once more, and last for each pod too, as reading the brakes may have taken its time.
        gates.append(LeaderGate(around.leading))
    return Gates(gates)


def _evictor(
    connection: Connection, objects: Objects, options: LiveOptions, clock: Clock, gate: Gate
) -> Evictor:
    if not options.execute and not options.ask_server:
        return RecordingEvictor()

    def barred(pod: Pod) -> str:
        """Between two tries of one eviction, too, the right to evict may be lost."""
        if clock.stopping():
            return "a stop was asked for"
        if not options.execute:
            return ""
        try:
            reason = gate.closed() or gate.bars(pod)
        except KubeError as e:
            return f"whether evictions are paused is not known: {e.message}"
        return reason.message if reason is not None else ""

    return LiveEvictor(
        connection,
        objects.pod,
        wait=clock.wait,
        linger=clock.linger,
        monotonic=clock.monotonic,
        barred=barred,
        backoff=options.backoff,
        dry_run=not options.execute,
        grace_seconds=options.grace_seconds,
        annotations=lambda: {REQUESTER: f"rebalancer/{__version__}", **trace_annotations()},
    )
