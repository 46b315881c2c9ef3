"""The parts of a cycle, made for a live cluster; the cluster as the watch cache has it, with its plan."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from socket import gethostname

from msgspec import Struct
from msgspec.structs import replace

from rebalancer import __version__
from rebalancer.engine.config import DEFAULT_CONFIG, NO_WITNESS, Witness
from rebalancer.findings import plan_with_findings
from rebalancer.kube.config_maps import Brakes
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import CacheNotReadyError, KubeError
from rebalancer.kube.evictor import REQUESTER, Evictor, LiveEvictor, RecordingEvictor
from rebalancer.kube.leases import LeaseClient
from rebalancer.kube.patches import ReleasePatches
from rebalancer.kube.reading import Objects, label_users, read_snapshot
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot, check_namespaces, check_readable, warned
from rebalancer.model.workload import RuntimeClass
from rebalancer.outcome import Fate, Observer, Observers, Outcome
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.policy.evictable import next_change
from rebalancer.policy.history.waits import ANY_POD, Paused
from rebalancer.policy.new_pods import making
from rebalancer.policy.options import Approved, LabelUsers, Method
from rebalancer.policy.owners import not_looked_at
from rebalancer.policy.replace_first import asked_for
from rebalancer.runtime.cycle.carrying_out import Parts
from rebalancer.runtime.cycle.clock import Clock, RateLimit, SignOfLife
from rebalancer.runtime.cycle.gates import FreshLook, PauseCheck, Pauses, WatchedLimits
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.releases import ReleaseParts
from rebalancer.runtime.cycle.replacements import ReplacementWatch
from rebalancer.runtime.last_look.cluster_now import SpotCheck, WatchAge
from rebalancer.runtime.last_look.health import CONTROLLERS_LEASE, SCHEDULER_LEASE, Health
from rebalancer.runtime.last_look.look import AdmissionReads, LastLook, missing, runtime_classes
from rebalancer.runtime.last_look.room import Room
from rebalancer.runtime.live.approval import Approvals, ApprovedPlanner, Planning
from rebalancer.runtime.live.checks import CycleChecks, PlanChecks
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.runtime.observers.neighbours import closed, out_domains, turn, undone
from rebalancer.telemetry.logs import trace_annotations

# A cycle's view of the cluster through the watch cache.
#
# The cache follows the API server at some distance, while evictions and replacements are seen by reading
# the objects themselves. So a plan that follows a wave waits until the cache has seen what came of that
# wave.

log = logging.getLogger(__name__)

_PATIENCE = 15.0
"""Seconds that the cache may be behind what was read; then what it has is planned with, and every eviction is
looked at anew anyway."""
_REFRESH = 5.0
"""Seconds that a cache which was wrong is waited for to be confirmed."""
_SYNC = 600.0
"""Seconds that a cycle of the daemon waits for a cache that is not synced, or has become stale."""
_TRIES = 5
"""Lists of a kind that may fail, one after the other, before a single cycle gives up."""
_SOON, _TELL = 2.0, 15.0
"""Seconds before the first line about it, and between two. A daemon's cache is mostly there already."""


