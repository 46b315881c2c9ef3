"""What was solved, as a Plan: counts before and after, moves with their reasons, what stays and why."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.classes import Classes, PodClass
from rebalancer.planner.component import Component
from rebalancer.planner.explain import Explainer
from rebalancer.planner.groups import Group, Groups
from rebalancer.planner.plan import Blocked, ComponentFigures, ConstraintResult, Move, Status
from rebalancer.planner.search import Search
from rebalancer.planner.simulation import Simulation, key_of
from rebalancer.planner.step import Walk
from rebalancer.planner.waves import Placed
from rebalancer.policy.owners import Owners
from rebalancer.spread.arrays import Ints


class Part(Struct, frozen=True, eq=False):
    """A component that has an excess, and the walk found for it by a search from its start."""

    groups: tuple[Group, ...]
    classes: tuple[PodClass, ...]
    walk: Walk
    search: Search

    def ending(self, residual: int) -> Part:
        """The component as the plan leaves it, otherwise than its own walk would."""
        walk = self.walk
        bound = self.search.bound(residual)
        ended = Walk(walk.steps, min(walk.least, residual), bound, residual, proved=False)
        return Part(self.groups, self.classes, ended, self.search)

    def further(self, walk: Walk) -> Part:
        """The component with a walk that goes on from where the first one led."""
        w = self.walk
        joined = Walk(
            (*w.steps, *walk.steps),
            min(w.least, walk.least),
            # Without classes, moves of others have lowered what it counts.
            w.bound if walk.residual == w.residual or not self.classes else self.search.bound(walk.residual),
            walk.residual,
            w.proved and not walk.steps and w.residual == walk.residual,
        )
        return Part(self.groups, self.classes, joined, self.search)


class Results:
    """Builds the parts of a Plan. The simulation is in the state that the plan ends in."""

    def __init__(
        self, simulation: Simulation, groups: Groups, classes: Classes, owners: Owners, explainer: Explainer
    ) -> None:
        self._simulation = simulation
        self._groups = groups
        self._classes = classes
        self._owners = owners
        self._explainer = explainer

    def explained(
        self,
        parts: Sequence[Part],
        before: Sequence[Ints],
        after: Sequence[Ints],
        given_up: Sequence[Blocked],
        moved: set[object],
    ) -> tuple[tuple[Blocked, ...], dict[int, tuple[Reason, ...]]]:
        """Pods left alone, and why each group's excess stays. `given_up`: moves that were not kept."""
        blocked = {b.pod.key: b for b in given_up}
        reasons: dict[int, tuple[Reason, ...]] = {}
        for part in parts:
            component = Component(part.groups, part.classes, self._simulation)
            for g in part.groups:
                if not g.excess(before[g.index]):
                    continue
                here = list(self._explainer.protected(g, before[g.index], self._classes.all))
                if g.excess(after[g.index]):
                    late = [b for b in given_up if g.index in self._groups.counted(b.pod.template)]
                    known = {b.pod.key for b in given_up}
                    stuck = [b for b in self._explainer.stuck(component, g) if b.pod.key not in known]
                    if late:
                        # They wait for those that were given up.
                        stuck = [b for b in stuck if b.reason.code is not ReasonCode.SIMULATION_LIMIT]
                    here += stuck
                    reasons[g.index] = self._explainer.of_group(g, after[g.index], [*late, *here])
                for b in here:
                    blocked.setdefault(b.pod.key, b)
        return (
            tuple(b for _, b in sorted(blocked.items()) if key_of(b.pod) not in moved),
            reasons,
        )

    def constraint(
        self,
        group: Group,
        before: Ints,
        after: Ints,
        reasons: tuple[Reason, ...],
        workloads: tuple[str, ...],
    ) -> ConstraintResult:
        """The result of one group. `workloads`: who carries it."""
        excess, residual = group.excess(before), group.excess(after)
        status: Status = "balanced"
        if excess or residual:
            # A soft constraint may have to give way to a hard one.
            status = "fixable" if not residual else "partly-fixable" if residual < excess else "unfixable"
        total = int(before.sum())
        return ConstraintResult(
            constraint=group.constraint,
            workloads=workloads,
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

    def move(self, placed: Placed, listed: Sequence[Group]) -> Move:
        """One move, with what it does for each constraint. `listed`: the plan's constraints."""
        s, table = placed.step, self._simulation.state.table
        owner = placed.component.classes[s.q].owner
        assert owner is not None, "a pod without an owner is never evicted"
        parts = []
        fixed = [listed[i] for i in s.verdict.fixes]
        for g in fixed:
            to = [g.names[d] for d in sorted({int(d) for d in g.rows[placed.destinations] if d >= 0})]
            where = ", ".join(to[:4]) + (f" or {len(to) - 4} more" if len(to) > 4 else "")
            source = g.names[g.rows[s.row]] if g.rows[s.row] >= 0 else "no domain"
            parts.append(f"{g.constraint.topology_key}: from {source} to {where}")
        reason = "; ".join(dict.fromkeys(parts)) or "makes way for the constraints of its neighbours"
        if fixed and not any(g.constraint.hard for g in fixed):
            reason += "; rests on the scheduler's scores, as the constraint is soft"
        elif not s.certain:
            reason += "; how this ends depends on where replacements land: after each wave a new plan is made"
        return Move(
            pod=s.pod,
            owner=self._owners.top(owner),
            replacement=s.verdict.replacement,
            destinations=tuple(table.names[n] for n in placed.destinations),
            predicted=table.names[s.landed],
            certain=s.certain,
            wave=placed.wave,
            fixes=s.verdict.fixes,
            reason=reason,
        )

    def workloads(self, group: Group) -> tuple[str, ...]:
        """Who carries a hard constraint, as Kind/name."""
        if self._carriers is None:
            found: dict[int, set[str]] = {}
            for c in self._classes.all:
                top = self._owners.top(c.owner) if c.owner is not None else None
                for g in c.carried:
                    found.setdefault(g, set()).add(f"{top.kind}/{top.name}" if top else "Pod")
            self._carriers = {g: tuple(sorted(names)) for g, names in found.items()}
        return self._carriers.get(group.index, ())

    _carriers: dict[int, tuple[str, ...]] | None = None


def figures(part: Part) -> ComponentFigures:
    """What solving a component came to."""
    w = part.walk
    return ComponentFigures(
        groups=tuple(g.index for g in part.groups),
        pods=sum(len(p) for c in part.classes for p in c.by_row.values()),
        domains=sum(g.size for g in part.groups),
        solver="closed form" if part.search.potential.closed else "HiGHS",
        bound=w.bound,
        least=w.least,
        moves=len(w.steps),
        residual=w.residual,
        proved=w.proved,
    )


def leaves(group: Group, row: int) -> str:
    """key=value of the domain that a pod on node `row` leaves; "" if it is in none."""
    d = int(group.rows[row])
    return f"{group.constraint.topology_key}={group.names[d]}" if d >= 0 else ""
