"""What starts a cycle early: something has changed that the last plan rests on.

`SpreadNow` knows how much of the spread is violated now, as the watches tell of it. `Early` is asked about
once a second between cycles. It notes what the last plan could not do, and looks at that again where the
watches have brought something that it depends on. `Debounce` says when a cycle starts for what was found, and
how often that may be.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.store import Change
from rebalancer.model.node import Node, is_leaving, is_outdated, set_up_by
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import WORKLOADS, Snapshot
from rebalancer.outcome import Observer, Outcome
from rebalancer.planner.plan import ConstraintResult, Plan, PlanOptions
from rebalancer.policy.evictable import Evictable, next_change
from rebalancer.policy.history.fingerprints import constraint_id
from rebalancer.policy.history.stabilization import Followed, Onset
from rebalancer.policy.history.waits import end_of
from rebalancer.policy.owners import topmost
from rebalancer.runtime.cycle.gates import PASSING
from rebalancer.settings.settings import Schedule
from rebalancer.spread.arrays import Bools
from rebalancer.spread.constraint import SELECTING, Constraint
from rebalancer.spread.index import SpreadIndex

# The spread between cycles. The daemon follows pods and nodes (`spread.index`) about once a second. A pod
# costs microseconds. When labels or taints of nodes change, each constraint is asked once more which nodes
# count.

_REBUILD_SHARE = 10
"""What is made anew is made again at the earliest after so many times what it took."""


class Spread(Struct, frozen=True):
    """What the index goes by. `scheduler`: None for its defaults; `soft`: whether soft constraints count."""

    scheduler: SchedulerConfig | None = None
    soft: bool = False

    @property
    def defaults(self) -> bool:
        """Whether pods without constraints of their own are given some that count."""
        config = self.scheduler or DEFAULT_CONFIG
        return config.hard_defaults or (self.soft and any(p.default_constraints for p in config.profiles))


class SpreadNow:
    """What is violated as of the last `look`, and since when. `rules` gives what is set now.

    `touched`: namespaces of which pods may have changed, `freed`: nodes on which pods may have ended, until
    somebody clears them. `followed` may be asked by any thread, all else by one.
    """

    def __init__(
        self,
        cache: WatchCache,
        rules: Callable[[], Spread],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.touched = set[str]()
        self.freed = set[str]()
        self._now: Mapping[str, Mapping[Constraint, int]] | None = None
        self._told: set[Constraint] | None = None
        """What was violated when that was known last."""
        self._began: dict[Constraint, tuple[float, bool]] = {}
        """Of those whose beginning was seen: when, and whether by nodes."""
        self._hidden = set[Constraint]()
        """Those that nodes have ended and had not made: nodes do not make them when they come again."""
        self._since = self._not_before = 0.0
        self._lock = threading.RLock()
        self._cache = cache
        self._feed = cache.follow("Pod")
        self._asked = rules
        self._monotonic = monotonic
        self._index: SpreadIndex | None = None
        self._rules = Spread()
        self._nodes: tuple[Node, ...] = ()
        self._facts: dict[str, tuple[object, ...]] = {}
        self._selecting: tuple[int, ...] = ()

    def violated(self) -> list[Constraint]:
        """The constraints with an excess, as far as known."""
        return [c for of in (self._now or {}).values() for c in of]

    def excess(self, in_view: Callable[[str], bool]) -> dict[str, int] | None:
        """The excess by namespace, of those in view that have constraints; None where it is not known."""
        now = self._now
        return None if now is None else {n: sum(of.values()) for n, of in now.items() if in_view(n)}

    def followed(self) -> Followed:
        """What is known of the violations, up to this moment."""
        with self._lock:
            self.look()
            if self._now is None:
                return Followed()
            now = self._monotonic()
            onsets = {constraint_id(c): Onset(now - at, by) for c, (at, by) in self._began.items()}
            return Followed(now - self._since, onsets)

    def look(self) -> None:
        """Takes over what has happened since the last look."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        changes, lost = self._feed.take()
        if lost:
            self.forget()
        changed = self._take(changes)
        try:
            self._cache.check()
        except CacheNotReadyError:
            # What comes meanwhile is not lost, and nothing is said until all of it is there.
            self._now = None
            return
        if changed and self._now is not None:
            self._tell(by_nodes=False)
        began, facts = self._monotonic(), self._facts
        try:
            renewed = began >= self._not_before and self._renewed()
        except CacheNotReadyError:
            self.forget()  # it may be half done
            return
        if renewed:
            ended = self._monotonic()
            self._not_before = ended + _REBUILD_SHARE * (ended - began)
            self._tell(by_nodes=self._facts != facts)
        if self._now is None:
            self._tell(by_nodes=False)

    def forget(self) -> None:
        """Begins anew at the next look."""
        with self._lock:
            self._index = self._now = None

    def _tell(self, *, by_nodes: bool) -> None:
        """Takes over what the index says by now, after pods have changed, or nodes."""
        if self._index is None:
            return
        excess, now = self._index.excess(), self._monotonic()
        every = {c for of in excess.values() for c in of}
        if self._now is None:
            # What was missed may have ended them, and not made them older; or it made them.
            self._since, self._hidden = now, set()
            new = {} if self._told is None else dict.fromkeys(every - self._told, (now, False))
            self._began = {c: (at, False) for c, (at, _) in self._began.items() if c in every} | new
        else:
            # What was kept for a moment in between has begun anew.
            known, began = {c for of in self._now.values() for c in of} - self._index.kept, self._began
            self._began = {c: at for c, at in began.items() if c in known and c in every}
            self._began |= {c: (now, by_nodes and c not in self._hidden) for c in every - known}
            self._hidden |= {c for c in known - every if by_nodes and not began.get(c, (now, False))[1]}
            self._hidden -= every
        self._index.kept.clear()
        self._now, self._told = excess, every

    def _take(self, changes: list[Change]) -> bool:
        if self._index is None:
            return False
        for (namespace, name, *_), pod, _ in changes:
            there = isinstance(pod, Pod) and not pod.finished and pod.node_name
            before = self._index.put(pod) if isinstance(pod, Pod) else self._index.drop(namespace, name)
            self.touched.add(namespace)
            if before is not None and before.node_name and before.node_name != there:
                self.freed.add(before.node_name)
        return bool(changes)

    def _renewed(self) -> bool:
        """Whether nodes, or what pods are counted by, have changed, and it is known by now what that means.

        Rules that were asked about many pods that are gone are made anew as well.
        """
        nodes, index = self._cache.nodes(), self._index
        if index is None or self._asked() != self._rules or self._selecting != self._generations():
            self._build(nodes)
            return True
        if nodes is self._nodes and not index.outdated:
            return False
        facts, before = facts_of(nodes), self._facts
        self._nodes, self._facts = nodes, facts
        changed = {n for n in facts.keys() | before.keys() if facts.get(n) != before.get(n)}
        if changed or index.outdated:
            index.move(self._state(), changed)
            return True
        return False

    def _build(self, nodes: tuple[Node, ...]) -> None:
        """Counts all pods. What changes meanwhile is told once more by the feed; that does no harm."""
        self._rules = self._asked()
        self._selecting = self._generations()
        self._nodes, self._facts = nodes, facts_of(nodes)
        index = SpreadIndex(self._state(), soft=self._rules.soft)
        pods = self._cache.pods()
        for pod in pods.values():
            index.put(pod)
        if self._index is None:
            self.touched.update(namespace for namespace, *_ in pods)
            self.freed.update(self._facts)
        self._index = index

    def _state(self) -> ClusterState:
        """The nodes without any pod, and what default constraints select by."""
        only = Snapshot(nodes=self._nodes, pods=(), now=0.0)
        if self._rules.defaults:
            every = self._cache.snapshot(0.0)
            only = replace(only, services=every.services, workloads=every.workloads)
        return ClusterState(only, self._rules.scheduler or DEFAULT_CONFIG)

    def _generations(self) -> tuple[int, ...]:
        return tuple(self._cache.generation(kind) for kind in SELECTING) if self._rules.defaults else ()


