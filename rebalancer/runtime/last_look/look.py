"""The last look: every question about one move, in order, with the cluster as it is now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import Literal, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.admission import INJECTING
from rebalancer.kube.config_maps import Brakes
from rebalancer.kube.errors import PROXY, ForbiddenError, KubeError
from rebalancer.kube.lists import HeadMeta
from rebalancer.kube.reading import Named, Objects
from rebalancer.kube.resources import RESOURCES
from rebalancer.kube.watch.store import as_far
from rebalancer.model.node import ObjectMeta, OwnerReference
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Check, Moment, Reason, ReasonCode, changed, first_no
from rebalancer.model.snapshot import BUILT_IN, WORKLOADS, Object, build_snapshot
from rebalancer.model.workload import (
    LimitRange,
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    ServiceAccount,
    Workload,
)
from rebalancer.planner.plan import Move
from rebalancer.policy.annotations import BEING_EVICTED, PAUSE, paused
from rebalancer.policy.budgets import degraded
from rebalancer.policy.evictable import PROTECTIONS, Evictable, steering
from rebalancer.policy.new_pods import ANEW, Admission, gone, making, named, not_as_planned, withheld
from rebalancer.policy.options import Limit, Method, PolicyOptions
from rebalancer.policy.release import mark_of
from rebalancer.policy.replacement import ADDING, Replacements, edited
from rebalancer.policy.vertical_autoscalers import VerticalAutoscalers
from rebalancer.runtime.cycle.gates import Away
from rebalancer.runtime.last_look.cluster_now import Compared, SpotCheck, WatchAge, heads_of, whole_kinds
from rebalancer.runtime.last_look.room import Room

# Does the victim's namespace still let its pods go?


def namespace_refuses(
    name: str, planned: ObjectMeta | None, live: ObjectMeta | None, now: float
) -> Reason | None:
    """Why a namespace, read now, holds its pods back; None if it does not.

    `planned`: as it was planned with, None where that is not known; `live`: None if there is none. Its labels
    may take it out of the scope, or change whom an affinity means.
    """
    if live is None:
        return changed(f"namespace {name} is gone")
    if (reason := paused(f"namespace {name}", live.annotations, now)) is not None:
        return reason
    if live.deletion_timestamp is not None:
        say = f"namespace {name} is being deleted: nothing is made in it"
        return Reason(ReasonCode.OWNER_TERMINATING, say)
    if planned is None:
        return None
    # Nobody writes a pause that is over: see `Pauses`.
    pause = live.annotations.get(PAUSE)
    for what, differs in (
        ("pause", pause is not None and pause != planned.annotations.get(PAUSE)),
        ("annotations", _said(live) != _said(planned)),
        ("labels", live.labels != planned.labels),
    ):
        if differs:
            return changed(f"namespace {name} has changed since the plan: its {what}")
    return None


def _said(namespace: ObjectMeta) -> dict[str, str]:
    """Its annotations that some rule reads, but for the pause."""
    there = {k: v for k, v in namespace.annotations.items() if k != PAUSE}
    return {**steering(there), **{k: there[k] for k in (*ADDING, *INJECTING) if k in there}}


# Would the owner still make the replacement that was planned with?


def short_of_pods(planned: Workload, live: Workload, in_flight: int) -> Reason | None:
    """Why the owner has fewer pods, or fewer Ready ones, than when it was planned.

    `in_flight`: how many of its pods this wave has evicted already; so many may be missing.
    """
    if live.status_replicas < live.replicas - in_flight:
        return Reason(
            ReasonCode.OWNER_SCALING,
            f"{live.kind} {live.name} wants {live.replicas} pods and has {live.status_replicas}",
            {"replicas": live.replicas, "pods": live.status_replicas},
        )
    if live.ready_replicas < planned.ready_replicas - in_flight:
        return Reason(
            ReasonCode.REPLACEMENT_NOT_READY,
            f"{live.kind} {live.name} has {live.ready_replicas} Ready pods, "
            f"{planned.ready_replicas} when it was planned",
            {"ready": live.ready_replicas, "planned": planned.ready_replicas},
        )
    return None


def short_of_ready(top: Workload, live: Workload, in_flight: int, limit: Limit) -> Reason | None:
    """Why a Ready pod of the owner stays: as many are unavailable by now as may be, or it is the last one.

    `top`: its Deployment, if it has one. What this wave has evicted counts as Ready: the wave was planned
    within the limit.
    """
    ready = live.ready_replicas
    if live.min_ready_seconds:
        # Who has just become Ready is not available yet.
        ready = min(ready, live.available_replicas)
    ready += in_flight
    return degraded(top, ready, live.replicas - ready, limit)


def owner_refuses(planned: Workload, live: Workload | None) -> Reason | None:
    """Why an owner is not as it was planned with. What it is by itself, the protections say."""
    name = f"{planned.kind} {planned.namespace}/{planned.name}"
    if live is None or live.metadata.uid != planned.metadata.uid:
        return changed(f"{name} is gone" + (", replaced by another of its name" if live else ""))
    if live.replicas != planned.replicas:
        return Reason(
            ReasonCode.OWNER_SCALING,
            f"{name} was scaled from {planned.replicas} to {live.replicas} since the plan",
            {"planned": planned.replicas, "replicas": live.replicas},
        )
    if live.metadata.generation != planned.metadata.generation:
        return changed(f"{name} has changed since the plan (generation {live.metadata.generation})")
    if (live.current_revision, live.update_revision) != (planned.current_revision, planned.update_revision):
        return Reason(ReasonCode.ROLLOUT_IN_PROGRESS, f"{name} has changed its revision since the plan")
    if steering(live.metadata.annotations) != steering(planned.metadata.annotations):
        return changed(f"{name} has changed since the plan: its annotations")
    return None


# Is the pod still the planned victim?


def pod_refuses(planned: Pod, live: Pod | None) -> Reason | None:
    """Why a pod, read now, is no longer the planned victim; None if it is.

    Annotations that no rule reads may change at any time: operators keep their own books in them.
    """
    if live is None or live.uid != planned.uid:
        return changed(f"pod {planned.key} is gone" + (", replaced by another of its name" if live else ""))
    if live.terminating:
        return Reason(ReasonCode.TERMINATING, f"pod {live.key} is being deleted already")
    if BEING_EVICTED in live.annotations:
        return Reason(ReasonCode.TERMINATING, f"pod {live.key} is being evicted already")
    if live.phase != "Running":
        return Reason(
            ReasonCode.NOT_RUNNING, f"pod {live.key} is {live.phase}: evicting it would bypass its budget"
        )
    for what, differs in (
        ("node", live.node_name != planned.node_name),
        ("labels", live.template.labels != planned.template.labels),
        ("requests", live.template.requests != planned.template.requests),
        ("tolerations", live.template.tolerations != planned.template.tolerations),
        ("annotations", steering(live.annotations) != steering(planned.annotations)),
        ("owner", _uid(live) != _uid(planned)),
        ("finalizers", live.finalizers != planned.finalizers),
        ("debug containers", live.symptoms.debugged and not planned.symptoms.debugged),
    ):
        if differs:
            return changed(f"pod {live.key} has changed since the plan: its {what}")
    if planned.ready and not live.ready:
        return changed(f"pod {live.key} has become unready since the plan")
    return None


def _uid(pod: Pod) -> str:
    return pod.owner.uid if pod.owner is not None else ""


# Is what an owner's template names still there, and what it asks for within every LimitRange? If not, the API
# server refuses every new pod.
#
# They are read by name, for the owners that a plan has moves of, and again before each eviction.
# ServiceAccounts and RuntimeClasses are neither listed nor watched, as few of them matter.


T = TypeVar("T")


class AdmissionReads(Protocol):
    """`rebalancer.kube.reading.Objects`, as far as it is needed here. Methods raise KubeError."""

    def named(self, kind: str, namespace: str, name: str) -> Named | Literal[False] | None:
        """The object of that name; False if there is none, None where that cannot be seen."""
        ...

    def limit_ranges(self, namespace: str) -> tuple[LimitRange, ...] | None:
        """All LimitRanges of a namespace; None where they cannot be seen."""
        ...


_AT_ONCE = 8


def why_not(move: Move, owner: Workload, reads: AdmissionReads) -> Reason | None:
    """Why no new pod of the owner would be admitted as planned; None if it would be, or if that cannot be
    seen."""
    owner = making(owner, move.pod)
    there = {kind: (name, reads.named(kind, owner.namespace, name)) for kind, name in named(owner)}
    for kind, (name, found) in there.items():
        if found is False and name != ANEW:
            return gone(f"{owner.kind} {owner.name}", kind, name)
        if isinstance(found, ServiceAccount) and (reason := withheld(owner, found)) is not None:
            return reason
    _, runs = there.get("RuntimeClass", ("", None))
    _, ranks = there.get("PriorityClass", ("", None))
    by = Admission(
        pod=move.pod.annotations,
        ranges=reads.limit_ranges(owner.namespace),
        runtime_class=runs if isinstance(runs, RuntimeClass) else None,
        priority_class=ranks if isinstance(ranks, PriorityClass) else None,
    )
    return not_as_planned(move.replacement, owner, by)


class _Asked(Struct, frozen=True):
    """What a plan's moves rest on, each asked for once. What could not be asked for is None: before the
    eviction it is asked for again."""

    there: Mapping[tuple[str, str, str], Named | Literal[False] | None]
    ranges: Mapping[str, tuple[LimitRange, ...] | None]

    def named(self, kind: str, namespace: str, name: str) -> Named | Literal[False] | None:
        return self.there[kind, namespace, name]

    def limit_ranges(self, namespace: str) -> tuple[LimitRange, ...] | None:
        return self.ranges[namespace]

    def unseen(self) -> Iterator[str]:
        """What a plan assumes, in sentences."""
        if kinds := sorted({kind for (kind, _, _), there in self.there.items() if there is None}):
            yield f"whether each {' and '.join(kinds)} that a template names exists could not be seen"
        if None in self.ranges.values():
            yield "LimitRanges, which may refuse replacements, could not be seen"


def runtime_classes(made: Iterable[PodTemplate | None], reads: AdmissionReads) -> dict[str, RuntimeClass]:
    """The RuntimeClasses that these templates name, by name, as far as they can be read."""
    found = {}
    for name in sorted({t.runtime_class for t in made if t is not None} - {""}):
        try:
            read = reads.named("RuntimeClass", "", name)
        except KubeError:
            continue  # asked again before an eviction
        if isinstance(read, RuntimeClass):
            found[name] = read
    return found


def missing(moves: Iterable[Move], reads: AdmissionReads) -> tuple[dict[str, Reason], tuple[str, ...]]:
    """Owner (Kind/namespace/name) → why no new pod of it would be admitted; and what could not be seen."""
    movers = {m.owner.key: m for m in moves}
    made = (making(m.owner, m.pod) for m in movers.values())
    names = {(kind, o.namespace, name) for o in made for kind, name in named(o)}

    def ask(read: Callable[..., T], *key: str) -> T | None:
        try:
            return read(*key)
        except KubeError:
            return None

    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="named") as pool:
        there = {key: pool.submit(ask, reads.named, *key) for key in sorted(names)}
        ranges = {
            n: pool.submit(ask, reads.limit_ranges, n) for n in {m.pod.namespace for m in movers.values()}
        }
    asked = _Asked({k: f.result() for k, f in there.items()}, {n: f.result() for n, f in ranges.items()})
    found = {key: why_not(m, m.owner, asked) for key, m in movers.items()}
    return {key: reason for key, reason in found.items() if reason is not None}, tuple(asked.unseen())


class Read(Struct, frozen=True, eq=False):
    """What was read for one look, all of it at the same time: it must not be old when the eviction is sent.

    `named`: why what the template names would keep a new pod out. `sized`: why it would be larger.
    `storage`: which claim or volume of it is not as planned. `node`, `pod_there`: where the replacement
    is expected, and the pod there that changed last. `left`: the node that the pod leaves. `counted`: the
    pods that the move's constraints count; `beside`: whose these are, the topmost owners; `whole`: all of
    some kinds.
    """

    owner: Future[Workload | None]
    parent: Future[Workload | Reason | None]
    beside: tuple[Future[Workload], ...]
    named: Future[Reason | None]
    sized: Future[Reason | None]
    storage: Future[Reason | None]
    budgets: Future[tuple[PodDisruptionBudget, ...]]
    quotas: Future[tuple[ResourceQuota, ...]]
    namespace: Future[ObjectMeta | Reason | None]
    node: Future[HeadMeta | None]
    left: Future[HeadMeta | None]
    pod_there: Future[HeadMeta | None]
    counted: Future[Compared]
    whole: tuple[Future[Compared], ...]
    pod: Future[Pod | None]


class LastLook(Struct, frozen=True, eq=False):
    """What looks at the moves of one plan rest on, made from the snapshot that `room` knows.

    What concerns the whole cluster (nodes, room) is asked of the watch, once that is known to be up to date;
    what concerns the one pod (its owner, its budgets, quotas, its namespace, itself) is read from the API
    server. `now`: in seconds of the epoch.
    """

    reads: Objects
    namespaces: Brakes
    watch_age: WatchAge
    spot_check: SpotCheck
    room: Room
    now: Callable[[], float]

    def destinations(self, move: Move) -> tuple[str, ...]:
        """The nodes that the replacement may go to, as the plan or the last look has them."""
        return tuple(sorted({*move.destinations, *self.room.destinations(move)}))


class _AsPlanned(Replacements):
    """The replacement of one move."""

    def __init__(self, planned: PodTemplate) -> None:
        super().__init__()
        self._planned = planned

    def of(self, template: PodTemplate, owner: Workload) -> PodTemplate:  # noqa: ARG002
        return self._planned


class Looking:
    """One look at one move.

    `away`: what this plan has evicted already; so many pods of an owner may be missing. `policies`: by which
    what was read is judged, whatever the plan knew of it. `beside` is called in a thread of its own while
    objects are read.
    """

    def __init__(
        self,
        look: LastLook,
        move: Move,
        away: Away,
        policies: Callable[[], Iterable[PolicyOptions]],
        beside: Callable[[], object] = lambda: None,
    ) -> None:
        self.look, self.move = look, move
        self._away, self._in_flight = away, away.of_its_owner(move)
        self._policies, self._beside = policies, beside
        self._owner, self._label = move.pod.owner, dict[str, str]()
        mark = mark_of(move.pod.annotations, move.pod.uid) if self._owner is None else None
        if mark is not None:
            self._owner = OwnerReference("ReplicaSet", "", mark.replica_set, "apps/v1")
            self._label = {mark.label: mark.value}
        self.planned = self.look.room.owner_of(move.pod.namespace, self._owner)
        if self.planned is None and mark is not None and move.owner.kind == "Deployment":
            # Its ReplicaSet was gone when this process found it: what its Deployment says counts still.
            top = move.owner
            above = OwnerReference(top.kind, top.name, top.metadata.uid, "apps/v1", controller=True)
            gone = ObjectMeta(
                name="", namespace=top.namespace, uid=mark.replica_set, owner_references=(above,)
            )
            self.planned = Workload(kind="ReplicaSet", metadata=gone)
        self._before: dict[str, str] = {}
        self._parent = None
        if self.planned is not None:
            self._parent = self.look.room.owner_of(self.planned.namespace, self.planned.owner)

    @cached_property
    def _expected(self) -> str:
        """The node on which the replacement is expected, with the cluster as it is watched now; the pod's own
        where that one has to be added."""
        if self.move.awaits:
            return self.move.pod.node_name
        now = self.look.room.destinations(self.move)
        return self.move.predicted if self.move.predicted in now or not now else now[0]

    @cached_property
    def read(self) -> Read:
        pod, spot_check, node = self.move.pod, self.look.spot_check, self._expected
        self._before = {
            kind: spot_check.watched(kind, "" if kind == "Namespace" else pod.namespace, name)
            for kind, name in (
                ("Pod", pod.name),
                ("Namespace", pod.namespace),
                *((o.kind, o.name) for o in (self.planned, self._parent) if o is not None),
            )
        }
        counted, beside = self.look.room.counted(self.move), self.look.room.beside(self.move)
        whole = whole_kinds(self.move, self.look.room.hard_defaults)
        with ThreadPoolExecutor(14 + _BESIDE + len(whole), thread_name_prefix="look") as pool:
            pool.submit(self._beside)
            return Read(
                owner=pool.submit(self._read_owner),
                parent=pool.submit(self._read_parent),
                beside=tuple(pool.submit(self._read_beside, w, n < _BESIDE) for n, w in enumerate(beside)),
                named=pool.submit(self._read_named),
                sized=pool.submit(self._read_sized),
                storage=pool.submit(self._read_storage),
                budgets=pool.submit(self._read_limits, "PodDisruptionBudget", self.look.reads.budgets),
                quotas=pool.submit(self._read_limits, "ResourceQuota", self.look.reads.quotas),
                namespace=pool.submit(self._read_namespace),
                node=pool.submit(spot_check.node, node),
                left=pool.submit(spot_check.node, pod.node_name),
                pod_there=pool.submit(spot_check.pod_on, node),
                counted=pool.submit(spot_check.counted, pod.namespace, counted),
                whole=tuple(pool.submit(spot_check.whole, *asked) for asked in whole),
                pod=pool.submit(self.look.reads.pod, pod.namespace, pod.name),
            )

    def room(self) -> Reason | None:
        """Why the scheduler would not do what was planned."""
        return self.look.room.why_not(self.move, self._away)

    def owner(self) -> Reason | None:
        """Why the owner would not make the replacement that was planned with, or has too few pods."""
        planned, live, pod = self.planned, self.read.owner.result(), self.read.pod.result()
        if planned is None or planned.kind not in RESOURCES:
            return None
        reason = owner_refuses(planned, live)
        if reason is not None or live is None:
            return reason
        if pod is not None and (reason := edited(pod.template, live)) is not None:
            return reason
        reason = short_of_pods(planned, live, self._in_flight)
        first = self.move.method is Method.REPLACE_FIRST  # nobody is away then
        if reason is not None or pod is None or not pod.ready or first:
            return reason
        owner, limits = self._parent or planned, (p.in_flight_per_owner for p in self._policies())
        return next(filter(None, (short_of_ready(owner, live, self._in_flight, x) for x in limits)), None)

    @cached_property
    def judges(self) -> tuple[Evictable, ...]:
        """Each policy in force, of what is around the pod now."""
        pod, there = self._pod, self.read.namespace.result()
        assert pod is not None
        read: list[Object] = [*self.read.budgets.result(), *self.read.quotas.result()]
        if isinstance(there, ObjectMeta):
            read.append(Namespace(metadata=there))
        for planned, live in (
            (self.planned, self.read.owner.result()),
            (self._parent, self.read.parent.result()),
        ):
            if planned is not None and self.move.pod.owner is None:
                # A released pod is of whom it was released from, though that may be gone.
                same = isinstance(live, Workload) and live.metadata.uid == planned.metadata.uid
                live = live if same else planned
            if isinstance(live, Workload):
                # What is away is not updated for a moment. Where a rollout began, it has another generation.
                updated = max(
                    live.updated_replicas + self._in_flight, planned.updated_replicas if planned else 0
                )
                read.append(replace(live, updated_replicas=updated))
        for future in self.read.beside:
            live = future.result()
            gone = sum(m.owner.key == live.key for m in self._away.flying)
            read.append(replace(live, updated_replicas=live.updated_replicas + gone))
        if self.move.pod.owner is not None:
            read.append(pod)
        away = [m.pod for m in self._away.flying]
        now = self.look.room.around(self.move, pod, read, away, self.look.now())
        return tuple(Evictable(now, p, _AsPlanned(self.move.replacement)) for p in self._policies())

    @cached_property
    def _pod(self) -> Pod | None:
        """The pod as it is; one that was released as it was before."""
        live = self.read.pod.result()
        if live is None or live.owner is not None or self._owner is None:
            return live
        template = replace(live.template, labels=live.template.labels | self._label)
        return replace(live, template=template, owner=self._owner)

    def protects(self, ask: Callable[[Evictable, Pod], Reason | None]) -> Reason | None:
        """What a protection says now, by any policy in force."""
        pod = self._pod
        if pod is None:
            return None  # `pod_refuses` says so
        return next(filter(None, (ask(judged, pod) for judged in self.judges)), None)

    def needed(self) -> Reason | None:
        """Why a released pod stays and another one of its ReplicaSet goes, of those that may."""
        pod, owner = self._pod, self._owner
        if pod is None or owner is None:
            return None  # `pod_refuses` says so
        judges = self.judges
        asked = [c.ask for c in PROTECTIONS if c.name in _OF_ANY_POD]

        def may_go(p: Pod) -> bool:
            return not any(j.budgets.forbids(p, pod) or any(ask(j, p) for ask in asked) for j in judges)

        return self.look.room.needed(pod, owner.uid, may_go)

    def budgets(self) -> Reason | None:
        """A budget that allows nothing now lets a released pod go once its replacement is there."""
        if self.move.method is Method.REPLACE_FIRST and self.move.pod.owner is not None:
            return self.protects(Evictable.by_budget)
        return self.protects(lambda judged, pod: judged.budgets.why_not(pod))

    def parent(self) -> Reason | None:
        """Why the owner's own owner would not have it made."""
        live = self.read.parent.result()
        if isinstance(live, Reason):
            return live
        if self._parent is None or self._parent.kind not in RESOURCES:
            return None
        return owner_refuses(self._parent, live)

    def namespace(self) -> Reason | None:
        """What the namespace says."""
        there, name = self.read.namespace.result(), self.move.pod.namespace
        if isinstance(there, Reason):
            return there
        return namespace_refuses(name, self.look.room.namespace(name), there, self.look.now())

    def watched(self) -> Reason | None:
        """Why the watch cannot be believed of a pod that goes without being replaced; waits for it."""
        self.look.room.check_known()
        left, counted = self.read.left.result(), self.read.counted.result()
        return self.look.spot_check.why_not(
            [left] if left else [], heads_of(self.read.pod.result()), [counted]
        )

    def spot_check(self) -> Reason | None:
        """Whether the watch has what was read: if it has only now, the room question is asked once more. And
        whether it still has all kinds, last, as what it forgets in between is missed by the others, too."""
        self.look.room.check_known()
        expected, key, node = self._expected, self.move.pod.key, self.read.node.result()
        if kept := self._older():
            say = f"{kept} was answered as it had been: the watch had a newer one before it was asked for"
            return Reason(ReasonCode.NOT_CURRENT, say, remedy=PROXY)
        if node is None:
            say = f"since the plan, {expected}, where {key}'s replacement could land, has been removed"
            return Reason(ReasonCode.NODES_CHANGED, say)
        pods, left = heads_of(self.read.pod.result(), self.read.pod_there.result()), self.read.left.result()
        nodes = [node, left] if left is not None else [node]
        rest = [self.read.counted.result(), *(f.result() for f in self.read.whole)]
        if not self.look.spot_check.behind(nodes, pods, rest):
            return None
        reason = self.look.spot_check.why_not(nodes, pods, rest) or self.room()
        reason = reason or self._protects_by_now()
        destinations = self.look.room.destinations(self.move)
        if reason is None and not self.move.awaits and expected not in destinations:
            say = f"pods have come and gone since the plan: {expected} does not take {key}'s replacement"
            return changed(say)
        return reason

    def _protects_by_now(self) -> Reason | None:
        """What a protection says once the watch has brought more."""
        self.__dict__.pop("judges", None)
        no = first_no(PROTECTED, Moment.LAST_LOOK, self)
        return no[1] if no is not None else None

    def _older(self) -> str:
        """What was read in an older version than the watch had before; "" if nothing was."""
        there: dict[str, Pod | ObjectMeta] = {}
        for read in (self.read.pod, self.read.namespace, self.read.owner, self.read.parent):
            answer = read.result()
            if isinstance(answer, Workload):
                there[answer.kind] = answer.metadata
            elif isinstance(answer, Pod | ObjectMeta):
                there["Pod" if isinstance(answer, Pod) else "Namespace"] = answer
        old = (k for k, o in there.items() if not as_far(o.resource_version, self._before.get(k, "")))
        return next((f"{kind} {there[kind].name}" for kind in old), "")

    def _read_namespace(self) -> ObjectMeta | Reason | None:
        name = self.move.pod.namespace
        try:
            return self.look.namespaces.namespace(name)
        except ForbiddenError as e:
            say = f"whether namespace {name} is paused cannot be seen: {e.message}"
            return Reason(ReasonCode.NO_BRAKE, say, remedy=e.remedy)

    def _read_owner(self) -> Workload | None:
        planned = self.planned
        if planned is None or planned.kind not in RESOURCES or not planned.name:
            return None
        return self.look.reads.workload(planned.kind, planned.namespace, planned.name)

    def _read_named(self) -> Reason | None:
        if (maker := self.planned or self.look.room.maker(self.move)) is None:
            return None
        reason = why_not(self.move, maker, self.look.reads)
        classes = runtime_classes([making(self.move.owner, self.move.pod).template], self.look.reads)
        return reason or self.look.room.made_otherwise(self.move, maker, classes)

    def _read_sized(self) -> Reason | None:
        """The watch of vertical autoscalers may hang."""
        there = self._read_limits("VerticalPodAutoscaler", self.look.reads.vertical_autoscalers)
        return self.look.room.resized(self.move, VerticalAutoscalers(build_snapshot(there, now=0.0)))

    def _read_storage(self) -> Reason | None:
        """The engine goes by claims and volumes as they were planned with."""
        for kind, planned in self.look.room.storage(self.move):
            here = f"metadata.name={planned.name}"
            live = self.look.reads.newest(kind, here, planned.namespace)
            if live is None or live.resource_version != planned.resource_version:
                return changed(f"{kind} {planned.name} of pod {self.move.pod.key} has changed since the plan")
        return None

    def _read_parent(self) -> Workload | Reason | None:
        """The owner's own owner; a reason where it may not be read, as it may say no."""
        ref = self.planned.owner if self.planned is not None else None
        if ref is None or ref.kind not in WORKLOADS or ref.api_version.rpartition("/")[0] not in BUILT_IN:
            return None
        try:
            return self.look.reads.workload(ref.kind, self.move.pod.namespace, ref.name)
        except ForbiddenError as e:
            if self.look.room.knew(ref.kind):
                raise
            say = f"whether {ref.kind} {ref.name} lets its pods go cannot be seen: {e.message}"
            return Reason(ReasonCode.OWNER_UNKNOWN, say, remedy=e.remedy)

    def _read_beside(self, watched: Workload, live: bool) -> Workload:
        """Their watch may hang; of a DaemonSet only its pods count, which are watched."""
        kind, namespace, name = watched.kind, watched.namespace, watched.name
        ask = live and kind != "DaemonSet"
        found = self.look.reads.workload(kind, namespace, name) if ask else None
        return found or watched

    def _read_limits(self, kind: str, read: Callable[[str], tuple[T, ...]]) -> tuple[T, ...]:
        return self._unless_refused(kind, lambda: read(self.move.pod.namespace), ())

    def _unless_refused(self, kind: str, read: Callable[[], T], unknown: T) -> T:
        """What is read; `unknown` where it is refused and the plan says that it could not read the kind
        either. A refusal of what it knew is an error: nobody sees what has changed since."""
        try:
            return read()
        except ForbiddenError:
            if self.look.room.knew(kind):
                raise
            return unknown


