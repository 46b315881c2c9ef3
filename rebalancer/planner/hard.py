"""Moves for the components that hard constraints couple.

Components share nothing but room, ports, inter-pod affinity and budgets, so each is searched by itself, from
where the others' moves lead. What stays stuck gets further turns, for the room that others freed; and where
few components are violated, all of them are searched together, for one may have to give way to another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.reason import Reason
from rebalancer.planner import objective
from rebalancer.planner.bounds import Effort, bounds_of
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import PodClass, add_held, add_yields
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.moves import HardJudge, JudgedMove, Wave, in_order
from rebalancer.planner.plan import ComponentFigures, Refusal, crowded_out
from rebalancer.planner.search.orders import Beam, GuaranteedMoves, Odds
from rebalancer.planner.search.problem import Problem
from rebalancer.planner.waves.schedule import Schedule, Scheduler
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Ints

# From counts to a sequence that the scheduler follows.
#
# The bound says how few moves a placement needs; the scheduler, not the planner, chooses where a
# replacement lands. First the search looks for *guaranteed* moves: at each, wherever this and every earlier
# replacement landed, the bound falls by one. If there are none, a beam along the landings that the
# scheduler's scores predict shows how low harmless moves lead. Then it looks for those moves to as low an
# end that are fewest and have the best odds. Bounded in candidates tried, not in time.

FIRST = 0.25
"""Share of the effort after which the search for guaranteed moves waits for a sign that there are some."""
BEAM = 3.0
"""Share of the effort that the beam may take: its candidates need no program."""
LIKELY_ONLY = 0.5
"""Share of the effort for the odds where no moves are guaranteed."""


class Solution(Struct, frozen=True, eq=False):
    """The best sequence of moves found, which ends at an excess of `residual`.

    `least`: excess of the best final state; `bound`: moves that a final state with an excess of `residual`
    takes at least; `proved`: it surely reaches the best final state, in as few moves; `exhausted`: no other
    sequence of moves, landing as predicted, leads lower; `begun`: it is to be gone on from.
    """

    moves: tuple[JudgedMove, ...]
    least: int
    bound: int
    residual: int
    proved: bool
    exhausted: bool = False
    begun: bool = False


class Search:
    """Finds the best solution of one component. It leaves the simulation's state as it was.

    `given`: int64[N] by resource, what other components' pods may leave free before the plan ends; it counts
    for what is proved, not for where the search goes.
    """

    def __init__(
        self,
        simulation: Simulation,
        component: Component,
        judge: HardJudge,
        effort: int,
        given: Mapping[str, Ints] | None = None,
        begun: bool = False,
    ) -> None:
        """`begun`: from where the scores predict that moves lead, so that no further one is certain."""
        self._component, self._begun = component, begun
        self._effort = Effort(effort, simulation.spent)
        self._remaining = bounds_of(component, self._effort)
        self._problem = Problem(simulation, component, judge, self._remaining, self._effort)
        roomier = component.roomier(given) if given and component.classes else None
        self._roomier = (
            bounds_of(roomier, Effort(0, simulation.spent)) if roomier is not None else self._remaining
        )
        self.solver = self._remaining.solver

    def run(self) -> Solution:
        """The solution of the best rank (`objective`) that is found."""
        c = self._component
        if not c.classes:
            now = sum(c.excesses(c.start))
            return Solution((), now, 0, now, proved=True, exhausted=True)
        with self._problem.tried.kept():
            solution = self._found()
        self._problem.forget()
        self._roomier.forget()
        return solution

    def lowest(self) -> int:
        """The least excess of any final state, wherever others' pods go."""
        c = self._component
        return self._roomier.start_least() if c.classes else sum(c.excesses(c.start))

    def bound(self, residual: int) -> int:
        """The fewest moves from the start to a final state with this excess, wherever others' pods go."""
        return self._roomier.start_moves(residual) or 0 if self._component.classes else 0

    def _found(self) -> Solution:
        least = self._remaining.start_least()
        search = GuaranteedMoves(self._problem, least, predicted=self._begun)
        self._effort.renew(FIRST)
        if (guaranteed := search.guaranteed()) is not None:
            return self._guaranteed(guaranteed, least)
        if search.begun:
            moves = tuple(advance.move for advance in search.begun)
            residual = self._problem.excess(search.begun[-1].placements.predicted.placed)
            return Solution(moves, least, self.bound(residual), residual, proved=False, begun=True)
        beam = Beam(self._problem)
        self._effort.renew(BEAM)
        lowest = beam.run(least)
        residual, moves = lowest.rank.excess, lowest.moves
        self._effort.renew()
        if residual == least and (guaranteed := search.guaranteed()) is not None:
            return self._guaranteed(guaranteed, least)
        found = None
        if residual > least and beam.exhausted:
            # Predicted are the first of equally good nodes; the scheduler takes any of them.
            found = self._likeliest(search, least, self._fewest(least) + objective.DETOURS)
        if found is not None:
            residual, moves = least, found
        elif moves:
            search = search if residual == least else GuaranteedMoves(self._problem, residual)
            most = min(len(moves), self._fewest(residual) + objective.DETOURS)
            moves = self._likeliest(search, residual, most) or moves
        self._effort.renew(FIRST)
        proved = not moves and residual == least and self._proved((), least)
        exhausted = residual == least or beam.exhausted
        return Solution(search.marked(moves), least, self.bound(residual), residual, proved, exhausted)

    def _fewest(self, residual: int) -> int:
        """The fewest moves to this excess with the room that there is."""
        return self._remaining.start_moves(residual) or 0

    def _guaranteed(self, moves: tuple[JudgedMove, ...], least: int) -> Solution:
        return Solution(moves, least, self.bound(least), least, self._proved(moves, least), exhausted=True)

    def _proved(self, moves: tuple[JudgedMove, ...], least: int) -> bool:
        """Whether no other end has less excess, and none as little with fewer moves."""
        best = self._roomier
        return best.exact and best.start_least() == least and self.bound(least) == len(moves)

    def _likeliest(self, search: GuaranteedMoves, residual: int, most: int) -> tuple[JudgedMove, ...] | None:
        """The moves to `residual`, `most` of them at most, that are worth most; None if none are found."""
        for thorough in (True, False):
            self._effort.renew(LIKELY_ONLY)
            odds = Odds(self._problem, residual, most, thorough=thorough)
            worth, found = odds.best()
            if not self._effort.gone:
                break
        if worth <= objective.LEAST_WORTH:
            return None
        for allowed in range(self._fewest(residual), len(found) if found else most + 1):
            if (lucky := odds.lucky(allowed)) is not None:
                return lucky
        if found is not None:
            harmless = search.harmless(len(found))
            if harmless is not None and odds.of(harmless[0]) >= worth - objective.ALIKE:
                return harmless
        return found


