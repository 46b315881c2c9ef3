"""One cycle, as a person or a CronJob runs it.

It plans and evicts until nothing is left to do or a limit of the cycle is reached
(`rebalancer.runtime.cycle.loop`). The last plan shows what remains.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.kube.config_maps import Brakes
from rebalancer.kube.connection import Connection
from rebalancer.kube.patches import CostWriter, EventRecorder
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.pod import Pod
from rebalancer.model.quantity import epoch
from rebalancer.model.reason import Reason, ReasonCode, changed
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport, Observer, Observers
from rebalancer.planner.plan import Plan
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Approved, Method, PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.runtime.cycle.clock import Clock, SystemClock
from rebalancer.runtime.cycle.gates import PauseCheck
from rebalancer.runtime.cycle.loop import Cycle
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.approval import Planning
from rebalancer.runtime.live.assembly import ALONE, Surroundings, live_parts
from rebalancer.runtime.live.configured import LiveOptions, Newest, memory_of, own_name, steering_now
from rebalancer.runtime.live.places import Places, elector_of, make_brake, take_brake_away, take_lease
from rebalancer.runtime.observers.log import EventObserver
from rebalancer.runtime.prevention import ScaleInSteering, SteeringOptions, Unpaused
from rebalancer.settings import Settings
from rebalancer.telemetry.logs import trace_annotations

# A plan that somebody reviewed: the report's JSON, carried out exactly as far as it still holds.
#
# The planner itself judges what still holds: it plans the cluster of now and may move no other pod. So a
# reviewed eviction that is no longer needed, would no longer help or would now do harm is not in its plan,
# and nothing else is either. Order and waves follow from the cluster of now.

_KIND = "Report"
_API = "rebalancer/v1"


class ReviewedEviction(Struct, frozen=True, rename="camel"):
    """One of the report's `evictions`; `owner` is Kind/name."""

    namespace: str
    pod: str
    uid: str
    owner: str = ""
    node: str = ""
    wave: int = 1
    method: Method = Method.EVICT

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.pod}"


