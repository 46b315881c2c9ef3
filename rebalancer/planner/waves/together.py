"""How many moves of one component hold in any interleaving: victims and landings kept apart.

The search has followed the moves one after the other, through every landing. They may overlap as long as no
eviction changes what the filter says of a node on which a replacement could land. Then replacements arrive as
they could have arrived one after the other, and everything the search knows of that holds
(docs/planning.md, "Several moves of one component", where this is proved).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.spread.arrays import Bools, Ints, Rows


class Together(Struct, frozen=True, eq=False):
    """The first `length` moves of a walk hold in any interleaving, each prefix and part of them as well.

    `most`: int64[N], how many of their replacements a node can get at most, by the constraints alone.
    `nodes`: where each of them may land; () if on all nodes that are destinations of one of them.
    """

    length: int
    most: Ints
    nodes: tuple[Rows, ...] = ()


def together(moves: Sequence[JudgedMove]) -> Together:
    """As many of the moves of a walk as hold together; 1 if no two do. All are of one component."""
    most = comparable(moves)
    if most < 2 or not _counts_what_binds(moves[0]):
        return alone(moves[0])
    # Most often all of them do.
    low, high, middle = 1, most, most
    while low < high:
        low, high = (middle, high) if _Overlap(moves[:middle]).holds() else (low, middle - 1)
        middle = (low + high + 1) // 2
    return Together(low, _Overlap(moves[:low]).most())


def alone(move: JudgedMove) -> Together:
    """One move by itself."""
    nodes = move.component.simulation.state.table.size
    return Together(1, np.broadcast_to(np.int64(1), nodes))


def comparable(moves: Sequence[JudgedMove]) -> int:
    """How many of the first moves are certain and of constraints that count and bind them alike."""
    sure = next((i for i, m in enumerate(moves) if not (m.certain and m.helps)), len(moves))
    alike = next((i for i, m in enumerate(moves) if _bound(m) != _bound(moves[0])), len(moves))
    return min(sure, alike)


def highest_minimum(counts: Ints, arrivals: int) -> int:
    """The highest that the lowest count can be after so many arrivals: these fill up the lowest domains."""
    ordered = np.sort(counts)
    # To raise the lowest n domains to the next one's count takes this many.
    cost = ordered * np.arange(len(ordered)) - np.concatenate(([0], np.cumsum(ordered)[:-1]))
    n = int(np.searchsorted(cost, arrivals, side="right"))
    return int((ordered[:n].sum() + arrivals) // n)


def _bound(move: JudgedMove) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The groups that count the pod, and those that it carries."""
    component, pod_class = move.component, move.candidate.pod_class
    return tuple(sorted(component.counted[pod_class])), tuple(sorted(component.carried[pod_class]))


def _counts_what_binds(move: JudgedMove) -> bool:
    """Whether every group that counts the pods binds their replacements too, wherever these can go."""
    counted, carried = _bound(move)
    return set(counted) <= set(carried) and all(
        move.component.closed_in[i] and move.component.groups[i].size for i in counted
    )


class _Kept(Struct, frozen=True, eq=False):
    """One group under these moves: `least` int64[D], its counts once all victims are gone; `minimum`: the
    highest that its global minimum can be when a replacement is placed; `gives` bool[D]."""

    group: Group
    counts: Ints
    least: Ints
    minimum: int
    gives: Bools

    @property
    def open(self) -> Bools:
        """bool[N]: nodes that the constraint may leave to a replacement at some moment."""
        open_ = self.least + 1 - self.minimum <= self.group.constraint.max_skew
        found: Bools = np.append(open_, False)[self.group.domain_of]
        return found

    @property
    def left(self) -> Bools:
        """bool[N]: nodes of the domains that victims leave."""
        found: Bools = np.append(self.gives, False)[self.group.domain_of]
        return found

    @property
    def minimum_stays(self) -> bool:
        """Whether no eviction can lower the minimum that a replacement is judged by."""
        return bool((self.least[self.gives] >= self.minimum).all())

    def never_binds(self, arrivals: int) -> bool:
        """Whether the constraint holds at every moment, wherever replacements land."""
        lowest = self.group.minimum(self.least)
        return int(self.counts.max()) + arrivals - lowest <= self.group.constraint.max_skew


class _Overlap:
    """Moves that are all in flight at once, from the start of their component."""

    def __init__(self, moves: Sequence[JudgedMove]) -> None:
        self._moves = moves
        self._component: Component = moves[0].component
        self._victims = np.array([m.candidate.node for m in moves])
        self._kept = [self._group(i) for i in _bound(moves[0])[0]]

    def holds(self) -> bool:
        """Whether no eviction changes what the filter says where replacements can land."""
        arrivals = len(self._moves)
        reach = np.logical_or.reduce([m.candidate.members.static for m in self._moves])
        for kept in self._kept:
            reach &= kept.open
        binding = [k for k in self._kept if not k.never_binds(arrivals)]
        return (
            bool(binding)
            and all(k.minimum_stays and not (reach & k.left).any() for k in binding)
            and all(self._kept_out(m) for m in self._moves)
        )

    def most(self) -> Ints:
        """int64[N]: how many replacements each node can get."""
        found = np.full(self._component.simulation.state.table.size, len(self._moves))
        for k in self._kept:
            room = k.minimum + k.group.constraint.max_skew - k.least
            found = np.minimum(found, np.append(room, 0)[k.group.domain_of])
        return self._component.simulation.shared.of(np.maximum(found, 1))

    def _group(self, i: int) -> _Kept:
        group = self._component.groups[i]
        counts = self._component.counts(i, self._component.start)
        gone = np.bincount(group.domain_of[self._victims], minlength=group.size)
        highest = highest_minimum(counts, len(self._moves) - 1) if group.enough_domains else 0
        return _Kept(group, counts, counts - gone, highest, gone > 0)

    def _kept_out(self, move: JudgedMove) -> bool:
        """Whether a constraint that the move serves keeps its replacement out at every moment."""
        fixes = {id(g) for g in move.fixes}
        return any(id(k.group) in fixes and not k.open[move.candidate.node] for k in self._kept)
