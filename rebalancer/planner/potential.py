"""What a placement of a component still needs at best: the least excess, and the fewest moves to it.

Both are bounds of the final state, whatever way leads there: no walk does better.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rebalancer.planner.cells import Cells
from rebalancer.planner.component import Component
from rebalancer.planner.program import Target, solve
from rebalancer.planner.waterfill import Band, Level, fewest_moves, least_excess
from rebalancer.spread.arrays import Ints


class Course(Struct, frozen=True, eq=False):
    """One best final state seen from a placement.

    `gives`, `takes`: int64[Q, N], positive where it has fewer or more pods (in the node's cell or domain),
    the more, the further from it. A move from a giving to a taking node of one class leaves `moves` - 1.
    """

    moves: int
    gives: Ints
    takes: Ints


class Potential:
    """The bounds of one component for placements int64[Q, N], remembered."""

    def __init__(self, component: Component) -> None:
        self._component = component
        self.closed = _closed_form_applies(component)
        self._band = _band(component) if self.closed else None
        self._cells: dict[bytes, Cells] = {}
        self._targets: dict[tuple[bytes, int | None], Target | None] = {}
        self.exact = True

    def least(self, placed: Ints) -> int:
        """The least total excess of any final state."""
        c = self._component
        now = sum(c.excesses(placed))
        if self._band is not None:
            g = c.groups[0]
            return least_excess(c.counts(0, placed), self._band, g.constraint.max_skew, g.enough_domains, now)
        target = self._target(placed, None)
        return min(now, target.residual) if target is not None else now

    def moves(self, placed: Ints, residual: int) -> int | None:
        """The fewest moves to a total excess of at most `residual`; None if nothing gets there."""
        if self._band is not None:
            level = self._level(placed, residual)
            return level.moves if level is not None else None
        if sum(self._component.excesses(placed)) <= residual:
            return 0
        target = self._target(placed, residual)
        return target.moves if target is not None else None

    def course(self, placed: Ints, residual: int) -> Course | None:
        """A best final state with at most this excess; None if there is none."""
        c = self._component
        if self._band is not None:
            level = self._level(placed, residual)
            if level is None:
                return None
            counts, rows = c.counts(0, placed), c.groups[0].rows
            above, below = np.maximum(counts - level.upper, 0), np.maximum(level.lower - counts, 0)
            gives = above if above.any() else np.maximum(counts - level.lower, 0)
            takes = below if below.any() else np.maximum(level.upper - counts, 0)
            spread = [np.broadcast_to(np.append(x, 0)[rows], placed.shape) for x in (gives, takes)]
            return Course(level.moves, spread[0], spread[1])
        target = self._target(placed, residual)
        if target is None:
            return None
        cells = self.cells(placed)
        change = (target.placed - cells.sums(placed))[:, cells.of]
        return Course(target.moves, np.maximum(-change, 0), np.maximum(change, 0))

    def twins(self, placed: Ints) -> Ints:
        """int64[N]: nodes with the same number are the same to this component as places to land on."""
        return self._component.groups[0].rows if self.closed else self.cells(placed).of

    def key(self, placed: Ints) -> bytes:
        """Equal for placements that are the same to this component."""
        return self._component.counts(0, placed).tobytes() if self.closed else self.cells(placed).key

    def cells(self, placed: Ints) -> Cells:
        """The cells of a placement."""
        key = placed.tobytes()
        found = self._cells.get(key)
        if found is None:
            found = self._cells[key] = Cells(self._component, placed)
        return found

    def _target(self, placed: Ints, residual: int | None) -> Target | None:
        cells = self.cells(placed)
        key = (cells.key, residual)
        if key not in self._targets:
            target = solve(self._component, placed, cells, residual)
            self.exact &= target is None or target.exact
            self._targets[key] = target
        return self._targets[key]

    def _level(self, placed: Ints, residual: int) -> Level | None:
        g, band = self._component.groups[0], self._band
        assert band is not None
        return fewest_moves(
            self._component.counts(0, placed), band, g.constraint.max_skew, g.enough_domains, residual
        )


def _band(component: Component) -> Band:
    """What the domains of a component with one group can hold at least and at most."""
    g, base = component.groups[0], component.base[0]
    total = int(component.start.sum())
    room = g.by_domain(np.minimum(component.room, total).max(axis=0))
    start = base + g.by_domain(component.start.sum(axis=0))
    return Band(base + g.by_domain(component.fixed.sum(axis=0)), start + np.minimum(room, total))


def _closed_form_applies(component: Component) -> bool:
    """One group that counts and constrains every class, all of which can land in the same domains."""
    if len(component.groups) != 1 or not component.groups[0].size:
        return False
    every = range(len(component.classes))
    if any(component.counted[q] != (0,) or component.carried[q] != (0,) for q in every):
        return False
    group = component.groups[0]
    reach = {tuple(group.by_domain((room > 0).astype(np.int64)) > 0) for room in component.room}
    return len(reach) == 1
