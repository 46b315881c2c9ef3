"""The events of one cluster, as a daemon follows them between its cycles."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.kinds import WORKLOADS
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Identity, Snapshot
from rebalancer.outcome import Observer, Outcome
from rebalancer.planner.cluster.simulation import is_leaving
from rebalancer.planner.plan import ConstraintResult, Plan, PlanOptions
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import topmost
from rebalancer.runtime.cycle.gates import PASSING
from rebalancer.settings.settings import Schedule
from rebalancer.spread.arrays import Bools
from rebalancer.spread.constraint import Constraint

# What has happened, and those who notice it.


class Happening(Struct, frozen=True):
    """Something for which a cycle is worth while: what, in words; `key`: equal for what is the same again.

    `steady`: it is no use to wait longer where the last cycle that it started could do nothing.
    """

    key: Hashable
    what: str
    steady: bool = False


class Source(Protocol):
    """Notices one kind of thing. Asked about once a second between cycles, each thing is told once.

    Raises CacheNotReadyError where the watches are not current.
    """

    def news(self, now: float) -> Iterable[Happening]:
        """What has happened since it was last asked. `now`: seconds of a monotonic clock."""
        ...


# Nodes that came, went, became Ready or not, or changed in labels, taints, or whether they leave.

_Facts = dict[str, tuple[object, ...]]
_CHANGED = Happening("nodes", "nodes have changed", steady=True)
_OVERDUE = 2
"""Where nodes never stop changing, they are told of after so many times `settle` all the same."""


class NodeEvents(Observer):
    """Told once no node has changed for `settle` seconds, as more of them mostly follow.

    `nodes` gives the same tuple as long as none changes.
    """

    def __init__(self, nodes: Callable[[], tuple[Node, ...]], settle: float = 10.0) -> None:
        self.settle = settle
        self._now = nodes
        self._nodes: tuple[Node, ...] | None = None
        self._facts: _Facts = {}
        self._first: float | None = None
        self._last = 0.0

    def settling(self) -> bool:
        """Whether nodes have changed of which is not told yet."""
        return self._first is not None

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """What the first cycle has read is no event, and what changes from then on is one."""
        if self._nodes is None:
            self._take(snapshot.nodes, 0.0)

    def news(self, now: float) -> Iterator[Happening]:
        """At most one."""
        self._take(self._now(), now)
        if self._first is None:
            return
        quiet = now - self._last >= self.settle
        if quiet or now - self._first >= _OVERDUE * self.settle:
            self._first = None
            yield _CHANGED

    def _take(self, nodes: tuple[Node, ...], now: float) -> None:
        if nodes is self._nodes:
            return
        first, self._nodes = self._nodes is None, nodes
        facts: _Facts = {
            n.name: (n.ready, is_leaving(n), n.labels, sorted(map(str, n.spec.taints))) for n in nodes
        }
        if facts != self._facts and not first:
            self._first = now if self._first is None else self._first
            self._last = now
        self._facts = facts


# Whether what has happened starts a cycle now.

_SHARE = 4
"""Between two cycles that events start lies so many times what the last plan took: on a large cluster with
much going on, planning takes a fifth of the time at most."""
_LONGEST = 600.0
"""Seconds until what was of no use before may start a cycle again; after that it counts as new."""


class Reaction(Observer):
    """Starts at most one cycle every `react` seconds, 0 = none, whatever happens and how often.

    What has started a cycle, and happens again, waits twice as long each time. So what no plan can use (a
    crash loop, say, that looks like the end of a rollout again and again) starts fewer and fewer. `settling`:
    whether more is about to follow, which is waited for.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        *,
        settling: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.react = 10.0
        self._settling = settling
        self._monotonic = monotonic
        self._sources = tuple(sources)
        self._waiting: dict[Hashable, tuple[float, str]] = {}
        self._started: dict[Hashable, _Started] = {}
        self._fired: float | None = None
        self._read = 0.0
        self._planning = 0.0

    def on_reading(self) -> None:
        """All that has happened so far is in the cluster as it is read now."""
        self._waiting = {}
        self._read = self._monotonic()

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        """What reading and planning took says how often it may be done."""
        self._planning = self._monotonic() - self._read

    def due(self) -> str:
        """Why a cycle is due, "" if none is; told once. Raises CacheNotReadyError."""
        now = self._monotonic()
        self._started = {k: s for k, s in self._started.items() if now - s.at < _LONGEST}
        for source in self._sources:
            for happening in source.news(now):
                before = None if happening.steady else self._started.get(happening.key)
                since = now if before is None else max(now, before.at + self._patience(before.times))
                self._waiting.setdefault(happening.key, (since, happening.what))
        if not self.react:
            self._waiting = {}
            return ""
        rest = max(self.react, _SHARE * self._planning)
        due = {key: what for key, (since, what) in self._waiting.items() if since <= now}
        if not due or self._settling() or (self._fired is not None and now - self._fired < rest):
            return ""
        for key in due:
            before = self._started.get(key)
            self._started[key] = _Started(now, before.times + 1 if before is not None else 1)
        self._waiting, self._fired = {}, now
        return "; ".join(list(due.values())[:3])

    def _patience(self, times: int) -> float:
        return min(_LONGEST, self.react * 2.0**times)