# A component as a search has solved it, and what the plan makes of that.


class Solved(Struct, frozen=True, eq=False):
    """A component that has an excess, and the solution found for it by a search from its start."""

    groups: tuple[Group, ...]
    classes: tuple[PodClass, ...]
    solution: Solution
    search: Search

    def ending(self, residual: int) -> Solved:
        """The component as the plan leaves it, otherwise than its own solution would."""
        if residual == self.solution.residual:
            return self
        least = min(self.solution.least, residual)
        bound = self.search.bound(residual)
        return replace(
            self,
            solution=replace(
                self.solution, least=least, bound=bound, residual=residual, proved=False, exhausted=False
            ),
        )

    def further(self, solution: Solution) -> Solved:
        """The component with a solution that goes on from where the first one led."""
        w = self.solution
        joined = Solution(
            (*w.moves, *solution.moves),
            min(w.least, solution.least),
            # Without classes, moves of others have lowered what it counts.
            w.bound
            if solution.residual == w.residual or not self.classes
            else self.search.bound(solution.residual),
            solution.residual,
            w.proved and not solution.moves and w.residual == solution.residual,
            solution.exhausted,
        )
        return replace(self, solution=joined)

    def figures(self) -> ComponentFigures:
        """What solving it came to."""
        w = self.solution
        return ComponentFigures(
            groups=tuple(g.index for g in self.groups),
            pods=sum(len(p) for c in self.classes for p in c.by_node.values()),
            domains=sum(g.size for g in self.groups),
            solver=self.search.solver,
            bound=w.bound,
            least=w.least,
            moves=len(w.moves),
            residual=w.residual,
            proved=w.proved,
        )


# One kind of constraints, planned: moves per component, in turns; waves; what is better still.


class Planned(Struct, frozen=True, eq=False):
    """Moves in waves, and the pods whose move was planned and not kept; `dropped`: these moves.

    `solved`, for hard constraints: by a component's place among the violated ones. `why_not`, for soft ones:
    why no pod of a place (`Candidate.place`) is moved, as far as one was tried.
    """

    waves: tuple[Wave, ...] = ()
    refused: tuple[Refusal, ...] = ()
    dropped: tuple[JudgedMove, ...] = ()
    solved: Mapping[int, Solved] = {}
    why_not: Mapping[tuple[int, int], Reason] = {}


