"""From counts to a sequence that the scheduler follows.

The bound says how few moves a placement needs; the scheduler, not the planner, chooses where a replacement
lands. First the search looks for *sure* moves: at each, wherever this and every earlier replacement landed,
the bound falls by one. If there are none, a beam along the landings that the scheduler's scores predict shows
how low harmless moves lead. Then it looks for those moves to as low an end that are fewest and have the best
odds. Bounded in candidates tried, not in time.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rebalancer.planner import objective
from rebalancer.planner.bounds import Effort, bounds_of
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.moves.judge import HardJudge
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.planner.search.beam import Beam
from rebalancer.planner.search.odds import Odds
from rebalancer.planner.search.problem import Problem
from rebalancer.planner.search.sure import SureMoves
from rebalancer.spread.arrays import Ints

FIRST = 0.25
"""Share of the effort after which the search for sure moves waits for a sign that there are some."""
BEAM = 3.0
"""Share of the effort that the beam may take: its candidates need no program."""
UNSURE = 0.5
"""Share of the effort for the odds where no moves are sure."""


class Walk(Struct, frozen=True, eq=False):
    """The best sequence of moves found, which ends at an excess of `residual`.

    `least`: excess of the best final state; `bound`: moves that a final state with an excess of `residual`
    takes at least; `proved`: it surely reaches the best final state, in as few moves; `exhausted`: no other
    sequence of moves, landing as predicted, leads lower.
    """

    moves: tuple[JudgedMove, ...]
    least: int
    bound: int
    residual: int
    proved: bool
    exhausted: bool = False


class Search:
    """Finds the best walk of one component. It leaves the simulation's state as it was.

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
    ) -> None:
        self._component = component
        self._effort = Effort(effort, simulation.spent)
        self._remaining = bounds_of(component, self._effort)
        self._problem = Problem(simulation, component, judge, self._remaining, self._effort)
        roomier = component.roomier(given) if given and component.classes else None
        self._roomier = (
            bounds_of(roomier, Effort(0, simulation.spent)) if roomier is not None else self._remaining
        )
        self.solver = self._remaining.solver

    def run(self) -> Walk:
        """The walk of the best rank (`objective`) that is found."""
        c = self._component
        if not c.classes:
            now = sum(c.excesses(c.start))
            return Walk((), now, 0, now, proved=True, exhausted=True)
        with self._problem.tried.kept():
            walk = self._found()
        self._problem.forget()
        self._roomier.forget()
        return walk

    def lowest(self) -> int:
        """The least excess of any final state, wherever others' pods go."""
        c = self._component
        return self._roomier.start_least() if c.classes else sum(c.excesses(c.start))

    def bound(self, residual: int) -> int:
        """The fewest moves from the start to a final state with this excess, wherever others' pods go."""
        return self._roomier.start_moves(residual) or 0 if self._component.classes else 0

    def _found(self) -> Walk:
        least = self._remaining.start_least()
        search = SureMoves(self._problem, least)
        self._effort.renew(FIRST)
        if (sure := search.sure()) is not None:
            return self._surely(sure, least)
        beam = Beam(self._problem)
        self._effort.renew(BEAM)
        lowest = beam.run(least)
        residual, moves = lowest.rank.excess, lowest.moves
        self._effort.renew()
        if residual == least and (sure := search.sure()) is not None:
            return self._surely(sure, least)
        found = None
        if residual > least and beam.exhausted:
            # Predicted are the first of equally good nodes; the scheduler takes any of them.
            found = self._likeliest(search, least, self._fewest(least) + objective.DETOURS)
        if found is not None:
            residual, moves = least, found
        elif moves:
            search = search if residual == least else SureMoves(self._problem, residual)
            most = min(len(moves), self._fewest(residual) + objective.DETOURS)
            moves = self._likeliest(search, residual, most) or moves
        self._effort.renew(FIRST)
        proved = not moves and residual == least and self._proved((), least)
        exhausted = residual == least or beam.exhausted
        return Walk(search.marked(moves), least, self.bound(residual), residual, proved, exhausted)

    def _fewest(self, residual: int) -> int:
        """The fewest moves to this excess with the room that there is."""
        return self._remaining.start_moves(residual) or 0

    def _surely(self, moves: tuple[JudgedMove, ...], least: int) -> Walk:
        return Walk(moves, least, self.bound(least), least, self._proved(moves, least), exhausted=True)

    def _proved(self, moves: tuple[JudgedMove, ...], least: int) -> bool:
        """Whether no other end has less excess, and none as little with fewer moves."""
        best = self._roomier
        return best.exact and best.start_least() == least and self.bound(least) == len(moves)

    def _likeliest(self, search: SureMoves, residual: int, most: int) -> tuple[JudgedMove, ...] | None:
        """The moves to `residual`, `most` of them at most, that are worth most; None if none are found."""
        for thorough in (True, False):
            self._effort.renew(UNSURE)
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
