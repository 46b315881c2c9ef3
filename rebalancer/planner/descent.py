"""Downhill, move by move: for components that the integer program does not solve in the effort allowed.

Each move is the one that lowers the excess most, or, on a plateau, the pods that stand above or below the
allowed band; on every landing if possible, else where the scheduler's scores predict it. Ends when no
harmless move does.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.planner.belief import Advance, Belief, Beliefs, Outlook, moved
from rebalancer.planner.candidates import Candidate, candidates
from rebalancer.planner.component import Component
from rebalancer.planner.potential import Potential
from rebalancer.planner.simulation import Simulation
from rebalancer.planner.trial import Trial, Verdict
from rebalancer.spread.arrays import Bools, Ints

Height = tuple[int, int]
"""Total excess, then pods outside their bands."""


class Descended(Struct, frozen=True, eq=False):
    """One move of the descent: the victim of class `q` on node `row`, and what it made of the outlook."""

    pod: Pod
    q: int
    row: int
    advance: Advance
    height: Height


class Descent:
    """Walks one component downhill from its start."""

    def __init__(
        self, simulation: Simulation, component: Component, trial: Trial, potential: Potential
    ) -> None:
        self._simulation = simulation
        self._component = component
        self._trial = trial
        self._potential = potential
        everywhere: Bools = np.asarray(component.start.any(axis=0), dtype=np.bool_)
        self.beliefs = Beliefs(simulation, component, trial, potential, self._nearer, everywhere)

    def run(self) -> list[Descended]:
        """The moves, up to the last one that lowers the excess."""
        outlook = Outlook((Belief(self._component.start),))
        height = lowest = self._height(self._component.start)
        walk: list[Descended] = []
        kept = 0
        while height[0]:
            step = self._best(outlook, height)
            if step is None:
                break
            walk.append(step)
            outlook, height = step.advance.outlook, step.height
            if height[0] < lowest[0]:
                lowest, kept = height, len(walk)
        return walk[:kept]

    def _best(self, outlook: Outlook, height: Height) -> Descended | None:
        """The harmless move that leads lowest; one that does so wherever it lands before one that may not."""
        belief = outlook.beliefs[0]
        options: list[tuple[bool, Height, int, Candidate]] = []
        with self._simulation.after(belief.made):
            twins = self._potential.twins(belief.placed)
            for i, candidate in enumerate(candidates(self._simulation, self._component, self._trial, twins)):
                q, row, pod = candidate
                verdict = next(self._trial.judge(self._component, belief.placed, q, row, pod))
                if not isinstance(verdict, Verdict) or not verdict.helps:
                    continue
                landings = self.beliefs.landings(belief.placed, verdict)
                heights = [self._height(moved(belief.placed, q, row, node)) for node in landings]
                if max(heights) < height:
                    options.append((False, max(heights), i, candidate))
                elif heights[0] < height:
                    options.append((True, heights[0], i, candidate))
        for _, _, _, (q, row, pod) in sorted(options, key=lambda o: o[:3]):
            advance = self.beliefs.advance(outlook, q, row, pod)
            if advance is not None:
                after = self._height(advance.outlook.beliefs[0].placed)
                if after < height:
                    return Descended(pod, q, row, advance, after)
        return None

    def _nearer(self, placed: Ints, q: int, row: int, landed: int) -> bool:
        return self._height(moved(placed, q, row, landed)) < self._height(placed)

    def _height(self, placed: Ints) -> Height:
        excess = outside = 0
        for i, g in enumerate(self._component.groups):
            counts = self._component.counts(i, placed)
            over = g.excess(counts)
            if over:
                excess += over
                low, high, skew = g.minimum(counts), int(counts.max()), g.constraint.max_skew
                outside += int(np.maximum(counts - low - skew, 0).sum())
                if g.enough_domains:
                    outside += int(np.maximum(high - skew - counts, 0).sum())
        return excess, outside
