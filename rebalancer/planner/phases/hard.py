"""Moves for the components that hard constraints couple.

Components share nothing but room, ports, inter-pod affinity and budgets, so each is searched by itself, from
where the others' moves lead. What stays stuck gets further turns, for the room that others freed; and where
few components are violated, all of them are searched together, for one may have to give way to another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from rebalancer.planner import objective
from rebalancer.planner.bounds import Effort, bounds_of
from rebalancer.planner.cluster.class_room import add_yields
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import PodClass
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.moves.judge import HardJudge
from rebalancer.planner.moves.move import JudgedMove, Wave, in_order
from rebalancer.planner.phases.phase import Phase, Planned
from rebalancer.planner.phases.solved import Solved
from rebalancer.planner.search.beam import Beam
from rebalancer.planner.search.problem import Problem
from rebalancer.planner.search.search import BEAM, Search
from rebalancer.planner.waves.schedule import Schedule
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Ints

TURNS = 3
"""Times that the components are gone through: room that one frees may be what another lacks."""
TOGETHER = 12
"""Violated components that are also searched as one, as long as there are no more."""

Coupled = tuple[tuple[Group, ...], tuple[PodClass, ...]]
"""Groups that share pods which may move, and the classes of these."""


class HardPhase(Phase):
    """`solved`: what was found before, by the component's place in `violated`; this phase goes on from it.
    `late`: places of components that get no moves yet."""

    turns = TURNS

    def __init__(
        self,
        simulation: Simulation,
        evictable: Evictable,
        judge: HardJudge,
        violated: Sequence[Coupled],
        effort: int,
        solved: Mapping[int, Solved],
        late: Collection[int] = (),
    ) -> None:
        super().__init__(simulation, evictable)
        self._judge = judge
        self._violated = violated
        self._effort = effort
        self._again = bool(solved)
        self._solved = dict(solved)
        self._late = late
        self._yields: dict[str, Ints] = {}

    def plan(self) -> Planned:
        """The moves, in waves, and what is solved by now."""
        return replace(super().plan(), solved=self._solved)

    def walks(self, turn: int) -> Iterator[Sequence[JudgedMove]]:
        """The best walk of each component."""
        if turn == 0:
            self._yields = self._movable()
        for i, (groups, classes) in enumerate(self._violated):
            if i in self._late:
                continue
            component = Component(groups, classes, self.simulation)
            if not any(component.excesses(component.start)):
                continue
            own = component.yields()
            others = {r: a - own.get(r, 0) for r, a in self._yields.items()}
            search = Search(self.simulation, component, self._judge, self._effort, others)
            walk = search.run()
            known = self._solved.get(i)
            self._solved[i] = known.further(walk) if known else Solved(groups, classes, walk, search)
            # A later turn builds on landings that are only predicted.
            sure = turn == 0 and not self._again
            yield [replace(m, certain=m.certain and sure) for m in walk.moves]

    def scheduled(self, walks: Sequence[Sequence[JudgedMove]]) -> Schedule:
        """These moves in waves, with regard to Pending pods."""
        return self.scheduler.schedule(walks, self._judge.waiting)

    def improved(self, found: Schedule) -> Schedule:
        """The best of what the turns gave, of that with further moves of all together, and of these alone."""
        waves = found.waves
        if self._late or not 1 < len(self._violated) <= TOGETHER or not self._may_gain(self.left(waves)):
            return found
        ends = (waves, waves + self._together(waves), self._together(()))
        best = min(ends, key=lambda w: objective.rank(sum(self.left(w)), in_order(w), len(w)))
        return found if best is waves else Schedule(best, ())

    def left(self, waves: Sequence[Wave] = ()) -> list[int]:
        """The excess of each component after these moves."""
        with self.simulation.after(in_order(waves)):
            state = self.simulation.state
            return [sum(g.excess(g.counts(state)) for g in groups) for groups, _ in self._violated]

    def _may_gain(self, left: Sequence[int]) -> bool:
        """Whether the room of others is what keeps one of the components from less excess."""
        return any(
            i in self._solved and excess > self._solved[i].search.lowest() for i, excess in enumerate(left)
        )

    def _movable(self) -> dict[str, Ints]:
        """int64[N] by resource: what the movable pods of all components take."""
        total: dict[str, Ints] = {}
        for _, classes in self._violated:
            add_yields(total, classes, self.simulation)
        return total

    def _together(self, waves: Sequence[Wave]) -> tuple[Wave, ...]:
        """Moves that lower the excess of all stuck components together, after those in the waves."""
        stuck = [v for v, left in zip(self._violated, self.left(waves), strict=True) if left]
        with self.simulation.after(in_order(waves)):
            component = Component(
                tuple(g for groups, _ in stuck for g in groups),
                tuple(c for _, classes in stuck for c in classes),
                self.simulation,
            )
            if not component.classes:
                return ()
            effort = Effort(self._effort, self.simulation.spent)
            effort.renew(BEAM)
            problem = Problem(self.simulation, component, self._judge, bounds_of(component, effort), effort)
            with problem.tried.kept():
                moves = Beam(problem).run(0).moves
            return self.scheduled([moves]).waves