class CachedReader(Observer):
    """Snapshots from the cache, never older than what this cycle has seen itself.

    `patient`: the daemon waits for rights and servers that may come; a single cycle says at once what is
    wrong, with the error of the kind itself.
    """

    def __init__(self, cache: WatchCache, objects: Objects, clock: Clock, *, patient: bool) -> None:
        self._cache = cache
        self._objects = objects
        self._clock = clock
        self._patient = patient
        self._seen: list[Outcome] = []
        self._doubted = False

    def on_outcome(self, outcome: Outcome) -> None:
        if outcome.evicted and not outcome.kept:
            self._seen.append(outcome)
        elif outcome.status is Fate.SKIPPED or outcome.kept:
            self._doubted = True

    def snapshot(self) -> Snapshot:
        """The cluster as watched. Raises KubeError: CacheNotReadyError names the kinds that are missing."""
        self._wait_ready()
        if self._doubted:
            # The API server knew better than the cache: whatever kind that was, its connection may be dead.
            self._doubted = False
            self._cache.refresh(_REFRESH, self._clock.stopping)
        budgets = self._budgets_now() if self._seen else {}
        if self._seen and not self._shown(budgets):
            self._cache.follow_closely(("Pod", "PodDisruptionBudget"), _PATIENCE)
        if not self._cache.wait_for(lambda: self._shown(budgets), _PATIENCE, self._clock.stopping):
            log.info("the watch cache has not seen all that this cycle did yet")
        self._seen.clear()
        return self._cache.snapshot(self._clock.now())

    def _shown(self, budgets: dict[str, dict[str, int]]) -> bool:
        return all(self._shows(o) for o in self._seen) and self._has(budgets)

    def _wait_ready(self) -> None:
        """Waits until the cache is synced and fresh, and says what is missing."""
        waited, soon = 0.0, _SOON if self._patient else _TELL
        while not self._cache.wait_for(self._ready, soon, self._clock.stopping):
            missing = self._cache.not_ready()
            if missing is None:
                return
            waited, soon = waited + soon, _TELL
            if self._clock.stopping() or waited >= _SYNC:
                raise missing
            # Reading a large cluster for the first time takes a while, which is no reason to worry.
            log.log(
                logging.INFO if waited <= _SOON else logging.WARNING, "the cycle waits: %s", missing.message
            )

    def _ready(self) -> bool:
        """Whether a plan can be made. Raises what keeps a single cycle from it."""
        if self._cache.not_ready() is None:
            return True
        if not self._patient:
            for kind in self._cache.status():
                given_up = (kind.denied and kind.required) or (not kind.synced and kind.failures >= _TRIES)
                if given_up and kind.error is not None and not kind.add_on:
                    raise kind.error
        return False

    def _budgets_now(self) -> dict[str, dict[str, int]]:
        """Namespace → budget → resource version, for the namespaces of evicted pods: their allowances have
        changed."""
        try:
            return {
                n: {b.metadata.name: _number(b.metadata.resource_version) for b in self._objects.budgets(n)}
                for n in {o.move.pod.namespace for o in self._seen}
            }
        except KubeError as e:
            log.info("budgets are taken as watched: %s", e.message)
            return {}

    def _has(self, read: dict[str, dict[str, int]]) -> bool:
        """Whether the cache has these budgets, or later ones."""
        try:
            return all(
                _number(b.metadata.resource_version) >= versions.get(b.metadata.name, 0)
                for n, versions in read.items()
                for b in self._cache.budgets(n)
            )
        except CacheNotReadyError:
            return False

    def _shows(self, outcome: Outcome) -> bool:
        victim = outcome.move.pod
        try:
            there = self._cache.pod(victim.namespace, victim.name)
            if there is not None and there.uid == victim.uid:
                late = outcome.move.method is Method.REPLACE_FIRST  # its replacement was there before
                return there.terminating and (late or outcome.status is not Fate.DONE)
            if outcome.status is not Fate.DONE or not outcome.replacement:
                return True
            namespace, _, name = outcome.replacement.partition("/")
            new = self._cache.pod(namespace, name)
        except CacheNotReadyError:
            return False
        # The watch has told of it, or the outcome would not name it: if it is gone, somebody else took it.
        return new is None or new.terminating or (bool(new.node_name) and new.ready)


def _number(version: str) -> int:
    """Resource versions compare as numbers (KEP-5504). Anything else counts as the oldest."""
    return int(version) if version.isdecimal() else 0


# Memory that is free within the process goes back to the system.
#
# A plan for a large cluster takes some hundred megabytes for seconds, in pieces of a size that the C
# library keeps for later. A daemon would hold them until its next plan, minutes or days after.


def give_back() -> None:
    """Gives back what is free; takes some milliseconds. Where the C library is not glibc, nothing is done."""
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    try:
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # musl, macOS, Windows
        return lambda _: None
    return found


# Plans are remembered from cycle to cycle, for as long as nothing changes that they rest on.

