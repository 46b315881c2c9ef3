"""In which order an owner's pods should go, so that the spread holds at whatever number it stops.

Under one constraint: always from the fullest domain. That is best at every number at once, because it lowers
the highest count as far as it goes, and the lowest only when nothing else is left.

Under several the best ends of two numbers need not lie on one way down. The sum of the excess over all
numbers is what is minimised, so an order that holds at every number is found if there is one. The search goes
from the fullest domains first and comes back where that leads to more excess than has to be; it is bounded by
a count of steps, not by the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from msgspec import Struct

from rebalancer.prevention.scale_in.problem import NOWHERE, Excess, Levels, Problem

EFFORT = 4000
"""Steps that are looked at, beyond one for each pod, before the best order so far is taken."""


class Order(Struct, frozen=True):
    """`cells`: the cell of each pod, in the order in which they go. `excess`: summed over all numbers of pods
    that may be left. `proved`: no order has less."""

    cells: tuple[int, ...]
    excess: Excess
    proved: bool


def order(problem: Problem, effort: int = EFFORT) -> Order:
    """The order with the least excess over all numbers of pods; of several, from the fullest domain."""
    return _Search(problem).run(effort)


class _Way(NamedTuple):
    """Pods that have gone: the cell of the last one, and those before it."""

    cell: int
    before: _Way | None


class _At(NamedTuple):
    """Where a search stands; the least is looked at next.

    `beyond`: excess so far, above what every order has. `left`: how many pods there are still. `turn`: what
    was better is lower. `pods` in each cell.
    """

    beyond: Excess
    left: int
    turn: int
    pods: tuple[int, ...]
    way: _Way | None


class _Search:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._least = _least(problem)
        holding = [Counter(cell[g] for cell in problem.cells) for g in range(len(problem.spreads))]
        self._alone = [
            tuple(d != NOWHERE and holding[g][d] == 1 for g, d in enumerate(cell)) for cell in problem.cells
        ]

    def run(self, effort: int) -> Order:
        """The order."""
        start = _At(Excess(), sum(self._problem.pods), 0, self._problem.pods, None)
        best = self._straight(start)
        if best.beyond == Excess():
            return self._order(best, proved=True)
        waiting, turn, known = [start], 0, set[Hashable]()
        at = start
        for _ in range(effort + start.left):
            at = heappop(waiting)
            if not at.left:
                return self._order(at, proved=True)
            levels = self._problem.levels(at.pods)
            key = tuple(
                sorted(((self._kind(c, at.pods, levels), n) for c, n in enumerate(at.pods)), key=repr)
            )
            if key in known:
                continue
            known.add(key)
            for rank, c in self._ranked(self._waiting(at.pods, levels), levels, at.left):
                turn += 1
                pods = (*at.pods[:c], at.pods[c] - 1, *at.pods[c + 1 :])
                heappush(waiting, _At(at.beyond.plus(rank[0]), at.left - 1, turn, pods, _Way(c, at.way)))
        other = self._straight(at)
        return self._order(min(best, other, key=lambda a: a.beyond), proved=False)

    def _straight(self, at: _At) -> _At:
        """From there on always the step that looks best."""
        pods, levels = list(at.pods), self._problem.levels(at.pods)
        waiting = self._waiting(pods, levels)
        beyond, way = at.beyond, at.way
        for left in range(at.left, 0, -1):
            rank, c = self._ranked(waiting, levels, left)[0]
            beyond, way = beyond.plus(rank[0]), _Way(c, way)
            kind = self._kind(c, pods, levels)
            heappop(waiting[kind])
            if not waiting[kind]:
                del waiting[kind]
            for level, domain in zip(levels, self._problem.cells[c], strict=True):
                level.take(domain)
            pods[c] -= 1
            # No other cell is of another kind now: what it shares with them is told by name.
            self._wait(c, pods, levels, waiting)
        return _At(beyond, 0, 0, tuple(pods), way)

    def _waiting(
        self, pods: Sequence[int], levels: Sequence[Levels]
    ) -> dict[Hashable, list[tuple[int, int]]]:
        """The cells that have pods, by kind: a heap of what their next pod costs now, and the cell."""
        found: dict[Hashable, list[tuple[int, int]]] = {}
        for c in range(len(pods)):
            self._wait(c, pods, levels, found)
        return found

    def _wait(
        self,
        c: int,
        pods: Sequence[int],
        levels: Sequence[Levels],
        into: dict[Hashable, list[tuple[int, int]]],
    ) -> None:
        if pods[c]:
            costs = self._problem.costs[c]
            heappush(into.setdefault(self._kind(c, pods, levels), []), (costs[len(costs) - pods[c]], c))

    def _ranked(
        self, waiting: dict[Hashable, list[tuple[int, int]]], levels: Sequence[Levels], left: int
    ) -> list[tuple[tuple[Excess, int, int], int]]:
        """A cell of each kind, the best first: least excess, fullest domains, what goes first already.

        A pod that a constraint does not count, as it would not be placed where it is, is taken to be in the
        fullest domain.
        """
        p, ranked = self._problem, []
        for heap in waiting.values():
            cost, c = heap[0]
            places = list(zip(levels, p.cells[c], strict=True))
            follows = p.summed([at.excess_without(d) for at, d in places])
            full = sum(at.of[d] if d != NOWHERE else at.span[1] for at, d in places)
            ranked.append(((follows.beyond(self._least[left - 1]), -full, cost), c))
        return sorted(ranked)

    def _kind(self, c: int, pods: Sequence[int], levels: Sequence[Levels]) -> Hashable:
        """Equal for cells from which it makes no difference to take a pod, now and later: a domain that is no
        other cell's matters by its counts only."""
        places = zip(levels, self._problem.cells[c], self._alone[c], strict=True)
        named = tuple((at.of[d], NOWHERE) if alone else (NOWHERE, d) for at, d, alone in places)
        return named, pods[c] if any(self._alone[c]) else 0

    def _order(self, at: _At, *, proved: bool) -> Order:
        cells: list[int] = []
        way = at.way
        while way is not None:
            cells.append(way.cell)
            way = way.before
        excess = at.beyond
        for least in self._least[:-1]:
            excess = excess.plus(least)
        return Order(tuple(reversed(cells)), excess, proved)


def _least(problem: Problem) -> list[Excess]:
    """For each number of pods that may be left, from 0 on, what no order can undercut: the least excess of
    each constraint by itself."""
    size = sum(problem.pods)
    by_number: list[list[int]] = [[] for _ in range(size + 1)]
    for g in range(len(problem.spreads)):
        levels = problem.levels(problem.pods)[g]
        own = Counter[int]()
        for cell, pods in zip(problem.cells, problem.pods, strict=True):
            own[cell[g]] += pods
        free = own.pop(NOWHERE, 0)
        counted = [levels.excess]
        # A pod's height: how many its domain has while it is the last to have come.
        heights = sorted(((levels.of[d] - i, d) for d, n in own.items() for i in range(n)), reverse=True)
        for _, domain in heights:
            levels.take(domain)
            counted.append(levels.excess)
        for gone in range(size + 1):
            between = counted[max(0, gone - free) : min(gone, size - free) + 1]
            by_number[size - gone].append(min(between))
    return [problem.summed(each) for each in by_number]
