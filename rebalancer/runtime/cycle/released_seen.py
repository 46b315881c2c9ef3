"""A release as it is seen: what the watch or the API server has of its pod, its owner and the other pods.

`policy.release.step` decides by it what comes next, and `releases` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol

from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.pod import DELETION_COST, Pod, cost_of
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Identity
from rebalancer.model.workload import Workload
from rebalancer.outcome import Eviction, Fate, Outcome
from rebalancer.planner.plan import Move
from rebalancer.policy.release import (
    COST_BEFORE,
    FOREIGN,
    Held,
    Mark,
    Own,
    Seen,
    Step,
    mark_of,
    takes_back,
)
from rebalancer.policy.replace_first import adopter
from rebalancer.runtime.cycle.clock import APART, Clock
from rebalancer.runtime.cycle.gates import FreshLook
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.replacements import UNCOUNTED, ReplacementWatch

_MINE = "ReplicaSet"
_SECONDS = 2.0
"""By which times of creation, which are whole seconds, and clocks of a cluster may differ."""


class Reads(Protocol):
    """`rebalancer.kube.reading.Objects`, as far as it is needed here. Methods raise KubeError."""

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name."""
        ...

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        """The owner of that kind and name."""
        ...

    def pods(self, namespace: str, labels: str = "") -> tuple[Pod, ...]:
        """The pods of a namespace that a selector selects."""
        ...


class Opened:
    """One release. `owner`: of the pod, as it was planned or found; `look`: what is asked before the
    eviction. `since`: when it was released (monotonic); None where only the mark says it. `until`: when this
    process follows it no longer."""

    def __init__(
        self, move: Move, look: FreshLook, replica_set: str, deployment: str, since: float | None
    ) -> None:
        self.move, self.look = move, look
        self.replica_set, self.deployment = replica_set, deployment
        self.since, self.until = since, float("inf")
        self.sent: Outcome | None = None
        """The outcome so far; of a leftover none."""
        self.landed: Outcome | None = None
        """What became of the replacement, as far as it is known."""
        self.enough_since: float | None = None
        self.both_since: float | None = None
        """Since when as many others are Available as its owner wants; and that, a late Service left aside."""
        self.refused, self.refusal, self.denied = Held.NO, "", False
        self.denial: Eviction | None = None
        """The eviction that was refused by who decides on evictions (people, admission, RBAC), which says
        nothing of the method."""
        self.rather = ""
        """The uid of the pod that is to go instead."""
        self.next_at = float("-inf")
        self.giving: Step | None = None
        """Why its label was to be given back, whatever came of the request; `back`: it is."""
        self.back: Step | None = None
        self.back_at = 0.0
        self.at_fault = False
        """Whether it was undone because of the replacement, not of what others did."""
        self.unplaced = False
        """Whether the replacement was on no node then."""
        self.seen_mark = since is None
        self.referred = False
        """Whether it has a reference to a ReplicaSet that nobody owns."""
        self.idle = False
        """Whether nothing could be done at the last look, and nothing that comes by itself was waited for."""
        self.failed = 0
        self.missed = False
        """Whether as many pods as the owner wants are only Ready with it."""
        self.minded, self.asked = False, float("-inf")
        """Whether others mind by now that it is released, and when that was looked at."""
        self.seconds = 0.0
        """Since the release, as of the last look."""
        self.said = ""


