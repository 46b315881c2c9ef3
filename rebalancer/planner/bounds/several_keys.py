"""The bounds of any component, by the integer program, remembered."""

from __future__ import annotations

from collections import deque

import numpy as np

from rebalancer.planner.bounds.admitted import AdmittedProgram
from rebalancer.planner.bounds.ceilings import ceilings
from rebalancer.planner.bounds.cells import Cells, CellStructure, digest_of
from rebalancer.planner.bounds.program import FinalState, solve
from rebalancer.planner.bounds.remaining import Course, Remaining
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.effort import Effort
from rebalancer.planner.moves.move import Candidate
from rebalancer.spread.arrays import Ints, Rows

_REDIRECTIONS = 6
"""Pods of a course that are tried at another node, before a program is solved."""


class SeveralKeys(Remaining):
    """Solves a program for what cannot be told from an earlier one, as long as the effort lasts."""

    solver = "HiGHS"

    def __init__(self, component: Component, effort: Effort) -> None:
        super().__init__(component)
        self._effort = effort
        self._structure = CellStructure(component)
        self._ceilings = ceilings(component)
        # As the simulation stands now, before moves are tried on it.
        assert component.resources
        self._cells: dict[bytes, Cells] = {}
        self._latest: deque[tuple[Ints, Cells]] = deque(maxlen=2)
        """A placement, and that after a move, are asked about several times in a row."""
        self._moves: dict[tuple[bytes, int], int | None] = {}
        self._courses: dict[tuple[bytes, int], Course | None] = {}

    def least(self, placed: Ints) -> int:
        """The least total excess of any final state."""
        now = sum(self.component.excesses(placed))
        if not now:
            return 0
        target = self._solve(placed, None)
        if target is None or target.residual >= now:
            return now
        self._moves[self._at(placed).key, target.residual] = target.moves
        self._courses[digest_of(placed), target.residual] = self._spread(placed, target)
        return target.residual

    def moves(self, placed: Ints, residual: int) -> int | None:
        """The fewest moves to a total excess of at most `residual`; None if nothing gets there."""
        key = (self._at(placed).key, residual)
        if key not in self._moves:
            if sum(self.component.excesses(placed)) <= residual:
                self._moves[key] = 0
            else:
                course = self.course(placed, residual)
                if course is None and self._effort.gone:
                    return None
                self._moves[key] = course.moves if course is not None else None
        return self._moves[key]

    def course(self, placed: Ints, residual: int) -> Course | None:
        """A best final state with at most this excess; None if there is none."""
        key = (digest_of(placed), residual)
        if key not in self._courses:
            if self._effort.gone and placed is not self.component.start:
                return None
            target = self._solve(placed, residual)
            self._courses[key] = self._spread(placed, target) if target is not None else None
        return self._courses[key]

    def moves_after(self, placed: Ints, residual: int, candidate: Candidate, landed: int) -> int | None:
        """`moves` of the placement after the candidate's replacement has landed on node `landed`.

        If the placement's course, with nodes of one cell swapped or one pod sent elsewhere, goes through that
        move, nothing needs to be solved: no move brings the end nearer by more than one.
        """
        after = candidate.moved(placed, landed)
        if (self._at(after).key, residual) not in self._moves:
            course = self.course(placed, residual)
            if course is not None and course.moves > 0 and course.target is not None:
                target = self._through(placed, course.target, candidate, landed)
                if target is None:
                    target = self._redirected(placed, course.target, residual, candidate, landed)
                if target is not None and self._no_higher(target, after):
                    self._moves[self._at(after).key, residual] = course.moves - 1
                    self._courses[digest_of(after), residual] = Course(
                        course.moves - 1, np.maximum(after - target, 0), target
                    )
        return self.moves(after, residual)

    def forget(self) -> None:
        """Drops what is known of placements but the start: a search of thousands of nodes remembers much."""
        super().forget()
        key = self._at(self.component.start).key
        self._moves = {k: moves for k, moves in self._moves.items() if k[0] == key}
        self._cells.clear()
        self._latest.clear()
        self._courses.clear()

    def cell_of(self, placed: Ints) -> Ints:
        """int64[N]: the cell of each node."""
        return self._at(placed).of

    def key(self, placed: Ints) -> bytes:
        """Equal for placements that differ by a permutation of nodes of one cell only."""
        return self._at(placed).key

    def _at(self, placed: Ints) -> Cells:
        """The cells of a placement."""
        for known, cells in self._latest:
            if known is placed:
                return cells
        key = digest_of(placed)
        found = self._cells.get(key)
        if found is None:
            found = self._cells[key] = self._structure.cells(placed)
        self._latest.append((placed, found))
        return found

    def _solve(self, placed: Ints, residual: int | None) -> FinalState | None:
        program = AdmittedProgram(self.component, placed, self._at(placed), residual, self._ceilings)
        target, proved = solve(program, self._effort)
        self.exact &= proved
        return target

    def _spread(self, placed: Ints, target: FinalState) -> Course:
        """The final state spread over the nodes of each cell, as evenly as it goes."""
        cells = self._at(placed)
        change = target.placed - cells.sums(placed)
        gives = np.maximum(-change, 0)[:, cells.of]
        if not target.exact:
            return Course(target.moves, gives)
        final = placed.copy()
        for cell in np.flatnonzero(change.any(axis=0)):
            nodes = np.flatnonzero(cells.of == cell)
            # First what leaves, so that what comes finds the emptiest nodes.
            for pod_class in sorted(
                np.flatnonzero(change[:, cell]).tolist(),
                key=lambda pod_class: (change[pod_class, cell] > 0, pod_class),
            ):
                _distribute(final, self.component.fixed, pod_class, nodes, int(change[pod_class, cell]))
        if sum(self.component.excesses(final)) > target.residual:
            # Which pod of a cell goes where is not the program's concern: this is not how it gets there.
            return Course(target.moves, gives)
        return Course(target.moves, gives, final)

    def _through(self, placed: Ints, target: Ints, candidate: Candidate, landed: int) -> Ints | None:
        """The target, nodes of one cell swapped, such that the candidate's node gives and `landed` takes."""
        of = self._at(placed).of
        pod_class, left = candidate.pod_class, candidate.node
        final = target.copy()
        for node, other, sign in ((left, landed, 1), (landed, left, -1)):
            if sign * (placed[pod_class, node] - final[pod_class, node]) > 0:
                continue
            cell = np.flatnonzero((of == of[node]) & (sign * (placed[pod_class] - final[pod_class]) > 0))
            cell = cell[cell != other]
            if not len(cell):
                return None
            swap = int(cell[0])
            if self._structure.single[node]:
                final[:, [node, swap]] = final[:, [swap, node]]
            else:
                # Only the sum over the cell matters: the pod may as well go from, or to, this node.
                final[pod_class, node] -= sign
                final[pod_class, swap] += sign
        return final

    def _no_higher(self, target: Ints, placed: Ints) -> bool:
        """Whether no group has more excess in the target than in the placement: no move may raise one."""
        now = self.component.excesses(placed)
        return all(e <= n for e, n in zip(self.component.excesses(target), now, strict=True))

    def _redirected(
        self, placed: Ints, target: Ints, residual: int, candidate: Candidate, landed: int
    ) -> Ints | None:
        """The target with one pod at `landed` instead of elsewhere, if the candidate's node gives and the end
        is as good."""
        component, pod_class = self.component, candidate.pod_class
        if placed[pod_class, candidate.node] <= target[
            pod_class, candidate.node
        ] or not component.takes_one_more(pod_class, landed, target):
            return None
        takers = np.flatnonzero(target[pod_class] > placed[pod_class])
        near = sum((g.domain_of[takers] == g.domain_of[landed]).astype(np.int64) for g in component.groups)
        for taker in takers[np.argsort(-near, kind="stable")][:_REDIRECTIONS]:
            final = target.copy()
            final[pod_class, taker] -= 1
            final[pod_class, landed] += 1
            if sum(component.excesses(final)) <= residual:
                return final
        return None


def _distribute(final: Ints, fixed: Ints, pod_class: int, nodes: Rows, change: int) -> None:
    """Adds `change` pods of a class to the nodes, or takes them away, the emptiest or fullest first."""
    step = 1 if change > 0 else -1
    for _ in range(abs(change)):
        here = final[:, nodes].sum(axis=0) * step
        if step < 0:
            movable = final[pod_class, nodes] > fixed[pod_class, nodes]
            here = np.where(movable, here, np.iinfo(np.int64).max)
        final[pod_class, nodes[int(np.argmin(here))]] += step
