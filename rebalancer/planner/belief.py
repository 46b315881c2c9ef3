"""Where things may stand after some moves: the scheduler, not the plan, chooses among the nodes it is left.

Each move multiplies the placements that a component may be in. A move is *certain* only if it holds in every
one of them; placements that no later move can tell apart count once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.planner.component import Component
from rebalancer.planner.potential import Potential
from rebalancer.planner.simulation import Made, Simulation
from rebalancer.planner.trial import Trial, Verdict
from rebalancer.spread.arrays import Ints, Rows

MOST = 32
"""Placements kept apart; a move after which there could be more is not taken to be certain."""


class Belief(Struct, frozen=True, eq=False):
    """A placement, int64[Q, N], that the moves so far may have led to, and these moves as they landed."""

    placed: Ints
    made: tuple[Made, ...] = ()


class Advance(Struct, frozen=True, eq=False):
    """What a move makes of a set of beliefs: those after it, and every node it may land on.

    `sure`: on every landing of every belief the bound falls by one. Otherwise it does no harm on any, but may
    be of no use.
    """

    beliefs: tuple[Belief, ...]
    destinations: Rows
    verdict: Verdict
    sure: bool


class Beliefs:
    """Follows moves of one component through all their landings."""

    def __init__(
        self, simulation: Simulation, component: Component, trial: Trial, potential: Potential, residual: int
    ) -> None:
        self._simulation = simulation
        self._component = component
        self._trial = trial
        self._potential = potential
        self._residual = residual
        course = potential.course(component.start, residual)
        n = component.start.shape[1]
        self.donors: Rows = np.flatnonzero(
            course.gives.any(axis=0) if course is not None else np.zeros(n, dtype=np.bool_)
        )
        self._alike: Ints = np.arange(n)
        """Nodes with one number were followed as one: beliefs that only swap them are not kept apart."""

    def advance(self, beliefs: Sequence[Belief], q: int, row: int, pod: Pod) -> Advance | None:
        """The beliefs after a move; None if in one of them it could do harm, or there are too many."""
        after: dict[bytes, Belief] = {}
        destinations: list[Rows] = []
        verdicts: list[Verdict] = []
        sure = True
        for belief in beliefs:
            with self._simulation.after(belief.made):
                verdict = next(self._trial.judge(self._component, belief.placed, q, row, pod))
                if not isinstance(verdict, Verdict) or not verdict.certain:
                    return None
                outcomes = self._outcomes(belief, q, row, verdict)
            verdicts.append(verdict)
            destinations.append(verdict.destinations)
            for placed, node in outcomes:
                sure = sure and verdict.helps and self._nearer(belief.placed, placed)
                made = Made(pod, verdict.replacement, node)
                after.setdefault(self._key(placed), Belief(placed, (*belief.made, made)))
            if len(after) > MOST:
                return None
        alike = np.isin(self._alike, self._alike[np.concatenate(destinations)])
        return Advance(tuple(after.values()), np.flatnonzero(alike), verdicts[0], sure)

    def _outcomes(self, belief: Belief, q: int, row: int, verdict: Verdict) -> list[tuple[Ints, int]]:
        """The distinct placements after the move, each with a node of its landing; the favourite first."""
        twins = self._potential.twins(belief.placed)
        nodes = verdict.destinations
        favourite = self._simulation.favourite(verdict.replacement, nodes)
        first: dict[tuple[int, int], int] = {}
        for node in (favourite, *nodes):
            same = first.setdefault((int(twins[node]), int(node) if node in self.donors else -1), int(node))
            if self._alike[same] != self._alike[node]:
                self._alike[self._alike == self._alike[node]] = self._alike[same]
        outcomes = []
        for node in first.values():
            placed = belief.placed.copy()
            placed[q, row] -= 1
            placed[q, node] += 1
            outcomes.append((placed, node))
        return outcomes

    def _nearer(self, before: Ints, after: Ints) -> bool:
        was, left = (self._potential.moves(p, self._residual) for p in (before, after))
        return was is not None and left is not None and left < was

    def _key(self, placed: Ints) -> bytes:
        """Equal for placements that differ by landings on interchangeable nodes only."""
        return self._potential.key(placed) + placed[:, self.donors].tobytes()
