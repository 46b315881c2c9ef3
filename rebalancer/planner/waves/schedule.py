"""Moves of several components put into waves, as few as limits and interleavings allow.

Moves of one component share a wave as far as they hold `together`; else each could change what is left to the
next one's replacement. The next wave starts from the state that the plan predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.planner import objective
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.moves.move import JudgedMove, Wave, in_order
from rebalancer.planner.waves.elsewhere import Elsewhere
from rebalancer.planner.waves.limits import Limits, draining_budgets
from rebalancer.planner.waves.queue import Queue
from rebalancer.planner.waves.together import Together, alone
from rebalancer.planner.waves.wave import WaveInTheMaking
from rebalancer.policy.evictable import Evictable

LARGEST = 50
"""Evictions in flight at most, whatever budgets allow."""


class Schedule(Struct, frozen=True, eq=False):
    """The waves, and the moves that hold in none."""

    waves: tuple[Wave, ...]
    dropped: tuple[JudgedMove, ...]

    @property
    def rank(self) -> objective.Rank:
        """How good it is; a move that holds in no wave leaves an excess of one."""
        return objective.rank(len(self.dropped), in_order(self.waves), len(self.waves))


class Scheduler:
    """Puts moves into waves. It leaves the simulation's state as it was."""

    def __init__(self, simulation: Simulation, evictable: Evictable) -> None:
        self._simulation = simulation
        self._evictable = evictable
        self._draining = draining_budgets(simulation, evictable.budgets)

    def schedule(self, walks: Sequence[Sequence[JudgedMove]], waiting: Waiting | None = None) -> Schedule:
        """The moves of each walk, all of one component, in their order.

        Where the victims of a wave together would make room for a `waiting` pod, its moves go one by one, as
        far as no such pod is in their way.
        """
        found = self._arranged(walks, waiting, partial(self._at_most, waiting))
        likely = sum(not m.certain for moves in walks for m in moves)
        if not found.dropped and found.rank.likely <= likely:
            return found
        # Side by side they were in each other's way: one move of each at a time may do better.
        return min(found, self._arranged(walks, waiting, lambda _: 1), key=lambda s: s.rank)

    def _arranged(
        self,
        walks: Sequence[Sequence[JudgedMove]],
        waiting: Waiting | None,
        at_most: Callable[[JudgedMove], int],
    ) -> Schedule:
        queues = [Queue(self._simulation, moves, at_most) for moves in walks if moves]
        waves: list[Wave] = []
        elsewhere = Elsewhere(self._simulation)
        unsure: set[int] = set()
        with ExitStack() as made:
            while queues:
                members = self._next(queues, elsewhere, waiting)
                if not members:
                    # Even alone in a wave the first move of every walk fails: others took its room.
                    break
                joined = {m.pod.key: m.certain for m in members}
                for queue in queues:
                    queue.drop(joined)
                queues = [queue for queue in queues if queue.moves]
                wave = []
                for move in members:
                    if not move.certain:
                        unsure.add(id(move.component))
                    # What follows a move that may end otherwise may, too.
                    wave.append(replace(move, certain=id(move.component) not in unsure))
                    elsewhere.add(wave[-1])
                waves.append(wave)
                made.enter_context(self._simulation.after(wave))
        return Schedule(tuple(waves), tuple(move for queue in queues for move in queue.moves))

    def _at_most(self, waiting: Waiting | None, move: JudgedMove) -> int:
        """How many moves like this one may be in one wave."""
        if waiting is not None and waiting.concern(move.component):
            return 1
        return min(LARGEST, Limits(self._evictable, self._draining).at_most(move.pod))

    def _next(
        self, queues: Sequence[Queue], elsewhere: Elsewhere, waiting: Waiting | None
    ) -> list[JudgedMove]:
        """The members of the next wave, of the first moves of all walks; none if not even one holds."""
        members, opened = self._wave((queue.first() for queue in queues), elsewhere, waiting)
        if waiting is None or not opened:
            return members
        heads = [queue.moves[0] for queue in queues]
        free = [h for h in heads if not waiting.interferes(h.pod, h.replacement)]
        each = (self._wave([([h], alone(h))], elsewhere, None)[0] for h in free)
        return next((m for m in each if m), [])

    def _wave(
        self,
        walks: Iterable[tuple[Sequence[JudgedMove], Together]],
        elsewhere: Elsewhere,
        waiting: Waiting | None,
    ) -> tuple[list[JudgedMove], bool]:
        """A wave of some of these moves; and whether it lets in a pod that waits."""
        with self._simulation.without() as terminating:
            limits = Limits(self._evictable, self._draining)
            wave = WaveInTheMaking(self._simulation, limits, terminating)
            # First one of each component, so that none waits for the others of another.
            rest: Iterable[tuple[Iterator[JudgedMove], Together]]
            rest = ((iter(moves), together) for moves, together in walks)
            while rest and len(wave) < LARGEST:
                joined = []
                for moves, together in rest:
                    move = next(moves, None)
                    if move is not None and wave.join(move, together):
                        joined.append((moves, together))
                    if len(wave) == LARGEST:
                        break
                rest = joined
            return wave.settled(elsewhere), waiting is not None and waiting.any_placeable()
