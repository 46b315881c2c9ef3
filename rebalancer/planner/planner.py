"""Snapshot in, plan out: the pipeline of constraints, components, walks, waves and reasons."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
from msgspec.structs import replace

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.belief import moved
from rebalancer.planner.classes import Classes
from rebalancer.planner.component import Component, components
from rebalancer.planner.explain import Explainer
from rebalancer.planner.findings import findings
from rebalancer.planner.groups import Group, Groups
from rebalancer.planner.hard_phase import PASSES, HardPhase
from rebalancer.planner.options import PlanOptions
from rebalancer.planner.plan import Blocked, Plan
from rebalancer.planner.result import Part, Results, figures, leaves
from rebalancer.planner.simulation import Simulation, key_of
from rebalancer.planner.soft_phase import SoftPhase
from rebalancer.planner.trial import Trial
from rebalancer.planner.victims import victim_order
from rebalancer.planner.waiting import Waiting, waits
from rebalancer.planner.waves import CROWDED_OUT, Placed, next_wave
from rebalancer.policy.caps import Caps
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Ints


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
        live = [
            p
            for p in snapshot.pods
            if p.node_name in state.table.index and not p.finished and not p.terminating
        ]
        waiting = [p for p in snapshot.pods if waits(p)]
        self._groups = Groups(state, (p.template for p in (*live, *waiting)))
        self._carried = list(self._groups.all)
        self._before = [g.counts(state) for g in self._carried]
        self._evictable = Evictable(snapshot, options.policy)
        self._caps = Caps(options.policy, snapshot)
        order = victim_order(snapshot, self._evictable.budgets)
        self._soft: SoftPhase | None = None
        if options.soft == "predicted":
            self._soft = SoftPhase(
                self._simulation, self._evictable, options, live, waiting, order, len(self._carried)
            )
        self._classes = Classes(self._simulation, self._groups, self._evictable, live, order)
        self._waiting = Waiting(self._simulation, self._groups, waiting, self._classes.highest_priority)
        self._trial = Trial(self._simulation, self._classes, order, self._waiting, options.certainty)
        violated = [
            (groups, classes)
            for groups, classes in components(self._carried, self._classes.all)
            if any(g.excess(self._before[g.index]) for g in groups)
        ]
        self._hard_phase = HardPhase(
            self._simulation, self._evictable, self._trial, self._waiting, violated, options.effort
        )

    def plan(self) -> Plan:
        """The plan."""
        parts: dict[int, Part] = {}
        kept, given_up = self._hard(parts, 1)
        late: list[Blocked] = []
        results = Results(
            self._simulation,
            self._groups,
            self._classes,
            self._evictable.owners,
            Explainer(self._simulation, self._classes, self._trial),
        )
        with ExitStack() as made:
            made.enter_context(self._simulation.after(p.step.made for p in kept))
            if self._soft is not None:
                more, late = self._balance_soft(self._soft, parts, kept, made)
                given_up += more
            self._hard_phase.ended(parts)
            gone: set[object] = {key_of(p.step.pod) for p in kept}
            after = self._after(kept)
            blocked, reasons = results.explained(list(parts.values()), self._before, after, given_up, gone)
            left = any(g.excess(a) for g, a in zip(self._carried, after, strict=True))
            constraints = [
                results.constraint(g, before, now, reasons.get(g.index, ()), results.workloads(g))
                for g, before, now in zip(self._carried, self._before, after, strict=True)
            ]
            if self._soft is not None:
                soft, blocked, kept = self._soft.results(results, kept, late, blocked)
                constraints += soft
        listed = [*self._carried, *(self._soft.listed if self._soft is not None else ())]
        return Plan(
            constraints=tuple(constraints),
            moves=tuple(results.move(p, listed) for p in kept),
            blocked=blocked,
            findings=findings(self._simulation, self._evictable),
            lower_bound=sum(p.walk.bound for p in parts.values()),
            # With an excess left, another order of several components might have left less; and of what
            # rests on scores, a soft excess that stays among it, nothing is proved.
            optimal=all(p.walk.proved for p in parts.values())
            and all(p.step.certain for p in kept)
            and not given_up
            and not late
            and (len(parts) <= 1 or not left)
            and not any(c.residual_excess for c in constraints if not c.constraint.hard),
            assumptions=(*self._simulation.assumptions(), *self._rests_on_scores()),
            components=tuple(figures(p) for p in parts.values()),
        )

    def _after(self, kept: Sequence[Placed]) -> list[Ints]:
        """Each group's counts in the end. Where no move concerns it, they are those of now: what Pending pods
        will add is not the plan's doing."""
        concerned = {g for p in kept for g in self._groups.counted(p.step.pod.template)}
        state = self._simulation.state
        return [
            g.counts(state) if g.index in concerned else before
            for g, before in zip(self._carried, self._before, strict=True)
        ]

    def _rests_on_scores(self) -> tuple[str, ...]:
        if self._soft is None:
            return ()
        return (
            "soft constraints (ScheduleAnyway) are in scope: moves for them rest on the scheduler's scores",
        )

    def _balance_soft(
        self, soft: SoftPhase, parts: dict[int, Part], kept: list[Placed], made: ExitStack
    ) -> tuple[list[Blocked], list[Blocked]]:
        """Adds moves for soft constraints to `kept`, and makes them.

        Hard constraints get another turn after them, for the room that they free, and so on. Returns what was
        given up of the hard ones' moves, and of the soft ones'.
        """
        given_up: list[Blocked] = []
        for _ in range(PASSES):
            more, late = soft.moves(next_wave(kept), self._spend, self._waiting)
            kept += more
            made.enter_context(self._simulation.after(p.step.made for p in more))
            state = self._simulation.state
            if not more or not any(g.excess(g.counts(state)) for g in self._carried):
                break
            again, dropped = self._hard(parts, next_wave(kept))
            given_up += dropped
            if not again:
                break
            kept += again
            made.enter_context(self._simulation.after(p.step.made for p in again))
        return given_up, late

    def _hard(self, parts: dict[int, Part], first: int) -> tuple[list[Placed], list[Blocked]]:
        """Moves for hard constraints from the present state on, within the caps, in waves from `first`."""
        placed, dropped = self._hard_phase.moves(parts, first)
        kept, capped = self._within_caps(placed)
        return kept, dropped + capped

    def _spend(self, pod: Pod, serves: Sequence[Group], row: int) -> Reason | None:
        left = [leaves(g, row) for g in serves]
        return self._caps.spend(pod, [d for d in left if d])

    def _within_caps(self, placed: Sequence[Placed]) -> tuple[list[Placed], list[Blocked]]:
        """The moves within the caps; after a move that a cap forbids, none of its component follows."""
        kept: list[Placed] = []
        given_up: list[Blocked] = []
        ended: dict[int, Reason] = {}
        for p in placed:
            component, s = id(p.component), p.step
            serves = [self._groups.all[g] for g in s.verdict.fixes]
            reason = ended.get(component) or self._spend(s.pod, serves, s.row)
            if reason is None:
                kept.append(p)
            else:
                ended[component] = reason
                given_up.append(Blocked(s.pod, reason))
        if given_up:
            kept, crowded = self._still_hold(kept)
            given_up += crowded
        return kept, given_up

    def _still_hold(self, placed: Sequence[Placed]) -> tuple[list[Placed], list[Blocked]]:
        """The moves that still hold without those that a cap took out of the plan, judged anew one by one."""
        kept: list[Placed] = []
        crowded: list[Blocked] = []
        ended: set[int] = set()
        stands: dict[int, tuple[Component, Ints]] = {}
        with ExitStack() as made:
            for p in placed:
                s, this = p.step, id(p.component)
                if this not in stands:
                    component = Component(p.component.groups, p.component.classes, self._simulation)
                    stands[this] = (component, component.start)
                component, now = stands[this]
                verdict = None if this in ended else self._trial.best(component, now, s.q, s.row, s.pod)
                if verdict is None or not verdict.helps or s.landed not in verdict.destinations:
                    ended.add(this)
                    crowded.append(Blocked(s.pod, CROWDED_OUT))
                    continue
                stands[this] = (component, moved(now, s.q, s.row, s.landed))
                nodes = np.union1d(p.destinations, verdict.destinations)
                sure = s.certain and len(nodes) == len(p.destinations)
                kept.append(replace(p, step=replace(s, certain=sure), destinations=nodes))
                made.enter_context(self._simulation.after((s.made,)))
        return _renumbered(kept), crowded


def _renumbered(placed: Sequence[Placed]) -> list[Placed]:
    """The moves in waves that follow one another without a gap, from the first one's number on."""
    numbers = sorted({p.wave for p in placed})
    first = numbers[0] if numbers else 1
    return [replace(p, wave=first + numbers.index(p.wave)) for p in placed]
