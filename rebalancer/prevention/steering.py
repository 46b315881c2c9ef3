"""A cluster in, and out come the deletion costs that keep each ReplicaSet's spread when it shrinks."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import DELETION_COST, Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner.cluster.groups import Group, Groups
from rebalancer.prevention.scale_in import (
    NOWHERE,
    Cell,
    Excess,
    Order,
    Problem,
    ScaleInOptions,
    Spread,
    deletion_costs,
    held_back,
    order,
    steered,
)


class CostChange(Struct, frozen=True, eq=False):
    """A pod's deletion cost as it should be; 0: it should have none. `before`: what this tool has set."""

    pod: Pod
    cost: int
    before: int | None

    def holds(self, now: Pod) -> bool:
        """Whether it is still to be made: the pod has the cost that was seen, and nobody else's."""
        return now.own_cost == self.before and DELETION_COST not in now.annotations


class SteeredOwner(Struct, frozen=True, eq=False, kw_only=True):
    """What a ReplicaSet's scale-in comes to.

    `pods` have a place in the order. `foreign`: pods whose cost somebody else has set; they are left alone.
    `kept_by`: the installation that steers it, if that is another one: all of it is left alone. `order`: None
    where less than two pods could be ordered, or no constraint counts them. `changes`: after each of them
    more pods may go in a good order than before it. `costs`: of each pod, as it is and as it should be.
    """

    owner: Workload
    pods: int = 0
    foreign: int = 0
    kept_by: str = ""
    order: Order | None = None
    changes: tuple[CostChange, ...] = ()
    costs: tuple[tuple[int, int], ...] = ()


class Steering(Struct, frozen=True, eq=False):
    """What is to be written. `held_back`: why nothing is, "" if nothing speaks against it.

    `unknown`: how many owners are left as they are, since their namespaces may not be read.
    """

    owners: tuple[SteeredOwner, ...] = ()
    held_back: str = ""
    unknown: int = 0

    @property
    def changes(self) -> int:
        """How many pods are to be given another cost."""
        return sum(len(o.changes) for o in self.owners)

    @property
    def foreign(self) -> int:
        """How many pods have a cost that somebody else has set."""
        return sum(o.foreign for o in self.owners)

    @property
    def kept(self) -> dict[str, int]:
        """How many owners other installations steer, by their names."""
        return dict(Counter(o.kept_by for o in self.owners if o.kept_by))


def right(costs: Iterable[tuple[int, int]]) -> int:
    """How many pods may go one after the other, whichever of those that cost the same, and all of them in
    turn. `costs`: of each pod, as it is and as it should be."""
    wanted, now = Counter[int](), defaultdict[int, Counter[int]](Counter)
    for is_now, should_be in costs:
        wanted[should_be] += 1
        now[is_now][should_be] += 1
    done = 0
    for _, alike in sorted(now.items()):
        turn = min(+wanted)
        if alike.keys() != {turn}:
            break
        done += alike[turn]
        wanted -= alike
    return done


def steer(snapshot: Snapshot, options: ScaleInOptions, scheduler: SchedulerConfig | None = None) -> Steering:
    """The costs for every owner in scope. Owners that are in no scope any more lose theirs."""
    why = held_back(snapshot, options)
    asked = [] if why else list(steered(snapshot, options))
    wanted = [w for w, known in asked if known]
    unknown = len(asked) - len(wanted)
    stale = _stale(snapshot, {w.key for w, _ in asked}, options)
    if not wanted:
        return Steering(tuple(stale), why, unknown)
    of_owner, groups, state = _near(snapshot, wanted, scheduler)
    owners = (_owner(w, of_owner[w.key], groups, state, options) for w in wanted)
    return Steering((*owners, *stale), why, unknown)


def _near(
    snapshot: Snapshot, wanted: Sequence[Workload], scheduler: SchedulerConfig | None
) -> tuple[Mapping[str, list[Pod]], Groups, ClusterState]:
    """The pods of each owner, and the constraints of theirs, which count pods of their own namespace only."""
    namespaces = {w.namespace for w in wanted}
    near = replace(snapshot, pods=tuple(p for p in snapshot.pods if p.namespace in namespaces))
    state = ClusterState.of(near, scheduler)
    of_owner = _by_owner(near, namespaces)
    for pods in of_owner.values():
        pods[:] = [p for p in pods if p.node_name in state.table.index]
    groups = Groups(state, (p.template for w in wanted for p in of_owner[w.key]), hard=True, soft=True)
    return of_owner, groups, state


def _by_owner(snapshot: Snapshot, namespaces: Set[str]) -> dict[str, list[Pod]]:
    """The pods that are there and stay."""
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.namespace in namespaces and pod.node_name and not (pod.finished or pod.terminating):
            owner = snapshot.owner_of(pod.namespace, pod.owner)
            if owner is not None:
                found[owner.key].append(pod)
    return found


