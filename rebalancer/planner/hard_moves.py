"""The moves for hard constraints, single and joint ones, in the better of two orders.

Single moves come first: they need no trust in several evictions at once. But they may lead to where no joint
move helps any more. So where they leave an excess that could be lower, the joint moves of those components
are also tried before their single ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack

from msgspec import Struct

from rebalancer.planner import objective
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.constraints import HardConstraints
from rebalancer.planner.moves.move import Wave, in_order
from rebalancer.planner.phases.phase import Planned
from rebalancer.planner.phases.solved import Solved
from rebalancer.planner.plan import Refusal

JOINT_MOVES = 8
"""Joint moves of one plan."""


class HardMoves(Struct, frozen=True, eq=False):
    """Moves in waves, what was planned and not kept, what is solved by then, and the excess that is left.

    `stuck`: components, by place, that might be left with less.
    """

    waves: tuple[Wave, ...]
    refused: tuple[Refusal, ...]
    solved: Mapping[int, Solved]
    left: int
    stuck: frozenset[int]


def hard_moves(
    hard: HardConstraints, simulation: Simulation, waiting: Waiting, *, jointly: bool
) -> HardMoves:
    """The moves from the simulation's present state on, which is left as it was.

    `hard` knows afterwards what they solve. `jointly`: whether joint moves are wanted.
    """
    single = _Order(hard, simulation, waiting, jointly=jointly).moves()
    best, stuck = single, single.stuck if jointly else frozenset()
    # Pods of a component that is not stuck may make the room that another lacks.
    for late in dict.fromkeys((stuck, frozenset(range(len(hard.violated))))) if stuck else ():
        other = _Order(hard, simulation, waiting, jointly=jointly).moves(late, single.solved)
        best = min(best, other, key=_rank)
    hard.solved = best.solved
    return best


def _rank(moves: HardMoves) -> objective.Rank:
    return objective.rank(moves.left, in_order(moves.waves), len(moves.waves))


class _Order:
    """Makes moves in one order, and takes them back in the end."""

    def __init__(
        self, hard: HardConstraints, simulation: Simulation, waiting: Waiting, *, jointly: bool
    ) -> None:
        self._hard = hard
        self._simulation = simulation
        self._waiting = waiting
        self._joint_moves = JOINT_MOVES if jointly else 0
        self._made_jointly = 0
        self._waves: list[Wave] = []
        self._refused: list[Refusal] = []
        self._made = ExitStack()

    def moves(self, late: Collection[int] = (), known: Mapping[int, Solved] = {}) -> HardMoves:
        """Single moves, then joint ones, each with the single moves that it makes possible.

        `late`: components, by place, whose single moves wait until no joint move is found any more; `known`:
        how these were solved before.
        """
        hard = self._hard
        hard.solved = {}
        with self._made:
            self._take(hard.plan(self._waiting, late=late))
            hard.begin({i: s for i, s in known.items() if i in late})
            while late and self._joint():
                pass
            if late:
                self._take(hard.plan(self._waiting))
            while self._joint():
                self._take(hard.plan(self._waiting))
            return HardMoves(
                tuple(self._waves), tuple(self._refused), hard.solved, hard.excess(), hard.stuck()
            )

    def _joint(self) -> bool:
        """Makes the best joint move, if there is one."""
        if self._made_jointly == self._joint_moves:
            return False
        found = self._take(self._hard.joint(self._made_jointly + 1, sure=not self._waves))
        self._made_jointly += found
        return found

    def _take(self, planned: Planned) -> bool:
        self._waves.extend(planned.waves)
        self._refused.extend(planned.refused)
        self._made.enter_context(self._simulation.after(in_order(planned.waves)))
        return bool(planned.waves)
