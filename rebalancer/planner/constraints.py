"""The constraints of one snapshot that are planned together: hard ones, or soft ones after them.

Each kind makes moves from the simulation's present state on, and in the end says what has become of each
constraint, and why an excess stays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.engine.version import ServerVersion
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import ON, Alike, Snapshot, alike, among
from rebalancer.planner.cluster.components import Component, components
from rebalancer.planner.cluster.groups import Group, Groups
from rebalancer.planner.cluster.pod_classes import Classes, PodClass
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.hard import HardPhase, Planned, Solved
from rebalancer.planner.moves import Candidate, HardJudge, JudgedMove, Order
from rebalancer.planner.objective import with_progress
from rebalancer.planner.plan import ConstraintResult, PlanOptions, Refusal, reason
from rebalancer.planner.soft import SoftJudge, SoftPhase
from rebalancer.planner.stays import Carriers, Explainer, WhyNot, carriers, shown_constraint
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from rebalancer.spread.arrays import Ints, narrow

# What is planned where the scheduler is newer than all rules that are known.
#
# The last known rules are taken, however many releases ahead it is, unless policy refuses. A move counts as
# certain only where the scheduler's own decisions have shown all that it rests on.


def policy_for(version: ServerVersion, options: PlanOptions) -> PolicyOptions:
    """The policy, by which no pod may be evicted where the version is refused."""
    if not version.newer_by or options.newer_versions == "likely":
        return options.policy
    held = Reason(
        ReasonCode.NEWER_VERSION,
        f"server version {version.text} is newer than {version.followed}, the last whose rules are known, "
        "and policy refuses to evict by those",
        {"ahead": version.newer_by},
        "upgrade the rebalancer to a release that knows this version, or set planner.newerVersions: likely",
    )
    return replace(options.policy, held=held)


# What planning starts from: the snapshot's pods by what they are to the plan, and who of them may go.


class View:
    """The simulation of a snapshot; its `live` pods hold a node, the `pending` ones wait for one."""

    def __init__(self, snapshot: Snapshot, options: PlanOptions) -> None:
        self.snapshot = snapshot
        self.simulation = Simulation(snapshot, options.scheduler, options.on_progress)
        self.simulation.state.witness = options.witness
        options.on_progress()
        self.evictable = Evictable(snapshot, policy_for(self.simulation.state.version, options))
        options.on_progress()
        on_node = self.simulation.state.table.index
        self.live: list[Alike] = list(among(snapshot.live, on_node))
        unplaced = (g for g in snapshot.live if not all(map(ON, g.pods)))
        self.pending: list[Pod] = [p for group in unplaced for p in group.pods if p.waits]


_MANY = 100
"""Things that take a millisecond together, or less."""


class Results(Struct, frozen=True, eq=False):
    """The constraints that the plan lists, each with its group, and pods that are left alone."""

    groups: tuple[Group, ...]
    constraints: tuple[ConstraintResult, ...]
    refused: tuple[Refusal, ...]


class Constraints(ABC):
    """To be made before waiting pods are placed (`waiting.settle`): it notes the counts of the snapshot.

    `groups`: all that bind the moves; `own`: those that the moves are for.
    """

    def __init__(
        self, view: View, options: PlanOptions, order: Callable[[Pod], Order], *, soft: bool
    ) -> None:
        self.view = view
        self.options = options
        self.order = order
        state = view.simulation.state
        groups = with_progress((*view.live, *alike(view.pending)), options.on_progress, _MANY)
        self.groups = Groups(state, (g.template for g in groups), soft=soft)
        # What is asked about later may add groups; these are the ones of now.
        self.own = [g for g in self.groups.all if g.constraint.hard is not soft]
        # Small, as it may be many groups times many domains.
        own = with_progress(self.own, options.on_progress, _MANY)
        shared = view.simulation.shared
        self._before = [shared.of(narrow(g.counts_once(state))) for g in own]

    @abstractmethod
    def plan(self, waiting: Waiting) -> Planned:
        """Moves from the simulation's present state on."""

    def results(self, moves: Sequence[JudgedMove], given_up: Sequence[Refusal]) -> Results:
        """In the state that the plan ends in, after these moves; `given_up`: moves that were not kept."""
        served = {id(g) for m in moves for g in m.fixes}
        concerned = {i for m in moves for i in self.groups.counted(m.pod.template)}
        explainer = self.explainer()
        refused = {r.pod.key: r for r in given_up}
        groups, constraints = [], []
        for group, before in zip(
            with_progress(self.own, self.options.on_progress), self.before(), strict=True
        ):
            # What Pending pods add to a count that no move concerns is not the plan's doing.
            after = group.counts(self.view.simulation.state) if group.index in concerned else before
            violated = bool(group.excess(before) or group.excess(after))
            if not (violated or id(group) in served or self.always_listed(group)):
                continue
            reasons: tuple[Reason, ...] = ()
            if violated and explainer is not None:
                movable, why_not = self.left_alone(group)
                explained = explainer.explained(group, before, after, given_up, movable, why_not)
                reasons = explained.reasons
                for r in explained.refused:
                    refused.setdefault(r.pod.key, r)
            workloads = self.carriers.workloads.get(group.index, ())
            groups.append(group)
            shared = self.view.simulation.shared
            constraints.append(shown_constraint(group, before, after, reasons, workloads, shared))
        return Results(tuple(groups), tuple(constraints), tuple(refused.values()))

    def before(self) -> Iterator[Ints]:
        """int64[D] of each own group: the counts of the snapshot."""
        return (b.astype(np.int64) for b in self._before)

    @cached_property
    def carriers(self) -> Carriers:
        """Who carries the constraints."""
        return carriers(self.groups, self.view.evictable.owners, self.view.live, self.view.pending)

    @abstractmethod
    def explainer(self) -> Explainer | None:
        """Explains what stays; None if nothing was planned."""

    @abstractmethod
    def left_alone(self, group: Group) -> tuple[Sequence[PodClass], WhyNot]:
        """The classes of which pods could move for a violated group, and why one does not."""

    @abstractmethod
    def always_listed(self, group: Group) -> bool:
        """Whether the plan lists the group also where it holds."""


