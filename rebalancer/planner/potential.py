"""What a placement of a component still needs at best: the least excess, and the fewest moves to it.

Both are bounds of the final state, whatever way leads there: no walk does better.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rebalancer.planner.cells import Cells, CellStructure
from rebalancer.planner.component import Component
from rebalancer.planner.effort import Effort
from rebalancer.planner.program import Target, solve
from rebalancer.planner.waterfill import Band, Level, fewest_moves, least_excess
from rebalancer.spread.arrays import Ints, Rows

_REDIRECTIONS = 6
"""Pods of a course that are tried at another node, before a program is solved."""


class Course(Struct, frozen=True, eq=False):
    """One best final state seen from a placement, `moves` away.

    `gives`: int64[Q, N], positive where it has fewer pods than the placement, the more, the further from it.
    `target`: int64[Q, N], the final state itself, where it is known per node.
    """

    moves: int
    gives: Ints
    target: Ints | None = None


class Potential:
    """The bounds of one component for placements int64[Q, N], remembered.

    Where the effort is gone, no program is solved any more: what is not known counts as out of reach. The
    bounds of the start are always found.
    """

    def __init__(self, component: Component, effort: Effort) -> None:
        self._effort = effort
        self._component = component
        self.closed = _closed_form_applies(component)
        self._band = _band(component) if self.closed else None
        self._start_least: int | None = None
        self._structure = CellStructure(component)
        self._cells: dict[bytes, Cells] = {}
        self._moves: dict[tuple[bytes, int], int | None] = {}
        self._courses: dict[tuple[bytes, int], Course | None] = {}
        self.exact = True

    def least(self, placed: Ints) -> int:
        """The least total excess of any final state."""
        c = self._component
        now = sum(c.excesses(placed))
        if not now:
            return 0
        if self._band is not None:
            g = c.groups[0]
            return least_excess(c.counts(0, placed), self._band, g.constraint.max_skew, g.enough_domains, now)
        target = self._solve(placed, None)
        if target is None or target.residual >= now:
            return now
        self._moves[self.cells(placed).key, target.residual] = target.moves
        self._courses[placed.tobytes(), target.residual] = self._course(placed, target)
        return target.residual

    def forget(self) -> None:
        """Drops what is known of placements but the start: a search of thousands of nodes remembers much."""
        start = self._component.start
        key = self.cells(start).key
        self._moves = {k: moves for k, moves in self._moves.items() if k[0] == key}
        self._cells.clear()
        self._courses.clear()

    def start_least(self) -> int:
        """`least` of the component's start."""
        if self._start_least is None:
            self._start_least = self.least(self._component.start)
        return self._start_least

    def start_moves(self, residual: int) -> int | None:
        """`moves` of the component's start."""
        return self.moves(self._component.start, residual)

    def moves(self, placed: Ints, residual: int) -> int | None:
        """The fewest moves to a total excess of at most `residual`; None if nothing gets there."""
        if self._band is not None:
            level = self._level(placed, residual)
            return level.moves if level is not None else None
        key = (self.cells(placed).key, residual)
        if key not in self._moves:
            if sum(self._component.excesses(placed)) <= residual:
                self._moves[key] = 0
            else:
                course = self.course(placed, residual)
                if course is None and self._effort.gone:
                    return None
                self._moves[key] = course.moves if course is not None else None
        return self._moves[key]

    def course(self, placed: Ints, residual: int) -> Course | None:
        """A best final state with at most this excess; None if there is none."""
        if self._band is not None:
            return self._closed_course(placed, residual)
        key = (placed.tobytes(), residual)
        if key not in self._courses:
            if self._effort.gone and placed is not self._component.start:
                return None
            target = self._solve(placed, residual)
            self._courses[key] = self._course(placed, target) if target is not None else None
        return self._courses[key]

    def moves_after(self, placed: Ints, residual: int, q: int, row: int, landed: int) -> int | None:
        """`moves` of the placement after one move of class q from node `row` to node `landed`.

        If the placement's course, with interchangeable nodes swapped or one pod sent elsewhere, goes through
        that move, nothing needs to be solved: no move brings the end nearer by more than one.
        """
        after = placed.copy()
        after[q, row] -= 1
        after[q, landed] += 1
        if self._band is None and (self.cells(after).key, residual) not in self._moves:
            course = self.course(placed, residual)
            if course is not None and course.moves > 0 and course.target is not None:
                target = self._through(placed, course.target, q, row, landed)
                if target is None:
                    target = self._redirected(placed, course.target, residual, q, row, landed)
                if target is not None:
                    self._moves[self.cells(after).key, residual] = course.moves - 1
                    self._courses[after.tobytes(), residual] = Course(
                        course.moves - 1, np.maximum(after - target, 0), target
                    )
        return self.moves(after, residual)

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
            found = self._cells[key] = self._structure.cells(placed)
        return found

    def _solve(self, placed: Ints, residual: int | None) -> Target | None:
        target, steps = solve(self._component, placed, self.cells(placed), residual)
        self._effort.program(steps)
        self.exact &= target is None or target.exact
        return target

    def _course(self, placed: Ints, target: Target) -> Course:
        """The target spread over the nodes of each cell, as evenly as it goes."""
        cells = self.cells(placed)
        change = target.placed - cells.sums(placed)
        gives = np.maximum(-change, 0)[:, cells.of]
        if not target.exact:
            return Course(target.moves, gives)
        final = placed.copy()
        for c in np.flatnonzero(change.any(axis=0)):
            rows = np.flatnonzero(cells.of == c)
            # First what leaves, so that what comes finds the emptiest nodes.
            for q in sorted(np.flatnonzero(change[:, c]).tolist(), key=lambda q: (change[q, c] > 0, q)):
                _distribute(final, self._component.fixed, q, rows, int(change[q, c]))
        if sum(self._component.excesses(final)) > target.residual:
            # Which pod of a cell goes where is not the program's concern: this is not how it gets there.
            return Course(target.moves, gives)
        return Course(target.moves, gives, final)

    def _through(self, placed: Ints, target: Ints, q: int, row: int, landed: int) -> Ints | None:
        """The target, interchangeable nodes swapped, such that it gives at `row` and takes at `landed`."""
        of = self.cells(placed).of
        final = target.copy()
        for node, other, sign in ((row, landed, 1), (landed, row, -1)):
            if sign * (placed[q, node] - final[q, node]) > 0:
                continue
            alike = np.flatnonzero((of == of[node]) & (sign * (placed[q] - final[q]) > 0))
            alike = alike[alike != other]
            if not len(alike):
                return None
            swap = int(alike[0])
            if self._structure.single[node]:
                final[:, [node, swap]] = final[:, [swap, node]]
            else:
                # Only the sum over the cell matters: the pod may as well go from, or to, this node.
                final[q, node] -= sign
                final[q, swap] += sign
        return final

    def _redirected(
        self, placed: Ints, target: Ints, residual: int, q: int, row: int, landed: int
    ) -> Ints | None:
        """The target with one pod at `landed` instead of elsewhere, if it gives at `row` and is as good."""
        c = self._component
        if placed[q, row] <= target[q, row] or not c.takes_one_more(q, landed, target):
            return None
        takers = np.flatnonzero(target[q] > placed[q])
        near = sum((g.rows[takers] == g.rows[landed]).astype(np.int64) for g in c.groups)
        for taker in takers[np.argsort(-near, kind="stable")][:_REDIRECTIONS]:
            final = target.copy()
            final[q, taker] -= 1
            final[q, landed] += 1
            if sum(c.excesses(final)) <= residual:
                return final
        return None

    def _closed_course(self, placed: Ints, residual: int) -> Course | None:
        level = self._level(placed, residual)
        if level is None:
            return None
        c = self._component
        counts, rows = c.counts(0, placed), c.groups[0].rows
        above = np.maximum(counts - level.upper, 0)
        gives = above if above.any() else np.maximum(counts - level.lower, 0)
        return Course(level.moves, np.broadcast_to(np.append(gives, 0)[rows], placed.shape))

    def _level(self, placed: Ints, residual: int) -> Level | None:
        g, band = self._component.groups[0], self._band
        assert band is not None
        return fewest_moves(
            self._component.counts(0, placed), band, g.constraint.max_skew, g.enough_domains, residual
        )


def _distribute(final: Ints, fixed: Ints, q: int, rows: Rows, change: int) -> None:
    """Adds `change` pods of class q to the nodes, or takes them away, the emptiest or fullest first."""
    step = 1 if change > 0 else -1
    for _ in range(abs(change)):
        here = final[:, rows].sum(axis=0) * step
        if step < 0:
            here = np.where(final[q, rows] > fixed[q, rows], here, np.iinfo(np.int64).max)
        final[q, rows[int(np.argmin(here))]] += step


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
    if not component.closed_in[0]:
        return False
    reach = {tuple(group.by_domain((room > 0).astype(np.int64)) > 0) for room in component.room}
    return len(reach) == 1