class Sight:
    """Looks at the releases of one plan.

    `by`: the name of this installation. `undo`: nothing is evicted, all is given back.
    """

    def __init__(
        self,
        watched: WatchCache,
        memory: Memory,
        clock: Clock,
        replacements: ReplacementWatch,
        *,
        by: str,
        undo: bool,
    ) -> None:
        self._watched, self._memory, self._clock, self._replacements = watched, memory, clock, replacements
        self._by, self._undo = by, undo

    def seen(self, o: Opened, source: Reads, closed: Reason | None) -> tuple[Seen, Pod | None]:
        """All that `step` asks for, and the pod that was judged. `closed`: why nothing may be evicted."""
        namespace, planned = o.move.pod.namespace, o.move.pod
        pod = source.pod(namespace, planned.name)
        if pod is None or pod.uid != planned.uid:
            return Seen(there=False), None
        mark, entry = mark_of(pod.annotations, pod.uid), self._memory.released(pod.uid)
        # Before what it wants: what a rollout takes between the two is counted, and wanted no more.
        own = self.own(o, source)
        owner = _there(source.workload(_MINE, namespace, o.replica_set) if o.replica_set else None)
        if owner is not None and (mark is None or owner.metadata.uid != mark.replica_set):
            owner = None
        top = _there(_deployment(o, owner, source.workload))
        wants, stopping = top or owner, self._clock.stopping()
        now, pause = self._clock.now(), wants.min_ready_seconds if wants is not None else 0
        controlled = [p for p in own if p.owner is not None]  # the others may be never adopted
        # A clock that is behind says nothing where none is asked for.
        lasts = (p for p in controlled if not pause or now - (p.ready_since or now) >= pause)
        ready = {p.uid for p in lasts if p.ready}
        if wants is None or len(ready) < wants.replicas:
            o.enough_since = o.both_since = None
        elif o.enough_since is None:
            o.enough_since = o.both_since = self._clock.monotonic()
        enough = self._clock.monotonic() - o.enough_since if o.enough_since is not None else -1.0
        o.missed = owner is not None and wants is not None and sum(p.ready for p in own) < wants.replicas
        refused = Held.NEVER if o.minded and o.missed else o.refused
        arrived = o.sent is None or stopping or o.landed is not None
        seconds = o.seconds = self._seconds(o, mark)
        return Seen(
            ending=pod.terminating,
            finished=pod.finished,
            ready=pod.ready,
            cost=_cost(pod),
            controller=pod.owner.uid if pod.owner is not None else "",
            label=pod.template.labels.get(mark.label) if mark is not None else None,
            mark=mark,
            # Where it names another owner, somebody has changed the mark, or whose the ReplicaSet is.
            known=entry is not None and (wants is None or wants.key == entry.owner),
            ours=mark is not None and mark.by == self._by,
            replicas=wants.replicas if wants is not None else None,
            wanted=owner.replicas if owner is not None else None,
            alone=owner is not None and owner.owner is None and not o.referred,
            selects=owner is None or mark is None or takes_back(pod, mark, owner),
            moved_on=_moved_on(o.move, owner, top),
            own=tuple(self._as_own(o, p, p.uid in ready, mark) for p in own),
            settled=arrived and enough >= self._replacements.limits.serving,
            failed=_failed(o.landed),
            late=seconds > self.patience(o.move),
            seconds=seconds,
            held=Held.NEVER if self._undo else Held.LATER if closed is not None else refused,
            refusal=closed.message if closed is not None else o.refusal,
            rather=o.rather,
            stopping=stopping,
        ), pod

    def own(self, o: Opened, source: Reads) -> list[Pod]:
        """The pods that the owner has or is about to adopt, live ones, without the released one unless that
        was given back."""
        namespace = o.move.pod.namespace
        owner = self._watched.workload(_MINE, namespace, o.replica_set)
        top = _deployment(o, owner, self._watched.workload)
        selector = next(
            (str(w.selector) for w in (top, owner) if w is not None and w.selector is not None), ""
        )
        found = []
        for pod in source.pods(namespace, selector) if selector else ():
            if pod.terminating or pod.finished or (pod.uid == o.move.pod.uid and o.back is None):
                continue
            if pod.owner is None:
                # Its ReplicaSet counts it as soon as it looks: another one that was just given back, say.
                own = owner is not None and adopter([owner], namespace, pod.template.labels) is not None
            else:
                named = pod.owner.name == o.replica_set or self._of(pod, top)
                own = named and pod.owner.kind == _MINE
            if own:
                found.append(pod)
        return found

    def _of(self, pod: Pod, top: Workload | None) -> bool:
        """Whether a pod is of another ReplicaSet of the same Deployment."""
        if top is None or pod.owner is None:
            return False
        set_ = self._watched.workload(_MINE, pod.namespace, pod.owner.name)
        return set_ is not None and set_.owner is not None and set_.owner.uid == top.metadata.uid

    def made(self, o: Opened, pod: Pod) -> bool:
        """Whether it has come for the released pod, as far as can be told: the API server's clock says when
        it was made, and another one when that was released."""
        if o.landed is not None and o.landed.replacement:
            return pod.key == o.landed.replacement
        entry, clock = self._memory.released(o.move.pod.uid), self._clock
        apart = APART + clock.latest() - clock.now()
        return entry is not None and (pod.created or 0.0) >= int(entry.at) - apart

    def came(self, o: Opened, reads: Reads) -> list[Pod]:
        """The pods one of which has come for the released one: those that were made after it, or just before:
        clocks differ by some seconds. The youngest, where they are further apart and none was."""
        made = sorted((p for p in self.own(o, reads) if self.made(o, p)), key=lambda p: p.created or 0.0)
        entry = self._memory.released(o.move.pod.uid)
        after = [p for p in made if entry is not None and (p.created or 0.0) >= int(entry.at) - _SECONDS]
        return after or made[-1:]

    def _as_own(self, o: Opened, pod: Pod, available: bool, mark: Mark | None) -> Own:
        return Own(
            uid=pod.uid,
            mine=pod.owner is None or (mark is not None and pod.owner.uid == mark.replica_set),
            ready=pod.ready,
            available=available,
            made=self.made(o, pod),
            created=pod.created or 0.0,
            cost=_cost(pod),
            before=pod.annotations.get(COST_BEFORE),
        )

    def _seconds(self, o: Opened, mark: Mark | None) -> float:
        """Since the release, which the later of two clocks has dated. A time ahead of it, which only a third
        clock can have written, is long ago."""
        if o.since is not None:
            return self._clock.monotonic() - o.since
        if mark is None:
            return 0.0
        passed = self._clock.latest() - mark.at
        return passed if passed > -FOREIGN else float("inf")

    def patience(self, move: Move) -> float:
        """Seconds that a release may take until its pod can be evicted."""
        limits = self._replacements.limits
        return limits.ready + move.owner.min_ready_seconds + limits.serving

    def late(self, o: Opened) -> bool:
        """Whether it took longer, as of the last look."""
        return o.seconds > self.patience(o.move)

    def in_vain(self, o: Opened) -> bool:
        """Whether nothing came of both having been there for so long. Time in which it was held is not it."""
        since = o.both_since
        return since is not None and self._clock.monotonic() - since > self.patience(o.move)


