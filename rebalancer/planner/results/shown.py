"""Constraints and moves as a Plan shows them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rebalancer.model.reason import Reason
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.planner.plan import ConstraintResult, Move, Status
from rebalancer.policy.owners import Owners
from rebalancer.spread.arrays import Ints, Shared, first_places, narrow
from rebalancer.spread.per_domain import PerDomain


def shown_constraint(
    group: Group,
    before: Ints,
    after: Ints,
    reasons: tuple[Reason, ...],
    workloads: tuple[str, ...],
    shared: Shared,
) -> ConstraintResult:
    """The result of one group. `workloads`: who carries it; `shared`: where equal counts are held once."""
    excess, residual = group.excess(before), group.excess(after)
    status: Status = "balanced"
    if excess or residual:
        # A soft constraint may have to give way to a hard one.
        status = "fixable" if not residual else "partly-fixable" if residual < excess else "unfixable"
    total = int(before.sum())
    domains = PerDomain(group.layout, shared.of(narrow(before)))
    # Of thousands of constraints by hostname, most keep their counts: those are held once.
    kept = np.array_equal(before, after)
    return ConstraintResult(
        constraint=group.constraint,
        workloads=workloads,
        domains=domains,
        after=domains if kept else PerDomain(group.layout, shared.of(narrow(after))),
        skew=group.skew(before),
        excess=excess,
        residual_excess=residual,
        status=status,
        reasons=reasons,
        worst_domain_loss=int(before.max()) / total if total else 0.0,
        best_domain_loss=-(-total // group.size) / total if total else 0.0,
    )


def shown_move(
    simulation: Simulation,
    owners: Owners,
    move: JudgedMove,
    wave: int,
    position: Mapping[int, int],
    waits: Reason | None,
) -> Move:
    """One move, with what it does for each constraint. `position`: of each group, by `id`, in the plan.
    `waits`: why it is left to a later cycle."""
    table, node = simulation.state.table, move.candidate.node
    owner = move.candidate.members.owner
    assert owner is not None, "a pod without an owner is never evicted"
    parts = []
    for g in move.fixes:
        into = g.domain_of[move.destinations]
        to = [g.names[d] for d in into[first_places(into)].tolist() if d >= 0]
        where = ", ".join(to[:4]) + (f" or {len(to) - 4} more" if len(to) > 4 else "")
        source = g.names[g.domain_of[node]] if g.domain_of[node] >= 0 else "no domain"
        parts.append(f"{g.constraint.topology_key}: from {source} to {where}")
    reason = "; ".join(dict.fromkeys(parts)) or "makes way for the constraints of its neighbours"
    if move.joint is not None:
        reason += _together(move)
    elif move.fixes and not any(g.constraint.hard for g in move.fixes):
        reason += "; rests on the scheduler's scores, as the constraint is soft"
    elif not move.certain:
        reason += "; how this ends depends on where replacements land: after each wave a new plan is made"
    return Move(
        pod=move.pod,
        owner=owners.top(owner),
        replacement=move.replacement,
        destinations=simulation.named(move.destinations),
        predicted=table.names[move.landed],
        certain=move.certain and not simulation.state.version.newer_by,
        wave=wave,
        fixes=tuple(position[id(g)] for g in move.fixes),
        reason=reason,
        waits=waits,
        joint=move.joint,
    )


def _together(move: JudgedMove) -> str:
    """With whom it goes, and what is left if that is broken off."""
    joint = move.joint
    assert joint is not None
    others = ", ".join(p for p in joint.pods if p != move.pod.key)
    left = ""
    if joint.waiting:
        number = "1 replacement waits" if joint.waiting == 1 else f"{joint.waiting} replacements wait"
        left = f"; if it is broken off in between, {number} for a node"
    return f"; together with {others}{left}"
