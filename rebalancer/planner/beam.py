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

from rebalancer.planner.belief import moved
from rebalancer.planner.ground import Ground
from rebalancer.planner.step import Step, reached
from rebalancer.spread.arrays import Ints

WIDTHS = (2, 8, 32, 128)
"""Placements of one level that are gone on from, in turn."""
PATIENCE = 4
"""Levels without a lower excess after which a beam ends."""

Height = tuple[int, int]
"""Total excess, then pods outside their bands."""
Rank = Callable[["Spot"], tuple[Height, ...]]


class Spot(Struct, frozen=True, eq=False):
    """A placement, int64[Q, N], the height of each group there, and the steps that led there."""

    placed: Ints
    heights: tuple[Height, ...]
    steps: tuple[Step, ...] = ()

    @property
    def height(self) -> Height:
        """The sum over all groups."""
        return sum(e for e, _ in self.heights), sum(o for _, o in self.heights)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for spots from which the same moves are open."""
        return reached(self.placed, self.steps)


RANKS: tuple[Rank, ...] = (
    lambda s: (s.height,),
    lambda s: ((sum(e * e for e, _ in s.heights), 0), s.height),
    lambda s: ((max(e for e, _ in s.heights), 0), s.height),
)
"""What is low: the least excess in all; the least in all, larger ones counting more; the least worst one.
In a tangle now the one, now the other leads lower."""


class Beam:
    """Searches one component from its start. It leaves the simulation's state as it was.

    `exhausted`: no other walk along predicted landings leads lower.
    """

    def __init__(self, on: Ground) -> None:
        self._on = on
        self._onward: dict[tuple[object, ...], list[Spot]] = {}
        self.exhausted = False

    def run(self, least: int) -> Spot:
        """The lowest spot found, by the fewest moves found; `least`: an excess that nothing lies below."""
        start = self._on.component.start
        lowest = Spot(start, tuple(self._height(i, start) for i in range(len(self._on.component.groups))))
        first = lowest
        for width, rank in product(WIDTHS, RANKS):
            found = self._run(first, width, rank, least)
            lowest = min(lowest, found, key=lambda s: (s.height[0], len(s.steps)))
            if self.exhausted or self._on.effort.gone or lowest.height[0] <= least:
                break
        return lowest

    def _run(self, first: Spot, width: int, rank: Rank, least: int) -> Spot:
        """What a beam of this width reaches."""
        lowest = first
        level, seen = [first], {first.key}
        waited, whole = 0, True
        while level and lowest.height[0] > least and waited < PATIENCE:
            following: list[Spot] = []
            for spot in level:
                for after in self._after(spot):
                    if after.key not in seen:
                        seen.add(after.key)
                        following.append(after)
            whole = whole and len(following) <= width
            level = nsmallest(width, following, key=rank)
            waited += 1
            here = min(level, key=lambda s: s.height, default=lowest)
            if here.height[0] < lowest.height[0]:
                lowest, waited = here, 0
        self.exhausted = whole and not level and not self._on.effort.gone
        return lowest

    def _after(self, spot: Spot) -> Iterator[Spot]:
        """The spots one harmless move further."""
        key = spot.key
        if key not in self._onward:
            found = list(self._moves(spot))
            if self._on.effort.gone:
                return
            self._onward[key] = found
        for after in self._onward[key]:
            yield Spot(after.placed, after.heights, (*spot.steps, after.steps[-1]))

    def _moves(self, spot: Spot) -> Iterator[Spot]:
        with self._on.simulation.after(s.made for s in spot.steps):
            twins = self._on.potential.twins(spot.placed)
            for q, row, pod, verdict in self._on.helpful(spot.placed, twins):
                landed = self._on.simulation.expected(
                    pod,
                    verdict.replacement,
                    verdict.landing,
                    after_gone=self._on.component.classes[q].stateful,
                )
                step = Step(pod, q, row, int(landed[0]), verdict, verdict.destinations, certain=False)
                placed = moved(spot.placed, q, row, step.landed)
                heights = tuple(
                    self._height(i, placed) if i in self._on.component.counted[q] else height
                    for i, height in enumerate(spot.heights)
                )
                yield Spot(placed, heights, (step,))

    def _height(self, i: int, placed: Ints) -> Height:
        group = self._on.component.groups[i]
        counts = self._on.component.counts(i, placed)
        over = group.excess(counts)
        if not over:
            return 0, 0
        low, high, skew = group.minimum(counts), int(counts.max()), group.constraint.max_skew
        outside = int(np.maximum(counts - low - skew, 0).sum())
        if group.enough_domains:
            outside += int(np.maximum(high - skew - counts, 0).sum())
        return over, outside
