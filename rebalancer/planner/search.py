"""From counts to a sequence that the scheduler follows.

The bound says how few moves a placement needs; the scheduler, not the planner, chooses where a replacement
lands. First the search looks for a *sure* walk: at each move, wherever this and every earlier replacement
landed, the bound falls by one. If there is none, it follows the landings that the scheduler's scores
predict, allows a few moves beyond the bound, and accepts more excess last. Bounded in candidates tried, not
in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.planner.belief import Belief, Beliefs, moved
from rebalancer.planner.component import Component
from rebalancer.planner.potential import Course, Potential
from rebalancer.planner.simulation import Made, Simulation, key_of
from rebalancer.planner.trial import Trial, Verdict
from rebalancer.spread.arrays import Ints, Rows

DETOURS = 3
"""Moves beyond the bound that are allowed before more excess is accepted."""


class Step(Struct, frozen=True, eq=False):
    """One move of a walk: the victim of class `q` on node `row`, and the node where the plan lands it.

    `destinations`: every node in question. `certain`: the move helps on each of them, wherever the
    replacements of the walk's earlier moves landed.
    """

    pod: Pod
    q: int
    row: int
    landed: int
    verdict: Verdict
    destinations: Rows
    certain: bool

    @property
    def made(self) -> Made:
        """The move as the plan predicts it."""
        return Made(self.pod, self.verdict.replacement, self.landed)


class Walk(Struct, frozen=True, eq=False):
    """The best walk found, which ends at an excess of `residual`.

    `least`, `bound`: excess and moves of the best final state; `proved`: the walk surely reaches just that.
    """

    steps: tuple[Step, ...]
    least: int
    bound: int
    residual: int
    proved: bool


class Search:
    """Finds the best walk of one component. It leaves the simulation's state as it was."""

    def __init__(self, simulation: Simulation, component: Component, trial: Trial, effort: int) -> None:
        self._simulation = simulation
        self._component = component
        self._trial = trial
        self._effort = self._tries = effort
        self.potential = Potential(component)
        self._dead: set[tuple[bytes, int, int]] = set()

    def run(self) -> Walk:
        """The least excess, then the fewest moves, then the most certain ones, that can be walked to."""
        c, potential = self._component, self.potential
        now = sum(c.excesses(c.start))
        if not c.classes:
            return Walk((), now, 0, now, proved=True)
        least = potential.least(c.start)
        bound = potential.moves(c.start, least) or 0
        for residual in range(least, now):
            moves = potential.moves(c.start, residual)
            if moves is None:
                continue
            self._tries = self._effort
            beliefs = Beliefs(self._simulation, c, self._trial, potential, residual)
            sure = self._sure(beliefs, (Belief(c.start),), residual)
            if sure is not None:
                return Walk(tuple(sure), least, bound, residual, proved=potential.exact and residual == least)
            self._tries = self._effort
            for extra in range(DETOURS + 1):
                steps = self._predicted(c.start, residual, moves + extra)
                if steps is not None:
                    return self._cut(beliefs, steps, least, bound, now)
                if self._tries <= 0:
                    break
        return Walk((), least, bound, now, proved=potential.exact and least == now)

    def _sure(self, beliefs: Beliefs, now: tuple[Belief, ...], residual: int) -> list[Step] | None:
        """Steps to `residual` that hold wherever each replacement lands; None if there are none."""
        placed = now[0].placed
        if sum(self._component.excesses(placed)) <= residual:
            return []
        course = self.potential.course(placed, residual)
        if course is None:
            return None
        with ExitStack() as made:
            made.enter_context(self._simulation.after(now[0].made))
            candidates = list(self._candidates(course, self.potential.twins(placed)))
        for q, row, pod in candidates:
            if row not in beliefs.donors:
                continue
            if self._tries <= 0:
                return None
            self._tries -= len(now)
            advance = beliefs.advance(now, q, row, pod)
            if advance is None or not advance.sure:
                continue
            rest = self._sure(beliefs, advance.beliefs, residual)
            if rest is not None:
                landed = advance.beliefs[0].made[-1].row
                step = Step(pod, q, row, landed, advance.verdict, advance.destinations, certain=True)
                return [step, *rest]
        return None

    def _predicted(self, placed: Ints, residual: int, allowed: int) -> list[Step] | None:
        """Steps to `residual` in at most `allowed` moves along predicted landings; None if there are none."""
        if sum(self._component.excesses(placed)) <= residual:
            return []
        needed = self.potential.moves(placed, residual)
        dead = (placed.tobytes(), residual, allowed)
        if needed is None or needed > allowed or dead in self._dead:
            return None
        for steps in self._on_course(placed, residual, allowed):
            for step in steps:
                with self._simulation.after((step.made,)):
                    rest = self._predicted(
                        moved(placed, step.q, step.row, step.landed), residual, allowed - 1
                    )
                if rest is not None:
                    return [step, *rest]
                if self._tries <= 0:
                    return None
        self._dead.add(dead)
        return None

    def _cut(self, beliefs: Beliefs, steps: list[Step], least: int, bound: int, excess: int) -> Walk:
        """The steps as far as none does harm, wherever the earlier replacements landed.

        A step is certain if it helps in all these cases; what comes after a harmful one is
        for the next plan, which sees where the replacements are.
        """
        kept: list[Step] = []
        now: tuple[Belief, ...] = (Belief(self._component.start),)
        placed = self._component.start
        certain = True
        for step in steps:
            advance = beliefs.advance(now, step.q, step.row, step.pod)
            if advance is None:
                break
            now = advance.beliefs
            certain = certain and advance.helps
            kept.append(
                Step(step.pod, step.q, step.row, step.landed, step.verdict, advance.destinations, certain)
            )
            placed = moved(placed, step.q, step.row, step.landed)
            excess = sum(self._component.excesses(placed))
        return Walk(tuple(kept), least, bound, excess, proved=False)

    def _on_course(self, placed: Ints, residual: int, allowed: int) -> Iterator[Iterator[Step]]:
        """Moves after which less than `allowed` moves are left, each once for every distinct landing.

        First those for which this is so wherever the replacement lands. Then those for which it is so on the
        best-scored nodes, while elsewhere no more is left than before.
        """
        course = self.potential.course(placed, residual)
        if course is None:
            return
        twins = self.potential.twins(placed)
        second: list[tuple[Pod, int, int, Verdict, dict[int, int]]] = []
        for q, row, pod in self._candidates(course, twins):
            if self._tries <= 0:
                return
            self._tries -= 1
            for verdict in self._trial.judge(self._component, placed, q, row, pod):
                if isinstance(verdict, Verdict) and verdict.helps:
                    left = self._left(placed, q, row, verdict, twins, residual, allowed)
                    if left is None:
                        continue
                    if max(left.values()) < allowed:
                        yield self._steps(pod, q, row, verdict, twins, verdict.destinations)
                        break
                    if min(left.values()) < allowed:
                        second.append((pod, q, row, verdict, left))
        for pod, q, row, verdict, left in second:
            best = self._simulation.preferred(pod, verdict.replacement, verdict.landing)
            if all(left[int(t)] < allowed for t in twins[best]):
                yield self._steps(pod, q, row, verdict, twins, best)

    def _left(
        self,
        placed: Ints,
        q: int,
        row: int,
        verdict: Verdict,
        twins: Ints,
        residual: int,
        allowed: int,
    ) -> dict[int, int] | None:
        """Moves left after each distinct landing; None if one leaves more than `allowed`."""
        nodes = verdict.destinations
        left: dict[int, int] = {}
        for twin in np.unique(twins[nodes]):
            node = int(nodes[twins[nodes] == twin][0])
            moves = self.potential.moves_after(placed, residual, q, row, node)
            if moves is None or moves > allowed:
                return None
            left[int(twin)] = moves
        return left

    def _steps(
        self, pod: Pod, q: int, row: int, verdict: Verdict, twins: Ints, nodes: Rows
    ) -> Iterator[Step]:
        """The move once for each distinct landing among `nodes`, the scheduler's favourite first."""
        while len(nodes):
            landed = self._simulation.favourite(verdict.replacement, nodes)
            yield Step(pod, q, row, landed, verdict, verdict.destinations, certain=False)
            nodes = nodes[twins[nodes] != twins[landed]]

    def _candidates(self, course: Course, twins: Ints) -> Iterator[tuple[int, int, Pod]]:
        """Possible victims: where a best final state has fewer pods first, the better victim first.

        First one for each set of interchangeable nodes; its twins come last, for where they lie may matter
        to things that counts do not see.
        """
        best: dict[tuple[int, int], tuple[tuple[object, ...], int, int, Pod]] = {}
        rest: list[tuple[tuple[object, ...], int, int, Pod]] = []
        for q, pod_class in enumerate(self._component.classes):
            for row in pod_class.by_row:
                pod = self._next(q, row)
                if pod is None:
                    continue
                entry = ((-int(course.gives[q, row]), self._trial.order(pod)), q, row, pod)
                twin = (q, int(twins[row]))
                if twin not in best:
                    best[twin] = entry
                elif entry[0] < best[twin][0]:
                    rest.append(best[twin])
                    best[twin] = entry
                else:
                    rest.append(entry)
        for entries in (list(best.values()), rest):
            for _, q, row, pod in sorted(entries, key=lambda e: e[0]):
                yield q, row, pod

    def _next(self, q: int, row: int) -> Pod | None:
        """The best victim of a class on a node that is still there."""
        for pod in self._component.classes[q].by_row[row]:
            if self._trial.may_go(pod) and key_of(pod) in self._simulation.state.pods:
                return pod
        return None