_NOT_PLANNED_FROM = frozenset({"now", "reads", "warnings"})
_RESTS_ON = tuple(f for f in Snapshot.__struct_fields__ if f not in _NOT_PLANNED_FROM)
_FEW, _SHARE = 10, 20
"""Objects that may be new, and one more for so many pods: with more, the cluster was listed again, and is
planned anew."""
_MOST = 4
"""Plans of one cluster: a cycle makes two where the first moves pods of owners that have to wait, and each of
them again where only what was approved may go."""


_SERVES = 900.0
"""Seconds for which a plan without a move serves at most: not every rule that reads the clock may be known to
`next_change`. One with moves serves for its own moment only."""


class _Made(Struct, eq=False):
    snapshot: Snapshot
    options: PlanOptions
    plan: Plan
    at: float
    until: float

    def serves(self, now: float) -> bool:
        """Whether no rule that reads the clock may say something else by now."""
        return now == self.at or (not self.plan.moves and self.at < now < min(self.until, self.at + _SERVES))


class LastPlan:
    """Plans as `make` does, unless it planned the same cluster under the same options just before, and no pod
    was to move.

    That is the common case of a daemon on a quiet cluster, and planning is what its cycle costs. Two
    snapshots are the same cluster if they have the same objects, as the watch cache hands them out, or others
    that differ in their version only: most of what is written into objects is nothing that is read here.
    `at_work`: a plan is being made now.
    """

    def __init__(self, make: Callable[[Snapshot, PlanOptions], Plan] = plan_with_findings) -> None:
        self._make = make
        self._made: list[_Made] = []
        self.at_work = False

    def __call__(self, snapshot: Snapshot, options: PlanOptions) -> Plan:
        """The plan."""
        self._made = [m for m in self._made if m.serves(snapshot.now) and _holds(m, snapshot)]
        for made in self._made:
            made.snapshot = snapshot
        for made in self._made:
            if made.options == options:
                return made.plan
        self.at_work = True
        try:
            plan = self._make(snapshot, options)
        finally:
            self.at_work = False
        give_back()
        until = next_change(snapshot, options.policy)
        self._made = [*self._made, _Made(snapshot, options, plan, snapshot.now, until)][-_MOST:]
        return plan


def _holds(made: _Made, snapshot: Snapshot) -> bool:
    """Whether the plan is that of this snapshot, too, and speaks of none of the objects that are new."""
    before, plan = made.snapshot, made.plan
    new = [pair for f in _RESTS_ON for pair in _new(getattr(before, f), getattr(snapshot, f))]
    if len(new) > _FEW + len(snapshot.pods) // _SHARE:
        return False
    told = {id(o) for m in plan.moves for o in (m.pod, m.owner)} | {id(b.pod) for b in plan.blocked}
    return all(id(was) not in told and _same(was, now) for was, now in new)


def _new(before: object, now: object) -> list[tuple[object, object]]:
    """(what it was, what it is) where a field of a snapshot does not have the same object as before."""
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        return [(o, now[key]) for key, o in before.items() if now[key] is not o]
    if isinstance(before, tuple) and isinstance(now, tuple) and len(before) == len(now):
        return [pair for pair in zip(before, now, strict=True) if pair[0] is not pair[1]]
    return [] if before == now else [(before, now)]


def _same(one: object, other: object) -> bool:
    """Whether two values are equal but for the versions of objects."""
    if one is other:
        return True
    if isinstance(one, Struct) and type(one) is type(other):
        fields = (f for f in one.__struct_fields__ if f != "resource_version")
        return all(_same(getattr(one, f), getattr(other, f)) for f in fields)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


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
    pauses: Pauses | None = None
    approvals: Approvals | None = None
    newest: Callable[[], LiveOptions] | None = None


ALONE = Surroundings()


