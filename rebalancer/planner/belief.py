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
    """A placement, int64[Q, N], that the moves so far may have led to, and these moves with their landings."""

    placed: Ints
    made: tuple[Made, ...] = ()


class Advance(Struct, frozen=True, eq=False):
    """What a move makes of a set of beliefs: those after it, and every node it may land on."""

    beliefs: tuple[Belief, ...]
    destinations: Rows
    verdict: Verdict


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
        gives = course.gives.any(axis=0) if course is not None else np.zeros(component.start.shape[1], bool)
        self.donors: Rows = np.flatnonzero(gives)

    def advance(self, beliefs: Sequence[Belief], q: int, row: int, pod: Pod) -> Advance | None:
        """The beliefs after a move; None if in one of them it does not certainly bring the end one nearer."""
        after: dict[bytes, Belief] = {}
        destinations: list[Rows] = []
        first: Verdict | None = None
        for belief in beliefs:
            with self._simulation.after(belief.made):
                verdict = next(self._trial.judge(self._component, belief.placed, q, row, pod))
                if not isinstance(verdict, Verdict) or not verdict.certain:
                    return None
                nodes = self._landings(belief, q, row, verdict)
            if nodes is None:
                return None
            first = first or verdict
            destinations.append(verdict.destinations)
            for node in nodes:
                placed = belief.placed.copy()
                placed[q, row] -= 1
                placed[q, node] += 1
                made = Made(pod, verdict.replacement, int(node))
                after.setdefault(self._key(placed), Belief(placed, (*belief.made, made)))
            if len(after) > MOST:
                return None
        assert first is not None
        every = np.unique(np.concatenate(destinations))
        return Advance(tuple(after.values()), every, first)

    def _landings(self, belief: Belief, q: int, row: int, verdict: Verdict) -> list[int] | None:
        """A node for each outcome, the scheduler's favourite first; None if one brings the end no nearer."""
        before = self._potential.moves(belief.placed, self._residual)
        if not before:
            return None
        twins = self._potential.twins(belief.placed)
        nodes = verdict.destinations
        outcomes: dict[tuple[int, int], int] = {}
        favourite = self._simulation.favourite(verdict.replacement, nodes)
        for node in (favourite, *nodes):
            outcomes.setdefault((int(twins[node]), int(node) if node in self.donors else -1), int(node))
        landed = belief.placed.copy()
        landed[q, row] -= 1
        for node in outcomes.values():
            landed[q, node] += 1
            left = self._potential.moves(landed, self._residual)
            landed[q, node] -= 1
            if left is None or left >= before:
                return None
        return list(outcomes.values())

    def _key(self, placed: Ints) -> bytes:
        """Equal for placements that differ by landings on interchangeable nodes only."""
        return self._potential.key(placed) + placed[:, self.donors].tobytes()
