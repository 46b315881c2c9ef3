"""From counts to a sequence that the scheduler follows.

The bound says how few moves a placement needs; the scheduler, not the planner, chooses where a replacement
lands. First the search looks for a *sure* walk: at each move, wherever this and every earlier replacement
landed, the bound falls by one. If there is none, it follows the landings that the scheduler's scores
predict, with moves that do no harm on any other, allows a few moves beyond the bound, and accepts more
excess last. Bounded in candidates tried, not in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.planner.belief import Advance, Belief, Beliefs, Outlook
from rebalancer.planner.component import Component
from rebalancer.planner.potential import Course, Potential
from rebalancer.planner.simulation import Made, Simulation, key_of
from rebalancer.planner.trial import Trial, Verdict
from rebalancer.spread.arrays import Ints, Rows

DETOURS = 3
"""Moves beyond the bound that are allowed before more excess is accepted."""
SOLVING = 5
"""What solving an integer program costs, in judged moves."""


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
        self._tries = effort
        self.potential = Potential(component)
        self._dead: set[tuple[bytes, int, int]] = set()
        self._best = _Best(sum(component.excesses(component.start)), ())

    def run(self) -> Walk:
        """The least excess, then the fewest moves, then the most certain ones, that can be walked to."""
        c, potential = self._component, self.potential
        now = self._best.residual
        if not c.classes:
            return Walk((), now, 0, now, proved=True)
        least = potential.least(c.start)
        bound = potential.moves(c.start, least) or 0
        start = Outlook((Belief(c.start),))
        for residual in range(least, now):
            moves = potential.moves(c.start, residual)
            if moves is None or residual >= self._best.residual:
                continue
            beliefs = Beliefs(self._simulation, c, self._trial, potential, residual)
            sure = self._sure(beliefs, start, residual)
            if sure is not None:
                return Walk(tuple(sure), least, bound, residual, proved=potential.exact and residual == least)
            for extra in range(DETOURS + 1):
                for only_predicted in (False, True):
                    self._dead.clear()
                    if self._walk(beliefs, start, residual, moves + extra, only_predicted, ()):
                        return self._kept(beliefs, least, bound)
                    if self._tries <= 0:
                        return self._kept(beliefs, least, bound)
        beliefs = Beliefs(self._simulation, c, self._trial, potential, least)
        return self._kept(beliefs, least, bound)

    def _kept(self, beliefs: Beliefs, least: int, bound: int) -> Walk:
        """The best walk seen; nothing that was not reached in the effort allowed is proved."""
        proved = not self._best.steps and self.potential.exact and self._best.residual == least
        return Walk(self._marked(beliefs, self._best.steps), least, bound, self._best.residual, proved)

    def _sure(self, beliefs: Beliefs, now: Outlook, residual: int) -> list[Step] | None:
        """Steps that bring `residual` nearer wherever each replacement lands; None if there are none."""
        if sum(self._component.excesses(now.beliefs[0].placed)) <= residual:
            return []
        for q, row, pod in self._open(now.beliefs[0], residual):
            if not beliefs.is_donor[row]:
                continue
            advance = self._advance(beliefs, now, q, row, pod)
            if self._tries <= 0:
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
        only_predicted: bool,
        steps: tuple[Step, ...],
    ) -> bool:
        """Whether `residual` is reached in at most `allowed` moves where each replacement lands as predicted.

        No move does harm wherever the replacements land; with `only_predicted`, wherever the last one lands
        when the others landed as predicted. The best walk seen on the way is kept.
        """
        placed = now.beliefs[0].placed
        excess = sum(self._component.excesses(placed))
        if excess < self._best.residual:
            self._best = _Best(excess, steps)
        if excess <= residual:
            return True
        needed = self.potential.moves(placed, residual)
        dead = (placed.tobytes(), residual, allowed)
        if needed is None or needed > allowed or dead in self._dead:
            return False
        for q, row, pod in self._open(now.beliefs[0], residual):
            advance = self._advance(beliefs, now, q, row, pod)
            if self._tries <= 0:
                return False
            if advance is None or not advance.verdict.helps:
                continue
            for after in self._outlooks(advance, only_predicted):
                left = self.potential.moves(after.beliefs[0].placed, residual)
                if left is None or left >= allowed:
                    continue
                landed = after.beliefs[0].made[-1].row
                step = Step(pod, q, row, landed, advance.verdict, advance.destinations, certain=False)
                if self._walk(beliefs, after, residual, allowed - 1, only_predicted, (*steps, step)):
                    return True
                if self._tries <= 0:
                    return False
        self._dead.add(dead)
        return False

    def _advance(self, beliefs: Beliefs, now: Outlook, q: int, row: int, pod: Pod) -> Advance | None:
        """Tries a move, and counts what that took."""
        solved = self.potential.solved
        advance = beliefs.advance(now, q, row, pod)
        self._tries -= len(now.beliefs) + SOLVING * (self.potential.solved - solved)
        return advance

    @staticmethod
    def _outlooks(advance: Advance, only_predicted: bool) -> tuple[Outlook, ...]:
        """What to go on with: all beliefs, or each by itself, the predicted one first."""
        if not only_predicted:
            return (advance.outlook,)
        return tuple(Outlook((belief,), complete=False) for belief in advance.outlook.beliefs)

    def _marked(self, beliefs: Beliefs, steps: Sequence[Step]) -> tuple[Step, ...]:
        """The steps, certain as long as each helps wherever the earlier ones landed."""
        marked: list[Step] = []
        now: Outlook | None = Outlook((Belief(self._component.start),))
        for s in steps:
            advance = beliefs.advance(now, s.q, s.row, s.pod) if now is not None else None
            now = advance.outlook if advance is not None else None
            nodes = advance.destinations if advance is not None else s.destinations
            certain = advance is not None and advance.helps
            marked.append(Step(s.pod, s.q, s.row, s.landed, s.verdict, nodes, certain))
        return tuple(marked)

    def _open(self, belief: Belief, residual: int) -> list[tuple[int, int, Pod]]:
        """Possible victims in a belief, the most promising first."""
        course = self.potential.course(belief.placed, residual)
        if course is None:
            return []
        with self._simulation.after(belief.made):
            return list(self._candidates(course, self.potential.twins(belief.placed)))

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


def _step(pod: Pod, q: int, row: int, advance: Advance) -> Step:
    landed = advance.outlook.beliefs[0].made[-1].row
    return Step(pod, q, row, landed, advance.verdict, advance.destinations, advance.helps)
