"""Snapshot in, plan out: the pipeline of constraints, components, walks, waves and reasons."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.classes import Classes
from rebalancer.planner.component import Component, components
from rebalancer.planner.explain import Explainer
from rebalancer.planner.groups import Group, Groups
from rebalancer.planner.options import PlanOptions
from rebalancer.planner.plan import Blocked, ConstraintResult, Move, Plan, Status
from rebalancer.planner.search import Search, Step, Walk
from rebalancer.planner.simulation import Simulation, key_of
from rebalancer.planner.trial import Trial
from rebalancer.planner.victims import victim_order
from rebalancer.planner.waiting import Waiting, waits
from rebalancer.planner.waves import Placed, waves
from rebalancer.policy.caps import Caps
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Ints

PASSES = 3
"""Times that the components are gone through: room that one frees may be what another lacks."""


def plan(snapshot: Snapshot, options: PlanOptions | None = None) -> Plan:
    """The fewest evictions that restore the snapshot's hard constraints, in waves, with all reasons."""
    return Planner(snapshot, options or PlanOptions()).plan()


class Planner:
    """Plans one snapshot."""

    def __init__(self, snapshot: Snapshot, options: PlanOptions) -> None:
        self._snapshot = snapshot
        self._options = options
        self._simulation = Simulation(snapshot, options.scheduler)
        state = self._simulation.state
        self._live = [
            p
            for p in snapshot.pods
            if p.node_name in state.table.index and not p.finished and not p.terminating
        ]
        waiting = [p for p in snapshot.pods if waits(p)]
        self._groups = Groups(state, (p.template for p in (*self._live, *waiting)))
        self._carriers = list(self._groups.all)
        self._before = [g.counts(state) for g in self._carriers]
        self._evictable = Evictable(snapshot, options.policy)
        order = victim_order(snapshot, self._evictable.budgets)
        self._classes = Classes(self._simulation, self._groups, self._evictable, self._live, order)
        self._trial = Trial(
            self._simulation,
            self._classes,
            order,
            Waiting(self._simulation, self._groups, waiting),
            options.certainty,
        )
        self._explainer = Explainer(self._simulation, self._classes, self._trial)

    def plan(self) -> Plan:
        """The plan."""
        parts = components(self._carriers, self._classes.all)
        violated = [
            (groups, classes)
            for groups, classes in parts
            if any(g.excess(self._before[g.index]) for g in groups)
        ]
        walks: list[tuple[Component, list[Step]]] = []
        first: dict[int, Walk] = {}
        last: dict[int, Walk] = {}
        with ExitStack() as made:
            for _ in range(PASSES):
                progress = False
                for i, (groups, classes) in enumerate(violated):
                    if i in last and not last[i].residual:
                        continue
                    component = Component(groups, classes, self._simulation)
                    walk = Search(self._simulation, component, self._trial, self._options.effort).run()
                    first.setdefault(i, walk)
                    last[i] = walk
                    if walk.steps:
                        progress = True
                        walks.append((component, list(walk.steps)))
                        for s in walk.steps:
                            made.enter_context(self._simulation.after((s.made,)))
                if not progress:
                    break
        placed, dropped = waves(self._simulation, self._evictable.budgets, walks)
        kept, capped = self._capped(placed)
        with ExitStack() as made:
            for p in kept:
                s = p.step
                made.enter_context(self._simulation.after((s.made,)))
            return self._result(violated, list(first.values()), kept, capped, dropped)

    def _capped(self, placed: Sequence[Placed]) -> tuple[list[Placed], list[Blocked]]:
        """The moves within the caps; after a move that a cap forbids, none of its component follows."""
        caps = Caps(self._options.policy, self._snapshot)
        kept: list[Placed] = []
        blocked: list[Blocked] = []
        ended: dict[int, Reason] = {}
        for p in placed:
            component = id(p.component)
            reason = ended.get(component) or caps.spend(p.step.pod, self._leaves(p))
            if reason is None:
                kept.append(p)
            else:
                ended[component] = reason
                blocked.append(Blocked(p.step.pod, reason))
        return kept, blocked

    def _leaves(self, placed: Placed) -> list[str]:
        fixed = (self._carriers[g] for g in placed.step.verdict.fixes)
        return [
            f"{g.constraint.topology_key}={g.names[g.rows[placed.step.row]]}"
            for g in fixed
            if g.rows[placed.step.row] >= 0
        ]

    def _result(
        self,
        violated: Sequence[tuple[tuple[Group, ...], tuple[object, ...]]],
        walks: Sequence[Walk],
        placed: Sequence[Placed],
        capped: list[Blocked],
        dropped: Sequence[tuple[Component, Step]],
    ) -> Plan:
        state = self._simulation.state
        after = [g.counts(state) for g in self._carriers]
        blocked: dict[str, Blocked] = {b.pod.key: b for b in capped}
        reasons: dict[int, tuple[Reason, ...]] = {}
        for groups, classes in violated:
            component = Component(groups, classes, self._simulation)  # type: ignore[arg-type]
            for g in groups:
                if not g.excess(self._before[g.index]):
                    continue
                here = list(self._explainer.protected(g, self._before[g.index], self._classes.all))
                if g.excess(after[g.index]):
                    late = [b for b in capped if g.index in self._groups.counted(b.pod.template)]
                    stuck = [b for b in self._explainer.stuck(component, g) if b.pod.key not in blocked]
                    reasons[g.index] = self._explainer.of_group(
                        g, after[g.index], [*late, *(b for b in here), *stuck]
                    )
                    here += stuck
                for b in here:
                    blocked.setdefault(b.pod.key, b)
        moved = {key_of(p.step.pod) for p in placed}
        bound = sum(w.bound for w in walks)
        return Plan(
            constraints=tuple(
                self._constraint(g, self._before[g.index], after[g.index], reasons.get(g.index, ()))
                for g in self._carriers
            ),
            moves=tuple(self._move(p) for p in placed),
            blocked=tuple(b for _, b in sorted(blocked.items()) if key_of(b.pod) not in moved),
            lower_bound=bound,
            optimal=all(w.proved for w in walks) and not capped and not dropped and self._whole(walks, after),
            assumptions=self._assumptions(),
        )

    def _whole(self, walks: Sequence[Walk], after: list[Ints]) -> bool:
        """Whether no other order of the components could have removed more: none is left, or there is one."""
        return len(walks) <= 1 or not any(g.excess(a) for g, a in zip(self._carriers, after, strict=True))

    def _move(self, placed: Placed) -> Move:
        s, table = placed.step, self._simulation.state.table
        owner = placed.component.classes[s.q].owner
        assert owner is not None, "a pod without an owner is never evicted"
        served = [self._carriers[g] for g in s.verdict.fixes]
        parts = []
        for g in served:
            to = sorted({g.names[d] for d in g.rows[placed.destinations] if d >= 0})
            where = ", ".join(to[:4]) + (f" or {len(to) - 4} more" if len(to) > 4 else "")
            key = g.constraint.topology_key
            parts.append(f"{key}: from {g.names[g.rows[s.row]]} to {where}")
        return Move(
            pod=s.pod,
            owner=self._evictable.owners.top(owner),
            replacement=s.verdict.replacement,
            destinations=tuple(table.names[n] for n in placed.destinations),
            predicted=table.names[s.landed],
            certain=s.certain,
            wave=placed.wave,
            fixes=s.verdict.fixes,
            reason="; ".join(parts) or "makes way for the constraints of its neighbours",
        )

    def _constraint(
        self, group: Group, before: Ints, after: Ints, reasons: tuple[Reason, ...]
    ) -> ConstraintResult:
        excess, residual = group.excess(before), group.excess(after)
        status: Status = "balanced"
        if excess:
            status = "fixable" if not residual else "partly-fixable" if residual < excess else "unfixable"
        total = int(before.sum())
        return ConstraintResult(
            constraint=group.constraint,
            workloads=self._workloads(group),
            domains=dict(zip(group.names, map(int, before), strict=True)),
            after=dict(zip(group.names, map(int, after), strict=True)),
            skew=group.skew(before),
            excess=excess,
            residual_excess=residual,
            status=status,
            reasons=reasons,
            worst_domain_loss=int(before.max()) / total if total else 0.0,
            best_domain_loss=-(-total // group.size) / total if total else 0.0,
        )

    def _workloads(self, group: Group) -> tuple[str, ...]:
        """Who carries the constraint, as Kind/name."""
        owners = self._evictable.owners
        found = set()
        for c in self._classes.all:
            if group.index in c.carried:
                top = owners.top(c.owner) if c.owner is not None else None
                found.add(f"{top.kind}/{top.name}" if top else "Pod")
        return tuple(sorted(found))

    def _assumptions(self) -> tuple[str, ...]:
        return ()


__all__ = ["Planner", "Pod", "ReasonCode", "np", "plan"]
