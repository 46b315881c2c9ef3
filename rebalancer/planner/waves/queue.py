"""The moves of one component that wait for a wave, and which of them may go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.planner.waves.interleavings import Interleavings
from rebalancer.planner.waves.together import Together, alone, comparable, together


class Queue:
    """The moves of a walk, in their order. `at_most`: how many of them limits let go together.

    `unsure`: one that is in a wave may end otherwise than predicted, so that what follows may, too.
    """

    def __init__(
        self, simulation: Simulation, moves: Sequence[JudgedMove], at_most: Callable[[JudgedMove], int]
    ) -> None:
        self.moves = list(moves)
        self._at_most = at_most
        self._made = 0
        self.unsure = False
        kind = moves[0].candidate.pod_class
        same = list(takewhile(lambda m: m.candidate.pod_class == kind, moves[: comparable(moves)]))
        self._same = len(same)
        self._apart = together(moves)
        # Asked only where moves are not seen to hold together without them.
        more = self._apart.length < len(same)
        self._interleavings = Interleavings(simulation, same) if more else None
        self._known: tuple[int, Together] | None = None

    def first(self) -> tuple[Sequence[JudgedMove], Together]:
        """The first move, and those that may go with it, equal in what they ask for."""
        if self._known is None or self._known[0] != self._made:
            self._known = self._made, self._found()
        found = self._known[1]
        return self.moves[: found.length], found

    def drop(self, joined: Mapping[str, bool]) -> None:
        """Without the moves that are in a wave now; `joined`: whether each is certain, by its pod's key."""
        while self.moves and (certain := joined.get(self.moves[0].pod.key)) is not None:
            self.unsure = self.unsure or not certain
            self.moves.pop(0)
            self._made += 1

    def _found(self) -> Together:
        head = self.moves[0]
        if self.unsure:
            return alone(head)
        most = min(len(self.moves), self._at_most(head))
        kind = head.candidate.pod_class
        apart = self.moves[: max(0, min(most, self._apart.length - self._made))]
        alike = len(list(takewhile(lambda m: m.candidate.pod_class == kind, apart)))
        best = Together(alike, self._apart.most, self._apart.nodes) if alike > 1 else alone(head)
        if self._interleavings is not None:
            for length in range(best.length + 1, min(most, self._same - self._made) + 1):
                held = self._interleavings.hold(self._made, self._made + length)
                if held is None:
                    break
                best = Together(length, held.most, held.nodes)
        return best
