"""Sequences of moves that rely on no prediction of where replacements land.

A *sure* one brings the end nearer by each move, wherever this and every earlier replacement landed. A
*harmless* one ends where the scheduler's scores predict, and none of its moves does harm on any landing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from rebalancer.planner.moves.move import Candidate, JudgedMove
from rebalancer.planner.search.placements import Advance, Landings, Placement, Placements
from rebalancer.planner.search.problem import Problem
from rebalancer.spread.arrays import Ints

Moves = tuple[JudgedMove, ...]


class SureMoves:
    """Looks for moves of one component to a total excess of at most `residual`, as far as the effort goes."""

    def __init__(self, problem: Problem, residual: int) -> None:
        self._problem = problem
        self._residual = residual
        self._known: dict[tuple[bytes, int], Moves | None] = {}
        course = problem.remaining.course(problem.start, residual)
        distinct = np.zeros(problem.start.shape[1], dtype=np.bool_)
        if course is not None:
            distinct |= course.gives.any(axis=0)
        self._landings = Landings(problem, partial(_nearer, problem, residual), distinct)
        self._start = Placements((Placement(problem.start),))

    def sure(self) -> Moves | None:
        """Sure moves to the end; None if none are found."""
        return self._sure(self._start)

    def harmless(self, allowed: int) -> Moves | None:
        """At most `allowed` harmless moves to the end; None if none are found."""
        self._known.clear()
        return self._harmless(self._start, allowed)

    def marked(self, moves: Sequence[JudgedMove]) -> Moves:
        """The moves, certain as long as each brings the end nearer and has landings of one cell only."""
        found: list[JudgedMove] = []
        now: Placements | None = self._start
        certain = True
        for m in moves:
            advance = self._landings.advance(now, m.candidate) if now is not None else None
            now = advance.placements if advance is not None else None
            if advance is None:
                certain = False
                found.append(replace(m, certain=False, open=()))
                continue
            certain = certain and advance.move.certain and len(advance.placements.possible) == 1
            certain = certain and not self._problem.effort.gone
            a = advance.move
            found.append(
                replace(m, certain=certain, destinations=a.destinations, open=a.open, closed=a.closed)
            )
        return tuple(found)

    def _there(self, now: Placements) -> bool:
        return self._problem.excess(now.predicted.placed) <= self._residual

    def _sure(self, now: Placements) -> Moves | None:
        if self._there(now):
            return ()
        for candidate in self._open(now.predicted):
            if not self._landings.distinct[candidate.node]:
                continue
            advance = self._advance(now, candidate, only_sure=True)
            if self._problem.effort.gone:
                return None
            if advance is None or not advance.move.certain:
                continue
            rest = self._sure(advance.placements)
            if rest is not None:
                return (advance.move, *rest)
        return None

    def _harmless(self, now: Placements, allowed: int) -> Moves | None:
        if self._there(now):
            return ()
        placed = now.predicted.placed
        needed = self._problem.remaining.moves(placed, self._residual)
        if needed is None or needed > allowed:
            return None
        key = (placed.tobytes(), allowed)
        if key not in self._known:
            found = self._next(now, allowed)
            if found is None and self._problem.effort.gone:
                return None
            self._known[key] = found
        return self._known[key]

    def _next(self, now: Placements, allowed: int) -> Moves | None:
        for advance in self._sure_first(now):
            left = self._problem.remaining.moves(advance.placements.predicted.placed, self._residual)
            if left is None or left >= allowed:
                continue
            rest = self._harmless(advance.placements, allowed - 1)
            if rest is not None:
                return (advance.move, *rest)
            if self._problem.effort.gone:
                return None
        return None

    def _sure_first(self, now: Placements) -> Iterator[Advance]:
        """Helpful moves; those that bring the end nearer on every landing come before the others."""
        later: list[Advance] = []
        for candidate in self._open(now.predicted):
            advance = self._advance(now, candidate)
            if self._problem.effort.gone:
                break
            if advance is not None and advance.move.helps:
                if advance.move.certain:
                    yield advance
                else:
                    later.append(advance)
        yield from later

    def _advance(self, now: Placements, candidate: Candidate, *, only_sure: bool = False) -> Advance | None:
        """Tries a move, and counts what that took."""
        self._problem.effort.candidates(len(now.possible))
        return self._landings.advance(now, candidate, only_sure=only_sure)

    def _open(self, at: Placement) -> Iterator[Candidate]:
        """Possible victims in a placement, the most promising first."""
        course = self._problem.remaining.course(at.placed, self._residual)
        if course is None:
            return iter(())
        with self._problem.tried.after(at.made):
            return self._problem.candidates(self._problem.remaining.cell_of(at.placed), course.gives)


def _nearer(problem: Problem, residual: int, placed: Ints, candidate: Candidate, landed: int) -> bool:
    """Whether a move leaves one move less to the end."""
    remaining = problem.remaining
    before = remaining.moves(placed, residual)
    left = remaining.moves_after(placed, residual, candidate, landed)
    return before is not None and left is not None and left < before
