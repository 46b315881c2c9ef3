"""Moves tried on a simulation, one sequence after the other: what two of them begin with is made once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rebalancer.planner.cluster.simulation import Made, Simulation


class Tried:
    """The sequence of moves that is made on the simulation at present."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._made: list[tuple[Made, ExitStack]] = []
        self._users = 0

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While it lasts, `after` leaves its moves made for the next sequence; then all are undone."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._back_to(0)

    @contextmanager
    def after(self, moves: Sequence[Made]) -> Iterator[None]:
        """The state with these moves made, and no others of those tried."""
        same = 0
        for (made, _), move in zip(self._made, moves, strict=False):
            if made is not move:
                break
            same += 1
        with self.kept():
            self._back_to(same)
            for move in moves[same:]:
                stack = ExitStack()
                stack.enter_context(self._simulation.after((move,)))
                self._made.append((move, stack))
            yield

    def _back_to(self, length: int) -> None:
        while len(self._made) > length:
            self._made.pop()[1].close()
