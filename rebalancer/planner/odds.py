"""Which move first, where the scheduler's choice decides whether the end can be reached.

A plan is made anew once replacements have landed, so that a move is worth as much as the chance that it
leaves: over each of its landings, the chance of the best move from there, less what the evictions cost. All
nodes that the filter leaves count alike: other replacements of a wave, and pods of others, come between and
change the scores. The plan itself follows the landings that the scores predict.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rebalancer.planner.belief import moved
from rebalancer.planner.ground import Ground
from rebalancer.planner.step import Step, reached
from rebalancer.planner.trial import Verdict
from rebalancer.spread.arrays import Ints

TOLERANCE = 0.02
"""Moves on average by which a walk may be longer than the shortest and need not be compared with others."""
COST = 0.05
"""What an eviction may add to the chance, so that it is worth making."""


class Landed(Struct, frozen=True, eq=False):
    """One way in which a move may end: its step, how likely that is, and whether the scores predict it."""

    step: Step
    likelihood: float
    predicted: bool


class Outcome(Struct, frozen=True, eq=False):
    """What may be expected of a placement: the chance to get there, in so many moves on average, and the
    landings of the best move, the likeliest first."""

    chance: float
    moves: float = 0.0
    landings: tuple[Landed, ...] = ()

    @property
    def worth(self) -> float:
        """What is compared."""
        return self.chance - COST * self.moves


class Odds:
    """Chances of one component to come to an excess of at most `residual` in at most `allowed` moves.

    `thorough`: landings that the scores do not predict are followed, too, not only counted.
    """

    def __init__(self, on: Ground, residual: int, allowed: int, *, thorough: bool) -> None:
        self._on = on
        self._residual = residual
        self._allowed = allowed
        self._thorough = thorough
        self._known: dict[tuple[object, ...], Outcome] = {}
        self._moves: dict[tuple[object, ...], list[tuple[Landed, ...]]] = {}

    def best(self) -> tuple[float, tuple[Step, ...] | None]:
        """The best worth, and its walk along predicted landings; None if no such walk gets there."""
        return self._outcome(self._on.component.start, ()).worth, self._walk(self._on.component.start, ())

    def of(self, first: Step) -> float:
        """The worth of a walk that begins with this move."""
        for landings in self._open(self._on.component.start, ()):
            if (landings[0].step.q, landings[0].step.row) == (first.q, first.row):
                return self._expected(self._on.component.start, (), landings, -np.inf).worth
        return 0.0

    def lucky(self, allowed: int) -> tuple[Step, ...] | None:
        """A walk of at most `allowed` moves that some landings allow, however likely they are."""
        hopeless: set[tuple[object, ...]] = set()

        def onward(placed: Ints, steps: tuple[Step, ...]) -> tuple[Step, ...] | None:
            if self._there(placed):
                return steps
            key = reached(placed, steps)
            needed = self._on.potential.moves(placed, self._residual)
            if needed is None or needed > allowed - len(steps) or key in hopeless:
                return None
            best = self._outcome(placed, steps).landings
            for landings in dict.fromkeys((best, *self._open(placed, steps))):
                for way in landings:
                    found = onward(self._moved(placed, way.step), (*steps, way.step))
                    if found is not None or self._on.effort.gone:
                        return found
            hopeless.add(key)
            return None

        return onward(self._on.component.start, ())

    def _walk(self, placed: Ints, steps: tuple[Step, ...]) -> tuple[Step, ...] | None:
        if self._there(placed):
            return steps
        ways = [w.step for w in self._outcome(placed, steps).landings if w.predicted]
        for step in sorted(ways, key=lambda s: -self._after(placed, steps, s).worth):
            found = self._walk(self._moved(placed, step), (*steps, step))
            if found is not None:
                return found
        return None

    def _there(self, placed: Ints) -> bool:
        return sum(self._on.component.excesses(placed)) <= self._residual

    def _moved(self, placed: Ints, step: Step) -> Ints:
        return moved(placed, step.q, step.row, step.landed)

    def _after(self, placed: Ints, steps: tuple[Step, ...], step: Step) -> Outcome:
        return self._outcome(self._moved(placed, step), (*steps, step))

    def _outcome(self, placed: Ints, steps: tuple[Step, ...]) -> Outcome:
        if self._there(placed):
            return Outcome(1.0)
        key = reached(placed, steps)
        found = self._known.get(key)
        if found is None:
            found = self._best(placed, steps)
            if not self._on.effort.gone:
                self._known[key] = found
        return found

    def _best(self, placed: Ints, steps: tuple[Step, ...]) -> Outcome:
        """The best move's outcome; giving up is one, too."""
        best = Outcome(0.0)
        needed = self._needed(placed, steps)
        if needed is None:
            return best
        for landings in self._open(placed, steps):
            outcome = self._expected(placed, steps, landings, best.worth)
            if outcome.worth > best.worth:
                best = outcome
            if best.worth >= 1.0 - COST * (needed + TOLERANCE) or self._on.effort.gone:
                break
        return best

    def _expected(
        self, placed: Ints, steps: tuple[Step, ...], landings: tuple[Landed, ...], enough: float
    ) -> Outcome:
        """The average over all landings of a move; cut short where it is not worth more than `enough`."""
        chance, moves, left = 0.0, 1.0, 1.0
        for way in landings:
            if way.predicted or self._thorough:
                after = self._after(placed, steps, way.step)
            else:
                # There may be a way on, or there is none.
                needed = self._needed(self._moved(placed, way.step), (*steps, way.step))
                after = Outcome(0.0) if needed is None else Outcome(1.0, float(needed))
            left -= way.likelihood
            chance += way.likelihood * after.chance
            moves += way.likelihood * after.moves
            if chance + left - COST * moves <= enough:
                break
        return Outcome(chance, moves, landings)

    def _needed(self, placed: Ints, steps: tuple[Step, ...]) -> int | None:
        """Moves that the rest takes at least; None if they are more than are left."""
        if self._there(placed):
            return 0
        needed = self._on.potential.moves(placed, self._residual)
        return needed if needed is not None and needed <= self._allowed - len(steps) else None

    def _open(self, placed: Ints, steps: tuple[Step, ...]) -> list[tuple[Landed, ...]]:
        """The landings of every move that helps and does no harm, the most promising move first."""
        key = reached(placed, steps)
        if key not in self._moves:
            self._moves[key] = self._tried(placed, steps)
        return self._moves[key]

    def _tried(self, placed: Ints, steps: tuple[Step, ...]) -> list[tuple[Landed, ...]]:
        course = self._on.potential.course(placed, self._residual)
        if course is None:
            return []
        found: list[tuple[Landed, ...]] = []
        with self._on.simulation.after(s.made for s in steps):
            twins = self._on.potential.twins(placed)
            for q, row, pod, verdict in self._on.helpful(placed, twins, course.gives):
                step = Step(pod, q, row, -1, verdict, verdict.destinations, certain=False)
                found.append(self._landings(step, verdict, twins))
        return found

    def _landings(self, step: Step, verdict: Verdict, twins: Ints) -> tuple[Landed, ...]:
        """One for each set of interchangeable nodes, predicted ones apart."""
        nodes = verdict.destinations
        late = self._on.component.classes[step.q].stateful
        best = np.isin(
            nodes,
            self._on.simulation.expected(step.pod, verdict.replacement, verdict.landing, after_gone=late),
        )
        ways: list[Landed] = []
        kinds = 2 * twins[nodes] + ~best
        for kind in np.unique(kinds):
            alike = kinds == kind
            landed = Step(step.pod, step.q, step.row, int(nodes[alike][0]), verdict, nodes, certain=False)
            ways.append(Landed(landed, float(alike.mean()), bool(best[alike][0])))
        return tuple(sorted(ways, key=lambda w: (-w.likelihood, w.step.landed)))