class _Report(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    evictions: tuple[ReviewedEviction, ...]
    cluster: str = ""
    cluster_id: str = ""
    captured_at: str = ""


class Reviewed(Struct, frozen=True, eq=False):
    """The approved evictions. `source`: where they stand; `cluster`: the context that the report was made of,
    "" if it was a file; `cluster_id`: the uid of that cluster's kube-system, "" if it is not known;
    `captured_at`: the time that it speaks of, in seconds since the epoch, None if it does not say."""

    evictions: tuple[ReviewedEviction, ...]
    cluster: str = ""
    cluster_id: str = ""
    captured_at: float | None = None
    source: str = "the plan"

    def check_cluster(self, snapshot: Snapshot) -> None:
        """Raises UserError if the report is of another cluster, as far as both tell."""
        here = snapshot.cluster_id
        if self.cluster_id and here and self.cluster_id != here:
            named = f" ({self.cluster})" if self.cluster else ""
            raise UserError(
                f"{self.source} was made for another cluster{named}: namespace kube-system has uid "
                f"{self.cluster_id} there, {here} here",
                "choose the context it was made for, or make a report of this cluster",
            )


def read_reviewed(path: Path) -> Reviewed:
    """A report's JSON. Raises UserError naming the file and the field."""
    try:
        report = msgspec.json.decode(path.read_bytes(), type=_Report)
    except OSError as e:
        raise UserError(f"{path}: cannot be read: {(e.strerror or str(e)).lower()}") from e
    except msgspec.DecodeError as e:
        raise UserError(
            f"{path} is no report: {e}", "make one with `rebalancer report -o json --output-file FILE`"
        ) from e
    if (report.api_version, report.kind) != (_API, _KIND):
        raise UserError(
            f"{path} is a {report.kind} of {report.api_version}, not a {_KIND} of {_API}",
            "make one with `rebalancer report -o json --output-file FILE`",
        )
    for i, eviction in enumerate(report.evictions):
        if not eviction.uid:
            raise UserError(
                f"{path}: evictions[{i}] ({eviction.key}) has no uid: which pod was meant cannot be told",
                "make the report from a live cluster, or from a snapshot with uids",
            )
    return Reviewed(
        evictions=report.evictions,
        cluster=report.cluster,
        cluster_id=report.cluster_id,
        captured_at=epoch(report.captured_at),
        source=path.name,
    )


class ReviewedPlanner:
    """Plans within what was approved. `plan` is the planner.

    The observer is told, once, of each approved eviction that is not carried out; not of one that was planned
    before and whose pod is gone by now.
    """

    def __init__(self, reviewed: Reviewed, plan: Planning, observer: Observer) -> None:
        self._reviewed = reviewed
        self._plan = plan
        self._observer = observer
        self._planned: set[str] = set()
        self._told: set[str] = set()

    def __call__(self, snapshot: Snapshot) -> Plan:
        """The plan of the approved evictions that still hold. Raises UserError for another cluster's."""
        self._reviewed.check_cluster(snapshot)
        by_uid = {p.uid: p for p in snapshot.pods}
        owners = Owners(snapshot, PolicyOptions())
        open_: dict[str, ReviewedEviction] = {}
        rejected: dict[str, Reason] = {}
        for e in self._reviewed.evictions:
            reason = _not_as_reviewed(e, by_uid.get(e.uid), owners)
            if reason is None:
                open_[e.uid] = e
            elif e.uid not in self._planned:
                rejected[e.uid] = reason
        plan = self._plan(snapshot, Approved(frozenset(open_), self._reviewed.source))
        while other := [m for m in plan.moves if m.method is not open_[m.pod.uid].method]:
            for m in other:
                how = f"its method was {open_.pop(m.pod.uid).method.value}, and would be {m.method.value} now"
                rejected[m.pod.uid] = changed(how)
            plan = self._plan(snapshot, Approved(frozenset(open_), self._reviewed.source))
        moves = {m.pod.uid for m in plan.moves}
        blocked = {b.pod.uid: b.reason for b in plan.blocked}
        rejected |= {uid: blocked.get(uid, _NOT_NEEDED) for uid in open_ if uid not in moves}
        approved = {e.uid: e for e in self._reviewed.evictions}
        for uid in [u for u in rejected if u not in self._told]:
            self._told.add(uid)
            self._observer.on_rejected(approved[uid].namespace, approved[uid].pod, rejected[uid])
        self._planned |= moves
        return plan


_NOT_NEEDED = Reason(ReasonCode.NOT_NEEDED, "its eviction is not needed any more, or no longer helps")


def _not_as_reviewed(e: ReviewedEviction, pod: Pod | None, owners: Owners) -> Reason | None:
    if pod is None or (pod.namespace, pod.name) != (e.namespace, e.pod):
        return changed(f"pod {e.key} of uid {e.uid} is gone")
    if pod.terminating:
        return Reason(ReasonCode.TERMINATING, f"pod {e.key} is being deleted already")
    if e.node and pod.node_name != e.node:
        return changed(f"pod {e.key} is on {pod.node_name}, not on {e.node}")
    owner = _owner(pod, owners)
    if e.owner and owner != e.owner:
        return changed(f"pod {e.key} belongs to {owner or 'nobody'}, not to {e.owner}")
    return None


def _owner(pod: Pod, owners: Owners) -> str:
    """Kind/name as a report has it: the Deployment's, where the pod's ReplicaSet has one."""
    owner = owners.of(pod)
    if owner is not None:
        top = owners.top(owner)
        return f"{top.kind}/{top.name}"
    return f"{pod.owner.kind}/{pod.owner.name}" if pod.owner is not None else ""


def run_once(
    connection: Connection,
    options: LiveOptions,
    *,
    clock: Clock,
    observers: Iterable[Observer] = (),
    reviewed: Reviewed | None = None,
    number: int = 1,
    around: Surroundings = ALONE,
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
    within = shown = None
    if reviewed is not None:
        shown = {e.uid for e in reviewed.evictions}
        within = partial(ReviewedPlanner, reviewed, observer=observer)
    observer.on_cycle(number)

    def run(around: Surroundings, *, patient: bool) -> CycleReport:
        parts = live_parts(
            connection,
            options,
            clock=clock,
            observer=observer,
            around=around,
            within=within,
            reviewed=lambda uid: shown is None or uid in shown,
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


# What a single cycle needs around it: the lease while it lasts, memory, settings that may change.

log = logging.getLogger(__name__)

_DURATIONS = 3
"""Lease durations that a holder who may be dead, and an API server that does not answer, are waited for."""


@contextmanager
def session(
    settings: Settings,
    connection: Connection,
    places: Places,
    clock: SystemClock,
    *,
    newest: Newest,
    attended: bool,
    wait: bool,
) -> Iterator[Surroundings]:
    """Leads, if the settings allow evictions and ask for an election, and hands the lease back at the end.

    Where nothing is installed it brings its own brake, and takes it away again with the lease: what an
    installation finds later would stand beside its own. The ledger stays, as caps and cool-downs hold on.
    `attended`: a person watches. `wait`: while somebody else leads; otherwise raises UserError that names who
    does. Raises KubeError where the lease may not be used.
    """
    name, election = own_name(), settings.leader_election
    alone = settings.evictions.enabled and places.none_yet
    leads = settings.evictions.enabled and election.enabled
    elector = elector_of(settings, connection, places, identity=name) if leads else None
    memory = memory_of(
        settings,
        connection,
        places,
        clock,
        attended=attended,
        writer=name,
        term=lambda: elector.term if elector is not None else 0,
        silent=settings.schedule.max_cycle_time,
        elsewhere=lambda: elector.other_ledger() if elector is not None else None,
    )
    try:
        if elector is not None:
            if alone:
                make_brake(settings, connection, places, name, wait=clock.wait, leads=False)
            patience = _DURATIONS * election.lease_duration
            take_lease(elector.start(), wait=wait, stop=clock.stop, patience=patience)
        if alone and not clock.stopping():
            make_brake(settings, connection, places, name, wait=clock.wait)
        yield Surroundings(
            memory=memory,
            newest=newest,
            leading=elector.still_leading if elector is not None else None,
            lease=lambda: elector.annotations if elector is not None else {},
        )
    finally:
        memory.leave()
        gone = elector is None or elector.stop(remove=alone)
        # A lease without a brake looks like an installation that lost it; the next run takes over both.
        if alone and gone:
            take_brake_away(connection, places.brake, name)


# Scale-ins steered by a single cycle, after it.


def steered_after(
    connection: Connection,
    live: LiveOptions,
    clock: Clock,
    observers: Iterable[Observer],
    around: Surroundings,
) -> Callable[[Snapshot], None]:
    """What is to be called with the last snapshot of the cycle. `live`: its options."""

    def options() -> SteeringOptions:
        return steering_now(live.steering, around.newest or (lambda: live))

    leading: Callable[[], bool] = around.leading or (lambda: True)

    def may() -> bool:
        return leading() and options().writes

    if live.brake is not None:
        may = Unpaused(PauseCheck(Brakes(connection, wait=clock.wait), live.brake, clock), clock, may)
    writer = CostWriter(connection, live.steering.scope.by)
    steering = ScaleInSteering(writer, clock, Observers(observers).on_steering, may)

    def look(last: Snapshot) -> None:
        if (now := options()).on:
            steering.look(last, now)

    return look
