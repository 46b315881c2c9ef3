"""How the fewest nodes are found: the program over final placements with more and more nodes that could be.

It is asked with one node of each kind, then two, and so on. With no excess left and no more nodes than
there were of each kind, there is no better answer: any fewer were among what it chose from. The plan of
the cluster with these nodes then says what they come to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.state.cluster import PODS, ClusterState
from rebalancer.model.node import Taint, lasting_spec
from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.bounds.added_nodes import Added, fewest_nodes
from rebalancer.planner.cluster.pod_classes import PodClass
from rebalancer.planner.objective import Effort, for_advice
from rebalancer.planner.plan import ConstraintResult, Plan, PlanOptions
from rebalancer.planner.planner import plan
from rebalancer.room.kinds import (
    Kinds,
    NodeKind,
    Posed,
    belongs_to_node,
    enlarged,
    kinds,
    named,
    useful,
    with_nodes,
)
from rebalancer.spread.constraint import Constraint

# The advice: which nodes to add, what they have to have free, and what that cures.


class ForPods(Struct, frozen=True, eq=False):
    """Pods that the new nodes are for. `workload`: Kind/namespace/name of the topmost owner."""

    workload: str
    template: PodTemplate
    pods: int


class NewNodes(Struct, frozen=True, eq=False, kw_only=True):
    """Nodes of one kind. `domains`: their labels, by topology key; a value that begins with `kinds.NEW` is a
    domain that the cluster does not have. `like`: a node that has the shape; `taints`: its own. `free`: what
    each must have left for pods, beside its DaemonSets, in the scheduler's integers, with `PODS` for their
    number. `unlike`: which of the `domains` are not those of that node. `already`: how many nodes there have
    so much free now, which an autoscaler that is asked for it counts first, and the plan may use."""

    number: int
    domains: Mapping[str, str]
    like: str
    free: Mapping[str, int]
    unlike: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()
    pods: tuple[ForPods, ...] = ()
    already: int = 0


class Enlarged(Struct, frozen=True, eq=False):
    """What would do as well: any one of these `nodes` with so much `more`."""

    nodes: tuple[str, ...]
    more: Mapping[str, int]


class Room(Struct, frozen=True, eq=False, kw_only=True):
    """What room is missing, over all workloads together, for the plan of the cluster `source`.

    `excess`: what the plan leaves. `nodes`: the fewest that leave the least; none where room would not help.
    `instead`: a larger node in place of a single new one. `least`: what no placement with any such nodes
    beats; `left`: what the plan with the advised ones leaves; `evictions`: of that plan. `mends`:
    workloads, namespace/Kind/name, whose constraints then have less. `proved`: no fewer nodes do, and no more
    do better. `searched`: nothing was left out for the time it would take. `waiting`: Pending pods, which
    want room too and are not counted here.
    """

    source: str = ""
    excess: int = 0
    least: int = 0
    nodes: tuple[NewNodes, ...] = ()
    instead: Enlarged | None = None
    left: int = 0
    evictions: int = 0
    mends: tuple[str, ...] = ()
    proved: bool = True
    searched: bool = True
    waiting: int = 0

    @property
    def number(self) -> int:
        """How many nodes in all."""
        return sum(n.number for n in self.nodes)


# What the program found, as nodes to add: where, like which, with how much free, and for whose pods.


def new_nodes(posed: Posed, best: Added, every: Sequence[NodeKind]) -> tuple[NewNodes, ...]:
    """The nodes, equal ones together."""
    found: dict[tuple[object, ...], list[NewNodes]] = {}
    for row in best.nodes:
        pods = [
            (c, int(number))
            for c, number in zip(posed.component.classes, best.placed[:, row], strict=True)
            if number
        ]
        one = _node(posed, posed.kind_of(row), pods, every)
        key = one.like, tuple(one.domains.items()), tuple(one.free.items())
        found.setdefault(key, []).append(one)
    return tuple(_together(alike) for alike in found.values())


def bare_node(snapshot: Snapshot, kind: NodeKind) -> NewNodes:
    """One of this kind, like a node that is in these domains already, if there is such a one."""
    taints = lasting_spec(kind.like).taints
    like = next(
        (
            n
            for n in snapshot.nodes
            if kind.labels.items() <= n.labels.items()
            and n.allocatable == kind.like.allocatable
            and lasting_spec(n).taints == taints
        ),
        kind.like,
    )
    return NewNodes(
        number=1,
        domains=kind.labels,
        like=like.name,
        free={},
        unlike=tuple(k for k, v in kind.labels.items() if like.labels.get(k) != v),
        taints=taints,
    )


def _already(first: Posed, new: NewNodes) -> int:
    asked = [(first.simulation.free(r), 1 if r == PODS else n) for r, n in new.free.items()]
    return sum(
        new.domains.items() <= node.labels.items()
        and set(lasting_spec(node).taints) <= set(new.taints)
        and not first.simulation.barred[row]
        and all(free[row] >= amount for free, amount in asked)
        for row, node in enumerate(first.simulation.state.table.nodes)
    )


def wanted(state: ClusterState, pods: Sequence[tuple[PodClass, int]]) -> dict[str, int]:
    """What these pods ask for in all, by resource."""
    total: dict[str, int] = {}
    for c, number in pods:
        for resource, amount in state.asks(c.replacement):
            total[resource] = total.get(resource, 0) + number * amount
    return total


def _node(
    posed: Posed, kind: NodeKind, pods: Sequence[tuple[PodClass, int]], every: Sequence[NodeKind]
) -> NewNodes:
    free = wanted(posed.simulation.state, pods)
    smaller = [
        k
        for k in every
        if k.labels == kind.labels
        and lasting_spec(k.like).taints == lasting_spec(kind.like).taints
        and all(_left(posed, k).get(r, 0) >= amount for r, amount in free.items())
    ]
    # The largest that was thought of is enough; a smaller one that is, costs less.
    best = min((*smaller, kind), key=lambda k: (_size(k), k is not kind))
    owners = posed.view.evictable.owners
    return replace(
        bare_node(posed.before, best),
        free=free,
        pods=tuple(
            ForPods(owners.top(c.owner).key, c.replacement, number)
            for c, number in pods
            if c.owner is not None
        ),
    )


def _left(posed: Posed, kind: NodeKind) -> Mapping[str, int]:
    """What such a node has beside what it runs for itself."""
    left = dict(kind.like.allocatable)
    for pod in posed.snapshot.pods:
        if pod.node_name == kind.like.name and belongs_to_node(pod):
            for resource, amount in posed.simulation.state.holds(pod.template):
                left[resource] = left.get(resource, 0) - amount
    return left


def _size(kind: NodeKind) -> tuple[int, ...]:
    return tuple(kind.like.allocatable.get(r, 0) for r in ("cpu", "memory", PODS))


def _together(alike: Sequence[NewNodes]) -> NewNodes:
    return replace(alike[0], number=len(alike))


# A single node, tried by planning with it: where pods find no node on the way, though each has a place.

_TRIED = 12


def single_node(
    snapshot: Snapshot, options: PlanOptions, made: Plan, every: Sequence[NodeKind], effort: Effort
) -> Room | None:
    """The node with which the plan leaves least, the first that leaves nothing; None if with none of them it
    leaves less than without.

    Not proved: other nodes, or more of them, might do better.
    """
    stays = [c for c in made.constraints if c.in_scope and c.constraint.hard]
    if not any(r.code is ReasonCode.NO_FEASIBLE_NODE for c in stays for r in c.reasons):
        return None
    excess = sum(c.residual_excess for c in stays)
    tried = []
    for place, kind in enumerate(every[:_TRIED]):
        if effort.gone:
            break
        planned = plan(with_nodes(snapshot, named([kind])), options)
        effort.candidates(planned.steps)
        tried.append((planned.residual_excess, len(planned.moves), place, planned))
        if not planned.residual_excess:
            break
    if not tried:
        return None
    left, evictions, place, planned = min(tried, key=lambda t: t[:3])
    if left >= excess:
        return None
    return Room(
        source=snapshot.source,
        excess=excess,
        nodes=(bare_node(snapshot, every[place]),),
        left=left,
        evictions=evictions,
        mends=_mends(stays, planned),
        proved=left == 0,
        waiting=sum(p.waits for p in snapshot.pods),
    )


# What would do as well as a single new node: an existing one that had more.

_ASKED = 6
"""Nodes of which the program is asked."""


def instead(
    first: Posed,
    options: PlanOptions,
    keep: Collection[Constraint],
    posed: Posed,
    best: Added,
    left: int,
    effort: Effort,
) -> Enlarged | None:
    """Existing nodes that could take the new one's pods if they had a little more, those that lack least: as
    many as lack the same. None if none would do: the plan with it is to leave no more than `left`."""
    if not best.everywhere:
        return None
    placed = best.placed[:, best.nodes[0]]
    state = first.simulation.state
    needed = wanted(state, [(c, int(n)) for c, n in zip(posed.component.classes, placed, strict=True) if n])
    where = posed.kind_of(best.nodes[0]).labels.items()
    near = [
        row
        for row, node in enumerate(state.table.nodes)
        if where <= node.labels.items() and not first.simulation.barred[row]
    ]
    free = {r: first.simulation.free(r) for r in needed}
    lacking: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for row in near:
        lack = {
            r: amount + _comes(first, posed, best, row, r) - int(free[r][row])
            for r, amount in sorted(needed.items())
        }
        if lack.get(PODS, 0) <= 0:
            more = tuple((r, amount) for r, amount in lack.items() if amount > 0)
            lacking.setdefault(more, []).append(state.table.names[row])
    asked = 0
    for more, names in sorted(lacking.items(), key=lambda item: (len(item[0]), item[0])):
        good = []
        for name in names:
            if asked >= _ASKED or effort.gone:
                break
            asked += 1
            if more and _does(first, options, keep, name, dict(more), best.excess, effort):
                larger = plan(enlarged(first.snapshot, name, dict(more)), options)
                effort.candidates(larger.steps)
                if larger.residual_excess <= left:
                    good.append(name)
        if good:
            return Enlarged(tuple(good), dict(more))
    return None


def _comes(first: Posed, posed: Posed, best: Added, row: int, resource: str) -> int:
    """How much more the pods take that are on an existing node beside the new one."""
    there = posed.simulation.state.table.index[first.simulation.state.table.names[row]]
    held = (
        dict(posed.simulation.state.holds(c.replacement)).get(resource, 0) for c in posed.component.classes
    )
    more = best.placed[:, there] - posed.component.start[:, there]
    return sum(amount * int(n) for amount, n in zip(held, more, strict=True))


def _does(
    first: Posed,
    options: PlanOptions,
    keep: Collection[Constraint],
    name: str,
    more: dict[str, int],
    excess: int,
    effort: Effort,
) -> bool:
    larger = Posed(enlarged(first.snapshot, name, more), options, keep)
    found = fewest_nodes(larger.component, (), effort)
    return found is not None and found.exact and found.excess <= excess


_EACH = (1, 2, 4, 8)
"""How many nodes of each kind there may be, in turn."""
LOOKED_FOR_UNASKED = 5_000
"""Pods up to which reports and the daemon look for it without being asked."""
_MOST = 40_000
"""Classes times nodes beyond which the program is not asked."""


def room(snapshot: Snapshot, options: PlanOptions, made: Plan) -> Room:
    """The advice for a snapshot and its plan. It takes a share of what the plan did (`for_advice`), and one
    plan with what it advises, which waits for no other nodes."""
    options = replace(options, proves=False, policy=replace(options.policy, into_new_nodes=False))
    left = [c for c in made.constraints if _stays(c)]
    excess = sum(c.residual_excess for c in left)
    waiting = sum(p.waits for p in snapshot.pods)
    nothing = Room(source=snapshot.source, excess=excess, left=excess, waiting=waiting)
    if not left:
        return nothing
    keep = {c.constraint for c in left}
    first = Posed(snapshot, options, keep)
    if not first.component.classes:
        # No pod that could move: with any nodes it stays as it is.
        return nothing
    thought_of = kinds(snapshot, first.component.groups)
    if len(first.component.classes) * (len(snapshot.nodes) + len(thought_of.every)) > _MOST:
        return replace(nothing, proved=False, searched=False)
    effort = for_advice(made.steps)
    found = _fewest(first, options, keep, thought_of, effort)
    if found is None:
        return replace(nothing, proved=False, searched=not effort.fell_short)
    posed, best, proved = found
    if not best.nodes:
        # No placement is short of room; on the way to it pods may be.
        tried = (
            single_node(snapshot, options, made, thought_of.every, effort) if best.excess < excess else None
        )
        searched = not effort.fell_short
        if tried is not None:
            return replace(tried, searched=searched)
        return replace(nothing, least=best.excess, proved=proved and searched, searched=searched)
    chosen = [posed.kind_of(row) for row in best.nodes]
    with_them = plan(with_nodes(snapshot, named(chosen)), options)
    mends = _mends(left, with_them)
    if not mends:
        # There is a placement, and something else keeps the pods from it: a budget, say.
        return replace(nothing, least=best.excess, proved=False, searched=not effort.fell_short)
    return replace(
        nothing,
        searched=not effort.fell_short,
        least=best.excess,
        nodes=tuple(replace(n, already=_already(first, n)) for n in new_nodes(posed, best, thought_of.every)),
        instead=instead(first, options, keep, posed, best, with_them.residual_excess, effort)
        if len(best.nodes) == 1
        else None,
        left=with_them.residual_excess,
        evictions=len(with_them.moves),
        mends=mends,
        proved=proved,
    )


def _stays(c: ConstraintResult) -> bool:
    return bool(c.residual_excess) and c.in_scope and c.constraint.hard


def _fewest(
    first: Posed, options: PlanOptions, keep: Collection[Constraint], thought_of: Kinds, effort: Effort
) -> tuple[Posed, Added, bool] | None:
    """What the program finds, where, and whether it is proved; None if it finds nothing."""
    bare = fewest_nodes(first.component, (), effort)
    if bare is None:
        return None
    if not bare.excess:
        # Nor would the program use another node, however many there were.
        return first, bare, bare.exact and thought_of.whole
    every = Posed(first.snapshot, options, keep, thought_of.every)
    chosen = _useful(every)
    found, proved = (first, bare), bare.exact and not chosen
    for each in _EACH if not proved and chosen else ():
        posed = every
        if (chosen, each) != (every.chosen, every.each):
            posed = Posed(first.snapshot, options, keep, chosen, each)
        if posed.component.start.size > _MOST:
            break
        best = fewest_nodes(posed.component, posed.alike, effort)
        if best is None:
            break
        found = posed, best
        proved = best.exact and (each >= posed.enough or (not best.excess and len(best.nodes) <= each))
        if proved or each >= posed.enough:
            break
    posed, best = found
    return posed, best, proved and thought_of.whole


def _useful(posed: Posed) -> list[NodeKind]:
    """Of the kinds those that it may need."""
    component = posed.component
    places = useful(posed.simulation, component.groups, component.classes, posed.rows)
    return [posed.chosen[place] for place in places]


def _mends(left: Sequence[ConstraintResult], planned: Plan) -> tuple[str, ...]:
    """The workloads with a constraint of which the plan with further nodes leaves less excess."""
    after = {(c.constraint, c.workloads): c.residual_excess for c in planned.constraints}
    return _workloads(
        c for c in left if after.get((c.constraint, c.workloads), c.residual_excess) < c.residual_excess
    )


def _workloads(constraints: Iterable[ConstraintResult]) -> tuple[str, ...]:
    """Each once, as namespace/Kind/name."""
    return tuple(dict.fromkeys(f"{c.constraint.namespace}/{w}" for c in constraints for w in c.workloads))
