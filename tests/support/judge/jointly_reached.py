"""How low single and joint moves can lead on a small cluster, by trying all of them, wherever luck takes the
replacements.

A joint move is a set of evictions that is sent one after the other. Any replacement may be placed in between,
on any node that the plain filter leaves, and the set may end after any eviction. In each of these ways no
constraint may have more excess once nothing more happens; and where all are sent, all replacements are placed
and the excess in all has fallen. Budgets are left out. So no plan may end lower.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement, permutations

from tests.support.judge.cells import Cells, Counts, moved
from tests.support.judge.exhaustive import Place, landings

_MOMENTS = 3000
"""Moments of one set; where there are more, the set does not count."""


class TooManyError(Exception):
    """There is more to try than was allowed."""


class Jointly:
    """`largest`: pods of a joint move; `limit`: how often the filter may be asked."""

    def __init__(self, cells: Cells, largest: int = 3, limit: int = 100_000) -> None:
        self._cells = cells
        self._largest = largest
        self._left = limit
        self._excesses = cache(lambda counts: [cells.excess(counts, g) for g in range(len(cells.groups))])
        self._open = cache(self._feasible)

    def lowest(self) -> int:
        """The least excess that was come across. Raises TooManyError."""
        start = self._cells.start
        todo, seen = [start], {start}
        while todo:
            for ends in self._moves(todo.pop()):
                todo += ends - seen
                seen |= ends
        return min(sum(self._excesses(counts)) for counts in seen)

    def _moves(self, counts: Counts) -> Iterator[frozenset[Counts]]:
        """What each move that is allowed may lead to."""
        places = [
            (k, n)
            for k, row in enumerate(counts)
            for n, pods in enumerate(row)
            if pods and self._cells.kinds[k].movable
        ]
        for k, n in places:
            if ends := landings(self._cells, counts, k, n):
                yield ends
        for size in range(2, self._largest + 1):
            for chosen in combinations_with_replacement(places, size):
                if all(counts[k][n] >= chosen.count((k, n)) for k, n in chosen):
                    orders = (self._ends(counts, order) for order in sorted(set(permutations(chosen))))
                    yield from filter(None, (next(filter(None, orders), None),))

    def _ends(self, start: Counts, order: tuple[Place, ...]) -> frozenset[Counts] | None:
        """What the set may lead to if it is sent in this order; None if one of the ways is not allowed."""
        before = self._excesses(start)
        ends: set[Counts] = set()
        first: tuple[Counts, int, tuple[int, ...]] = (start, 0, ())
        todo, seen = [first], {first}
        while todo:
            counts, sent, waiting = todo.pop()
            following = [
                (_into(counts, kind, node), sent, _without(waiting, kind))
                for kind in set(waiting)
                for node in self._open(counts, kind)
            ]
            if not following:
                after = self._excesses(counts)
                whole = sent == len(order)
                if any(a > b for a, b in zip(after, before, strict=True)):
                    return None
                if whole and (waiting or sum(after) >= sum(before)):
                    return None
                ends |= {counts} if whole else set()
            if sent < len(order):
                kind, node = order[sent]
                gone = moved(counts, kind, node, None)
                following.append((gone, sent + 1, tuple(sorted((*waiting, kind)))))
            todo += set(following) - seen
            seen |= set(following)
            if len(seen) > _MOMENTS:
                return None
        return frozenset(ends)

    def _feasible(self, counts: Counts, kind: int) -> list[int]:
        self._left -= 1
        if self._left < 0:
            raise TooManyError
        return self._cells.feasible(counts, kind)


def _into(counts: Counts, kind: int, node: int) -> Counts:
    row = list(counts[kind])
    row[node] += 1
    return (*counts[:kind], tuple(row), *counts[kind + 1 :])


def _without(waiting: tuple[int, ...], kind: int) -> tuple[int, ...]:
    place = waiting.index(kind)
    return waiting[:place] + waiting[place + 1 :]