class _Started(Struct, frozen=True):
    """When something last started a cycle, and how often in a row."""

    at: float
    times: int


# Nodes on which there is room now for what the last plan found no node for.
#
# A pod that ends anywhere is no event. It is one if it was on a node that a blocked move waits for, and if
# the replacement did not fit there before and does now, by the scheduler's own filters.

_FOR_ROOM = frozenset({ReasonCode.NO_FEASIBLE_NODE, ReasonCode.NEEDS_PREEMPTION, ReasonCode.PENDING_PODS})
"""Reasons that may end when a pod goes away."""
_MOST = 20
"""Templates that are waited for; more of them hardly fit anywhere else."""
_ROOM_EVERY, _ROOM_SHARE = 1.0, 20
"""Seconds between two looks at least, and so many times what a look took."""


class RoomWatched(Protocol):
    """`rebalancer.kube.watch.cache.WatchCache`, as far as it is needed here. Raises CacheNotReadyError."""

    def pods(self) -> Mapping[Identity, Pod]:
        """All pods by namespace and name."""
        ...

    def snapshot(self, now: float) -> Snapshot:
        """Everything."""
        ...

    def generation(self, kind: str) -> int:
        """A number that differs whenever the objects of the kind do."""
        ...


class RoomEvents(Observer):
    """`scheduler`: its configuration, None for its defaults. `wall`: seconds of the epoch."""

    def __init__(
        self,
        watched: RoomWatched,
        scheduler: Callable[[], SchedulerConfig | None],
        *,
        wall: Callable[[], float],
    ) -> None:
        self._watched = watched
        self._scheduler = scheduler
        self._wall = wall
        self._wanted: dict[int, tuple[PodTemplate, frozenset[str]]] = {}
        self._there: dict[str, dict[Identity, Pod]] = {}
        self._generation: int | None = None
        self._not_before = 0.0

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Takes down for which pods there was no room, and on which nodes there should be."""
        left = [c for c in plan.constraints if c.in_scope and c.residual_excess]
        self._wanted = {}
        for b in plan.blocked:
            t = b.pod.template
            if b.reason.code in _FOR_ROOM and id(t) not in self._wanted and len(self._wanted) < _MOST:
                lowest = [c for c in left if c.constraint.counts(b.pod.namespace, t.labels)]
                self._wanted[id(t)] = t, frozenset(_nodes(snapshot.nodes, lowest))
        self._there = self._on_nodes(((p.namespace, p.name), p) for p in snapshot.pods)
        self._generation = None

    def news(self, now: float) -> Iterator[Happening]:
        """A happening for each kind of pod for which there is room from now."""
        if not self._there or now < self._not_before or self._generation == self._watched.generation("Pod"):
            return
        self._generation = self._watched.generation("Pod")
        began = time.monotonic()
        before, self._there = self._there, self._on_nodes(self._watched.pods().items())
        less = {n for n, pods in before.items() if pods.keys() - self._there[n].keys()}
        found = list(self._fits(less, before)) if less else []
        self._not_before = now + max(_ROOM_EVERY, _ROOM_SHARE * (time.monotonic() - began))
        yield from found

    def _on_nodes(self, pods: Iterable[tuple[Identity, Pod]]) -> dict[str, dict[Identity, Pod]]:
        """The pods that take room on the nodes that are waited for."""
        found: dict[str, dict[Identity, Pod]] = {n: {} for _, names in self._wanted.values() for n in names}
        for identity, pod in pods if found else ():
            if pod.node_name in found and not pod.finished:
                found[pod.node_name][identity] = pod
        return found

    def _fits(self, less: set[str], before: dict[str, dict[Identity, Pod]]) -> Iterator[Happening]:
        snapshot = self._watched.snapshot(self._wall())
        nodes = tuple(n for n in snapshot.nodes if n.name in less)
        config = self._scheduler() or DEFAULT_CONFIG

        def state(there: dict[str, dict[Identity, Pod]]) -> ClusterState:
            pods = tuple(p for n in nodes for p in there[n.name].values())
            return ClusterState.of(replace(snapshot, nodes=nodes, pods=pods), config)

        then, now = state(before), state(self._there)
        for template, names in self._wanted.values():
            fits = _alone(now, template) & ~_alone(then, template)
            open_ = [n for n, fit in zip(now.table.names, fits.tolist(), strict=True) if fit and n in names]
            if open_:
                key = (template.namespace, template.controller or id(template))
                yield Happening(key, f"there is room on {open_[0]}, for which a move waits")


def _nodes(nodes: Iterable[Node], violated: Iterable[ConstraintResult]) -> Iterator[str]:
    """The nodes of the domains with the fewest pods: where a pod would have to go."""
    lowest: dict[str, set[str]] = defaultdict(set)
    for c in violated:
        fewest = min(c.after.values(), default=0)
        lowest[c.constraint.topology_key] |= {d for d, n in c.after.items() if n == fewest}
    for node in nodes:
        if any(node.labels.get(key) in domains for key, domains in lowest.items()):
            yield node.name


def _alone(state: ClusterState, template: PodTemplate) -> Bools:
    """bool[N]: nodes that would take the pod, but for its spread: that is for the plan to say."""
    profile = state.config.profile(template.scheduler_name)
    skipped = "PodTopologySpread"
    return Framework(
        state,
        replace(
            profile,
            filters=tuple(f for f in profile.filters if f != skipped),
            pre_filters=tuple(f for f in profile.pre_filters if f != skipped),
        ),
    ).feasible(template)


# Waits of the last plan that end by the clock.

_BY_THE_CLOCK = frozenset({ReasonCode.STABILIZING, ReasonCode.COOL_DOWN})
"""Reasons that say in how many `seconds` they are over."""
_OVER = Happening("times", "what had to be waited for is over", steady=True)
_LATER = 1.0
"""Seconds are told without their fractions."""


class WaitsEnd(Observer):
    """A violation has lasted long enough, or an owner has rested. `wall`: seconds of the epoch."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._until: float | None = None

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Takes down the first that ends."""
        waits = [
            b.reason.numbers["seconds"]
            for b in plan.blocked
            if b.reason.code in _BY_THE_CLOCK and "seconds" in b.reason.numbers
        ]
        self._until = snapshot.now + min(waits) + _LATER if waits else None

    def news(self, now: float) -> Iterator[Happening]:  # noqa: ARG002
        """At most one for each plan."""
        if self._until is not None and self._wall() >= self._until:
            self._until = None
            yield _OVER


# Workloads that were left alone and need not be any more: a rollout or scaling has ended, a budget is open.
#
# What may be evicted is asked of the policy itself, over the namespaces in which something is violated.

_PASSING = PASSING | {
    ReasonCode.ROLLOUT_IN_PROGRESS,
    ReasonCode.ON_DELETE,
    ReasonCode.PAUSED,
    ReasonCode.MULTIPLE_PDBS,
    ReasonCode.QUOTA,
    ReasonCode.NODE_NOT_READY,
    ReasonCode.NOT_RUNNING,
}
"""Reasons to leave a pod alone that end when something happens to its workload, budget or node."""
_KINDS = ("Pod", "Node", "PodDisruptionBudget", "ResourceQuota", *sorted(WORKLOADS))
_WORKLOADS_EVERY, _WORKLOADS_SHARE = 1.0, 20
"""Seconds between two looks at least, and so many times what a look took."""

_Key = tuple[Constraint, str]
"""A violated constraint, and the topmost owner of pods that it counts."""


class Watched(Protocol):
    """`rebalancer.kube.watch.cache.WatchCache`, as far as it is needed here. Raises CacheNotReadyError."""

    def snapshot(self, now: float) -> Snapshot:
        """Everything."""
        ...

    def generation(self, kind: str) -> int:
        """A number that differs whenever the objects of the kind do."""
        ...


class WorkloadEvents(Observer):
    """For constraints that were not violated in the last plan, and those of which it left workloads alone.

    `violated`: the constraints with an excess at this moment, None where that is not known. `wall`: seconds
    of the epoch.
    """

    def __init__(
        self,
        watched: Watched,
        violated: Callable[[], Mapping[Constraint, int] | None],
        policy: Callable[[], PolicyOptions],
        *,
        wall: Callable[[], float],
    ) -> None:
        self._watched = watched
        self._violated = violated
        self._policy = policy
        self._wall = wall
        self._known: frozenset[Constraint] | None = None
        self._constraints: tuple[ConstraintResult, ...] = ()
        self._closed: set[_Key] = set()
        self._open: set[_Key] = set()
        self._seen: object = None
        self._not_before = 0.0

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Takes down what the plan could not do because of the state that workloads and budgets are in."""
        violated = [c.constraint for c in plan.constraints if c.in_scope and c.excess]
        moved = {m.owner.key for m in plan.moves}
        passing, other = set[str](), set[str]()
        closed = set[_Key]()
        for b in plan.blocked:
            owner = topmost(snapshot, b.pod)
            if owner is None or owner.key in moved:
                continue
            if b.reason.code in _PASSING:
                passing.add(owner.key)
                closed |= {
                    (c, owner.key) for c in violated if c.counts(b.pod.namespace, b.pod.template.labels)
                }
            else:
                other.add(owner.key)
        # Where others of its pods may go, and do not for reasons of their own, nothing is waited for.
        self._closed = {key for key in closed if key[1] not in other}
        self._known, self._open, self._seen = frozenset(violated), set(), None
        self._constraints = plan.constraints

    def on_outcome(self, outcome: Outcome) -> None:
        """A move that the last look put off for such a reason waits, too."""
        if outcome.reason is not None and outcome.reason.code in PASSING and not outcome.evicted:
            owner = outcome.move.owner.key
            self._closed |= {(self._constraints[i].constraint, owner) for i in outcome.move.fixes}

    def news(self, now: float) -> Iterator[Happening]:
        """A happening for each workload that may be evicted from now and could not before."""
        if self._known is None or now < self._not_before:
            return
        waiting, in_view = {c for c, _ in self._closed}, self._policy().in_view
        asked = [
            c
            for c in self._violated() or ()
            if in_view(c.namespace) and (c in waiting or c not in self._known)
        ]
        seen = (asked, *(self._watched.generation(kind) for kind in _KINDS))
        if not asked or seen == self._seen:
            return
        self._seen = seen
        began = time.monotonic()
        found = self._may_go(asked)
        self._not_before = now + max(_WORKLOADS_EVERY, _WORKLOADS_SHARE * (time.monotonic() - began))
        new, self._open = found - self._open, found
        for key in sorted(new, key=lambda k: k[1]):
            yield Happening(key, f"{key[1]} violates its spread, and may be evicted from now")

    def _may_go(self, asked: Iterable[Constraint]) -> set[_Key]:
        by_namespace: dict[str, list[Constraint]] = {}
        for c in asked:
            by_namespace.setdefault(c.namespace, []).append(c)
        known = self._known or frozenset()
        snapshot = _of(self._watched.snapshot(self._wall()), by_namespace.keys())
        evictable = Evictable(snapshot, self._policy())
        found = set[_Key]()
        counting: dict[int, list[Constraint]] = {}
        for pod in snapshot.pods:
            t = pod.template
            if id(t) not in counting:
                counting[id(t)] = [c for c in by_namespace[pod.namespace] if c.counts(t.namespace, t.labels)]
            if not counting[id(t)] or (owner := topmost(snapshot, pod)) is None:
                continue
            every = ((c, owner.key) for c in counting[id(t)])
            keys = {key for key in every if key[0] not in known or key in self._closed}
            if not keys <= found and evictable.why_not(pod) is None:
                found |= keys
        return found


