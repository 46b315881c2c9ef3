"""A single node, tried by planning with it: where pods find no node on the way, though each has a place."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.effort import Effort
from rebalancer.planner.options import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.planner.planner import plan
from rebalancer.room.advice import Room
from rebalancer.room.extended import with_nodes
from rebalancer.room.kinds import NodeKind, named
from rebalancer.room.told import bare_node

_TRIED = 12


def single_node(
    snapshot: Snapshot, options: PlanOptions, made: Plan, every: Sequence[NodeKind], effort: Effort
) -> Room | None:
    """The node with which the plan leaves least; None if with none of them it leaves less than without.

    Not proved: other nodes, or more of them, might do better.
    """
    stays = [(i, c) for i, c in enumerate(made.constraints) if c.in_scope and c.constraint.hard]
    if not any(r.code is ReasonCode.NO_FEASIBLE_NODE for _, c in stays for r in c.reasons):
        return None
    excess = sum(c.residual_excess for _, c in stays)
    tried = []
    for place, kind in enumerate(every[:_TRIED]):
        if effort.gone:
            break
        planned = plan(with_nodes(snapshot, named([kind])), options)
        effort.candidates(planned.steps)
        tried.append((planned.residual_excess, len(planned.moves), place, planned))
    if not tried:
        return None
    left, evictions, place, planned = min(tried, key=lambda t: t[:3])
    if left >= excess:
        return None
    after = {(c.constraint, c.workloads): c.residual_excess for c in planned.constraints}
    return Room(
        excess=excess,
        nodes=(bare_node(snapshot, every[place]),),
        left=left,
        evictions=evictions,
        mends=tuple(
            i
            for i, c in stays
            if after.get((c.constraint, c.workloads), c.residual_excess) < c.residual_excess
        ),
        proved=left == 0,
        waiting=sum(p.waits for p in snapshot.pods),
    )
