"""Moves for soft constraints, from the state that the moves for the hard ones lead to.

Each component goes downhill by itself. Moves of different components go in waves together, and each is judged
once more as its wave begins and with the others of the wave in flight, for they change each other's scores.
What no longer holds is taken back, and moves that led up to it are not made in vain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.moves.move import JudgedMove, Wave, in_order
from rebalancer.planner.moves.refusals import reason
from rebalancer.planner.phases.phase import Phase, Planned
from rebalancer.planner.plan import Refusal
from rebalancer.planner.soft.descent import Descent, WhyNot, up_to_last_gain
from rebalancer.planner.soft.judge import SoftJudge
from rebalancer.planner.soft.needs import Needs
from rebalancer.planner.waves.schedule import LARGEST, Schedule
from rebalancer.policy.evictable import Evictable

TURNS = 8
"""Times that the components are gone through: the moves of one change the scores that others rest on."""

Walks = Sequence[Sequence[JudgedMove]]


class SoftPhase(Phase):
    """Each component downhill; what a wave changes for its own moves is judged again."""

    turns = TURNS

    def __init__(
        self,
        simulation: Simulation,
        evictable: Evictable,
        judge: SoftJudge,
        components: Sequence[Component],
        effort: int,
    ) -> None:
        super().__init__(simulation, evictable)
        self._judge = judge
        self._components = components
        self._effort = effort
        self._dropped: dict[str, JudgedMove] = {}
        self._why_not: WhyNot = {}

    def plan(self) -> Planned:
        """The moves, in waves, and why no more are made."""
        return replace(super().plan(), why_not=self._why_not)

    def walks(self, turn: int) -> Iterator[Sequence[JudgedMove]]:  # noqa: ARG002
        """The way down of each component with an excess."""
        self._why_not.clear()
        for component in self._components:
            descent = Descent(self.simulation, component, self._judge, self._effort)
            if moves := descent.run():
                yield moves
            self._why_not.update(descent.why_not)

    def scheduled(self, walks: Walks) -> Schedule:
        """The moves in waves; of a component with a move that does not hold in its turn, none follows."""
        queues = [list(moves) for moves in walks]
        waves: list[Wave] = []
        with ExitStack() as made:
            while queues:
                found = self.scheduler.schedule([[_anywhere(moves[0])] for moves in queues[:LARGEST]])
                ended = {id(m.component) for m in found.dropped}
                self._dropped.update((m.pod.key, m) for m in found.dropped)
                for wave in found.waves:
                    held, failed = self._held(wave)
                    ended |= failed
                    if held:
                        waves.append(held)
                        made.enter_context(self.simulation.after(held))
                    for m in held:
                        next(moves for moves in queues if moves and moves[0].component is m.component).pop(0)
                    if len(held) < len(wave):
                        # What follows was arranged for a wave that is kept whole.
                        break
                queues = [moves for moves in queues if moves and id(moves[0].component) not in ended]
                queues = queues if found.dropped else [*queues[LARGEST:], *queues[:LARGEST]]
        return Schedule(tuple(waves), tuple(self._dropped.values()))

    def improved(self, found: Schedule) -> Schedule:
        """Without moves that are made in vain."""
        return self._not_in_vain(found)

    def _held(self, wave: Wave) -> tuple[list[JudgedMove], set[int]]:
        """The moves of a wave that hold as it begins, with the others in flight; and the components whose
        moves do not hold even alone.

        What fails only for the others' sake may hold in a later wave.
        """
        held: list[JudgedMove] = []
        failed: set[int] = set()
        for m in wave:
            needs = Needs(self.simulation, m.component, self._judge)
            verdict = self._judge.judge(needs, m.candidate, also=m.destinations)
            if isinstance(verdict, Refusal):
                failed.add(id(m.component))
                self._why_not[m.candidate.place] = verdict.reason
            else:
                held.append(verdict)
        while len(held) > 1 and (astray := self._judge.astray(held)):
            # The first stays in any case: alone it holds.
            held = [m for i, m in enumerate(held) if i not in astray] or held[:1]
        return held, failed

    def _not_in_vain(self, found: Schedule) -> Schedule:
        """Without moves that only prepared for others which are not made; the rest is arranged anew."""
        while True:
            walks = _walks(found.waves)
            cut = [up_to_last_gain(self.simulation, moves[0].component, moves) for moves in walks]
            in_vain = [m for moves, left in zip(walks, cut, strict=True) for m in moves[len(left) :]]
            if not in_vain:
                return found
            self._why_not.update((m.candidate.place, reason(ReasonCode.NOT_NEEDED)) for m in in_vain)
            found = self.scheduled([moves for moves in cut if moves])


def _anywhere(move: JudgedMove) -> JudgedMove:
    """The move as one that may share a wave as far as room goes; whether the scores allow it is seen then."""
    return replace(move, destinations=np.flatnonzero(move.landing.anywhere), certain=True)


def _walks(waves: Sequence[Wave]) -> Walks:
    """The moves of each component, in order."""
    walks: dict[int, list[JudgedMove]] = defaultdict(list)
    for m in in_order(waves):
        walks[id(m.component)].append(m)
    return list(walks.values())