class Phase(ABC):
    """Plans once, from the simulation's present state on, which it leaves as it was.

    `turns`: how often the components are gone through: the moves of one change what others can do.
    """

    turns: int

    def __init__(self, simulation: Simulation, evictable: Evictable) -> None:
        self.simulation = simulation
        self.scheduler = Scheduler(simulation, evictable)

    def plan(self) -> Planned:
        """The moves, in waves."""
        schedule = self.improved(self._in_turns())
        moved = {m.pod.key for m in in_order(schedule.waves)}
        dropped = {m.pod.key: m for m in schedule.dropped if m.pod.key not in moved}
        refused = tuple(crowded_out(m.pod) for m in dropped.values())
        return Planned(schedule.waves, refused, tuple(dropped.values()))

    @abstractmethod
    def sequences(self, turn: int) -> Iterator[Sequence[JudgedMove]]:
        """For each component with an excess its moves; each from where the ones before it lead."""

    @abstractmethod
    def scheduled(self, sequences: Sequence[Sequence[JudgedMove]]) -> Schedule:
        """These moves in waves."""

    @abstractmethod
    def improved(self, found: Schedule) -> Schedule:
        """A better plan than all turns gave, or the same."""

    def _in_turns(self) -> Schedule:
        """Each component by itself, in turns, until a turn adds nothing."""
        waves: list[Wave] = []
        dropped: tuple[JudgedMove, ...] = ()
        with ExitStack() as made:
            for turn in range(self.turns):
                sequences = []
                with ExitStack() as before:
                    for moves in self.sequences(turn):
                        sequences.append(moves)
                        before.enter_context(self.simulation.after(moves))
                more = self.scheduled(sequences)
                waves += more.waves
                dropped = more.dropped
                if not more.waves:
                    break
                made.enter_context(self.simulation.after(in_order(more.waves)))
        return Schedule(tuple(waves), dropped)


TURNS = 3
"""Times that the components are gone through: room that one frees may be what another lacks."""
TOGETHER = 12
"""Violated components that are also searched as one, as long as there are no more."""

Coupled = tuple[tuple[Group, ...], tuple[PodClass, ...]]
"""Groups that share pods which may move, and the classes of these."""


class HardPhase(Phase):
    """`solved`: what was found before, by the component's place in `violated`; this phase goes on from it."""

    turns = TURNS

    def __init__(
        self,
        simulation: Simulation,
        evictable: Evictable,
        judge: HardJudge,
        violated: Sequence[Coupled],
        effort: int,
        solved: Mapping[int, Solved],
    ) -> None:
        super().__init__(simulation, evictable)
        self._judge = judge
        self._violated = violated
        self._effort = effort
        self._again = bool(solved)
        self._solved = dict(solved)
        self._yields: dict[str, Ints] = {}

    def plan(self) -> Planned:
        """The moves, in waves, and what is solved by now."""
        return replace(super().plan(), solved=self._solved)

    def sequences(self, turn: int) -> Iterator[Sequence[JudgedMove]]:
        """The best solution of each component."""
        if turn == 0:
            self._yields = self._movable()
        for i, (groups, classes) in enumerate(self._violated):
            found: list[JudgedMove] = []
            for begun in (False, True):
                with self.simulation.after(found):
                    component = Component(groups, classes, self.simulation)
                    if not any(component.excesses(component.start)):
                        break
                    own = component.yields()
                    others = {r: a - own.get(r, 0) for r, a in self._yields.items()}
                    search = Search(self.simulation, component, self._judge, self._effort, others, begun)
                    solution = search.run()
                known = self._solved.get(i)
                self._solved[i] = (
                    known.further(solution) if known else Solved(groups, classes, solution, search)
                )
                # What is built on landings that are only predicted is not certain.
                guaranteed = turn == 0 and not self._again and not begun
                found += [replace(m, certain=m.certain and guaranteed) for m in solution.moves]
                # The next component finds them where they went, and there they may make room again.
                for m in solution.moves:
                    add_held(self._yields, m.replacement, m.landed, 1, self.simulation)
                if not solution.begun:
                    break
            if found:
                yield found

    def scheduled(self, sequences: Sequence[Sequence[JudgedMove]]) -> Schedule:
        """These moves in waves, with regard to Pending pods."""
        return self.scheduler.schedule(sequences, self._judge.waiting)

    def improved(self, found: Schedule) -> Schedule:
        """The best of what the turns gave, of that with further moves of all together, and of these alone."""
        waves = found.waves
        if not 1 < len(self._violated) <= TOGETHER or not self._may_gain(self.left(waves)):
            return found
        ends = (waves, waves + self._together(waves), self._together(()))
        best = min(ends, key=lambda w: objective.rank(sum(self.left(w)), in_order(w), len(w)))
        return Schedule(best, found.dropped)

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
