"""Moves of one component downhill: each is one that the soft judge lets pass, the fullest domain first.

They end with the move that lowers the excess last. The search takes no step back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner import objective
from rebalancer.planner.bounds import Effort
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.planner.moves.move import Candidate, JudgedMove
from rebalancer.planner.moves.refusals import reason
from rebalancer.planner.plan import Refusal
from rebalancer.planner.soft.judge import SoftJudge
from rebalancer.planner.soft.needs import Needs

TRIED_PER_CELL = 3
"""Victims tried on nodes that the constraints cannot tell apart, before a refusal counts for all of them."""

WhyNot = dict[tuple[int, int], Reason]
"""`Candidate.place` → why no pod there is moved."""


class Descent:
    """Descends once, from the simulation's present state, which it leaves as it was.

    `why_not`: after `run`, why no pod of a place was moved, as far as one was tried.
    """

    def __init__(self, simulation: Simulation, component: Component, judge: SoftJudge, effort: int) -> None:
        self._simulation = simulation
        self._component = component
        self._judge = judge
        self._effort = Effort(effort, simulation.spent)
        self.why_not: WhyNot = {}

    def run(self) -> Sequence[JudgedMove]:
        """Moves up to the last that lowers the soft excess."""
        moves: list[JudgedMove] = []
        with ExitStack() as made:
            needs = self._needs()
            while needs.soft_excess():
                move = self._next(needs)
                if move is None:
                    break
                moves.append(move)
                made.enter_context(self._simulation.after((move,)))
                needs = self._needs()
        kept = up_to_last_gain(self._simulation, self._component, moves)
        self.why_not.update((m.candidate.place, reason(ReasonCode.NOT_NEEDED)) for m in moves[len(kept) :])
        return kept

    def _needs(self) -> Needs:
        return Needs(self._simulation, self._component, self._judge)

    def _next(self, needs: Needs) -> JudgedMove | None:
        """The first candidate that holds."""
        refusals: dict[object, list[Reason]] = defaultdict(list)
        for candidate in self._candidates(needs):
            if self._effort.gone:
                break
            cell = refusals[candidate.pod_class, needs.cell(candidate.node)]
            if len(cell) < TRIED_PER_CELL:
                self._effort.candidates()
                verdict = self._judge.judge(needs, candidate)
                if not isinstance(verdict, Refusal):
                    return verdict
                cell.append(verdict.reason)
            self.why_not[candidate.place] = cell[-1]
        return None

    def _candidates(self, needs: Needs) -> Iterator[Candidate]:
        """For each class and node the best victim: of the fullest domains first, then in victim order."""
        soft = [g for g in self._component.groups if not g.constraint.hard and needs.excess[g.index]]
        entries: list[tuple[tuple[object, ...], Candidate]] = []
        for index, pod_class in enumerate(self._component.classes):
            mine = [g for g in soft if g.index in pod_class.carried]
            for node, pods in pod_class.by_node.items() if mine else ():
                there = (p for p in pods if self._judge.may_go(p))
                pod = next((p for p in there if key_of(p) in self._simulation.state.pods), None)
                if pod is not None:
                    candidate = Candidate(self._component, index, node, pod)
                    if self._judge.gains(needs, candidate):
                        height = sum(needs.height(g, node) for g in soft if g.index in pod_class.counted)
                        entries.append((objective.victim(height, self._judge.order(pod)), candidate))
        for _, candidate in sorted(entries, key=lambda e: e[0]):
            yield candidate


def up_to_last_gain(
    simulation: Simulation, component: Component, moves: Sequence[JudgedMove]
) -> Sequence[JudgedMove]:
    """The moves without those at the end that lower no excess."""
    soft = [g for g in component.groups if not g.constraint.hard]

    def rank(made: int) -> objective.Rank:
        excess = sum(g.excess(g.counts(simulation.state)) for g in soft)
        return objective.rank(excess, moves[:made])

    kept, best = 0, rank(0)
    with ExitStack() as made:
        for i, move in enumerate(moves, 1):
            made.enter_context(simulation.after((move,)))
            if (here := rank(i)) < best:
                kept, best = i, here
    return moves[:kept]