def facts_of(nodes: Iterable[Node]) -> dict[str, tuple[object, ...]]:
    """What a plan rests on of each node; heartbeats change nothing of it."""
    return {
        n.name: (n.ready, is_leaving(n), is_outdated(n), n.labels, sorted(map(str, n.spec.taints)))
        for n in nodes
    }


_OVERDUE = 2
"""What never stops changing is told of after so many times the seconds that it should have to settle."""
_PLANNING_SHARE = 4
"""Between two cycles that start early lies so many times what the last plan took: on a large cluster with
much going on, planning takes a fifth of the time at most."""
_LONGEST = 600.0
"""Seconds until what was of no use before may start a cycle again; after that it counts as new."""


class Debounce:
    """Starts at most one cycle every `react` seconds, whatever is noted and how often.

    What has started a cycle, and is noted again, waits twice as long each time. So what no plan can use (a
    crash loop, say, that looks like the end of a rollout again and again) starts fewer and fewer.
    `planning`: seconds that the last plan took.
    """

    def __init__(self) -> None:
        self.react = 10.0
        self.planning = 0.0
        self._noted: dict[Hashable, tuple[float, float, str]] = {}
        self._started: dict[Hashable, tuple[float, int]] = {}
        self._settled = self._last = float("-inf")

    def note(self, key: Hashable, what: str, now: float, settle: float | None = None) -> None:
        """Something has happened: what, in words; `key`: equal for what is the same again.

        `settle`: more of it mostly follows. Nothing starts until none has come for so many seconds.
        """
        first, since, _ = self._noted.get(key, (now, now, ""))
        if settle is not None:
            self._settled = since = min(now + settle, first + _OVERDUE * settle)
        elif key not in self._noted and key in self._started:
            at, times = self._started[key]
            since = max(now, at + min(_LONGEST, self.react * 2.0**times))
        self._noted[key] = first, since, what

    def forget(self) -> None:
        """All that was noted is in the cluster as it is read now."""
        self._noted, self._settled = {}, float("-inf")

    def due(self, now: float) -> str:
        """Why a cycle starts now, "" if none does; told once."""
        self._started = {k: s for k, s in self._started.items() if now - s[0] < _LONGEST}
        pause = max(self.react, _PLANNING_SHARE * self.planning)
        due = {key: what for key, (_, since, what) in self._noted.items() if since <= now}
        if not due or now < self._settled or now - self._last < pause:
            return ""
        for key in due:
            self._started[key] = now, self._started.get(key, (now, 0))[1] + 1
        self.forget()
        self._last = now
        return "; ".join(list(due.values())[:3])


