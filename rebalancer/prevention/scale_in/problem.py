"""One ReplicaSet's pods in the domains of their constraints, while they are taken away one by one.

Pods in the same domain of every constraint are interchangeable: together they are a *cell*. Only domains that
hold pods of the owner change; the others bound the lowest and the highest count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

NOWHERE = -1
"""The domain of a pod that a constraint does not count."""

Cell = tuple[int, ...]
"""The domain in each constraint, or `NOWHERE`."""


class Excess(NamedTuple):
    """The part of the skew above maxSkew, summed over the hard constraints, and over the soft ones. The hard
    ones decide."""

    hard: int = 0
    soft: int = 0

    def plus(self, other: Excess) -> Excess:
        """The sum."""
        return Excess(self.hard + other.hard, self.soft + other.soft)

    def beyond(self, other: Excess) -> Excess:
        """What is above another one."""
        return Excess(self.hard - other.hard, self.soft - other.soft)


class Spread(Struct, frozen=True, kw_only=True):
    """A constraint, as far as it matters to one owner.

    `others[d]`: pods in a domain that holds pods of the owner, which are not the owner's or stay whatever it
    does. `lowest` and `highest` count of the eligible domains without any of its pods, None if there are
    none. `enough_domains`: False if there are fewer than minDomains, so that the minimum counts as 0.
    """

    others: tuple[int, ...]
    max_skew: int
    hard: bool = True
    enough_domains: bool = True
    lowest: int | None = None
    highest: int | None = None


class Levels:
    """The pods in each domain of a constraint, as pods of the owner go. `of[d]`: how many."""

    def __init__(self, spread: Spread, own: Sequence[int]) -> None:
        """`own[d]`: pods of the owner in each domain."""
        self._spread = spread
        self.of = [o + n for o, n in zip(spread.others, own, strict=True)]
        self._having = Counter(self.of)
        self._high = max(self.of, default=0)
        self._low = min(self.of, default=0)

    @property
    def excess(self) -> int:
        """As it is."""
        return self._excess(self._low, self._high)

    def excess_without(self, domain: int) -> int:
        """After one pod of a domain has gone."""
        if domain == NOWHERE:
            return self.excess
        level = self.of[domain]
        alone_on_top = level == self._high and self._having[level] == 1
        return self._excess(min(self._low, level - 1), level - 1 if alone_on_top else self._high)

    def take(self, domain: int) -> None:
        """One pod of a domain goes."""
        if domain == NOWHERE:
            return
        level = self.of[domain]
        self.of[domain] = level - 1
        self._having[level] -= 1
        self._having[level - 1] += 1
        self._low = min(self._low, level - 1)
        while not self._having[self._high]:
            self._high -= 1

    @property
    def span(self) -> tuple[int, int]:
        """(lowest, highest) count, as the excess goes by them."""
        return self._span(self._low, self._high)

    def _excess(self, low: int, high: int) -> int:
        low, high = self._span(low, high)
        return max(0, high - low - self._spread.max_skew)

    def _span(self, low: int, high: int) -> tuple[int, int]:
        s = self._spread
        if s.lowest is not None and s.highest is not None:
            low, high = (min(low, s.lowest), max(high, s.highest)) if self.of else (s.lowest, s.highest)
        return (low if s.enough_domains else 0), high


class Problem(Struct, frozen=True, kw_only=True):
    """An owner's pods under its constraints.

    `costs[c]`: the deletion cost that each pod of a cell has now, in the order in which they go.
    """

    spreads: tuple[Spread, ...]
    cells: tuple[Cell, ...]
    costs: tuple[tuple[int, ...], ...]

    @property
    def pods(self) -> tuple[int, ...]:
        """How many pods are in each cell."""
        return tuple(map(len, self.costs))

    def levels(self, pods: Sequence[int]) -> list[Levels]:
        """For each constraint, with so many pods in each cell."""
        found = []
        for g, spread in enumerate(self.spreads):
            own = [0] * len(spread.others)
            for cell, number in zip(self.cells, pods, strict=True):
                if cell[g] != NOWHERE:
                    own[cell[g]] += number
            found.append(Levels(spread, own))
        return found

    def summed(self, excesses: Sequence[int]) -> Excess:
        """The sum of one figure for each constraint."""
        hard = sum(e for e, s in zip(excesses, self.spreads, strict=True) if s.hard)
        return Excess(hard, sum(excesses) - hard)
