"""Sequences of moves that rely on no prediction of where replacements land.

A *guaranteed* one brings the end nearer by each move, wherever this and every earlier replacement landed. A
*harmless* one ends where the scheduler's scores predict, and none of its moves does harm on any landing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import nsmallest
from itertools import product

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.planner import objective
from rebalancer.planner.moves import Candidate, JudgedMove
from rebalancer.planner.search.problem import Advance, Landings, Placement, Placements, Problem, reached
from rebalancer.spread.arrays import Ints

Moves = tuple[JudgedMove, ...]


class GuaranteedMoves:
    """Looks for moves of one component to a total excess of at most `residual`, as far as the effort goes.
    `predicted`: along the landings that the scores predict; no move is certain in any case."""

    def __init__(self, problem: Problem, residual: int, *, predicted: bool = False) -> None:
        self._problem = problem
        self._residual = residual
        self._known: dict[tuple[bytes, int], Moves | None] = {}
        route = problem.remaining.route(problem.start, residual)
        distinct = np.zeros(problem.start.shape[1], dtype=np.bool_)
        if route is not None:
            distinct |= route.gives.any(axis=0)
        nearer = partial(_nearer, problem, residual)
        self._landings = Landings(problem, nearer, distinct, predicted=predicted)
        self._start = Placements((Placement(problem.start),))
        self.begun: Sequence[Advance] | None = None
        """Guaranteed moves, beyond which nothing is certain until it is known where they have landed."""

    def guaranteed(self) -> Moves | None:
        """Guaranteed moves to the end; None if none are found. Some workloads take hundreds: each first step
        so far takes nothing of the effort. Where it ends for too many landings, the moves so far are `begun`.
        """
        path: list[Advance] = []
        now, deepest = self._start, 0
        ways = [self._guaranteed(now)]
        while not self._there(now):
            advance = next(ways[-1], None)
            if advance is not None and advance.placements.complete:
                path.append(advance)
                if len(path) > deepest:
                    deepest = len(path)
                    self._problem.effort.led_on(len(now.possible))
                ways.append(self._guaranteed(advance.placements))
            elif advance is not None:
                self.begun = self._that_lower(path) if self.begun is None else self.begun
            elif self._problem.effort.gone or self.begun or not path:
                return None
            else:
                del path[-1], ways[-1]
            now = path[-1].placements if path else self._start
        return tuple(advance.move for advance in path)

    def _that_lower(self, path: Sequence[Advance]) -> Sequence[Advance]:
        """The moves up to the last after which there is less excess, on every landing, than ever before: it
        is not known whether more of them lead to an end."""
        found, lowest = 0, self._problem.excess(self._problem.start)
        for i, advance in enumerate(path):
            if (here := max(self._problem.excess(p.placed) for p in advance.placements.possible)) < lowest:
                found, lowest = i + 1, here
        return path[:found]

    def harmless(self, allowed: int) -> Moves | None:
        """At most `allowed` harmless moves to the end; None if none are found."""
        self._known.clear()
        return self._harmless(self._start, allowed)

    def marked(self, moves: Sequence[JudgedMove]) -> Moves:
        """The moves, certain as long as each brings the end nearer and has landings of one bucket only."""
        found: list[JudgedMove] = []
        now: Placements | None = self._start
        certain = True
        for m in moves:
            advance = self._landings.advance(now, m.candidate) if now is not None else None
            now = advance.placements if advance is not None else None
            if advance is None:
                certain = False
                found.append(replace(m, certain=False, open=()))
                continue
            certain = certain and advance.move.certain and len(advance.placements.possible) == 1
            certain = certain and not self._problem.effort.gone
            a = advance.move
            found.append(
                replace(m, certain=certain, destinations=a.destinations, open=a.open, closed=a.closed)
            )
        return tuple(found)

    def _there(self, now: Placements) -> bool:
        return self._problem.excess(now.predicted.placed) <= self._residual

    def _guaranteed(self, now: Placements) -> Iterator[Advance]:
        """The guaranteed moves, the most promising first, and those with too many landings."""
        for candidate in self._open(now.predicted):
            if self._landings.distinct[candidate.node]:
                advance = self._advance(now, candidate, only_guaranteed=True)
                if self._problem.effort.gone:
                    return
                if advance is not None and (advance.move.certain or not advance.placements.complete):
                    yield advance

    def _harmless(self, now: Placements, allowed: int) -> Moves | None:
        if self._there(now):
            return ()
        placed = now.predicted.placed
        needed = self._problem.remaining.moves(placed, self._residual)
        if needed is None or needed > allowed:
            return None
        key = (placed.tobytes(), allowed)
        if key not in self._known:
            found = self._next(now, allowed)
            if found is None and self._problem.effort.gone:
                return None
            self._known[key] = found
        return self._known[key]

    def _next(self, now: Placements, allowed: int) -> Moves | None:
        for advance in self._guaranteed_first(now):
            left = self._problem.remaining.moves(advance.placements.predicted.placed, self._residual)
            if left is None or left >= allowed:
                continue
            rest = self._harmless(advance.placements, allowed - 1)
            if rest is not None:
                return (advance.move, *rest)
            if self._problem.effort.gone:
                return None
        return None

    def _guaranteed_first(self, now: Placements) -> Iterator[Advance]:
        """Helpful moves; those that bring the end nearer on every landing come before the others."""
        later: list[Advance] = []
        for candidate in self._open(now.predicted):
            advance = self._advance(now, candidate)
            if self._problem.effort.gone:
                break
            if advance is not None and advance.move.helps:
                if advance.move.certain:
                    yield advance
                else:
                    later.append(advance)
        yield from later

    def _advance(
        self, now: Placements, candidate: Candidate, *, only_guaranteed: bool = False
    ) -> Advance | None:
        """Tries a move, and counts what that took."""
        self._problem.effort.candidates(len(now.possible))
        return self._landings.advance(now, candidate, only_guaranteed=only_guaranteed)

    def _open(self, at: Placement) -> Iterator[Candidate]:
        """Possible victims in a placement, the most promising first."""
        route = self._problem.remaining.route(at.placed, self._residual)
        if route is None:
            return iter(())
        with self._problem.tried.after(at.made):
            return self._problem.candidates(self._problem.remaining.bucket_of(at.placed), route.gives)


def _nearer(problem: Problem, residual: int, placed: Ints, candidate: Candidate, landed: int) -> bool:
    """Whether a move leaves one move less to the end."""
    remaining = problem.remaining
    before = remaining.moves(placed, residual)
    left = remaining.moves_after(placed, residual, candidate, landed)
    return before is not None and left is not None and left < before


# The lowest excess that harmless moves lead to, found level by level, without the integer program.
#
# In a tangle of constraints most moves do harm, so that the best final state cannot be reached, and few
# placements can be. From the start, every harmless move is made as the scheduler's scores predict it; of
# the placements that come of one move more, the lowest few are gone on from. The beam widens as long as
# candidates are left to try; what was tried is remembered.

WIDTHS = (2, 8, 32, 128)
"""Placements of one level that are gone on from, in turn."""
PATIENCE = 4
"""Levels without a lower excess after which a beam ends; the widest goes on to the end."""

Height = tuple[int, int]
"""Total excess, then pods outside their bands."""


class Position(Struct, frozen=True, eq=False):
    """A placement, int64[Q, N], the height of each group there, and the moves that led there."""

    placed: Ints
    heights: tuple[Height, ...]
    moves: tuple[JudgedMove, ...] = ()

    @property
    def height(self) -> Height:
        """The sum over all groups."""
        return sum(e for e, _ in self.heights), sum(o for _, o in self.heights)

    @property
    def rank(self) -> objective.Rank:
        """How good an end it is."""
        return objective.rank(self.height[0], self.moves)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for positions from which the same moves are open."""
        return reached(self.placed, self.moves)


