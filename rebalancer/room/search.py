"""How the fewest nodes are found: the program over final placements with more and more nodes that could be.

It is asked with one node of each kind, then two, and so on. With no excess left and no more nodes than
there were of each kind, there is no better answer: any fewer were among what it chose from. The plan of
the cluster with these nodes then says what they come to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.bounds.added_nodes import Added, fewest_nodes
from rebalancer.planner.cluster.effort import Effort, for_advice
from rebalancer.planner.options import PlanOptions
from rebalancer.planner.plan import ConstraintResult, Plan
from rebalancer.planner.planner import plan
from rebalancer.room.advice import Room
from rebalancer.room.by_planning import single_node
from rebalancer.room.extended import with_nodes
from rebalancer.room.instead import instead
from rebalancer.room.kinds import Kinds, NodeKind, kinds, named, useful
from rebalancer.room.posed import Posed
from rebalancer.room.told import new_nodes
from rebalancer.spread.constraint import Constraint

_EACH = (1, 2, 4, 8)
"""How many nodes of each kind there may be, in turn."""
LOOKED_FOR_UNASKED = 5_000
"""Pods up to which reports and the daemon look for it without being asked."""
_MOST = 40_000
"""Classes times nodes beyond which the program is not asked."""


def room(snapshot: Snapshot, options: PlanOptions, made: Plan) -> Room:
    """The advice for a snapshot and its plan. It takes a share of what the plan did (`for_advice`), and one
    plan with what it advises."""
    left = {i: c for i, c in enumerate(made.constraints) if _stays(c)}
    excess = sum(c.residual_excess for c in left.values())
    nothing = Room(excess=excess, left=excess, waiting=sum(p.waits for p in snapshot.pods))
    if not left:
        return nothing
    keep = {c.constraint for c in left.values()}
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
    return replace(
        nothing,
        searched=not effort.fell_short,
        least=best.excess,
        nodes=new_nodes(posed, best, thought_of.every),
        instead=instead(first, options, keep, posed, best, effort) if len(best.nodes) == 1 else None,
        left=with_them.residual_excess,
        evictions=len(with_them.moves),
        mends=_mends(left, posed, best),
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
    chosen = _useful(first.snapshot, options, keep, thought_of.every)
    found, proved = (first, bare), bare.exact and (not bare.excess or not chosen)
    for each in _EACH if not proved and chosen else ():
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


def _useful(
    snapshot: Snapshot, options: PlanOptions, keep: Collection[Constraint], every: Sequence[NodeKind]
) -> list[NodeKind]:
    posed = Posed(snapshot, options, keep, every)
    component = posed.component
    places = useful(posed.simulation, component.groups, component.classes, posed.rows)
    return [every[place] for place in places]


def _mends(left: dict[int, ConstraintResult], posed: Posed, best: Added) -> tuple[int, ...]:
    """Those that then have less excess than the plan leaves."""
    after: dict[Constraint, int] = defaultdict(int)
    before: dict[Constraint, int] = defaultdict(int)
    for group, excess in zip(posed.component.groups, best.excesses, strict=True):
        after[group.constraint] += excess
    for c in left.values():
        before[c.constraint] += c.residual_excess
    return tuple(i for i, c in left.items() if after[c.constraint] < before[c.constraint])
