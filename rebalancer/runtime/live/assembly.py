"""The parts of a cycle, made for a live cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rebalancer import __version__
from rebalancer.engine.config import DEFAULT_CONFIG, NO_WITNESS, Witness
from rebalancer.findings import plan_with_findings
from rebalancer.kube.brakes import Brakes
from rebalancer.kube.connection import Connection
from rebalancer.kube.evictor import REQUESTER, Evictor, LiveEvictor, RecordingEvictor
from rebalancer.kube.leases import LeaseClient
from rebalancer.kube.patches import ReleasePatches
from rebalancer.kube.reading import Objects, label_users, read_snapshot
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import RuntimeClass
from rebalancer.outcome import Observer, Observers
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.options import Approved, LabelUsers
from rebalancer.policy.owners import not_looked_at
from rebalancer.policy.replace_first import asked_for
from rebalancer.policy.waits import ANY_POD, Paused
from rebalancer.runtime.cycle.carrying_out import Parts
from rebalancer.runtime.cycle.clock import Clock, SignOfLife, check_namespaces, check_readable, warned
from rebalancer.runtime.cycle.gates import FreshLook, PauseCheck, WatchedLimits
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.releases import ReleaseParts
from rebalancer.runtime.cycle.replacements import Replacements
from rebalancer.runtime.last_look.health import SCHEDULER_LEASE, Health
from rebalancer.runtime.last_look.look import AdmissionReads, LastLook, missing, runtime_classes
from rebalancer.runtime.last_look.room import Room
from rebalancer.runtime.last_look.watch_age import SpotCheck, WatchAge
from rebalancer.runtime.live.approval import Approvals, ApprovedPlanner, Planning
from rebalancer.runtime.live.cached import CachedReader, LastPlan
from rebalancer.runtime.live.checks import CycleChecks, PlanChecks
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.runtime.observers.neighbours import out_domains, undone
from rebalancer.telemetry.logs import trace_annotations


class Surroundings(Struct, frozen=True, eq=False, kw_only=True):
    """What outlives a cycle: memory, watch cache, election, the last plan, what was approved, settings that
    may change. None: there is none.

    Who evicts needs a watch cache: the last look rests on it. `lease`: the annotations of the lease.
    `newest`: the options of this moment; raises UserError where the settings cannot be used.
    """

    memory: Memory | None = None
    cache: WatchCache | None = None
    leading: Callable[[], bool] | None = None
    last_plan: LastPlan | None = None
    lease: Callable[[], Mapping[str, str]] = dict
    approvals: Approvals | None = None
    newest: Callable[[], LiveOptions] | None = None


_ALONE = Surroundings()


def live_parts(
    connection: Connection,
    options: LiveOptions,
    *,
    clock: Clock,
    observer: Observer,
    around: Surroundings = _ALONE,
    planner: Callable[[Snapshot], Plan] | None = None,
    reviewed: Callable[[str], bool] = lambda _: True,
    patient: bool = True,
) -> Parts:
    """Makes the parts of a cycle. `planner` replaces the usual one: a `ReviewedPlanner`, or a test's.

    `reviewed`: whether a pod (uid) may go that an earlier process released. Evictions for real need
    `around.cache`. `patient`: whether a cycle waits for a cache that is not ready.
    """
    objects = Objects(
        connection, wait=clock.wait, backoff=options.backoff, namespaces=options.read.namespaces
    )
    brakes = Brakes(connection, wait=clock.wait, backoff=options.backoff)
    cache, memory, approvals = around.cache, around.memory, around.approvals
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

    health = None
    if options.execute and cache is not None:
        lease = LeaseClient(connection, *SCHEDULER_LEASE)
        health = Health(cache, memory, clock, options.planning.scheduler or DEFAULT_CONFIG, lease)
    pause = PauseCheck(brakes, options.brake, clock, around.lease) if options.brake is not None else None
    checks = CycleChecks(
        options,
        clock,
        newest=around.newest,
        leading=around.leading,
        memory=memory,
        cache=cache,
        health=health,
        approvals=approvals,
        pause=pause,
    )
    if memory is not None:
        memory.newest = lambda: [o.history for o in checks.in_force()[1:] if o.history is not None]
    watch_age = WatchAge(cache, clock.stopping) if cache is not None else None

    def look(snapshot: Snapshot, made: Plan) -> FreshLook:
        def witness() -> Witness:
            return memory.witness(snapshot.server_version) if memory is not None else NO_WITNESS

        if not options.execute:
            return FreshLook(clock)
        if cache is None or watch_age is None:
            raise ValueError("nothing is evicted without a watch cache")
        planning = options.planning
        room = Room(snapshot, made, planning.scheduler, cache, planning.certainty, witness, clock.now)
        spot_check = SpotCheck(
            objects, cache, clock.stopping, server=snapshot.server_version, pods=len(snapshot.pods)
        )
        watch_age.begin()
        last = LastLook(objects, brakes, watch_age, spot_check, room, clock.now)
        return PlanChecks(checks, snapshot, made, last)

    until = clock.monotonic() + options.max_time if options.max_time is not None else None
    if planner is None:
        usual = remembering(
            replace(options.planning, on_progress=SignOfLife(clock)),
            memory,
            knowing_label_users(connection, options, clock, around.last_plan or plan_with_findings),
            objects if options.execute else None,
            pause.domains if pause is not None else dict,
        )
        planner = ApprovedPlanner(approvals, usual, observer) if approvals is not None else usual
    releases = None
    if options.execute and cache is not None and memory is not None:
        releases = ReleaseParts(
            reads=objects,
            watched=cache,
            patches=ReleasePatches(connection),
            by=memory.installation,
            closed=checks.closed,
            leading=checks.leading,
            reviewed=reviewed,
            on=lambda snapshot: asked_for(snapshot, options.planning.policy),
            most=lambda: min(o.planning.policy.max_released for o in checks.in_force()),
            until=until,
        )
    # What is only recorded burdens nobody.
    sends = options.execute or options.ask_server
    return Parts(
        snapshot=checked,
        plan=planner,
        look=look,
        replacements=lambda snapshot: Replacements(cache, snapshot, clock, options.settle, until=until),
        limited=lambda snapshot: WatchedLimits(cache, snapshot),
        evictor=_evictor(connection, objects, options, clock, dry=not options.execute),
        clock=clock,
        observer=Observers([observer, *watched]) if watched else observer,
        limits=options.limits if sends else replace(options.limits, per_second=None),
        closed=checks.closed,
        memory=memory,
        dry=not options.execute,
        releases=releases,
    )


_ROUNDS = 3
"""Plans without those that wait: the next may move others that wait as well."""


def knowing_label_users(
    connection: Connection,
    options: LiveOptions,
    clock: Clock,
    make: Callable[[Snapshot, PlanOptions], Plan] = plan_with_findings,
) -> Callable[[Snapshot, PlanOptions], Plan]:
    """`make`, told what else asks for labels of pods, where some may be replaced first."""
    read: list[tuple[Snapshot, LabelUsers]] = []

    def made(snapshot: Snapshot, planning: PlanOptions) -> Plan:
        if not asked_for(snapshot, planning.policy):
            return make(snapshot, planning)
        if not read or read[0][0] is not snapshot:
            found = label_users(
                connection, wait=clock.wait, namespaces=options.read.namespaces, backoff=options.backoff
            )
            read[:] = [(snapshot, found)]
        return make(snapshot, replace(planning, policy=replace(planning.policy, label_users=read[0][1])))

    return made


def remembering(
    planning: PlanOptions,
    memory: Memory | None,
    make: Callable[[Snapshot, PlanOptions], Plan] = plan_with_findings,
    reads: AdmissionReads | None = None,
    paused: Callable[[], Paused] = dict,
) -> Planning:
    """The planner with the owners that memory leaves alone. `reads`: asked whether what their templates name
    is there and LimitRanges admit them; None: nobody is asked. `paused`: the domains that somebody has taken
    out.

    The first plan is what would be done if nobody waited: so it is known that it is waits, and not the
    cluster, which keep something from being done. If it moves pods of owners that wait, or that lack
    something, another plan is made without them.
    """

    classes: dict[str, RuntimeClass] = {}

    def known(moves: Iterable[Move]) -> bool:
        """Whether the plan with these moves knows their RuntimeClasses."""
        found = runtime_classes(moves, reads) if reads is not None else {}
        new = {n: c for n, c in found.items() if n not in classes or _version(c) != _version(classes[n])}
        classes.update(new)
        return not new

    def without(snapshot: Snapshot, approved: Approved | None, waiting_owners: Mapping[str, Reason]) -> Plan:
        counted = memory.earlier() if memory is not None else planning.policy.earlier
        off = memory.no_release() if memory is not None else None
        policy = replace(
            planning.policy,
            waiting_owners=waiting_owners,
            approved=approved,
            earlier=counted,
            no_release=planning.policy.no_release or off,
            runtime_classes=dict(classes),
        )
        witness = memory.witness(snapshot.server_version) if memory is not None else planning.witness
        return make(snapshot, replace(planning, policy=policy, witness=witness))

    def planned(snapshot: Snapshot, approved: Approved | None = None) -> Plan:
        away = dict(planning.policy.waiting_owners) if memory is None else {}
        made, out = without(snapshot, approved, away), paused()
        if not known(made.moves):
            made = without(snapshot, approved, away)
        for number in range(_ROUNDS):
            movers = {m.owner.key: m.owner for m in made.moves}
            refused, unseen = missing(made.moves, reads) if reads is not None else ({}, ())
            waits = memory.waits(snapshot, made, out) if memory is not None else {}
            # Whom no plan moves waits for nothing, unless it would be in the way of an end.
            last = number == _ROUNDS - 1
            away |= {o: why for o, why in waits.items() if last or o in movers} | refused
            if not movers.keys() & away.keys():
                break
            made = without(snapshot, approved, away)
        else:
            # Who moves in the last of them, and waits, waits all the same.
            late = memory.waits(snapshot, made, out) if memory is not None else away
            moves = (replace(m, waits=late.get(m.owner.key, m.waits)) for m in made.moves)
            made = replace(made, moves=tuple(moves))
        if reads is not None:
            asked = not_looked_at(movers.values())
            rests = tuple(a for a in made.assumptions if a not in asked)
            made = replace(made, assumptions=(*rests, *unseen))
        if memory is None:
            return made
        more = [
            *undone(snapshot, made, memory.undone_moves(), memory.today),
            *out_domains(memory.out_for(ANY_POD, snapshot.nodes, out)),
        ]
        found = (*memory.dated(made.findings, planning.policy.in_view), *more)
        return replace(made, findings=found) if found != made.findings else made

    return planned


def _version(one: RuntimeClass) -> tuple[str, str]:
    return one.metadata.uid, one.metadata.resource_version


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
