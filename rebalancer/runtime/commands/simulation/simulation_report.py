"""The result of a simulation → the document that is shown."""

from __future__ import annotations

from rebalancer.planner.plan import ConstraintResult
from rebalancer.report.simulation import (
    SimulatedConstraint,
    SimulatedCycle,
    SimulatedMove,
    SimulationReport,
    State,
)
from rebalancer.runtime.commands.simulation.simulate import Simulated, Standing

_REST = (
    "the embedded cluster preempts nobody, scales no workload by itself and starts every pod",
    "pods start and end in a fraction of a second: ages, cool-downs and maintenance windows count as passed",
)


def document(simulated: Simulated) -> SimulationReport:
    """The document, with the constraints in scope before, after the changes, and after the cycles."""
    moments = (simulated.before, simulated.changed, simulated.after)
    return SimulationReport(
        seed=simulated.seed,
        source=simulated.before.snapshot.source,
        notes=simulated.notes,
        before=_state(simulated.before),
        changed=_state(simulated.changed),
        after=_state(simulated.after),
        cycles=tuple(
            SimulatedCycle(c.end.value, c.message, c.plans, c.evicted, c.failed, c.mispredicted)
            for c in simulated.cycles
        ),
        moves=tuple(_moves(simulated)),
        constraints=tuple(_constraints(moments)),
        assumptions=(*_REST, *simulated.before.snapshot.warnings),
    )


def _state(standing: Standing) -> State:
    in_scope = [c for c in standing.plan.constraints if c.in_scope]
    return State(
        nodes=len(standing.snapshot.nodes),
        pods=sum(not (p.finished or p.terminating) for p in standing.snapshot.pods),
        unplaced=standing.unplaced,
        violated=standing.violated,
        excess=standing.plan.excess,
        worst_loss=max((c.worst_domain_loss for c in in_scope), default=0.0),
    )


def _moves(simulated: Simulated) -> list[SimulatedMove]:
    return [
        SimulatedMove(
            cycle=number,
            wave=o.move.wave,
            namespace=o.move.pod.namespace,
            pod=o.move.pod.name,
            source=o.move.pod.node_name,
            predicted=o.move.predicted,
            replacement=o.replacement,
            landed=o.node,
            expected=o.expected,
            status=o.status.value,
            message=o.message,
        )
        for number, cycle in enumerate(simulated.cycles, 1)
        for o in cycle.outcomes
    ]


def _constraints(moments: tuple[Standing, ...]) -> list[SimulatedConstraint]:
    by: dict[tuple[object, ...], list[ConstraintResult | None]] = {}
    for i, standing in enumerate(moments):
        seen: dict[tuple[object, ...], int] = {}
        for c in standing.plan.constraints:
            if c.in_scope:
                # Pods under different node selectors carry the same constraint over different nodes.
                key: tuple[object, ...] = (c.constraint, c.workloads)
                seen[key] = number = seen.get(key, -1) + 1
                by.setdefault((*key, number), [None] * len(moments))[i] = c
    return [_constraint(results) for results in by.values()]


def _constraint(results: list[ConstraintResult | None]) -> SimulatedConstraint:
    one = next(c for c in results if c is not None)
    before, changed, after = ({} if c is None else c.domains for c in results)
    excess = [0 if c is None else c.excess for c in results]
    last = results[-1]
    return SimulatedConstraint(
        namespace=one.constraint.namespace,
        workloads=one.workloads,
        selector=str(one.constraint.selector) if one.constraint.selector is not None else None,
        topology_key=one.constraint.topology_key,
        max_skew=one.constraint.max_skew,
        before=before,
        changed=changed,
        after=after,
        excess=dict(zip(("before", "changed", "after"), excess, strict=True)),
        reasons=tuple(r.message for r in last.reasons) if last is not None else (),
    )
