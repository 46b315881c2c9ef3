"""From counts to a sequence that the scheduler follows.

The bound says how few moves a placement needs; the scheduler, not the planner, chooses where a replacement
lands. First the search looks for a *sure* walk: at each move, wherever this and every earlier replacement
landed, the bound falls by one. If there is none, a beam along the landings that the scheduler's scores
predict shows how low harmless moves lead. Then the search looks for a walk as low that relies less on
predictions, or takes fewer moves. Bounded in candidates tried, not in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.planner.beam import Beam
from rebalancer.planner.belief import Advance, Belief, Beliefs, Outlook
from rebalancer.planner.candidates import Candidate, candidates
from rebalancer.planner.component import Component
from rebalancer.planner.effort import Effort
from rebalancer.planner.potential import Potential
from rebalancer.planner.simulation import Simulation
from rebalancer.planner.step import Step, Walk
from rebalancer.planner.trial import Trial
from rebalancer.spread.arrays import Ints

DETOURS = 3
"""Moves beyond the bound that are allowed before more excess is accepted."""
FIRST = 0.25
"""Share of the effort after which the search for a sure walk waits for a sign that there is one."""
BEAM = 2.0
"""Share of the effort that the beam may take: its candidates need no program."""


class Trust(IntEnum):
    """How far a walk relies on where the scheduler puts replacements."""

    NOBODY = 0
    """No move does harm wherever it and all earlier replacements land."""
    SCORES = 1
    """The end is reached wherever among the best-scored nodes replacements land."""
    PREDICTION = 2
    """The end is reached if each replacement lands on one certain node."""


class _Best(Struct, frozen=True, eq=False):
    """The walk with the least excess that was seen so far."""

    residual: int
    steps: tuple[Step, ...]


class Search:
    """Finds the best walk of one component. It leaves the simulation's state as it was."""

    def __init__(self, simulation: Simulation, component: Component, trial: Trial, effort: int) -> None:
        self._simulation = simulation
        self._component = component
        self._trial = trial
        self._effort = Effort(effort)
        self.potential = Potential(component, self._effort)
        self._known: dict[tuple[bytes, int, int], tuple[Step, ...] | None] = {}
        self._best = _Best(sum(component.excesses(component.start)), ())

    def run(self) -> Walk:
        """The least excess, then the fewest moves, then the most certain ones, that can be walked to."""
        c, potential = self._component, self.potential
        now = self._best.residual
        if not c.classes:
            return Walk((), now, 0, now, proved=True)
        least = potential.least(c.start)
        bound = potential.moves(c.start, least) or 0
        beliefs = self._beliefs(least)
        start = Outlook((Belief(c.start),))
        self._effort.renew(FIRST)
        sure = self._sure(beliefs, start, least)
        if sure is None:
            self._effort.renew(BEAM)
            lowest = Beam(self._simulation, c, self._trial, potential, self._effort).run(least)
            self._best = _Best(lowest.height[0], lowest.steps)
            self._effort.renew()
            if lowest.height[0] == least:
                sure = self._sure(beliefs, start, least)
        if sure is not None:
            return Walk(tuple(sure), least, bound, least, proved=potential.exact)
        residual, most = self._best.residual, len(self._best.steps)
        if most:
            if residual > least:
                beliefs = self._beliefs(residual)
                bound = potential.moves(c.start, residual) or 0
            self._effort.renew(1 - FIRST)
            trust = self._walks(beliefs, start, residual, bound, min(most, bound + DETOURS))
            if trust is not Trust.NOBODY:
                self._best = _Best(residual, self._safest_first(beliefs, start, self._best))
        return self._kept(least, bound)

    def _walks(self, beliefs: Beliefs, start: Outlook, residual: int, moves: int, most: int) -> Trust | None:
        """Looks for a walk to `residual` of `moves` to `most` moves: the fewest, then the safest."""
        known = self._best
        for allowed in range(moves, most + 1):
            for trust in Trust:
                if trust is Trust.PREDICTION and known.residual == residual and allowed == len(known.steps):
                    break
                self._known.clear()
                found = (
                    self._walk(beliefs, start, residual, allowed, trust, ())
                    if not self._effort.gone
                    else None
                )
                if found is not None:
                    self._best = _Best(residual, found)
                    return trust
        return None

    def _safest_first(self, beliefs: Beliefs, start: Outlook, best: _Best) -> tuple[Step, ...]:
        """A walk whose first move leaves most of its landings with a way to the end.

        The rest is planned anew once that replacement has landed, so the first move is what counts.
        """
        self._known.clear()
        residual, allowed = best.residual, len(best.steps)
        safest, share = best.steps, 0.0
        for (q, row, pod), advance in self._sure_first(beliefs, start, residual):
            rests: list[tuple[Step, ...]] = []
            open_to = ending = 0
            twins = self.potential.twins(start.beliefs[0].placed)
            nodes = twins[advance.verdict.destinations]
            for belief in advance.outlook.beliefs:
                made = belief.made[-1]
                weight = int(np.count_nonzero(nodes == twins[made.row]))
                open_to += weight
                step = Step(pod, q, row, made.row, advance.verdict, advance.destinations, certain=False)
                after = Outlook((belief,), complete=False)
                rest = self._walk(beliefs, after, residual, allowed - 1 + DETOURS, Trust.PREDICTION, (step,))
                if rest is not None:
                    ending += weight
                    rests.append((step, *rest))
            if rests and ending / open_to > share:
                safest, share = rests[0], ending / open_to
            if share == 1.0 or self._effort.gone:
                break
        return safest if len(safest) <= allowed else best.steps

    def _beliefs(self, residual: int) -> Beliefs:
        """Beliefs for which nearer means: a move less to `residual`."""
        c, potential = self._component, self.potential

        def nearer(placed: Ints, q: int, row: int, landed: int) -> bool:
            before = potential.moves(placed, residual)
            left = potential.moves_after(placed, residual, q, row, landed)
            return before is not None and left is not None and left < before

        course = potential.course(c.start, residual)
        distinct = np.zeros(c.start.shape[1], dtype=np.bool_)
        if course is not None:
            distinct |= course.gives.any(axis=0)
        return Beliefs(self._simulation, c, self._trial, potential, nearer, distinct)

    def _kept(self, least: int, bound: int) -> Walk:
        """The best walk seen; nothing that was not reached in the effort allowed is proved."""
        best = self._best
        proved = not best.steps and self.potential.exact and best.residual == least
        return Walk(self._marked(best.steps), least, bound, best.residual, proved)

    def _sure(self, beliefs: Beliefs, now: Outlook, residual: int) -> list[Step] | None:
        """Steps that bring `residual` nearer wherever each replacement lands; None if there are none."""
        if sum(self._component.excesses(now.beliefs[0].placed)) <= residual:
            return []
        for q, row, pod in self._open(now.beliefs[0], residual):
            if not beliefs.distinct[row]:
                continue
            advance = self._advance(beliefs, now, q, row, pod)
            if self._effort.gone:
                return None
            if advance is None or not advance.sure:
                continue
            rest = self._sure(beliefs, advance.outlook, residual)
            if rest is not None:
                return [_step(pod, q, row, advance), *rest]
        return None

    def _walk(
        self,
        beliefs: Beliefs,
        now: Outlook,
        residual: int,
        allowed: int,
        trust: Trust,
        steps: tuple[Step, ...],
    ) -> tuple[Step, ...] | None:
        """Further steps that reach `residual` in at most `allowed` moves, as far as `trust` goes.

        The best walk seen on the way is kept, also where there is none to `residual`.
        """
        placed = now.beliefs[0].placed
        excess = sum(self._component.excesses(placed))
        if excess < self._best.residual:
            self._best = _Best(excess, steps)
        if excess <= residual:
            return ()
        needed = self.potential.moves(placed, residual)
        if needed is None or needed > allowed:
            return None
        key = (placed.tobytes(), residual, allowed)
        if key not in self._known:
            found = self._next(beliefs, now, residual, allowed, trust, steps)
            if found is None and self._effort.gone:
                return None
            self._known[key] = found
        found = self._known[key]
        if found is not None and self._best.residual > residual:
            self._best = _Best(residual, (*steps, *found))
        return found

    def _next(
        self,
        beliefs: Beliefs,
        now: Outlook,
        residual: int,
        allowed: int,
        trust: Trust,
        steps: tuple[Step, ...],
    ) -> tuple[Step, ...] | None:
        for (q, row, pod), advance in self._sure_first(beliefs, now, residual):
            for landings in self._landings(advance, now.beliefs[0], trust):
                left = [self.potential.moves(o.beliefs[0].placed, residual) for o in landings]
                if any(x is None or x >= allowed for x in left):
                    continue
                rests: list[tuple[Step, ...]] = []
                for after in landings:
                    made = after.beliefs[0].made[-1]
                    step = Step(pod, q, row, made.row, advance.verdict, advance.destinations, certain=False)
                    rest = self._walk(beliefs, after, residual, allowed - 1, trust, (*steps, step))
                    if rest is None:
                        break
                    rests.append((step, *rest))
                if len(rests) == len(landings):
                    return rests[0]
                if self._effort.gone:
                    return None
        return None

    def _landings(self, advance: Advance, before: Belief, trust: Trust) -> list[tuple[Outlook, ...]]:
        """Alternatives to go on with: outlooks of which all must lead to the end, the predicted one first."""
        if trust is Trust.NOBODY:
            return [(advance.outlook,)]
        each = [Outlook((belief,), complete=False) for belief in advance.outlook.beliefs]
        if trust is Trust.PREDICTION:
            return [(outlook,) for outlook in each]
        with self._simulation.after(before.made):
            best = self._simulation.preferred(
                advance.outlook.beliefs[0].made[-1].pod, advance.verdict.replacement, advance.verdict.landing
            )
        twins = self.potential.twins(before.placed)
        ties = [o for o in each if twins[o.beliefs[0].made[-1].row] in twins[best]]
        return [tuple(ties)] if ties else []

    def _sure_first(
        self, beliefs: Beliefs, now: Outlook, residual: int
    ) -> Iterator[tuple[Candidate, Advance]]:
        """Helpful moves; those that bring the end nearer on every landing come before the others."""
        later: list[tuple[Candidate, Advance]] = []
        for candidate in self._open(now.beliefs[0], residual):
            advance = self._advance(beliefs, now, *candidate)
            if self._effort.gone:
                break
            if advance is not None and advance.verdict.helps:
                if advance.sure:
                    yield candidate, advance
                else:
                    later.append((candidate, advance))
        yield from later

    def _advance(self, beliefs: Beliefs, now: Outlook, q: int, row: int, pod: Pod) -> Advance | None:
        """Tries a move, and counts what that took."""
        self._effort.candidates(len(now.beliefs))
        return beliefs.advance(now, q, row, pod)

    def _marked(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """The steps, certain as long as each brings the end nearer wherever it and the earlier ones land."""
        marked: list[Step] = []
        beliefs = self._beliefs(self._best.residual)
        now: Outlook | None = Outlook((Belief(self._component.start),))
        for s in steps:
            advance = beliefs.advance(now, s.q, s.row, s.pod) if now is not None else None
            now = advance.outlook if advance is not None else None
            nodes = advance.destinations if advance is not None else s.destinations
            certain = advance is not None and advance.sure and not self._effort.gone
            certain = certain and all(m.certain for m in marked)
            marked.append(Step(s.pod, s.q, s.row, s.landed, s.verdict, nodes, certain))
        return tuple(marked)

    def _open(self, belief: Belief, residual: int) -> list[Candidate]:
        """Possible victims in a belief, the most promising first."""
        course = self.potential.course(belief.placed, residual)
        if course is None:
            return []
        with self._simulation.after(belief.made):
            twins = self.potential.twins(belief.placed)
            return list(candidates(self._simulation, self._component, self._trial, twins, course.gives))


def _step(pod: Pod, q: int, row: int, advance: Advance) -> Step:
    landed = advance.outlook.beliefs[0].made[-1].row
    return Step(pod, q, row, landed, advance.verdict, advance.destinations, advance.sure)