GUIDES: tuple[Callable[[Position], tuple[Height, ...]], ...] = (
    lambda p: (p.height,),
    lambda p: ((sum(e * e for e, _ in p.heights), 0), p.height),
    lambda p: ((max(e for e, _ in p.heights), 0), p.height),
)
"""From which positions to go on: those of the least excess in all; of the least in all, where larger ones
count more; of the least worst one. None of the three leads lowest in every cluster, so all are tried."""


class Beam:
    """Searches one component from its start. It leaves the simulation's state as it was.

    `exhausted`: no other sequence of moves along predicted landings leads lower.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._onward: dict[tuple[object, ...], list[Position]] = {}
        self.exhausted = False

    def run(self, least: int) -> Position:
        """The best position found; `least`: an excess that nothing lies below."""
        start = self._problem.start
        groups = range(len(self._problem.component.groups))
        first = best = Position(start, tuple(self._height(i, start) for i in groups))
        for width, guide in product(WIDTHS, GUIDES):
            best = min(best, self._run(first, width, guide, least), key=lambda p: p.rank)
            if self.exhausted or self._problem.effort.gone or best.rank.excess <= least:
                break
        return best

    def _run(
        self, first: Position, width: int, guide: Callable[[Position], tuple[Height, ...]], least: int
    ) -> Position:
        """What a beam of this width reaches."""
        lowest = first
        level, seen = [first], {first.key}
        waited, whole = 0, True
        patience = PATIENCE if width < WIDTHS[-1] else int(self._problem.start.sum()) + 1
        while level and lowest.height[0] > least and waited < patience:
            following: list[Position] = []
            for position in level:
                for after in self._after(position):
                    if after.key not in seen:
                        seen.add(after.key)
                        following.append(after)
            whole = whole and len(following) <= width
            level = nsmallest(width, following, key=guide)
            waited += 1
            here = min(level, key=lambda p: p.height, default=lowest)
            if here.height[0] < lowest.height[0]:
                lowest, waited = here, 0
        self.exhausted = whole and not level and not self._problem.effort.gone
        return lowest

    def _after(self, position: Position) -> Iterator[Position]:
        """The positions one harmless move further."""
        key = position.key
        if key not in self._onward:
            found = list(self._further(position))
            if self._problem.effort.gone:
                return
            self._onward[key] = found
        for after in self._onward[key]:
            yield Position(after.placed, after.heights, (*position.moves, after.moves[-1]))

    def _further(self, position: Position) -> Iterator[Position]:
        placed = position.placed
        with self._problem.tried.after(position.moves):
            for move in self._problem.helpful(placed, self._problem.remaining.bucket_of(placed)):
                landed = int(self._problem.expected(move)[0])
                after = move.candidate.moved(placed, landed)
                counted = self._problem.component.counted[move.candidate.pod_class]
                heights = tuple(
                    self._height(i, after) if i in counted else height
                    for i, height in enumerate(position.heights)
                )
                yield Position(after, heights, (replace(move, landed=landed),))

    def _height(self, i: int, placed: Ints) -> Height:
        group = self._problem.component.groups[i]
        counts = self._problem.component.counts(i, placed)
        over = group.excess(counts)
        if not over:
            return 0, 0
        low, high, skew = group.minimum(counts), int(counts.max()), group.constraint.max_skew
        outside = int(np.maximum(counts - low - skew, 0).sum())
        if group.enough_domains:
            outside += int(np.maximum(high - skew - counts, 0).sum())
        return over, outside


# Which move first, where the scheduler's choice decides whether the end can be reached.
#
# A plan is made anew once replacements have landed, so that a move is worth as much as the chance that it
# leaves: over each of its landings, the chance of the best move from there, less what the evictions cost.
# All nodes that the filter leaves count alike: other replacements of a wave, and pods of others, come
# between and change the scores. The plan itself follows the landings that the scores predict.


class Way(Struct, frozen=True, eq=False):
    """One way in which a move may end: the move as it lands, how likely that is, and whether the scores
    predict it."""

    move: JudgedMove
    likelihood: float
    predicted: bool


class Prospect(Struct, frozen=True, eq=False):
    """What may be expected of a placement: the chance to get to the end, in so many moves on average, and the
    landings of the best move, the likeliest first."""

    chance: float
    moves: float = 0.0
    landings: tuple[Way, ...] = ()

    @property
    def worth(self) -> float:
        """What is compared."""
        return objective.worth(self.chance, self.moves)


class Odds:
    """Chances of one component to come to an excess of at most `residual` in at most `allowed` moves.

    `thorough`: landings that the scores do not predict are followed, too, not only counted.
    """

    def __init__(self, problem: Problem, residual: int, allowed: int, *, thorough: bool) -> None:
        self._problem = problem
        self._residual = residual
        self._allowed = allowed
        self._thorough = thorough
        self._known: dict[tuple[object, ...], Prospect] = {}

    def best(self) -> tuple[float, Moves | None]:
        """The best worth, and its moves along predicted landings; None if these do not get there."""
        return self._prospect(self._problem.start, ()).worth, self._predicted(self._problem.start, ())

    def of(self, first: JudgedMove) -> float:
        """The worth of a sequence that begins with this move."""
        for landings in self._open(self._problem.start, ()):
            if landings[0].move.candidate.place == first.candidate.place:
                return self._expected(self._problem.start, (), landings, -np.inf).worth
        return 0.0

    def lucky(self, allowed: int) -> Moves | None:
        """At most `allowed` moves to the end that some landings allow, however likely they are."""
        return self._onward(self._problem.start, (), allowed, set())

    def _onward(
        self, placed: Ints, moves: Moves, allowed: int, hopeless: set[tuple[object, ...]]
    ) -> Moves | None:
        """The moves and those to the end after them; adds to `hopeless` from where there is no way."""
        if self._there(placed):
            return moves
        key = reached(placed, moves)
        needed = self._problem.remaining.moves(placed, self._residual)
        if needed is None or needed > allowed - len(moves) or key in hopeless:
            return None
        best = self._prospect(placed, moves).landings
        for landings in dict.fromkeys((best, *self._open(placed, moves))):
            for way in landings:
                found = self._onward(_moved(placed, way.move), (*moves, way.move), allowed, hopeless)
                if found is not None or self._problem.effort.gone:
                    return found
        hopeless.add(key)
        return None

    def _predicted(self, placed: Ints, moves: Moves) -> Moves | None:
        if self._there(placed):
            return moves
        ways = [w.move for w in self._prospect(placed, moves).landings if w.predicted]
        for move in sorted(ways, key=lambda m: -self._after(placed, moves, m).worth):
            found = self._predicted(_moved(placed, move), (*moves, move))
            if found is not None:
                return found
        return None

    def _there(self, placed: Ints) -> bool:
        return self._problem.excess(placed) <= self._residual

    def _after(self, placed: Ints, moves: Moves, move: JudgedMove) -> Prospect:
        return self._prospect(_moved(placed, move), (*moves, move))

    def _prospect(self, placed: Ints, moves: Moves) -> Prospect:
        if self._there(placed):
            return Prospect(1.0)
        key = reached(placed, moves)
        found = self._known.get(key)
        if found is None:
            found = self._best(placed, moves)
            if not self._problem.effort.gone:
                self._known[key] = found
        return found

    def _best(self, placed: Ints, moves: Moves) -> Prospect:
        """The best move's prospect; giving up is one, too."""
        best = Prospect(0.0)
        needed = self._needed(placed, moves)
        if needed is None:
            return best
        for landings in self._open(placed, moves):
            prospect = self._expected(placed, moves, landings, best.worth)
            if prospect.worth > best.worth:
                best = prospect
            if objective.unbeaten(best.worth, needed) or self._problem.effort.gone:
                break
        return best

    def _expected(self, placed: Ints, moves: Moves, landings: tuple[Way, ...], enough: float) -> Prospect:
        """The average over all landings of a move; cut short where it is not worth more than `enough`."""
        chance, evictions, left = 0.0, 1.0, 1.0
        for way in landings:
            if way.predicted or self._thorough:
                after = self._after(placed, moves, way.move)
            else:
                # There may be a way on, or there is none.
                needed = self._needed(_moved(placed, way.move), (*moves, way.move))
                after = Prospect(0.0) if needed is None else Prospect(1.0, float(needed))
            left -= way.likelihood
            chance += way.likelihood * after.chance
            evictions += way.likelihood * after.moves
            if objective.worth(chance + left, evictions) <= enough:
                break
        return Prospect(chance, evictions, landings)

    def _needed(self, placed: Ints, moves: Moves) -> int | None:
        """Moves that the rest takes at least; None if they are more than are left."""
        if self._there(placed):
            return 0
        needed = self._problem.remaining.moves(placed, self._residual)
        return needed if needed is not None and needed <= self._allowed - len(moves) else None

    @remembered(by=reached)
    def _open(self, placed: Ints, moves: Moves) -> list[tuple[Way, ...]]:
        """The landings of every move that helps and does no harm, the most promising move first."""
        route = self._problem.remaining.route(placed, self._residual)
        if route is None:
            return []
        with self._problem.tried.after(moves):
            bucket_of = self._problem.remaining.bucket_of(placed)
            helpful = self._problem.helpful(placed, bucket_of, route.gives)
            return [self._landings(move, bucket_of) for move in helpful]

    def _landings(self, move: JudgedMove, bucket_of: Ints) -> tuple[Way, ...]:
        """One for each bucket of nodes, predicted nodes apart."""
        nodes = move.destinations
        best = np.isin(nodes, self._problem.expected(move))
        buckets = 2 * bucket_of[nodes] + ~best
        ways: list[Way] = []
        for bucket in np.unique(buckets):
            here = buckets == bucket
            landed = replace(move, landed=int(nodes[here][0]))
            ways.append(Way(landed, float(here.mean()), bool(best[here][0])))
        return tuple(sorted(ways, key=lambda w: (-w.likelihood, w.move.landed)))


def _moved(placed: Ints, move: JudgedMove) -> Ints:
    return move.candidate.moved(placed, move.landed)