_BESIDE = 4
"""Other owners under a constraint that are read for an eviction; further ones count as watched."""
_OF_ANY_POD = frozenset(
    {"what the pod is", "a reviewed plan", "scope and annotations", "the pod's node", "policy", "a refusal"}
)
"""Protections that any pod has by itself."""
PROTECTED = (
    *(
        replace(
            c,
            ask=Looking.budgets if c.name == "budgets" else partial(lambda ask, at: at.protects(ask), c.ask),
            cost="read",
        )
        for c in PROTECTIONS
    ),
    Check(
        "owners beside",
        "No other owner scales or rolls out that is under a constraint which the pod carries, or violates.",
        lambda at: at.protects(lambda judged, pod: at.look.room.in_flux(pod, judged.owners)),
        cost="read",
    ),
)
"""What protects a pod from a plan, asked anew."""
LOOK = (
    Check(
        "the watch",
        "Nothing goes unless nodes and pods are known as they were a few seconds ago at most.",
        lambda at: at.look.watch_age.why_not(),
        cost="read",
    ),
    Check(
        "room",
        "The replacement finds a node, mends what was planned, and makes no hard constraint worse.",
        Looking.room,
    ),
    Check(
        "the owner",
        "It is there, unchanged, at rest, and has as many pods, Ready ones too, as were planned with.",
        Looking.owner,
        cost="read",
    ),
    Check(
        "what the template names",
        "Its ServiceAccount and classes exist and allow it, and admission makes of it what was planned.",
        lambda at: at.read.named.result() or at.read.sized.result(),
        cost="read",
    ),
    Check(
        "what the pod mounts",
        "Its claims and their volumes are as they were planned with.",
        lambda at: at.read.storage.result(),
        cost="read",
    ),
    Check(
        "the owner's owner",
        "The Deployment of a ReplicaSet is there, unchanged and at rest.",
        Looking.parent,
        cost="read",
    ),
    Check(
        "the namespace",
        "It is there, as planned with, and neither paused nor being deleted.",
        Looking.namespace,
        cost="read",
    ),
    Check(
        "the pod",
        "It is the planned one: it runs, is not being deleted, and nothing that counts has changed.",
        lambda at: pod_refuses(at.move.pod, at.read.pod.result()),
        cost="read",
    ),
    *PROTECTED,
    Check(
        "what the watch has missed",
        "The watch has the pod's node, node and pods where the replacement is expected, the pods that its "
        "constraints count, and kinds of which all may matter (Karpenter's, namespaces, classes), as the API "
        "server has them; and of pod, owners and namespace nothing newer than what was read.",
        Looking.spot_check,
        cost="read",
    ),
)
"""Every question of a look, in order: what is answered here, then what has to be read; then all that protects
a pod from a plan, asked anew."""