def live_parts(
    connection: Connection,
    options: LiveOptions,
    *,
    clock: Clock,
    observer: Observer,
    around: Surroundings = ALONE,
    within: Callable[[Planning], Callable[[Snapshot], Plan]] | None = None,
    reviewed: Callable[[str], bool] = lambda _: True,
    patient: bool = True,
) -> Parts:
    """Makes the parts of a cycle. `within`: bounds what is planned, as a `ReviewedPlanner` does.

    `reviewed`: whether a pod (uid) may go that an earlier process released. Evictions for real need
    `around.cache`. `patient`: whether a cycle waits for a cache that is not ready.
    """
    cache, memory, approvals = around.cache, around.memory, around.approvals
    objects = Objects(
        connection,
        wait=clock.wait,
        backoff=options.backoff,
        namespaces=options.read.namespaces,
        could_read=memory.could_read if memory is not None else None,
    )
    brakes = Brakes(connection, wait=clock.wait, backoff=options.backoff)
    watched: Sequence[Observer] = ()
    if cache is not None:
        reader = CachedReader(cache, objects, clock, patient=patient)
        snapshot, watched = reader.snapshot, (reader,)
    else:

        def snapshot() -> Snapshot:
            return read_snapshot(connection, now=clock.now, wait=clock.wait, options=options.read)

    def checked() -> Snapshot:
        found = warned(snapshot(), clock.doubt(), clock.latest() - clock.now())
        check_readable(found)
        check_namespaces(found, options.must_exist)
        return found

    health = None
    if options.execute and cache is not None:
        leases = [LeaseClient(connection, *one) for one in (SCHEDULER_LEASE, CONTROLLERS_LEASE)]
        health = Health(cache, memory, clock, options.planning.scheduler or DEFAULT_CONFIG, leases)
    pause = None
    if options.brake is not None:
        pause = PauseCheck(brakes, options.brake, clock, around.lease, around.pauses)
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
        reviewed=within is not None,
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
    planner: Callable[[Snapshot], Plan]
    planner = usual = remembering(
        replace(options.planning, on_progress=SignOfLife(clock)),
        memory,
        knowing_label_users(connection, options, clock, around.last_plan or plan_with_findings),
        objects if options.execute else None,
        pause.domains if pause is not None else dict,
    )
    if within is not None:
        planner = within(usual)
    elif approvals is not None:
        planner = ApprovedPlanner(approvals, usual, observer)
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
            label_users=lambda: label_users(
                connection, wait=clock.wait, namespaces=options.read.namespaces, backoff=options.backoff
            ),
            most=lambda: min(o.planning.policy.max_released for o in checks.in_force()),
            until=until,
        )
    its_turn = partial(_turn, cache, options, connection, clock)
    # What is only recorded burdens nobody.
    sends = options.execute or options.ask_server
    return Parts(
        snapshot=checked,
        plan=planner,
        look=look,
        replacements=lambda snapshot, plan: ReplacementWatch(
            cache, snapshot, clock, options.settle, until, lambda: [o.settle for o in checks.in_force()], plan
        ),
        limited=lambda snapshot: WatchedLimits(cache, snapshot),
        evictor=_evictor(connection, objects, checks, clock, dry=not options.execute),
        clock=clock,
        pace=RateLimit(
            clock,
            lambda: [o.limits.per_second for o in checks.in_force() if sends],
            its_turn,
            memory.last_sent if memory is not None else None,
        ),
        observer=Observers([observer, *watched]) if watched else observer,
        limits=options.limits if sends else replace(options.limits, per_second=None),
        closed=checks.closed,
        memory=memory,
        dry=not options.execute,
        releases=releases,
    )


