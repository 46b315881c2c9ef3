"""The last look: every question about one move, in order, with the cluster as it is now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from rebalancer.kube.errors import ForbiddenError, KubeError
from rebalancer.kube.lists import HeadMeta
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.kinds import BUILT_IN, WORKLOADS
from rebalancer.model.node import ObjectMeta, OwnerReference
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import build_snapshot
from rebalancer.model.workload import Namespace, PodDisruptionBudget, ResourceQuota, Workload
from rebalancer.planner.plan import Move
from rebalancer.policy.annotations import paused, steering
from rebalancer.policy.budgets import Budgets, degraded
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.policy.owners import failing, gone, named, queue_of
from rebalancer.policy.quota import Quotas
from rebalancer.runtime.last_look.room import Room
from rebalancer.runtime.last_look.watch_age import SpotCheck, WatchAge

# Does the victim's namespace still let its pods go?


def namespace_refuses(
    name: str, planned: ObjectMeta | None, live: ObjectMeta | None, now: float
) -> Reason | None:
    """Why a namespace, read now, holds its pods back; None if it does not.

    `planned`: as it was planned with, None where that is not known; `live`: None if there is none. Its labels
    may take it out of the scope, or change whom an affinity means.
    """
    if live is None:
        return _changed(f"namespace {name} is gone") if planned is not None else None
    if (reason := paused(f"namespace {name}", live.annotations, now)) is not None:
        return reason
    if live.deletion_timestamp is not None:
        say = f"namespace {name} is being deleted: nothing is made in it"
        return Reason(ReasonCode.OWNER_TERMINATING, say)
    if planned is None:
        return None
    for what, differs in (
        ("annotations", steering(live.annotations) != steering(planned.annotations)),
        ("labels", live.labels != planned.labels),
    ):
        if differs:
            return _changed(f"namespace {name} has changed since the plan: its {what}")
    return None


def _changed(message: str) -> Reason:
    return Reason(ReasonCode.CHANGED_SINCE_PLAN, message)


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
    ready = live.ready_replicas + in_flight
    return degraded(top, ready, live.replicas - ready, limit)


def owner_refuses(planned: Workload, live: Workload | None) -> Reason | None:
    """Why an owner would not make the replacement that was planned with."""
    name = f"{planned.kind} {planned.namespace}/{planned.name}"
    if live is None or live.metadata.uid != planned.metadata.uid:
        return _changed(f"{name} is gone" + (", replaced by another of its name" if live else ""))
    if live.metadata.deletion_timestamp is not None:
        return Reason(ReasonCode.OWNER_TERMINATING, f"{name} is being deleted: no replacement would come")
    if live.replicas != planned.replicas:
        return Reason(
            ReasonCode.OWNER_SCALING,
            f"{name} was scaled from {planned.replicas} to {live.replicas} since the plan",
            {"planned": planned.replicas, "replicas": live.replicas},
        )
    if live.metadata.generation != planned.metadata.generation:
        return _changed(f"{name} has changed since the plan (generation {live.metadata.generation})")
    if live.observed_generation < live.metadata.generation:
        return Reason(ReasonCode.ROLLOUT_IN_PROGRESS, f"{name}: its controller has not seen its last change")
    if (live.current_revision, live.update_revision) != (planned.current_revision, planned.update_revision):
        return Reason(ReasonCode.ROLLOUT_IN_PROGRESS, f"{name} has changed its revision since the plan")
    if steering(live.metadata.annotations) != steering(planned.metadata.annotations):
        return _changed(f"{name} has changed since the plan: its annotations")
    if (reason := failing(live)) is not None:
        return reason
    if key := queue_of(live.metadata.labels, live.metadata.annotations):
        return _changed(f"{name} has changed since the plan: it is in a queue ({key})")
    return None


# Is the pod still the planned victim?


def pod_refuses(planned: Pod, live: Pod | None) -> Reason | None:
    """Why a pod, read now, is no longer the planned victim; None if it is.

    Annotations that no rule reads may change at any time: operators keep their own books in them.
    """
    if live is None or live.uid != planned.uid:
        return _changed(f"pod {planned.key} is gone" + (", replaced by another of its name" if live else ""))
    if live.terminating:
        return Reason(ReasonCode.TERMINATING, f"pod {live.key} is being deleted already")
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
    ):
        if differs:
            return _changed(f"pod {live.key} has changed since the plan: its {what}")
    if planned.ready and not live.ready:
        return _changed(f"pod {live.key} has become unready since the plan")
    return None


def _uid(pod: Pod) -> str:
    return pod.owner.uid if pod.owner is not None else ""


# Is what an owner's template names still there? Without it the API server refuses every new pod.
#
# ServiceAccounts and RuntimeClasses are neither listed nor watched, as few of them matter. They are read by
# name, for the owners that a plan has moves of, and again before each eviction.

Exists = Callable[[str, str, str], bool | None]
"""`rebalancer.kube.reading.Objects.exists`: by kind, namespace and name. Raises KubeError."""
_AT_ONCE = 8


def why_not(owner: Workload, exists: Exists) -> Reason | None:
    """Why no new pod of the owner would be admitted; None if it would be, or if that cannot be seen."""
    for kind, name in named(owner):
        if exists(kind, owner.namespace, name) is False:
            return gone(f"{owner.kind} {owner.name}", kind, name)
    return None


def missing(owners: Iterable[Workload], exists: Exists) -> tuple[dict[str, Reason], tuple[str, ...]]:
    """Owner (Kind/namespace/name) → why no new pod of it would be admitted; and the kinds that could not be
    asked for. Each object is asked for once."""
    owners = tuple(owners)
    by_name = dict.fromkeys((kind, o.namespace, name) for o in owners for kind, name in named(o))

    def ask(key: tuple[str, str, str]) -> bool | None:
        try:
            return exists(*key)
        except KubeError:
            return None  # before the eviction it is asked again

    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="named") as pool:
        found = dict(zip(by_name, pool.map(ask, by_name), strict=True))
    refused = {
        owner.key: reason
        for owner in owners
        if (reason := why_not(owner, lambda *key: found[key])) is not None
    }
    return refused, tuple(sorted({kind for (kind, _, _), there in found.items() if there is None}))


class Reads(Protocol):
    """`rebalancer.kube.reading.Objects`, as far as it is needed here. Methods raise KubeError."""

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name."""
        ...

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        """The owner of that kind and name."""
        ...

    def exists(self, kind: str, namespace: str, name: str) -> bool | None:
        """Whether there is an object of that name; None where that cannot be seen."""
        ...

    def budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        """All budgets of a namespace."""
        ...


