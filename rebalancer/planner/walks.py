"""Sequences of moves that rely on no prediction of where replacements land.

A *sure* walk brings the end nearer by each move, wherever this and every earlier replacement landed. A
*harmless* walk ends where the scheduler's scores predict, and none of its moves does harm on any landing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rebalancer.model.pod import Pod
from rebalancer.planner.belief import Advance, Belief, Beliefs, Outlook
from rebalancer.planner.candidates import Candidate, candidates
from rebalancer.planner.ground import Ground
from rebalancer.planner.step import Step
from rebalancer.spread.arrays import Ints


class Walks:
    """Looks for walks of one component to a total excess of at most `residual`, as far as the effort goes."""

    def __init__(self, on: Ground, residual: int) -> None:
        self._on = on
        self._residual = residual
        self._known: dict[tuple[bytes, int], tuple[Step, ...] | None] = {}
        course = on.potential.course(on.component.start, residual)
        distinct = np.zeros(on.component.start.shape[1], dtype=np.bool_)
        if course is not None:
            distinct |= course.gives.any(axis=0)
        self._beliefs = Beliefs(on, self._nearer, distinct)

    def sure(self) -> list[Step] | None:
        """The steps of a sure walk; None if none is found."""
        return self._sure(self._start)

    def harmless(self, allowed: int) -> tuple[Step, ...] | None:
        """The steps of a harmless walk of at most `allowed` moves; None if none is found."""
        self._known.clear()
        return self._harmless(self._start, allowed)

    def marked(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """The steps, certain as long as each brings the end nearer and has one landing, or several alike."""
        marked: list[Step] = []
        now: Outlook | None = self._start
        certain = True
        for s in steps:
            advance = self._beliefs.advance(now, s.q, s.row, s.pod) if now is not None else None
            now = advance.outlook if advance is not None else None
            nodes = advance.destinations if advance is not None else s.destinations
            certain = certain and advance is not None and advance.sure and len(advance.outlook.beliefs) == 1
            certain = certain and not self._on.effort.gone
            open_ = advance.open if advance is not None else ()
            marked.append(Step(s.pod, s.q, s.row, s.landed, s.verdict, nodes, certain, open_))
        return tuple(marked)

    @property
    def _start(self) -> Outlook:
        return Outlook((Belief(self._on.component.start),))

    def _nearer(self, placed: Ints, q: int, row: int, landed: int) -> bool:
        """Whether a move leaves one move less to the end."""
        before = self._on.potential.moves(placed, self._residual)
        left = self._on.potential.moves_after(placed, self._residual, q, row, landed)
        return before is not None and left is not None and left < before

    def _there(self, now: Outlook) -> bool:
        return sum(self._on.component.excesses(now.beliefs[0].placed)) <= self._residual

    def _sure(self, now: Outlook) -> list[Step] | None:
        if self._there(now):
            return []
        for q, row, pod in self._open(now.beliefs[0]):
            if not self._beliefs.distinct[row]:
                continue
            advance = self._advance(now, q, row, pod)
            if self._on.effort.gone:
                return None
            if advance is None or not advance.sure:
                continue
            rest = self._sure(advance.outlook)
            if rest is not None:
                return [_step(pod, q, row, advance), *rest]
        return None

    def _harmless(self, now: Outlook, allowed: int) -> tuple[Step, ...] | None:
        if self._there(now):
            return ()
        placed = now.beliefs[0].placed
        needed = self._on.potential.moves(placed, self._residual)
        if needed is None or needed > allowed:
            return None
        key = (placed.tobytes(), allowed)
        if key not in self._known:
            found = self._next(now, allowed)
            if found is None and self._on.effort.gone:
                return None
            self._known[key] = found
        return self._known[key]

    def _next(self, now: Outlook, allowed: int) -> tuple[Step, ...] | None:
        for (q, row, pod), advance in self._sure_first(now):
            left = self._on.potential.moves(advance.outlook.beliefs[0].placed, self._residual)
            if left is None or left >= allowed:
                continue
            rest = self._harmless(advance.outlook, allowed - 1)
            if rest is not None:
                return (_step(pod, q, row, advance), *rest)
            if self._on.effort.gone:
                return None
        return None

    def _sure_first(self, now: Outlook) -> Iterator[tuple[Candidate, Advance]]:
        """Helpful moves; those that bring the end nearer on every landing come before the others."""
        later: list[tuple[Candidate, Advance]] = []
        for candidate in self._open(now.beliefs[0]):
            advance = self._advance(now, *candidate)
            if self._on.effort.gone:
                break
            if advance is not None and advance.verdict.helps:
                if advance.sure:
                    yield candidate, advance
                else:
                    later.append((candidate, advance))
        yield from later

    def _advance(self, now: Outlook, q: int, row: int, pod: Pod) -> Advance | None:
        """Tries a move, and counts what that took."""
        self._on.effort.candidates(len(now.beliefs))
        return self._beliefs.advance(now, q, row, pod)

    def _open(self, belief: Belief) -> list[Candidate]:
        """Possible victims in a belief, the most promising first."""
        course = self._on.potential.course(belief.placed, self._residual)
        if course is None:
            return []
        with self._on.simulation.after(belief.made):
            twins = self._on.potential.twins(belief.placed)
            return list(
                candidates(self._on.simulation, self._on.component, self._on.trial, twins, course.gives)
            )


def _step(pod: Pod, q: int, row: int, advance: Advance) -> Step:
    landed = advance.outlook.beliefs[0].made[-1].row
    return Step(pod, q, row, landed, advance.verdict, advance.destinations, advance.sure, advance.open)
