"""What makes one plan better than another: wherever the planner ranks ends, moves or pods, it asks here.

In this order (contract, clause 5): least remaining excess, fewest evictions, most certain moves, fewest
waves. Where the scheduler's choice decides how a plan ends, the chance of the good end is weighed against the
evictions that it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

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