class Namespaces(Protocol):
    """`rebalancer.kube.brakes.Brakes`, as far as it is needed here. Raises KubeError."""

    def namespace(self, name: str) -> ObjectMeta | None:
        """Its metadata; None if it is gone."""
        ...


class LastLook:
    """Answers for the moves of one plan, made from the snapshot that `room` knows.

    What concerns the whole cluster (nodes, room) is asked of the watch, once that is known to be up to date,
    and so are `quotas`, by namespace; what concerns the one pod (its owner, its budgets, its namespace,
    itself) is read from the API server, and judged by `policy` whatever the plan knew of it. `now`: in
    seconds of the epoch.
    """

    def __init__(
        self,
        reads: Reads,
        namespaces: Namespaces,
        watch_age: WatchAge,
        spot_check: SpotCheck,
        room: Room,
        quotas: Callable[[str], Sequence[ResourceQuota]],
        now: Callable[[], float],
        policy: PolicyOptions,
    ) -> None:
        self._reads = reads
        self._namespaces = namespaces
        self._room = room
        self._watch_age = watch_age
        self._spot_check = spot_check
        self._quotas = quotas
        self._now = now
        self._policy = policy
        watch_age.begin()

    def why_not(
        self, move: Move, in_flight: int = 0, beside: Callable[[], object] = lambda: None
    ) -> Reason | None:
        """Why the move is not right any more; None if it is.

        `in_flight`: how many pods of the same owner this wave has evicted already; so many may be missing.
        `beside` is called in a thread of its own while objects are read. Raises KubeError where the cluster
        cannot be asked.
        """
        return self._watch_age.why_not() or self._room.why_not(move) or self._as_read(move, in_flight, beside)

    def destinations(self, move: Move) -> tuple[str, ...]:
        """The nodes that the replacement may go to, as the plan or the last look has them."""
        return tuple(sorted({*move.destinations, *self._room.destinations(move)}))

    def beside(self, move: Move, others: Sequence[Move], unplaced: Collection[str]) -> bool:
        """Whether the move may be in flight beside others that it was not planned beside."""
        return self._room.beside(move, others, unplaced)

    def _as_read(self, move: Move, in_flight: int, beside: Callable[[], object]) -> Reason | None:
        """The owner, its own owner, the budgets, the namespace, the pod and what the watch is checked with.

        All of it is read at the same time, as it must not be old when the eviction is sent.
        """
        victim, planned = move.pod, self._room.owner_of(move.pod.namespace, move.pod.owner)
        parent = self._room.owner_of(planned.namespace, planned.owner) if planned is not None else None
        above = planned.owner if planned is not None else None
        node = self._expected(move)
        with ThreadPoolExecutor(max_workers=9, thread_name_prefix="look") as pool:
            pool.submit(beside)
            the_owner = pool.submit(self._owner, planned)
            the_parent = pool.submit(self._parent, victim.namespace, above, known=parent is not None)
            the_named = pool.submit(self._named, planned)
            the_budgets = pool.submit(self._budgets, victim.namespace)
            the_namespace = pool.submit(self._namespace, victim.namespace)
            the_node = pool.submit(self._spot_check.node, node)
            the_pod_there = pool.submit(self._spot_check.pod_on, node)
            the_pod = pool.submit(self._reads.pod, victim.namespace, victim.name)
        live_pod, there = the_pod.result(), the_namespace.result()
        live_owner = live = the_owner.result()
        if planned is not None and planned.kind in RESOURCES:
            reason = owner_refuses(planned, live)
            if reason is None and live is not None:
                reason = short_of_pods(planned, live, in_flight)
                if reason is None and live_pod is not None and live_pod.ready:
                    reason = short_of_ready(
                        parent or planned, live, in_flight, self._policy.in_flight_per_owner
                    )
            if reason is not None:
                return reason
        if (reason := the_named.result()) is not None:
            return reason
        live_parent = the_parent.result()
        if parent is not None and parent.kind in RESOURCES:
            reason = owner_refuses(parent, live_parent)
            if reason is not None:
                return reason
        return (
            self._of_namespace(victim.namespace, there)
            or Budgets(build_snapshot(the_budgets.result(), now=0.0)).why_not(victim)
            or self._quota(move)
            or pod_refuses(victim, live_pod)
            or self._of_people(live_pod, there, live_owner, live_parent, new=parent is None and not in_flight)
            or self._if_watched(move, node, the_node.result(), _heads(live_pod, the_pod_there.result()))
        )

    def _quota(self, move: Move) -> Reason | None:
        """Why a quota of now would not admit the replacement."""
        there = build_snapshot(self._quotas(move.pod.namespace), now=0.0)
        return Quotas(there).why_not(move.pod, self._room.owner_of(move.pod.namespace, move.pod.owner))

    def _expected(self, move: Move) -> str:
        """The node on which the replacement is expected, with the cluster as it is watched now."""
        now = self._room.destinations(move)
        return move.predicted if move.predicted in now or not now else now[0]

    def _if_watched(
        self, move: Move, expected: str, node: HeadMeta | None, pods: list[HeadMeta]
    ) -> Reason | None:
        """Whether the watch has what was read: if it has only now, the room question is asked once more."""
        key = move.pod.key
        if node is None:
            say = f"since the plan, {expected}, where {key}'s replacement could land, has been removed"
            return Reason(ReasonCode.NODES_CHANGED, say)
        if not self._spot_check.behind(node, pods):
            return None
        reason = self._spot_check.why_not(node, pods) or self._room.why_not(move)
        if reason is None and expected not in self._room.destinations(move):
            say = f"pods have come and gone since the plan: {expected} does not take {key}'s replacement"
            return Reason(ReasonCode.CHANGED_SINCE_PLAN, say)
        return reason

    def _of_namespace(self, name: str, there: ObjectMeta | Reason | None) -> Reason | None:
        """What the namespace, as it was just read, says."""
        if isinstance(there, Reason):
            return there
        return namespace_refuses(name, self._room.namespace(name), there, self._now())

    def _of_people(
        self,
        live: Pod | None,
        there: ObjectMeta | Reason | None,
        the_owner: Workload | None,
        the_parent: Workload | None,
        *,
        new: bool,
    ) -> Reason | None:
        """What scope and annotations say of what was read, whatever the plan knew of it. `new`: it did not
        know the owner's own owner."""
        if live is None:
            return None
        named = Namespace(metadata=there) if isinstance(there, ObjectMeta) else None
        read = [o for o in (the_owner, the_parent, named) if o is not None]
        judged = Evictable(build_snapshot(read, now=self._now()), self._policy)
        reason = judged.scope(live)
        return reason or (judged.owners.rollout(the_parent) if new and the_parent is not None else None)

    def _namespace(self, name: str) -> ObjectMeta | Reason | None:
        try:
            return self._namespaces.namespace(name)
        except ForbiddenError as e:
            say = f"whether namespace {name} is paused cannot be seen: {e.message}"
            return Reason(ReasonCode.NO_BRAKE, say, remedy=e.remedy)

    def _owner(self, planned: Workload | None) -> Workload | None:
        if planned is None or planned.kind not in RESOURCES:
            return None
        return self._reads.workload(planned.kind, planned.namespace, planned.name)

    def _named(self, planned: Workload | None) -> Reason | None:
        return why_not(planned, self._reads.exists) if planned is not None else None

    def _parent(self, namespace: str, ref: OwnerReference | None, *, known: bool) -> Workload | None:
        """The owner's own owner. One that the plan did not know and that may not be read is none."""
        if ref is None or ref.kind not in WORKLOADS or ref.api_version.rpartition("/")[0] not in BUILT_IN:
            return None
        try:
            return self._reads.workload(ref.kind, namespace, ref.name)
        except ForbiddenError:
            if known:
                raise
            return None  # said once, when the snapshot was read

    def _budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        try:
            return self._reads.budgets(namespace)
        except ForbiddenError:
            return ()  # said once, when the snapshot was read; the API server still keeps them


def _heads(victim: Pod | None, other: HeadMeta | None) -> list[HeadMeta]:
    """The victim and another pod, as far as they are there."""
    heads = [other] if other is not None else []
    if victim is not None:
        heads.append(HeadMeta(victim.name, victim.namespace, victim.resource_version))
    return heads
