"""What a plan needs of soft constraints: which there are, their moves, and why an excess of theirs stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.planner.classes import Classes, PodClass
from rebalancer.planner.component import Component, components
from rebalancer.planner.explain import Explainer
from rebalancer.planner.groups import Group, Groups
from rebalancer.planner.options import PlanOptions
from rebalancer.planner.plan import Blocked, ConstraintResult
from rebalancer.planner.result import Results
from rebalancer.planner.simulation import Simulation, key_of
from rebalancer.planner.soft import SoftPlan, SoftPlanner
from rebalancer.planner.soft_trial import Judged, SoftTrial
from rebalancer.planner.trial import Trial
from rebalancer.planner.victims import Order
from rebalancer.planner.waiting import Waiting
from rebalancer.planner.waves import Placed
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Ints

Spend = Callable[[Pod, Sequence[Group], int], Reason | None]
"""Counts an eviction from a node, by its number, which serves these groups; or says which cap forbids it."""


class SoftPhase:
    """The soft constraints of one snapshot. To be made before waiting pods are placed (`Waiting`).

    `listed`, once there are results: the groups that the plan lists. Those that nobody wrote, as they come
    from the scheduler's defaults, are not among them where they hold: each would name every node.
    """

    def __init__(
        self,
        simulation: Simulation,
        evictable: Evictable,
        options: PlanOptions,
        live: Sequence[Pod],
        waiting: Sequence[Pod],
        order: Callable[[Pod], Order],
        first: int,
    ) -> None:
        self._simulation = simulation
        self._evictable = evictable
        self._options = options
        self._live = live
        state = simulation.state
        self._pending = waiting
        self._order = order
        # Hard ones too: what a soft constraint moves, they must hold for.
        self._joint = Groups(state, (p.template for p in (*live, *waiting)), soft=True)
        self._groups = [g for g in self._joint.all if not g.constraint.hard]
        # Small, as it is many groups times many domains.
        self._before = [g.counts(state).astype(np.int32) for g in self._groups]
        self._first = first
        self.listed: list[Group] = []
        self._components: dict[int, Component] = {}
        self._classes: Sequence[PodClass] = ()
        self._explainer: Explainer | None = None
        self._refused: Judged = {}

    def moves(self, first: int, spend: Spend, waiting: Waiting) -> tuple[list[Placed], list[Blocked]]:
        """Moves from the simulation's present state on, in waves from `first`; and those given up."""
        violated = self._violated()
        if not violated:
            return [], []
        classes = self._of(violated)
        trial = Trial(self._simulation, classes, self._order, waiting, self._options.certainty)
        unplaced = [p for p in self._pending if ("placed", key_of(p)) not in self._simulation.state.pods]
        soft = SoftTrial(self._simulation, self._joint, classes, waiting, unplaced, self._options.certainty)
        parts = [
            Component(groups, own, self._simulation)
            for groups, own in components(self._joint.all, classes.all)
            if own and any(g.index in violated for g in groups)
        ]
        self._classes = classes.all
        self._components.update((id(c), c) for c in parts)
        self._explainer = Explainer(self._simulation, classes, trial)
        planner = SoftPlanner(self._simulation, parts, self._evictable, trial, soft, self._options.effort)
        found: SoftPlan = planner.plan(
            first,
            lambda c, s: spend(s.pod, [c.groups[c.local[i]] for i in s.verdict.fixes], s.row),
        )
        self._refused = found.refused
        return list(found.placed), list(found.given_up)

    def results(
        self,
        results: Results,
        placed: Sequence[Placed],
        given_up: Sequence[Blocked],
        blocked: Sequence[Blocked],
    ) -> tuple[list[ConstraintResult], tuple[Blocked, ...], list[Placed]]:
        """In the state that the plan ends in: the result of each group; `blocked`, with pods left alone here,
        `given_up` among them; and the plan's moves, which name constraints by their place in it."""
        moved = {key_of(p.step.pod) for p in placed}
        soft = {id(p) for p in placed if self._serves_soft(p)}
        served = {i for p in placed if id(p) in soft for i in p.step.verdict.fixes}
        every = {b.pod.key: b for b in (*given_up, *blocked)}
        workloads, written = self._carriers()
        found: list[ConstraintResult] = []
        position: dict[int, int] = {}
        for group, small in zip(self._groups, self._before, strict=True):
            before: Ints = small.astype(np.int64)
            after = group.counts(self._simulation.state)
            holds = not (group.excess(before) or group.excess(after) or group.index in served)
            if holds and group.index not in written:
                continue
            position[group.index] = self._first + len(found)
            reasons, here = self._explained(group, before, after, given_up)
            for b in here:
                every.setdefault(b.pod.key, b)
            self.listed.append(group)
            found.append(results.constraint(group, before, after, reasons, workloads.get(group.index, ())))
        alone = tuple(b for _, b in sorted(every.items()) if key_of(b.pod) not in moved)
        return found, alone, [_numbered(p, position) if id(p) in soft else p for p in placed]

    def _serves_soft(self, placed: Placed) -> bool:
        return id(placed.component) in self._components

    def _explained(
        self, group: Group, before: Ints, after: Ints, given_up: Sequence[Blocked]
    ) -> tuple[tuple[Reason, ...], list[Blocked]]:
        """Why an excess stays, and the pods that are left where they are."""
        if self._explainer is None or not (group.excess(before) or group.excess(after)):
            return (), []
        counts = before if group.excess(before) else after
        blocked = list(self._explainer.protected(group, counts, self._classes))
        if not group.excess(after):
            return (), blocked
        late = [b for b in given_up if group.index in self._joint.counted(b.pod.template)]
        known = {b.pod.key for b in late}
        stuck = self._explainer.soft_stuck(group, self._classes, self._refused)
        blocked += [b for b in stuck if b.pod.key not in known]
        return self._explainer.of_group(group, after, [*late, *blocked]), blocked

    def _carriers(self) -> tuple[dict[int, tuple[str, ...]], frozenset[int]]:
        """Group → who carries it, as Kind/name; and the groups that somebody wrote."""
        owners = self._evictable.owners
        found: dict[int, set[str]] = {}
        written: set[int] = set()
        seen: set[tuple[int, str]] = set()
        for p in self._live:
            of = (id(p.template), p.owner.uid if p.owner is not None else "")
            if of not in seen:
                seen.add(of)
                owner = owners.of(p)
                top = owners.top(owner) if owner is not None else None
                carried = self._joint.carried(p.template)
                if p.template.spread:
                    written.update(carried)
                for g in carried:
                    found.setdefault(g, set()).add(f"{top.kind}/{top.name}" if top else "Pod")
        for p in self._pending:
            if p.template.spread:
                written.update(self._joint.carried(p.template))
        return {g: tuple(sorted(names)) for g, names in found.items()}, frozenset(written)

    def _violated(self) -> frozenset[int]:
        state = self._simulation.state
        return frozenset(g.index for g in self._groups if g.excess(g.counts(state)))

    def _of(self, violated: frozenset[int]) -> Classes:
        """Classes of the pods that these groups count."""

        def pods() -> Iterator[Pod]:
            for p in self._live:
                if not violated.isdisjoint(self._joint.counted(p.template)):
                    yield p

        return Classes(self._simulation, self._joint, self._evictable, pods(), self._order)


def _numbered(placed: Placed, position: Mapping[int, int]) -> Placed:
    """With the places that the plan gives to the constraints which the move serves."""
    s = placed.step
    fixes = tuple(position[i] for i in s.verdict.fixes)
    return replace(placed, step=replace(s, verdict=replace(s.verdict, fixes=fixes)))