class HardConstraints(Constraints):
    """DoNotSchedule. `solved`: what was found for a component with an excess, by its place in `violated`."""

    def __init__(self, view: View, options: PlanOptions, order: Callable[[Pod], Order]) -> None:
        super().__init__(view, options, order, soft=False)
        self.classes = Classes(view.simulation, self.groups, view.evictable, view.live, order)
        excess = [g for g, b in zip(self.own, self.before(), strict=True) if g.excess(b)]
        self.violated = [
            (groups, classes)
            for groups, classes in components(self.own, self.classes.coupled(excess))
            if not set(excess).isdisjoint(groups)
        ]
        self.solved: Mapping[int, Solved] = {}
        self._dropped: Sequence[JudgedMove] = ()
        self._judge: HardJudge | None = None

    def judge(self, waiting: Waiting) -> HardJudge:
        """The judge of their moves."""
        return HardJudge(self.view.simulation, self.classes, self.order, waiting, self.options.certainty)

    def plan(self, waiting: Waiting) -> Planned:
        """Moves from the simulation's present state on; what was solved before is gone on with."""
        self._judge = self.judge(waiting)
        phase = HardPhase(
            self.view.simulation,
            self.view.evictable,
            self._judge,
            self.violated,
            self.options.effort,
            self.solved,
        )
        planned = phase.plan()
        self.solved, self._dropped = planned.solved, planned.dropped
        return planned

    def _left(self, groups: Sequence[Group]) -> int:
        state = self.view.simulation.state
        return sum(g.excess(g.counts(state)) for g in groups)

    def excess(self) -> int:
        """The excess of these constraints in the simulation's present state."""
        return self._left(self.own)

    def ended(self) -> tuple[Solved, ...]:
        """The components that had an excess, with what the simulation's present state leaves of it."""
        return tuple(s.ending(self._left(s.groups)) for s in self.solved.values())

    def explainer(self) -> Explainer:
        """Explains what stays."""
        return Explainer(self.view.simulation, self.groups, self.classes)

    def left_alone(self, group: Group) -> tuple[Sequence[PodClass], WhyNot]:
        """The component's classes; why a pod does not move is judged anew in the plan's end state."""
        solved = self._solved_with.get(group.index)
        if solved is None:
            return (), lambda *_: reason(ReasonCode.SIMULATION_LIMIT)
        simulation = self.view.simulation
        others = [
            m
            for m in self._dropped
            if m.candidate.members not in solved.classes and key_of(m.pod) in simulation.state.pods
        ]

        def why_not(pod_class: PodClass, node: int, pod: Pod) -> Reason:
            assert self._judge is not None
            member = solved.classes.index(pod_class)
            component = self._component(solved)
            found = self._judge.why_not(component.start, Candidate(component, member, node, pod))
            if found is None and others:
                # These were in its way where it was searched.
                with simulation.after(others):
                    component = Component(solved.groups, solved.classes, simulation)
                    found = self._judge.why_not(component.start, Candidate(component, member, node, pod))
            ended = solved.solution.exhausted
            return found or reason(ReasonCode.NOT_NEEDED if ended else ReasonCode.SIMULATION_LIMIT)

        return solved.classes, why_not

    @cached_property
    def _solved_with(self) -> Mapping[int, Solved]:
        """What was solved, by the index of each of its groups."""
        return {g.index: s for s in self.solved.values() for g in s.groups}

    @remembered()
    def _component(self, solved: Solved) -> Component:
        return Component(solved.groups, solved.classes, self.view.simulation)

    def always_listed(self, group: Group) -> bool:  # noqa: ARG002
        """Every hard constraint is listed."""
        return True


