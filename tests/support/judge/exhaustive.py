"""The best that can be walked to on a small cluster, by trying everything.

A move evicts one pod and is admissible in a state when
- the pod may be evicted, and one of its own hard constraints counts it and keeps its replacement out of the
  domain that it leaves (contract clause 3, `certain`),
- its replacement finds a node, the victim still holding its room where its owner replaces at once,
- wherever among the nodes that the filter leaves it lands, no excess of a constraint that counts it rises.

Two optima, both lexicographic (remaining excess, evictions) in the worst case of where replacements land:

`fixed`     over sequences of victims chosen beforehand among the pods of the beginning, every one of them
            admissible in every state that the landings before it can have led to. That is a plan.
`adaptive`  of a game: the planner picks the next victim knowing where the last replacement landed, and may
            evict replacements. Never worse than `fixed`; what repeated planning can reach.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tests.support.judge.cells import Cells, Counts, moved

Value = tuple[int, int]
"""(remaining excess, evictions); less is better."""

Place = tuple[int, int]
"""A kind of pod and a node, as indices."""


@dataclass(frozen=True)
class Best:
    """An optimum; `complete` says that the search was not cut off, `victims` how to get there."""

    excess: int
    evictions: int
    complete: bool
    victims: tuple[Place, ...] = ()

    @property
    def value(self) -> Value:
        """What is compared."""
        return (self.excess, self.evictions)


def landings(cells: Cells, counts: Counts, kind: int, node: int) -> frozenset[Counts] | None:
    """Every state that evicting one pod of the kind from the node can lead to; None if not admissible."""
    if not counts[kind][node] or not cells.kinds[kind].worth_moving:
        return None
    after = moved(counts, kind, node, None)
    if not cells.kept_out(after, kind, node):
        return None
    holding = counts if cells.kinds[kind].holds_room else after
    targets = cells.feasible(after, kind, holding)
    if not targets:
        return None
    ends = frozenset(moved(counts, kind, node, target) for target in targets)
    for g in cells.kinds[kind].counted_by:
        before = cells.excess(counts, g)
        if any(cells.excess(end, g) > before for end in ends):
            return None
    return ends


def fixed(cells: Cells, floor: int = 0, most: int = 10, limit: int = 4000) -> Best:
    """The optimum over sequences chosen beforehand, of up to `most` evictions.

    Breadth first over beliefs: which pods of the beginning are evicted, and the set of states that may have
    come of it. `floor` is an excess that nothing can go below: reaching it ends the search.
    """
    lands = cache(lambda counts, kind, node: landings(cells, counts, kind, node))
    places = [
        (k, n)
        for k, row in enumerate(cells.start)
        for n, c in enumerate(row)
        if c and cells.kinds[k].worth_moving
    ]
    belief = frozenset([cells.start])
    best = Best(cells.total_excess(cells.start), 0, True)
    level: dict[tuple[frozenset[Counts], tuple[Place, ...]], tuple[Place, ...]] = {(belief, ()): ()}
    seen = 0
    for evictions in range(1, most + 1):
        if best.excess <= floor:
            return best
        following: dict[tuple[frozenset[Counts], tuple[Place, ...]], tuple[Place, ...]] = {}
        for (states, gone), path in level.items():
            for k, n in places:
                if gone.count((k, n)) == cells.start[k][n]:
                    continue
                each = _joined(lands(s, k, n) for s in states)
                if each is not None:
                    following.setdefault((each, tuple(sorted((*gone, (k, n))))), (*path, (k, n)))
            seen += 1
            if seen > limit:
                return Best(best.excess, best.evictions, False, best.victims)
        if not following:
            return best
        for (states, _), path in following.items():
            worst = max(cells.total_excess(s) for s in states)
            if worst < best.excess:
                best = Best(worst, evictions, True, path)
        level = following
    return Best(best.excess, best.evictions, best.excess <= floor, best.victims)


def _joined(ends: Iterable[frozenset[Counts] | None]) -> frozenset[Counts] | None:
    """All states together; None if the move is inadmissible in one of them."""
    found: set[Counts] = set()
    for each in ends:
        if each is None:
            return None
        found |= each
    return frozenset(found)


class _TooManyError(Exception):
    """The game has more positions than the limit."""


def adaptive(cells: Cells, floor: int = 0, most: int = 8, limit: int = 20000) -> Best:
    """The value of the game of up to `most` evictions, deepened until it reaches `floor` or stays."""
    lands = cache(lambda counts, kind, node: landings(cells, counts, kind, node))
    memo: dict[tuple[Counts, int], Value] = {}

    def value(counts: Counts, depth: int) -> Value:
        if (counts, depth) in memo:
            return memo[counts, depth]
        if len(memo) > limit:
            raise _TooManyError
        best: Value = (cells.total_excess(counts), 0)
        if best[0] > floor and depth:
            for k, row in enumerate(counts):
                for n, c in enumerate(row):
                    ends = lands(counts, k, n) if c else None
                    if ends is not None:
                        worst = max(value(end, depth - 1) for end in ends)
                        best = min(best, (worst[0], worst[1] + 1))
        memo[counts, depth] = best
        return best

    found = value(cells.start, 0)
    for depth in range(1, most + 1):
        if found[0] <= floor:
            break
        try:
            found = value(cells.start, depth)
        except _TooManyError:
            return Best(*found, complete=False)
    return Best(*found, complete=True)
