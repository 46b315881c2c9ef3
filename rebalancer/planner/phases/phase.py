"""One kind of constraints, planned: moves per component, in turns; waves; what is better still."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from msgspec import Struct

from rebalancer.model.reason import Reason
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.moves.move import JudgedMove, Wave, in_order
from rebalancer.planner.moves.refusals import crowded_out
from rebalancer.planner.phases.solved import Solved
from rebalancer.planner.plan import Refusal
from rebalancer.planner.waves.schedule import Schedule, Scheduler
from rebalancer.policy.evictable import Evictable


class Planned(Struct, frozen=True, eq=False):
    """Moves in waves, and the pods whose move was planned and not kept.

    `solved`, for hard constraints: by a component's place among the violated ones. `why_not`, for soft ones:
    why no pod of a place (`Candidate.place`) is moved, as far as one was tried.
    """

    waves: tuple[Wave, ...] = ()
    refused: tuple[Refusal, ...] = ()
    solved: Mapping[int, Solved] = {}
    why_not: Mapping[tuple[int, int], Reason] = {}


class Phase(ABC):
    """Plans once, from the simulation's present state on, which it leaves as it was.

    `turns`: how often the components are gone through: the moves of one change what others can do.
    """

    turns: int

    def __init__(self, simulation: Simulation, evictable: Evictable) -> None:
        self.simulation = simulation
        self.scheduler = Scheduler(simulation, evictable)

    def plan(self) -> Planned:
        """The moves, in waves."""
        schedule = self.improved(self._in_turns())
        moved = {m.pod.key for m in in_order(schedule.waves)}
        refused = {m.pod.key: crowded_out(m.pod) for m in schedule.dropped if m.pod.key not in moved}
        return Planned(schedule.waves, tuple(refused.values()))

    @abstractmethod
    def walks(self, turn: int) -> Iterator[Sequence[JudgedMove]]:
        """For each component with an excess its moves; each from where the ones before it lead."""

    @abstractmethod
    def scheduled(self, walks: Sequence[Sequence[JudgedMove]]) -> Schedule:
        """These moves in waves."""

    @abstractmethod
    def improved(self, found: Schedule) -> Schedule:
        """A better plan than all turns gave, or the same."""

    def _in_turns(self) -> Schedule:
        """Each component by itself, in turns, until a turn adds nothing."""
        waves: list[Wave] = []
        dropped: tuple[JudgedMove, ...] = ()
        with ExitStack() as made:
            for turn in range(self.turns):
                walks = []
                with ExitStack() as walked:
                    for moves in self.walks(turn):
                        walks.append(moves)
                        walked.enter_context(self.simulation.after(moves))
                more = self.scheduled(walks)
                waves += more.waves
                dropped = more.dropped
                if not more.waves:
                    break
                made.enter_context(self.simulation.after(in_order(more.waves)))
        return Schedule(tuple(waves), dropped)