class SoftConstraints(Constraints):
    """ScheduleAnyway. Those that nobody wrote, as they come from the scheduler's defaults, are not listed
    where they hold: each would name every node."""

    def __init__(self, view: View, options: PlanOptions, order: Callable[[Pod], Order]) -> None:
        # Hard ones are among the groups: what a soft constraint moves, they must hold for.
        super().__init__(view, options, order, soft=True)
        self._planned = Planned()
        self._classes: Classes | None = None

    def plan(self, waiting: Waiting) -> Planned:
        """Moves from the simulation's present state on."""
        simulation, evictable = self.view.simulation, self.view.evictable
        violated = {g.index for g in self.own if g.excess(g.counts(simulation.state))}
        if not violated:
            return Planned()
        counted = (a for a in self.view.live if not violated.isdisjoint(self.groups.counted(a.template)))
        classes = Classes(simulation, self.groups, evictable, counted, self.order)
        judge = SoftJudge(simulation, self.groups, classes, self.order, waiting, self.options.certainty)
        coupled = [
            Component(groups, own, simulation)
            for groups, own in components(self.groups.all, classes.all)
            if own and any(g.index in violated for g in groups)
        ]
        self._classes = classes
        phase = SoftPhase(simulation, evictable, judge, coupled, self.options.effort)
        self._planned = phase.plan()
        return self._planned

    def explainer(self) -> Explainer | None:
        """Explains what stays."""
        if self._classes is None:
            return None
        return Explainer(self.view.simulation, self.groups, self._classes)

    def left_alone(self, group: Group) -> tuple[Sequence[PodClass], WhyNot]:  # noqa: ARG002
        """All classes, with what the search has found."""
        assert self._classes is not None
        known, unneeded = self._planned.why_not, reason(ReasonCode.NOT_NEEDED)
        return self._classes.all, lambda c, node, _: known.get((c.index, node), unneeded)

    def always_listed(self, group: Group) -> bool:
        """Constraints that somebody wrote are listed."""
        return group.index in self.carriers.written
