"""A cluster in, and out come the deletion costs that keep each ReplicaSet's spread when it shrinks."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence

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
    """What is to be written. `held_back`: why nothing is, "" if nothing speaks against it."""

    owners: tuple[SteeredOwner, ...] = ()
    held_back: str = ""

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
    wanted = [] if why else list(steered(snapshot, options))
    stale = _stale(snapshot, {w.key for w in wanted}, options)
    if not wanted:
        return Steering(tuple(stale), why)
    # Constraints count pods of their own namespace only.
    namespaces = {w.namespace for w in wanted}
    pods = tuple(p for p in snapshot.pods if p.namespace in namespaces)
    near = replace(snapshot, pods=pods)
    state = ClusterState.of(near, scheduler)
    of_owner: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        owner = near.owner_of(pod.namespace, pod.owner)
        if owner is not None and pod.node_name in state.table.index and not (pod.finished or pod.terminating):
            of_owner[owner.key].append(pod)
    groups = Groups(state, (p.template for w in wanted for p in of_owner[w.key]), hard=True, soft=True)
    owners = (_owner(w, of_owner[w.key], groups, state, options) for w in wanted)
    return Steering((*owners, *stale), why)


def _stale(snapshot: Snapshot, wanted: set[str], options: ScaleInOptions) -> Iterator[SteeredOwner]:
    """Owners within reach that are not steered any more, with the pods that still have a cost of ours."""
    left: dict[str, list[Pod]] = defaultdict(list)
    owners: dict[str, Workload] = {}
    for pod in snapshot.pods:
        if (
            pod.own_cost is None
            or pod.terminating
            or not (options.reaches(pod.namespace) and options.owns(pod))
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