def _stale(snapshot: Snapshot, wanted: set[str], options: ScaleInOptions) -> Iterator[SteeredOwner]:
    """Owners within reach that are not steered any more, with the pods that still have a cost of ours."""
    left: dict[str, list[Pod]] = defaultdict(list)
    owners: dict[str, Workload] = {}
    for pod in snapshot.pods:
        if (
            pod.own_cost is None
            or pod.terminating
            or not (options.reaches(pod.namespace, snapshot) and options.owns(pod))
        ):
            continue
        owner = snapshot.owner_of(pod.namespace, pod.owner)
        if owner is not None and owner.key not in wanted:
            owners[owner.key] = owner
            left[owner.key].append(pod)
    for key, pods in left.items():
        yield SteeredOwner(owner=owners[key], changes=tuple(CostChange(p, 0, p.own_cost) for p in pods))


def _owner(
    owner: Workload, pods: Sequence[Pod], groups: Groups, state: ClusterState, options: ScaleInOptions
) -> SteeredOwner:
    """Pods that are not Ready are in the order too, as they may be in a moment. Until then they go first,
    whatever they cost.

    One installation steers an owner: the one whose costs are there. Where two began at once it is the first
    by name, for both of them.
    """
    others = {p.cost_by for p in pods if p.own_cost is not None and not options.owns(p)}
    if others and not (min(others) > options.by and any(p.cost_by == options.by for p in pods)):
        return SteeredOwner(owner=owner, pods=len(pods), kept_by=min(others))
    foreign = sum(DELETION_COST in p.annotations for p in pods)
    own = [p for p in pods if DELETION_COST not in p.annotations]
    carried = sorted({g for p in own for g in groups.carried(p.template)})
    if len(own) < 2 or not carried:
        gone = tuple(CostChange(p, 0, p.own_cost) for p in own if p.own_cost is not None)
        return SteeredOwner(owner=owner, pods=len(own), foreign=foreign, changes=gone)
    problem, by_cell = _posed(own, [groups.all[g] for g in carried], groups, state)
    found = order(problem)
    next_of = [iter(pods_there) for pods_there in by_cell]
    turns = [next(next_of[c]) for c in found.cells]
    wanted = list(zip(turns, deletion_costs(problem, found), strict=True))
    changes = [
        CostChange(pod, cost, pod.own_cost)
        for pod, cost in wanted
        if cost != (pod.own_cost or 0) or (pod.own_cost == 0)
    ]
    # Below a cost that none of the rest has, or is to have, the order is as it should be.
    changes.sort(key=lambda c: min(c.before or 0, c.cost))
    return SteeredOwner(
        owner=owner,
        pods=len(own),
        foreign=foreign,
        order=found,
        changes=tuple(changes),
        costs=tuple((pod.own_cost or 0, cost) for pod, cost in wanted),
    )


def _posed(
    own: Sequence[Pod], carried: Sequence[Group], groups: Groups, state: ClusterState
) -> tuple[Problem, list[list[Pod]]]:
    """The owner's pods as a problem, and the pods of each cell, the first to go first."""
    counted = [groups.counted(p.template) for p in own]
    nodes = [state.table.index[p.node_name] for p in own]
    places: list[list[int]] = []
    spreads: list[Spread] = []
    for group in carried:
        domain = [
            int(group.domain_of[n]) if group.index in c else NOWHERE
            for n, c in zip(nodes, counted, strict=True)
        ]
        counts = group.counts(state)
        numbers = {d: i for i, d in enumerate(sorted({d for d in domain if d != NOWHERE}))}
        others = counts.copy()
        for d in domain:
            if d != NOWHERE:
                others[d] -= 1
        elsewhere = np.delete(counts, list(numbers))
        c = group.constraint
        spreads.append(
            Spread(
                others=tuple(int(others[d]) for d in numbers),
                max_skew=c.max_skew,
                hard=c.hard,
                enough_domains=group.enough_domains,
                lowest=int(elsewhere.min()) if len(elsewhere) else None,
                highest=int(elsewhere.max()) if len(elsewhere) else None,
            )
        )
        places.append([numbers.get(d, NOWHERE) for d in domain])
    cells: dict[Cell, list[Pod]] = {}
    for i, pod in enumerate(own):
        cells.setdefault(tuple(p[i] for p in places), []).append(pod)
    names = sorted(cells)
    by_cell = [_in_turn(cells[name]) for name in names]
    costs = tuple(tuple(p.own_cost or 0 for p in there) for there in by_cell)
    return Problem(spreads=tuple(spreads), cells=tuple(names), costs=costs), by_cell