_ENDS = PASSING | {
    ReasonCode.ROLLOUT_IN_PROGRESS,
    ReasonCode.ON_DELETE,
    ReasonCode.PAUSED,
    ReasonCode.MULTIPLE_PDBS,
    ReasonCode.QUOTA,
    ReasonCode.NODE_NOT_READY,
    ReasonCode.NODE_UNFIT,
    ReasonCode.NOT_RUNNING,
}
"""Reasons to leave a pod alone that end when something happens to its workload, budget or node."""
_ENDS_WITH_A_POD = frozenset(
    {ReasonCode.NO_FEASIBLE_NODE, ReasonCode.NEEDS_PREEMPTION, ReasonCode.PENDING_PODS}
)
"""Reasons that may end when a pod goes away."""
_POLICY_READS = ("PodDisruptionBudget", "ResourceQuota", *sorted(WORKLOADS))
_MOST_TEMPLATES = 20
"""Templates for which room is waited for; more of them hardly fit anywhere else."""
_LATER = 1.0
"""Seconds after the end of a wait: clocks differ a little."""
_EVERY, _SHARE = 1.0, 20
"""Seconds between two looks at pods at least, and so many times what a look took."""

_Found = Iterator[tuple[Hashable, str]]


class Early(Observer):
    """`spread`: what is violated now, and where pods have changed. `planning`: as it is set now. `well`:
    whether the cluster is well enough to evict. `wall`: seconds of the epoch."""

    def __init__(
        self,
        cache: WatchCache,
        spread: SpreadNow,
        planning: Callable[[], PlanOptions],
        well: Callable[[], bool],
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache = cache
        self._spread = spread
        self._planning = planning
        self._well = well
        self._wall = wall
        self._monotonic = monotonic
        self._debounce = Debounce()
        self._told = set[Hashable]()
        self._read = self._not_before = 0.0
        self._unwell = False
        self._unread: frozenset[str] = frozenset()
        self._nodes: tuple[Node, ...] | None = None
        self._facts: dict[str, tuple[object, ...]] = {}
        self._waits_until: float | None = None
        # What the plan could not do: for want of room; and because of the state that workloads are in.
        self._full: list[tuple[PodTemplate, frozenset[str]]] = []
        self._planned: Snapshot | None = None
        self._constraints: tuple[ConstraintResult, ...] = ()
        self._known: frozenset[Constraint] | None = None
        self._closed = set[tuple[Constraint, str]]()
        self._seen: object = None
        self._until = 0.0

    # -- a cycle

    def on_reading(self) -> None:
        """What has happened so far is in the cluster as it is read now."""
        self._debounce.forget()
        self._spread.touched.clear()
        self._spread.freed.clear()
        self._read, self._unwell = self._monotonic(), False

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """What changes from then on is news."""
        self._nodes, self._facts = snapshot.nodes, facts_of(snapshot.nodes)
        self._unread = frozenset(r.kind for r in snapshot.reads if not r.known)

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Notes what the plan could not do, and what may change that."""
        self._debounce.planning = self._monotonic() - self._read
        self._told, self._seen = set(), None
        self._constraints = plan.constraints
        violated = [c.constraint for c in plan.constraints if c.in_scope and c.excess]
        self._known = frozenset(violated)
        left = [c for c in plan.constraints if c.in_scope and c.residual_excess]
        waits, full = list[float](), dict[int, tuple[PodTemplate, frozenset[str]]]()
        moved = {m.owner.key for m in plan.moves}
        waits += [end for m in plan.moves if m.waits and snapshot.now < (end := end_of(m.waits)) < inf]
        new = [end for n in snapshot.nodes if snapshot.now < (end := set_up_by(n))]
        closed, other = set[tuple[Constraint, str]](), set[str]()
        for b in plan.blocked:
            code, template = b.reason.code, b.pod.template
            if snapshot.now < (end := end_of(b.reason)) < inf:
                waits.append(end)
            if code is ReasonCode.NODE_STARTING:
                waits += new
            if code in _ENDS_WITH_A_POD and id(template) not in full and len(full) < _MOST_TEMPLATES:
                lowest = [c for c in left if c.constraint.counts(b.pod.namespace, template.labels)]
                full[id(template)] = template, frozenset(_lowest(snapshot.nodes, lowest))
            owner = topmost(snapshot, b.pod)
            if owner is None or owner.key in moved:
                continue
            if code in _ENDS:
                counting = (c for c in violated if c.counts(b.pod.namespace, template.labels))
                closed |= {(c, owner.key) for c in counting}
            else:
                other.add(owner.key)
        # Where others of its pods may go, and do not for reasons of their own, nothing is waited for.
        self._closed = {key for key in closed if key[1] not in other}
        self._waits_until = min(waits) + _LATER if waits else None
        self._full = list(full.values())
        self._planned = snapshot if full else None

    def on_outcome(self, outcome: Outcome) -> None:
        """A move that the last look put off for a reason that passes waits, too."""
        if outcome.reason is not None and outcome.reason.code in PASSING and not outcome.evicted:
            owner = outcome.move.owner.key
            self._closed |= {(self._constraints[i].constraint, owner) for i in outcome.move.fixes}

    def on_held(self, reason: Reason) -> None:
        """Where the cluster was not well enough, a cycle starts once it is."""
        self._unwell = reason.code is ReasonCode.CLUSTER_UNWELL

    # -- between cycles

    def due(self, schedule: Schedule) -> str:
        """Why a cycle starts now, "" if none does; told once."""
        if schedule.cron or not schedule.react:
            return ""
        now, self._debounce.react = self._monotonic(), schedule.react
        try:
            if self._nodes_changed():
                self._debounce.note("nodes", "nodes have changed", now, schedule.node_settle)
            for key, what in self._found(now):
                if key not in self._told:
                    self._told.add(key)
                    self._debounce.note(key, what, now)
        except CacheNotReadyError:
            return ""
        return self._debounce.due(now)

    def _found(self, now: float) -> _Found:
        """What is otherwise than the last plan saw it."""
        if self._waits_until is not None and self._wall() >= self._waits_until:
            yield ("waits", self._waits_until), "what had to be waited for is over"
        if self._unread:
            readable = {s.kind for s in self._cache.status() if s.synced and not s.denied} & self._unread
            for kind in sorted(readable):
                yield ("readable", kind), f"{kind} objects can be read now"
        if now < self._not_before:
            return
        began = self._monotonic()
        if self._unwell and self._well():
            yield "well", "the cluster is well enough again"
        yield from self._may_go()
        yield from self._has_room()
        self._not_before = now + max(_EVERY, _SHARE * (self._monotonic() - began))

    def _nodes_changed(self) -> bool:
        """Whether nodes came, went, became Ready or not, or changed in labels, taints, or whether they leave:
        heartbeats change them all the time."""
        nodes = self._cache.nodes()
        if nodes is self._nodes:
            return False
        first, before = self._nodes is None, self._facts
        self._nodes, facts = nodes, facts_of(nodes)
        if facts == before:
            return False
        self._facts = facts
        return not first

    def _may_go(self) -> _Found:
        """Workloads that violate a constraint, may be evicted now, and could not in the last plan: it did not
        hold the constraint for violated, or left them alone for a reason that ends."""
        if self._known is None:
            return
        waiting, policy = {c for c, _ in self._closed}, self._planning().policy
        asked: dict[str, list[Constraint]] = {}
        for c in self._spread.violated():
            if policy.in_view(c.namespace) and (c in waiting or c not in self._known):
                asked.setdefault(c.namespace, []).append(c)
        seen = (asked, self._facts, *(self._cache.generation(kind) for kind in _POLICY_READS))
        same = seen == self._seen and not self._spread.touched & asked.keys()
        if not asked or (same and self._wall() < self._until):
            return
        self._seen = seen
        self._spread.touched.clear()
        snapshot = _within(self._cache.snapshot(self._wall()), asked.keys())
        evictable, self._until = Evictable(snapshot, policy), next_change(snapshot, policy)
        counting: dict[int, list[Constraint]] = {}
        for pod in snapshot.pods:
            t = pod.template
            if id(t) not in counting:
                counting[id(t)] = [c for c in asked[pod.namespace] if c.counts(t.namespace, t.labels)]
            if not counting[id(t)] or (owner := topmost(snapshot, pod)) is None:
                continue
            every = ((c, owner.key) for c in counting[id(t)])
            keys = {key for key in every if key[0] not in self._known or key in self._closed}
            if not keys <= self._told and evictable.why_not(pod) is None:
                for key in (k for k in keys if not evictable.owners.unsettled(k[0], owner)):
                    yield key, f"{owner.key} violates its spread, and policy allows evictions"

    def _has_room(self) -> _Found:
        """Templates for which the last plan found no node and that fit onto one now, by the scheduler's own
        filters: a pod has ended there."""
        waited_for = frozenset[str]().union(*(names for _, names in self._full))
        freed = self._spread.freed & waited_for
        self._spread.freed.clear()
        if not freed or self._planned is None:
            return
        snapshot, config = self._cache.snapshot(self._wall()), self._planning().scheduler or DEFAULT_CONFIG
        nodes = tuple(n for n in snapshot.nodes if n.name in freed)

        def state(moment: Snapshot) -> ClusterState:
            pods = tuple(p for p in moment.pods if p.node_name in freed and not p.finished)
            return ClusterState.of(replace(snapshot, nodes=nodes, pods=pods), config)

        then, now = state(self._planned), state(snapshot)
        for template, names in self._full:
            fits = _alone(now, template) & ~_alone(then, template)
            found = (n for n, fit in zip(now.table.names, fits.tolist(), strict=True) if fit and n in names)
            if (node := next(found, "")) != "":
                key = (template.namespace, template.controller or id(template))
                yield key, f"there is room on {node}, for which a move waits"


def _lowest(nodes: Iterable[Node], violated: Iterable[ConstraintResult]) -> Iterator[str]:
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


def _within(snapshot: Snapshot, namespaces: Iterable[str]) -> Snapshot:
    """What policy asks of some namespaces: the rest is left out, as it may be a hundred times as much."""
    wanted = frozenset(namespaces)
    return replace(
        snapshot,
        pods=tuple(p for p in snapshot.pods if p.namespace in wanted),
        workloads=tuple(w for w in snapshot.workloads if w.namespace in wanted),
        budgets=tuple(b for b in snapshot.budgets if b.metadata.namespace in wanted),
        quotas=tuple(q for q in snapshot.quotas if q.metadata.namespace in wanted),
    )
