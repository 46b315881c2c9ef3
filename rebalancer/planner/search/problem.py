"""What the searches of one component share: its bounds, the judge, and what may still be tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from msgspec.structs import replace

from rebalancer.planner.bounds import Effort, Remaining
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.tried import Tried
from rebalancer.planner.moves.candidates import Victims
from rebalancer.planner.moves.judge import HardJudge
from rebalancer.planner.moves.move import Candidate, JudgedMove
from rebalancer.spread.arrays import Ints, Rows


class Problem:
    """One component, the state that its moves are tried on, its bounds, and how much may still be tried."""

    def __init__(
        self,
        simulation: Simulation,
        component: Component,
        judge: HardJudge,
        remaining: Remaining,
        effort: Effort,
    ) -> None:
        self.simulation = simulation
        self.component = component
        self.judge = judge
        self.remaining = remaining
        self.effort = effort
        self.tried = Tried(simulation)
        """The moves that the searches try."""

    @cached_property
    def start(self) -> Ints:
        """int64[Q, N]: where the component's pods are at first."""
        return self.component.start

    @cached_property
    def _victims(self) -> Victims:
        return Victims(self.simulation, self.component, self.judge)

    def forget(self) -> None:
        """Lets go of what the searches needed, but what the bounds know of the start."""
        self.__dict__.pop("start", None)
        self.__dict__.pop("_victims", None)
        self.remaining.forget()

    def excess(self, placed: Ints) -> int:
        """The total excess of a placement."""
        return sum(self.component.excesses(placed))

    def candidates(self, cell_of: Ints, gives: Ints | None = None) -> Iterator[Candidate]:
        """Possible victims, as the simulation stands."""
        return self._victims.now(cell_of, gives)

    def helpful(self, placed: Ints, cell_of: Ints, gives: Ints | None = None) -> Iterator[JudgedMove]:
        """Moves that help and do no harm, as the simulation stands.

        One for each class and cell of nodes (`cell_of`, int64[N]), as long as the effort lasts.
        """
        taken: set[tuple[int, int]] = set()
        for candidate in self.candidates(cell_of, gives):
            cell = (candidate.pod_class, int(cell_of[candidate.node]))
            if cell in taken:
                continue
            if self.effort.gone:
                return
            self.effort.candidates()
            move = self.judge.best(placed, candidate)
            if move is not None and move.helps:
                taken.add(cell)
                yield replace(move, certain=False)

    def expected(self, move: JudgedMove) -> Rows:
        """The nodes on which the scheduler's scores put the replacement, the predicted one first."""
        return self.simulation.expected(move.pod, move.replacement, move.landing, after_gone=move.late)


def reached(placed: Ints, moves: Iterable[JudgedMove]) -> tuple[object, ...]:
    """Equal where the same pods are gone and the placement, int64[Q, N], is the same: so are open moves."""
    return (placed.tobytes(), *sorted((m.candidate.pod_class, m.candidate.node) for m in moves))