def _in_turn(pods: Sequence[Pod]) -> list[Pod]:
    """Pods in the same place, in the order in which they go: as their costs say, and of two with one cost the
    oldest had it before. The others are given the costs between these; what is left has come since, and goes
    first. So what was written to in part is written to the end, and new pods change no other one's cost.
    """
    of_cost: dict[int, Pod] = {}
    others: deque[Pod] = deque()
    for pod in sorted(pods, key=_age, reverse=True):
        if of_cost.setdefault(pod.own_cost or 0, pod) is not pod:
            others.append(pod)
    stay: list[Pod] = []
    above = 1
    for cost in sorted(of_cost, reverse=True):
        between = min(len(others), above - cost - 1)
        stay += [*(others.popleft() for _ in range(between)), of_cost[cost]]
        above = cost
    return [*reversed([*stay, *others])]


def _age(pod: Pod) -> tuple[float, str]:
    return -(pod.created or 0.0), pod.name


# What scale-ins have left, as they happen, beside what they could have left.


class ScaledIn(Struct, frozen=True, eq=False):
    """A scale-in that is over. `before`: of how many pods; `excess` of those that stay, and the least that as
    many could have."""

    owner: Workload
    before: int
    left: int
    excess: Excess
    best: Excess


class Tally(Struct, frozen=True, kw_only=True):
    """Scale-ins since a time, in seconds of the epoch: all, those that left an excess, and those after which
    other pods would have left less."""

    since: int
    all: int = 0
    excess: int = 0
    avoidable: int = 0

    def plus(self, ended: ScaledIn) -> Tally:
        """With one more."""
        return Tally(
            since=self.since,
            all=self.all + 1,
            excess=self.excess + (ended.excess > Excess()),
            avoidable=self.avoidable + (ended.best < ended.excess),
        )

    def __str__(self) -> str:
        """The value of an annotation."""
        return f"{self.since} {self.all} {self.excess} {self.avoidable}"

    @staticmethod
    def read(written: str) -> Tally | None:
        """As it stands in an annotation; None where it does not."""
        words = written.split()
        if len(words) != 4 or not all(w.isascii() and w.isdecimal() and len(w) < 12 for w in words):
            return None
        since, every, excess, avoidable = map(int, words)
        return Tally(since=since, all=every, excess=excess, avoidable=avoidable)


class _Shrinking(Struct):
    """An owner that has fewer replicas than when its pods were `posed`, each in its cell."""

    owner: Workload
    problem: Problem
    cell_of: dict[str, int]
    since: float


_PATIENCE = 300.0
"""Seconds after which a scale-in that does not end is forgotten."""


class ScaleIns:
    """Follows ReplicaSets of Ready pods that shrink, but for those of a Deployment that is rolled out."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._open: dict[str, _Shrinking] = {}

    def look(self, snapshot: Snapshot, scheduler: SchedulerConfig | None = None) -> list[ScaledIn]:
        """The scale-ins that have ended since the last look."""
        last, self._last = self._last, snapshot
        now = {w.key: w for w in snapshot.workloads if w.kind == "ReplicaSet" and w.replicas}
        if last is not None:
            siblings = Counter((w.namespace, w.owner.uid) for w in now.values() if w.owner is not None)
            shrinks = [
                w
                for w in last.workloads
                if w.key in now and now[w.key].metadata.uid == w.metadata.uid
                and now[w.key].replicas < w.replicas and w.key not in self._open
                and not (w.owner is not None and siblings[w.namespace, w.owner.uid] > 1)
            ]  # fmt: skip
            self._begin(last, shrinks, scheduler)
        if not self._open:
            return []
        found = []
        there = _by_owner(snapshot, {o.owner.namespace for o in self._open.values()})
        for key, o in list(self._open.items()):
            own = Counter(o.cell_of.get(p.uid, -1) for p in there[key])
            left = now[key].replicas if key in now else 0
            if own[-1] or left > own.total() or snapshot.now - o.since > _PATIENCE:
                del self._open[key]  # it has grown again, or lost pods otherwise
            elif own.total() == left:
                del self._open[key]
                found.append(_ended(o, own, left))
        return found

    def _begin(self, last: Snapshot, owners: Sequence[Workload], scheduler: SchedulerConfig | None) -> None:
        if not owners:
            return
        of_owner, groups, state = _near(last, owners, scheduler)
        for owner in owners:
            pods = of_owner[owner.key]
            carried = sorted({g for p in pods for g in groups.carried(p.template)})
            if len(pods) == owner.replicas and carried and all(p.ready for p in pods):
                problem, by_cell = _posed(pods, [groups.all[g] for g in carried], groups, state)
                cell_of = {p.uid: c for c, there in enumerate(by_cell) for p in there}
                self._open[owner.key] = _Shrinking(owner, problem, cell_of, last.now)


def _ended(o: _Shrinking, own: Counter[int], left: int) -> ScaledIn:
    def excess(pods: Mapping[int, int]) -> Excess:
        levels = o.problem.levels([pods[c] for c in range(len(o.problem.cells))])
        return o.problem.summed([at.excess for at in levels])

    before = len(o.cell_of)
    stay = order(o.problem).cells[before - left :]
    return ScaledIn(o.owner, before, left, excess(own), min(excess(own), excess(Counter(stay))))
