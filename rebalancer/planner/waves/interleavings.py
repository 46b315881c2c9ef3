"""Every order in which a few moves of one component can happen, followed in counts.

Where evictions do change what the filter says where replacements land (`together`), the orders are tried: any
victim goes, or any replacement arrives on any node that the constraints leave. Nodes that no constraint can
tell apart are one. The moves may be in flight together if each order keeps the promises of a single move, and
ends where the moves one after the other may end, which the search has followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.spread.arrays import Bools, Ints, Rows, first_places, members, numbered

ENDS = 24
"""Placements kept apart between two moves; where there may be more, no further moves are followed."""
MOMENTS = 600
"""Moments that are looked at for one wave, before fewer moves have to do."""


class _Moment(Struct, frozen=True, eq=False):
    """Counts int64[D] of each group, by the order of groups; where replacements are: (node, how many)."""

    counts: tuple[Ints, ...]
    arrived: tuple[tuple[int, int], ...] = ()


class _BrokenError(Exception):
    """Some order breaks a promise, or there are too many."""


class Found(Struct, frozen=True, eq=False):
    """`nodes`: where each replacement may land; `most`: int64[N], how many of them on one node."""

    nodes: tuple[Rows, ...]
    most: Ints


class Interleavings:
    """The moves of one walk from its start on, as far as they are certain and of one class."""

    def __init__(self, simulation: Simulation, moves: Sequence[JudgedMove]) -> None:
        first = moves[0]
        component, pod_class = first.component, first.candidate.pod_class
        self.moves = moves
        self._counted: list[Group] = [component.groups[group] for group in component.counted[pod_class]]
        self._carried: list[int] = [
            place
            for place, group in enumerate(component.counted[pod_class])
            if group in component.carried[pod_class]
        ]
        self._barred = simulation.barred
        held = simulation.room(first.replacement, {})
        victims = np.bincount([m.candidate.node for m in moves], minlength=len(held))
        self._sure_room: Ints = held
        freed = simulation.room(first.replacement, simulation.held_by([m.pod for m in moves]))
        self._room: Ints = np.maximum(held + victims, freed)
        self._static: Bools = first.candidate.members.static
        start = component.start
        self._start = _Moment(tuple(component.counts(group, start) for group in component.counted[pod_class]))
        own = np.logical_or.reduce([component.own_domain[group] for group in component.counted[pod_class]])
        self._by_node = bool(own.any())
        self._kind = self._kinds(own, start, victims)
        self._ends: list[dict[Hashable, _Moment]] = [{(): self._start}]

    def hold(self, begin: int, end: int) -> Found | None:
        """Where the moves from number `begin` to before `end` may land if they may overlap; None if not."""
        try:
            wave = _Wave(self, begin, end)
            for moment in self.ends(begin).values():
                wave.follow(moment)
        except _BrokenError:
            return None
        return Found(tuple(self._alike(nodes) for nodes in wave.nodes), self._most(wave.most))

    def _alike(self, nodes: Bools) -> Rows:
        """All nodes of the kinds that some of these are of.

        Only one node of a kind was followed, and a replacement that is there may close it, not the others.
        """
        return np.flatnonzero(members(self._kind, self._kind[nodes]))

    def _most(self, most: Ints) -> Ints:
        """int64[N]: of each node what is the most of any node of its kind."""
        found = np.zeros(int(self._kind.max()) + 1, dtype=np.int64)
        np.maximum.at(found, self._kind, most)
        return found[self._kind]

    def ends(self, made: int) -> dict[Hashable, _Moment]:
        """The placements that the first moves, one after the other, may lead to. Raises _BrokenError."""
        while len(self._ends) <= made:
            move = self.moves[len(self._ends) - 1]
            following: dict[Hashable, _Moment] = {}
            for moment in self._ends[-1].values():
                gone = self.without(moment, move)
                for node in self.representatives(gone, self.open(gone, move)[0]):
                    after = self.with_one_more(gone, node)
                    following.setdefault(self.key(after), after)
            if not following or len(following) > ENDS:
                raise _BrokenError
            self._ends.append(following)
        return self._ends[made]

    def open(self, moment: _Moment, move: JudgedMove) -> tuple[Bools, bool]:
        """bool[N]: where a replacement may land now; and whether one of the nodes has room in any case.

        Raises _BrokenError if the move could come back to where it was, or land on a node that is to go.
        """
        nodes, fixes, kept_out = self._static.copy(), {id(g) for g in move.fixes}, False
        for n in self._carried:
            group = self._counted[n]
            admitted = np.append(group.admits(moment.counts[n]), False)[group.domain_of]
            nodes &= admitted
            kept_out = kept_out or (id(group) in fixes and not admitted[move.candidate.node])
        arrived = self._arrived(moment)
        sure = nodes & (arrived < self._sure_room)
        nodes &= arrived < self._room
        returns = any(nodes[g.domain_of == g.domain_of[move.candidate.node]].any() for g in move.fixes)
        if not kept_out or returns or (nodes & self._barred).any():
            raise _BrokenError
        return nodes, bool(sure.any())

    def representatives(self, moment: _Moment, nodes: Bools) -> Iterator[int]:
        """One node of each kind, and of each number of replacements there."""
        numbers = np.flatnonzero(nodes)
        kinds = self._kind[numbers] * (len(self.moves) + 1)
        if self._by_node:
            kinds = kinds + self._arrived(moment)[numbers]
        yield from numbers[first_places(kinds)].tolist()

    def without(self, moment: _Moment, move: JudgedMove) -> _Moment:
        """The moment after an eviction."""
        return _Moment(self._changed(moment.counts, move.candidate.node, -1), moment.arrived)

    def with_one_more(self, moment: _Moment, node: int) -> _Moment:
        """The moment after a replacement has landed on a node."""
        there = Counter(dict(moment.arrived))
        there[node] += 1
        return _Moment(self._changed(moment.counts, node, 1), tuple(sorted(there.items())))

    def key(self, moment: _Moment) -> Hashable:
        """Equal for moments that differ by nodes of one kind only, with the same victims gone."""
        if self._by_node:
            return tuple(sorted((int(self._kind[node]), number) for node, number in moment.arrived))
        there: Counter[int] = Counter()
        for node, number in moment.arrived:
            there[int(self._kind[node])] += number
        return tuple(sorted(there.items()))

    def excesses(self, moment: _Moment) -> tuple[int, ...]:
        """Of each group."""
        return tuple(g.excess(c) for g, c in zip(self._counted, moment.counts, strict=True))

    def _arrived(self, moment: _Moment) -> Ints:
        """int64[N]: how many replacements are on each node."""
        arrived = np.zeros_like(self._room)
        for node, number in moment.arrived:
            arrived[node] = number
        return arrived

    def _changed(self, counts: tuple[Ints, ...], node: int, by: int) -> tuple[Ints, ...]:
        changed = []
        for group, before in zip(self._counted, counts, strict=True):
            if (domain := int(group.domain_of[node])) >= 0:
                before = before.copy()
                before[domain] += by
            changed.append(before)
        return tuple(changed)

    def _kinds(self, own: Bools, start: Ints, victims: Ints) -> Ints:
        """int64[N]: equal for nodes that no constraint, no room and no victim can tell apart."""
        columns = [np.where(victims > 0, np.arange(len(victims)) + 1, 0), self._static]
        few = len(self.moves)
        columns += [np.minimum(self._sure_room, few), np.minimum(self._room, few)]
        for group, counts in zip(self._counted, self._start.counts, strict=True):
            alone = own & (np.bincount(group.domain_of + 1)[group.domain_of + 1] == 1)
            count = np.append(counts, -1)[group.domain_of]
            columns.append(np.where(alone, -2 - count, group.domain_of))
        columns += list(start) if own.any() else []
        return numbered(np.zeros_like(victims), columns)


class _Wave:
    """Some moves in flight together; `nodes`, `most`: as in `Found`, over all moments so far."""

    def __init__(self, walk: Interleavings, begin: int, end: int) -> None:
        self._walk = walk
        self._moves = walk.moves[begin:end]
        self._ends = [set(walk.ends(made)) for made in range(begin, end + 1)]
        self._looked_at = 0
        static = self._moves[0].candidate.members.static
        self.nodes: list[Bools] = [np.zeros_like(static) for _ in self._moves]
        self.most: Ints = np.ones(len(static), dtype=np.int64)

    def follow(self, begin: _Moment) -> None:
        """Looks at every moment that can follow this one. Raises _BrokenError.

        Replacements are equal, so it is enough to know how many have landed.
        """
        excesses = self._walk.excesses(begin)
        todo, seen = [(0, 0, begin)], set[Hashable]()
        while todo:
            gone, landed, moment = todo.pop()
            self._looked_at += 1
            if self._looked_at > MOMENTS:
                raise _BrokenError
            if gone.bit_count() == landed:
                self._check_end(gone, landed, moment, excesses)
            following = [
                (gone | 1 << i, landed, self._walk.without(moment, m))
                for i, m in enumerate(self._moves)
                if not gone >> i & 1
            ]
            if gone.bit_count() > landed:
                following += [(gone, landed + 1, after) for after in self._arrivals(gone, landed, moment)]
            for after in following:
                mark = (after[0], after[1], self._walk.key(after[2]))
                if mark not in seen:
                    seen.add(mark)
                    todo.append(after)

    def _arrivals(self, gone: int, landed: int, moment: _Moment) -> Iterator[_Moment]:
        """What the next replacement makes of a moment; it may be that of any victim that is gone."""
        for i, move in enumerate(self._moves):
            if gone >> i & 1:
                nodes, room = self._walk.open(moment, move)
                self.nodes[i] |= nodes
        if not room:
            raise _BrokenError
        self.most[nodes] = np.maximum(self.most[nodes], landed + 1)
        for node in self._walk.representatives(moment, nodes):
            yield self._walk.with_one_more(moment, node)

    def _check_end(self, gone: int, landed: int, moment: _Moment, before: Sequence[int]) -> None:
        """No excess is higher when nothing is in flight; the first moves end as if made one by one."""
        if any(a > b for a, b in zip(self._walk.excesses(moment), before, strict=True)):
            raise _BrokenError
        if gone == (1 << landed) - 1 and self._walk.key(moment) not in self._ends[landed]:
            raise _BrokenError
