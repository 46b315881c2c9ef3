"""How long a search may go on, counted in what it does, so that no machine plans otherwise than another.

The unit is one candidate move that is judged, about a millisecond. What a program takes is told by its size
before it is solved (`tree_nodes`), and by the steps of the simplex algorithm afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

TREE_NODES = 500
"""Nodes of the branch-and-bound tree after which the bound is taken as it stands."""
_LARGEST = 100_000
"""Nonzeros of the largest program that is given to the solver. Before the first node of the tree nothing
but its size bounds what the solver does."""
_TREE = 2_000_000
"""Nonzeros times nodes of one tree."""
_PROGRAM = 2
"""Candidates that could be tried while a program is set up; a step of the simplex algorithm takes as long as
one more."""
_ROOT, _NODE = 7, 500
"""Nonzeros of which the first node of a tree takes as long as a candidate, and each further one."""
_PODS = 30
"""Pods of a cluster that are read into a plan in the time of a candidate."""
_PROOF = 20_000
"""Candidates that the proof of what no placement can beat may take beyond those that the plan took."""
_ADVICE, _SHARE = 1_000, 4
"""Candidates that advice may take in any case; beyond that, one for so many that the plan took."""


class Spent:
    """What the searches of one plan took, in candidates."""

    def __init__(self) -> None:
        self.steps = 0


class Effort:
    """Candidates that may still be tried; an integer program counts as many as take as long.

    `spent`: what the whole plan takes is counted there, too.
    """

    def __init__(self, allowed: int, spent: Spent | None = None) -> None:
        self._allowed = self._left = allowed
        self._spent = spent or Spent()
        self._refused = False

    @property
    def gone(self) -> bool:
        """Whether it is used up."""
        return self._left <= 0

    @property
    def fell_short(self) -> bool:
        """Whether something was left out for it, or would be by now."""
        return self._refused or self.gone

    def renew(self, share: float = 1.0) -> None:
        """As much as in the beginning, or a share of that."""
        self._left = int(self._allowed * share)

    def candidates(self, number: int = 1) -> None:
        """So many candidates were tried."""
        self._left -= number
        self._spent.steps += number

    def program(self, steps: int) -> None:
        """A program was solved in so many steps of the simplex algorithm."""
        self.candidates(_PROGRAM + steps)

    def tree_nodes(self, nonzeros: int) -> int:
        """Nodes of the tree that a program of this size may take with what is left; 0: it is not asked."""
        further = (self._left - nonzeros // _ROOT) * _NODE // max(1, nonzeros)
        nodes = max(0, min(tree_nodes(nonzeros), further))
        self._refused |= not nodes
        return nodes


def tree_nodes(nonzeros: int) -> int:
    """Nodes of the tree that any program of this size may take; 0: it is not asked."""
    return 0 if nonzeros > _LARGEST else max(1, min(TREE_NODES, _TREE // max(1, nonzeros)))


def planned(steps: int, pods: int) -> int:
    """What a plan took in all: that of its searches, and reading so many pods into it."""
    return steps + pods // _PODS


def for_proof(taken: int) -> Effort:
    """What the bound of what stays may take after a plan that took so much (`planned`)."""
    return Effort(_PROOF + taken)


def for_advice(taken: int) -> Effort:
    """What advice may take beside a plan that took so much (`planned`)."""
    return Effort(max(_ADVICE, taken // _SHARE))


# Signs of life from planning, which may take minutes: a function that is called again and again.

OnProgress = Callable[[], None]
"""What it raises ends the planning."""
T = TypeVar("T")


def unwatched() -> None:
    """Nobody follows the planning."""


def told(things: Iterable[T], on_progress: OnProgress, every: int = 1) -> Iterator[T]:
    """The things; a sign of life before one in `every`."""
    for i, thing in enumerate(things):
        if i % every == 0:
            on_progress()
        yield thing
