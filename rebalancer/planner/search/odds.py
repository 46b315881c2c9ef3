"""Which move first, where the scheduler's choice decides whether the end can be reached.

A plan is made anew once replacements have landed, so that a move is worth as much as the chance that it
leaves: over each of its landings, the chance of the best move from there, less what the evictions cost. All
nodes that the filter leaves count alike: other replacements of a wave, and pods of others, come between and
change the scores. The plan itself follows the landings that the scores predict.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.planner import objective
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.planner.search.problem import Problem, reached
from rebalancer.spread.arrays import Ints

Moves = tuple[JudgedMove, ...]


class Landing(Struct, frozen=True, eq=False):
    """One way in which a move may end: the move as it lands, how likely that is, and whether the scores
    predict it."""

    move: JudgedMove
    likelihood: float
    predicted: bool


class Prospect(Struct, frozen=True, eq=False):
    """What may be expected of a placement: the chance to get to the end, in so many moves on average, and the
    landings of the best move, the likeliest first."""

    chance: float
    moves: float = 0.0
    landings: tuple[Landing, ...] = ()

    @property
    def worth(self) -> float:
        """What is compared."""
        return objective.worth(self.chance, self.moves)


class Odds:
    """Chances of one component to come to an excess of at most `residual` in at most `allowed` moves.

    `thorough`: landings that the scores do not predict are followed, too, not only counted.
    """

    def __init__(self, problem: Problem, residual: int, allowed: int, *, thorough: bool) -> None:
        self._problem = problem
        self._residual = residual
        self._allowed = allowed
        self._thorough = thorough
        self._known: dict[tuple[object, ...], Prospect] = {}
        self._opened: dict[tuple[object, ...], list[tuple[Landing, ...]]] = {}

    def best(self) -> tuple[float, Moves | None]:
        """The best worth, and its moves along predicted landings; None if these do not get there."""
        return self._prospect(self._problem.start, ()).worth, self._predicted(self._problem.start, ())

    def of(self, first: JudgedMove) -> float:
        """The worth of a sequence that begins with this move."""
        for landings in self._open(self._problem.start, ()):
            if landings[0].move.candidate.place == first.candidate.place:
                return self._expected(self._problem.start, (), landings, -np.inf).worth
        return 0.0

    def lucky(self, allowed: int) -> Moves | None:
        """At most `allowed` moves to the end that some landings allow, however likely they are."""
        return self._onward(self._problem.start, (), allowed, set())

    def _onward(
        self, placed: Ints, moves: Moves, allowed: int, hopeless: set[tuple[object, ...]]
    ) -> Moves | None:
        """The moves and those to the end after them; adds to `hopeless` from where there is no way."""
        if self._there(placed):
            return moves
        key = reached(placed, moves)
        needed = self._problem.remaining.moves(placed, self._residual)
        if needed is None or needed > allowed - len(moves) or key in hopeless:
            return None
        best = self._prospect(placed, moves).landings
        for landings in dict.fromkeys((best, *self._open(placed, moves))):
            for way in landings:
                found = self._onward(_moved(placed, way.move), (*moves, way.move), allowed, hopeless)
                if found is not None or self._problem.effort.gone:
                    return found
        hopeless.add(key)
        return None

    def _predicted(self, placed: Ints, moves: Moves) -> Moves | None:
        if self._there(placed):
            return moves
        ways = [w.move for w in self._prospect(placed, moves).landings if w.predicted]
        for move in sorted(ways, key=lambda m: -self._after(placed, moves, m).worth):
            found = self._predicted(_moved(placed, move), (*moves, move))
            if found is not None:
                return found
        return None

    def _there(self, placed: Ints) -> bool:
        return self._problem.excess(placed) <= self._residual

    def _after(self, placed: Ints, moves: Moves, move: JudgedMove) -> Prospect:
        return self._prospect(_moved(placed, move), (*moves, move))

    def _prospect(self, placed: Ints, moves: Moves) -> Prospect:
        if self._there(placed):
            return Prospect(1.0)
        key = reached(placed, moves)
        found = self._known.get(key)
        if found is None:
            found = self._best(placed, moves)
            if not self._problem.effort.gone:
                self._known[key] = found
        return found

    def _best(self, placed: Ints, moves: Moves) -> Prospect:
        """The best move's prospect; giving up is one, too."""
        best = Prospect(0.0)
        needed = self._needed(placed, moves)
        if needed is None:
            return best
        for landings in self._open(placed, moves):
            prospect = self._expected(placed, moves, landings, best.worth)
            if prospect.worth > best.worth:
                best = prospect
            if objective.unbeaten(best.worth, needed) or self._problem.effort.gone:
                break
        return best

    def _expected(self, placed: Ints, moves: Moves, landings: tuple[Landing, ...], enough: float) -> Prospect:
        """The average over all landings of a move; cut short where it is not worth more than `enough`."""
        chance, evictions, left = 0.0, 1.0, 1.0
        for way in landings:
            if way.predicted or self._thorough:
                after = self._after(placed, moves, way.move)
            else:
                # There may be a way on, or there is none.
                needed = self._needed(_moved(placed, way.move), (*moves, way.move))
                after = Prospect(0.0) if needed is None else Prospect(1.0, float(needed))
            left -= way.likelihood
            chance += way.likelihood * after.chance
            evictions += way.likelihood * after.moves
            if objective.worth(chance + left, evictions) <= enough:
                break
        return Prospect(chance, evictions, landings)

    def _needed(self, placed: Ints, moves: Moves) -> int | None:
        """Moves that the rest takes at least; None if they are more than are left."""
        if self._there(placed):
            return 0
        needed = self._problem.remaining.moves(placed, self._residual)
        return needed if needed is not None and needed <= self._allowed - len(moves) else None

    def _open(self, placed: Ints, moves: Moves) -> list[tuple[Landing, ...]]:
        """The landings of every move that helps and does no harm, the most promising move first."""
        key = reached(placed, moves)
        if key not in self._opened:
            self._opened[key] = self._tried(placed, moves)
        return self._opened[key]

    def _tried(self, placed: Ints, moves: Moves) -> list[tuple[Landing, ...]]:
        course = self._problem.remaining.course(placed, self._residual)
        if course is None:
            return []
        with self._problem.tried.after(moves):
            cell_of = self._problem.remaining.cell_of(placed)
            helpful = self._problem.helpful(placed, cell_of, course.gives)
            return [self._landings(move, cell_of) for move in helpful]

    def _landings(self, move: JudgedMove, cell_of: Ints) -> tuple[Landing, ...]:
        """One for each cell of nodes, predicted nodes apart."""
        nodes = move.destinations
        best = np.isin(nodes, self._problem.expected(move))
        cells = 2 * cell_of[nodes] + ~best
        ways: list[Landing] = []
        for cell in np.unique(cells):
            here = cells == cell
            landed = replace(move, landed=int(nodes[here][0]))
            ways.append(Landing(landed, float(here.mean()), bool(best[here][0])))
        return tuple(sorted(ways, key=lambda w: (-w.likelihood, w.move.landed)))


def _moved(placed: Ints, move: JudgedMove) -> Ints:
    return move.candidate.moved(placed, move.landed)
