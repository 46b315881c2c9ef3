"""How long a search may go on, counted in what it does, so that no machine plans otherwise than another."""

from __future__ import annotations

_PROGRAM = 2
"""Candidates that could be tried while a program is set up; a step of the simplex algorithm takes as long as
one more."""


class Effort:
    """Candidates that may still be tried; an integer program counts as many as take as long."""

    def __init__(self, allowed: int) -> None:
        self._allowed = self._left = allowed

    @property
    def gone(self) -> bool:
        """Whether it is used up."""
        return self._left <= 0

    def renew(self, share: float = 1.0) -> None:
        """As much as in the beginning, or a share of that."""
        self._left = int(self._allowed * share)

    def candidates(self, number: int = 1) -> None:
        """So many candidates were tried."""
        self._left -= number

    def program(self, steps: int) -> None:
        """A program was solved in so many steps of the simplex algorithm."""
        self._left -= _PROGRAM + steps
