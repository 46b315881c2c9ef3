"""The lowest excess that harmless moves lead to, found level by level, without the integer program.

In a tangle of constraints most moves do harm, so that the best final state cannot be walked to, and few
placements can be. From the start, every harmless move is made as the scheduler's scores predict it; of the
placements that come of one move more, the lowest few are gone on from. The beam widens as long as candidates
are left to try; what was tried is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import product

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.planner import objective
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.planner.search.problem import Problem, reached
from rebalancer.spread.arrays import Ints

WIDTHS = (2, 8, 32, 128)
"""Placements of one level that are gone on from, in turn."""
PATIENCE = 4
"""Levels without a lower excess after which a beam ends; the widest goes on to the end."""

Height = tuple[int, int]
"""Total excess, then pods outside their bands."""


class Position(Struct, frozen=True, eq=False):
    """A placement, int64[Q, N], the height of each group there, and the moves that led there."""

    placed: Ints
    heights: tuple[Height, ...]
    moves: tuple[JudgedMove, ...] = ()

    @property
    def height(self) -> Height:
        """The sum over all groups."""
        return sum(e for e, _ in self.heights), sum(o for _, o in self.heights)

    @property
    def rank(self) -> objective.Rank:
        """How good an end it is."""
        return objective.rank(self.height[0], self.moves)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for positions from which the same moves are open."""
        return reached(self.placed, self.moves)


GUIDES: tuple[Callable[[Position], tuple[Height, ...]], ...] = (
    lambda p: (p.height,),
    lambda p: ((sum(e * e for e, _ in p.heights), 0), p.height),
    lambda p: ((max(e for e, _ in p.heights), 0), p.height),
)
"""From which positions to go on: those of the least excess in all; of the least in all, where larger ones
count more; of the least worst one. None of the three leads lowest in every cluster, so all are tried."""


class Beam:
    """Searches one component from its start. It leaves the simulation's state as it was.

    `exhausted`: no other sequence of moves along predicted landings leads lower.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._onward: dict[tuple[object, ...], list[Position]] = {}
        self.exhausted = False

    def run(self, least: int) -> Position:
        """The best position found; `least`: an excess that nothing lies below."""
        start = self._problem.start
        groups = range(len(self._problem.component.groups))
        first = best = Position(start, tuple(self._height(i, start) for i in groups))
        for width, guide in product(WIDTHS, GUIDES):
            best = min(best, self._run(first, width, guide, least), key=lambda p: p.rank)
            if self.exhausted or self._problem.effort.gone or best.rank.excess <= least:
                break
        return best

    def _run(
        self, first: Position, width: int, guide: Callable[[Position], tuple[Height, ...]], least: int
    ) -> Position:
        """What a beam of this width reaches."""
        lowest = first
        level, seen = [first], {first.key}
        waited, whole = 0, True
        patience = PATIENCE if width < WIDTHS[-1] else int(self._problem.start.sum()) + 1
        while level and lowest.height[0] > least and waited < patience:
            following: list[Position] = []
            for position in level:
                for after in self._after(position):
                    if after.key not in seen:
                        seen.add(after.key)
                        following.append(after)
            whole = whole and len(following) <= width
            level = nsmallest(width, following, key=guide)
            waited += 1
            here = min(level, key=lambda p: p.height, default=lowest)
            if here.height[0] < lowest.height[0]:
                lowest, waited = here, 0
        self.exhausted = whole and not level and not self._problem.effort.gone
        return lowest

    def _after(self, position: Position) -> Iterator[Position]:
        """The positions one harmless move further."""
        key = position.key
        if key not in self._onward:
            found = list(self._further(position))
            if self._problem.effort.gone:
                return
            self._onward[key] = found
        for after in self._onward[key]:
            yield Position(after.placed, after.heights, (*position.moves, after.moves[-1]))

    def _further(self, position: Position) -> Iterator[Position]:
        placed = position.placed
        with self._problem.tried.after(position.moves):
            for move in self._problem.helpful(placed, self._problem.remaining.cell_of(placed)):
                landed = int(self._problem.expected(move)[0])
                after = move.candidate.moved(placed, landed)
                counted = self._problem.component.counted[move.candidate.pod_class]
                heights = tuple(
                    self._height(i, after) if i in counted else height
                    for i, height in enumerate(position.heights)
                )
                yield Position(after, heights, (replace(move, landed=landed),))

    def _height(self, i: int, placed: Ints) -> Height:
        group = self._problem.component.groups[i]
        counts = self._problem.component.counts(i, placed)
        over = group.excess(counts)
        if not over:
            return 0, 0
        low, high, skew = group.minimum(counts), int(counts.max()), group.constraint.max_skew
        outside = int(np.maximum(counts - low - skew, 0).sum())
        if group.enough_domains:
            outside += int(np.maximum(high - skew - counts, 0).sum())
        return over, outside
