"""What makes one plan better than another: wherever the planner ranks ends, moves or pods, it asks here.

In this order (contract, clause 5): least remaining excess, fewest evictions, most certain moves, fewest
waves. Where the scheduler's choice decides how a plan ends, the chance of the good end is weighed against the
evictions that it takes. How long a better plan is looked for stands here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from rebalancer.model.pod import Pod
from rebalancer.spread.arrays import Ints, Rows

DETOURS = 3
"""Moves beyond the bound that are allowed before more excess is accepted."""
COST = 0.05
"""What an eviction has to add to the chance of the good end, so that it is worth making."""
LEAST_WORTH = 0.1
"""A sequence of moves that is worth less is none: its evictions would most likely be in vain."""
ALIKE = 0.02
"""Sequences whose worth differs by no more than this count as equal."""
TOLERANCE = 0.02
"""Evictions on average by which a sequence may be longer than the shortest and ends the comparison."""


class Eviction(Protocol):
    """What is ranked of a move."""

    @property
    def pod(self) -> Pod:
        """The pod that is evicted."""

    @property
    def certain(self) -> bool:
        """Whether the plan ends as it says wherever the replacement lands."""


class Rank(NamedTuple):
    """How good the end of a plan is: the lower the better, the first figure that differs decides."""

    excess: int
    evictions: int
    likely: int
    waves: int


def rank(excess: int, moves: Iterable[Eviction], waves: int = 0) -> Rank:
    """The rank of what these moves lead to."""
    certain = [m.certain for m in moves]
    return Rank(excess, len(certain), certain.count(False), waves)


def weights(pods: int) -> tuple[float, float]:
    """(of a pod in excess, of an eviction) in a sum over so many pods: the excess decides, evictions break
    ties."""
    return float(pods + 1), 1.0


def worth(chance: float, evictions: float) -> float:
    """What a chance of the good end is worth, if it takes so many evictions on average."""
    return chance - COST * evictions


def unbeaten(found: float, needed: int) -> bool:
    """Whether no sequence of `needed` evictions or more can be worth noticeably more than `found`."""
    return found >= worth(1.0, needed + TOLERANCE)


def victims(wanted: Ints) -> Rows:
    """The places of victims that stand in the order of `moves.Victims`, as `victim` sorts them."""
    return np.argsort(-wanted, kind="stable")


def victim(wanted: int, order: Sequence[object]) -> tuple[object, ...]:
    """A sort key of victims: first where the bound wants most pods taken from, then `moves.victim_order`."""
    return -wanted, order


# How long a search may go on, counted in what it does, so that no machine plans otherwise than another.
#
# The unit is one candidate move that is judged, about a millisecond. What a program takes is told by its
# size before it is solved (`tree_nodes`), and by the steps of the simplex algorithm afterwards.

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

    def led_on(self, number: int) -> None:
        """The last so many candidates brought the end nearer: they are given back."""
        self._left += number

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


def steps_in_all(steps: int, pods: int) -> int:
    """What a plan took in all: that of its searches, and reading so many pods into it."""
    return steps + pods // _PODS


def for_proof(taken: int) -> Effort:
    """What the bound of what stays may take after a plan that took so much (`steps_in_all`)."""
    return Effort(_PROOF + taken)


def for_advice(taken: int) -> Effort:
    """What advice may take beside a plan that took so much (`steps_in_all`)."""
    return Effort(max(_ADVICE, taken // _SHARE))


# Signs of life from planning, which may take minutes: a function that is called again and again.

OnProgress = Callable[[], None]
"""What it raises ends the planning."""
T = TypeVar("T")


def unwatched() -> None:
    """Nobody follows the planning."""


def with_progress(things: Iterable[T], on_progress: OnProgress, every: int = 1) -> Iterator[T]:
    """The things; a sign of life before one in `every`."""
    for i, thing in enumerate(things):
        if i % every == 0:
            on_progress()
        yield thing
