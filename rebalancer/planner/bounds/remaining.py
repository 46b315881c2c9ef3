"""What a placement of a component still needs at best: the least excess, and the fewest moves to it.

Both are bounds of the final state, whatever way leads there: no sequence of moves does better. How they are
found depends on the component: in closed form (`closed_form`), or by an integer program (`several_keys`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from msgspec import Struct

from rebalancer.planner.cluster.components import Component
from rebalancer.planner.moves.move import Candidate
from rebalancer.spread.arrays import Ints


class Course(Struct, frozen=True, eq=False):
    """One best final state seen from a placement, `moves` away.

    `gives`: int64[Q, N], positive where it has fewer pods than the placement, the more, the further from it.
    `target`: int64[Q, N], the final state itself, where it is known per node.
    """

    moves: int
    gives: Ints
    target: Ints | None = None


class Remaining(ABC):
    """The bounds of one component for placements int64[Q, N].

    `solver`: how they are found. `domains_only`: whether only counts of whole domains matter; `limits_nodes`:
    while each replacement may close the node that it lands on to the next. `exact`: no bound is lower than
    what it bounds. The bounds of the start are always found; of other placements, what would take more effort
    than is left counts as out of reach.
    """

    solver: str
    domains_only = False
    limits_nodes = False

    def __init__(self, component: Component) -> None:
        self.component = component
        self.exact = True
        self._start_least: int | None = None

    @abstractmethod
    def least(self, placed: Ints) -> int:
        """The least total excess of any final state."""

    @abstractmethod
    def moves(self, placed: Ints, residual: int) -> int | None:
        """The fewest moves to a total excess of at most `residual`; None if nothing gets there."""

    @abstractmethod
    def course(self, placed: Ints, residual: int) -> Course | None:
        """A best final state with at most this excess; None if there is none."""

    @abstractmethod
    def cell_of(self, placed: Ints) -> Ints:
        """int64[N]: each node's cell. Nodes of one cell are the same to the component as destinations."""

    @abstractmethod
    def key(self, placed: Ints) -> bytes:
        """Equal for placements that are the same to the component."""

    def moves_after(self, placed: Ints, residual: int, candidate: Candidate, landed: int) -> int | None:
        """`moves` of the placement after the candidate's replacement has landed on node `landed`."""
        return self.moves(candidate.moved(placed, landed), residual)

    def forget(self) -> None:
        """Drops what is known of placements but the start: a search of thousands of nodes remembers much."""
        self.component.forget()

    def start_least(self) -> int:
        """`least` of the component's start."""
        if self._start_least is None:
            self._start_least = self.least(self.component.start)
        return self._start_least

    def start_moves(self, residual: int) -> int | None:
        """`moves` of the component's start."""
        return self.moves(self.component.start, residual)
