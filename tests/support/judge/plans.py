"""A plan of the package under test as the judge reads it: waves of steps, nothing more."""

from __future__ import annotations

from rebalancer.planner.plan import Move, Plan
from rebalancer.spread.constraint import Constraint
from tests.support.judge.flight import Meaning, Step


def waves_of(plan: Plan, *, only_certain: bool = False) -> list[list[Step]]:
    """The plan's waves; on request without the moves that are not certain.

    Those depend on where earlier replacements land: they are never made as they stand, but planned anew.
    """
    return [[step_of(plan, move) for move in wave if move.certain or not only_certain] for wave in plan.waves]


def step_of(plan: Plan, move: Move) -> Step:
    """One move."""
    return Step(
        pod=f"{move.pod.namespace}/{move.pod.name}",
        destinations=frozenset(move.destinations),
        certain=move.certain,
        predicted=move.predicted,
        fixes=tuple(meaning_of(plan.constraints[i].constraint) for i in move.fixes),
        label=move.release_label,
    )


def meaning_of(constraint: Constraint) -> Meaning:
    """A constraint as `flight.meaning` writes a group."""
    selector = None
    if constraint.selector is not None:
        selector = tuple((r.key, r.operator, r.values) for r in constraint.selector.requirements)
    return (
        constraint.namespace,
        selector,
        constraint.topology_key,
        constraint.max_skew,
        constraint.min_domains,
        constraint.node_affinity_policy,
        constraint.node_taints_policy,
    )


def told(plan: Plan) -> str:
    """The plan in short, for messages and for comparing two plans."""
    lines = [
        f"{m.wave} {m.pod.namespace}/{m.pod.name} {m.pod.node_name} -> {m.predicted}"
        f" of {list(m.destinations)}"
        f" {'certain' if m.certain else 'likely'} fixes {list(m.fixes)}"
        f"{f' {m.method} ({m.release_label})' if m.release_label else ''}"
        for m in plan.moves
    ]
    lines.append(
        f"excess {plan.excess} -> {plan.residual_excess}, bound {plan.lower_bound}, optimal {plan.optimal}"
    )
    return "\n".join(lines)