class Glance:
    """What the watch has at one moment, read in the way of `Reads`."""

    def __init__(self, watched: WatchCache) -> None:
        self._watched = watched
        self._spaces: dict[str, tuple[Pod, ...]] = {}
        self.workload = watched.workload

    @cached_property
    def _pods(self) -> Mapping[Identity, Pod]:
        return self._watched.pods()

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name."""
        return self._pods.get((namespace, name))

    def pods(self, namespace: str, labels: str = "") -> tuple[Pod, ...]:  # noqa: ARG002
        """All of the namespace: whose they are is asked of their owners."""
        if namespace not in self._spaces:
            self._spaces[namespace] = tuple(p for p in self._pods.values() if p.namespace == namespace)
        return self._spaces[namespace]


def _cost(pod: Pod) -> int:
    return pod.own_cost if pod.own_cost is not None else cost_of(pod.annotations.get(DELETION_COST))


def _deployment(
    o: Opened, owner: Workload | None, read: Callable[[str, str, str], Workload | None]
) -> Workload | None:
    """The Deployment that owns the ReplicaSet now, no other one of its name; where that set is gone, the one
    that owned it."""
    if owner is None:
        return read("Deployment", o.move.pod.namespace, o.deployment) if o.deployment else None
    if owner.owner is None or owner.owner.kind != "Deployment":
        return None
    top = read("Deployment", owner.namespace, owner.owner.name)
    return top if top is not None and top.metadata.uid == owner.owner.uid else None


def _there(owner: Workload | None) -> Workload | None:
    """An owner that is being deleted adopts nobody, and has nobody made."""
    return owner if owner is not None and owner.metadata.deletion_timestamp is None else None


def _moved_on(move: Move, owner: Workload | None, top: Workload | None) -> bool:
    """Whether the owner was scaled or rolled out since the release, as far as can be told."""
    if owner is None or (top is not None and top.replicas != owner.replicas):
        return True
    return bool(move.destinations) and (top or owner).replicas != move.owner.replicas


def _failed(landed: Outcome | None) -> str:
    """Why the replacement does not do."""
    if landed is None:
        return ""
    if landed.status is Fate.FAILED:
        return landed.message.partition("; ")[2] or landed.message
    if landed.expected is not False:
        return ""
    planned = landed.node in landed.move.destinations
    return UNCOUNTED if planned else f"its replacement went to {landed.node}, which was not planned"