def _turn(cache: WatchCache | None, options: LiveOptions, connection: Connection, clock: Clock) -> float:
    """Seconds until this installation may evict, beside others."""
    if cache is None or options.brake is None or not options.execute:
        return 0.0
    # Brakes may be shared, or lie elsewhere than the pods do that others see.
    home = options.planning.policy.own_namespace or options.brake.namespace
    try:
        now = connection.time() or clock.now()
        return turn(cache.pods().values(), cache.workload, home, gethostname(), now)
    except CacheNotReadyError:
        return 0.0  # the last look does not let it go


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

    def look_up(snapshot: Snapshot, reads: AdmissionReads) -> None:
        """Reads the RuntimeClasses of all who may move: without its class, no move is certain of a pod that
        the class sends to nodes. A class has few names: owners without pods may name any number."""
        seen, own = planning.policy.in_view, (g.template for g in snapshot.live)
        owners = (w.template for w in snapshot.workloads if w.status_replicas)
        there = (t for t in chain(owners, own) if t is not None and seen(t.namespace))
        found = runtime_classes(there, reads).items()
        new = {n: c for n, c in found if n not in classes or _version(c) != _version(classes[n])}
        classes.update(new)

    def without(snapshot: Snapshot, approved: Approved | None, waiting_owners: Mapping[str, Reason]) -> Plan:
        counted = memory.earlier() if memory is not None else planning.policy.earlier
        off = memory.no_release() if memory is not None else None
        policy = replace(
            planning.policy,
            waiting_owners=waiting_owners,
            refused=memory.refused if memory is not None else {},
            approved=approved,
            earlier=counted,
            no_release=planning.policy.no_release or off,
            runtime_classes=dict(classes),
        )
        witness = memory.witness(snapshot.server_version) if memory is not None else planning.witness
        return make(snapshot, replace(planning, policy=policy, witness=witness))

    def planned(snapshot: Snapshot, approved: Approved | None = None) -> Plan:
        left_alone = dict(planning.policy.waiting_owners) if memory is None else {}
        if reads is not None:
            look_up(snapshot, reads)
        made, out = without(snapshot, approved, left_alone), paused()
        for number in range(_ROUNDS + 1):
            movers = {m.owner.key: making(m.owner, m.pod) for m in made.moves}
            refused, unseen = missing(made.moves, reads) if reads is not None else ({}, ())
            waits = memory.waits(snapshot, made, out) if memory is not None else {}
            stay = {o: why for o, why in (waits | refused).items() if o in movers}
            if not stay:
                break
            if number == _ROUNDS:
                # Who moves in the last of them, and waits, waits all the same.
                moves = (replace(m, waits=stay.get(m.owner.key, m.waits)) for m in made.moves)
                made = replace(made, moves=tuple(moves))
                break
            # Whom no plan moves waits for nothing, unless it would be in the way of an end. A plan is
            # remembered by whom it leaves alone: that is never changed.
            left_alone = left_alone | (waits if number == _ROUNDS - 1 else {}) | stay
            made = without(snapshot, approved, left_alone)
        if reads is not None:
            asked = not_looked_at(movers.values())
            rests = tuple(a for a in made.assumptions if a not in asked)
            made = replace(made, assumptions=(*rests, *unseen))
        if memory is None:
            return made
        more = [
            *undone(snapshot, made, memory.undone_moves(), memory.today),
            *closed(memory.closed),
            *out_domains(memory.out_for(ANY_POD, snapshot.nodes, out)),
        ]
        found = (*memory.dated(made.findings, planning.policy.in_view), *more)
        return replace(made, findings=found) if found != made.findings else made

    return planned


def _version(one: RuntimeClass) -> tuple[str, str]:
    return one.metadata.uid, one.metadata.resource_version


def _evictor(
    connection: Connection, objects: Objects, checks: CycleChecks, clock: Clock, *, dry: bool
) -> Evictor:
    options = checks.options
    if not options.execute and not options.ask_server:
        return RecordingEvictor()

    def annotations() -> dict[str, str]:
        return {REQUESTER: f"rebalancer/{__version__}", **trace_annotations()}

    def grace() -> int | None:
        """The longest of those in force; the pod's own counts as that, as it is what its author asks for."""
        every = [o.grace_seconds for o in checks.in_force()]
        return None if None in every else max(s for s in every if s is not None)

    return LiveEvictor(
        connection,
        objects.pod,
        wait=clock.wait,
        linger=clock.linger,
        monotonic=clock.monotonic,
        backoff=options.backoff,
        dry_run=dry,
        grace_seconds=grace,
        annotations=annotations,
    )