def _of(snapshot: Snapshot, namespaces: Iterable[str]) -> Snapshot:
    """What policy asks of some namespaces: the rest is left out, as it may be a hundred times as much."""
    wanted = frozenset(namespaces)
    return replace(
        snapshot,
        pods=tuple(p for p in snapshot.pods if p.namespace in wanted),
        workloads=tuple(w for w in snapshot.workloads if w.namespace in wanted),
        budgets=tuple(b for b in snapshot.budgets if b.metadata.namespace in wanted),
        quotas=tuple(q for q in snapshot.quotas if q.metadata.namespace in wanted),
    )


class Events:
    """`violated`: the constraints with an excess at this moment, None where that is not known. `planning`: as
    it is set now. `observers`: who has to hear of each cycle."""

    def __init__(
        self,
        cache: WatchCache,
        violated: Callable[[], Mapping[Constraint, int] | None],
        planning: Callable[[], PlanOptions],
    ) -> None:
        self._nodes = NodeEvents(cache.nodes)
        sources = (
            self._nodes,
            WaitsEnd(time.time),
            WorkloadEvents(cache, violated, lambda: planning().policy, wall=time.time),
            RoomEvents(cache, lambda: planning().scheduler, wall=time.time),
        )
        self._reaction = Reaction(sources, settling=self._nodes.settling)
        self.observers: tuple[Observer, ...] = (*sources, self._reaction)

    def due(self, schedule: Schedule) -> str:
        """Why a cycle is due now, "" if none is; told once."""
        if schedule.cron:
            return ""
        self._reaction.react, self._nodes.settle = schedule.react, schedule.node_settle
        try:
            return self._reaction.due()
        except CacheNotReadyError:
            return ""
