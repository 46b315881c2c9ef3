"""Every order in which a few moves of one component can happen, followed in counts.

Where evictions do change what the filter says where replacements land (`together`), the orders are tried: any
victim goes, or any replacement arrives on any node that the constraints leave. Nodes that no constraint can
tell apart are one. The moves may be in flight together if each order keeps the promises of a single move, and
ends where the moves one after the other may end, which the search has followed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.pod import PodTemplate
from rebalancer.model.quantity import MOST
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.enough_room import never_filled
from rebalancer.planner.cluster.groups import Group, can_conflict, conflicts_at_all
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.moves import JudgedMove
from rebalancer.spread.arrays import Bools, Ints, Rows, among, first_places, members, numbered

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


def _rooms(simulation: Simulation, replacement: PodTemplate, given: Mapping[str, Ints]) -> tuple[Ints, Ints]:
    """int64[N]: how many each node takes at any moment, and how many beside what DaemonSets' pods are yet to
    take. `given`: as in `Simulation.room`."""
    kept = simulation.daemons.kept
    beside = simulation.room(replacement, given)
    if not kept:
        return beside, beside
    return simulation.room(
        replacement, {**given, **{r: n + given.get(r, 0) for r, n in kept.items()}}
    ), beside


class Interleavings:
    """The moves of one sequence from its start on, as far as they are certain and of one class."""

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
        held, spare = _rooms(simulation, first.replacement, {})
        victims = np.bincount([m.candidate.node for m in moves], minlength=len(held))
        self._certain_room: Ints = spare
        given = simulation.held_by((m.pod.template, m.candidate.node, 1) for m in moves)
        freed, later = _rooms(simulation, first.replacement, given)
        self._room: Ints = np.maximum(held + victims, freed)
        # Of what DaemonSets' pods are yet to take, no replacement may take any.
        allowed = np.where((held > spare) | (freed > later), spare, MOST)
        refused = simulation.barred | simulation.rejecting(first.replacement)
        self._allowed: Ints = np.where(refused, 0, allowed)
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
        certain = nodes & (arrived < self._certain_room)
        nodes &= arrived < self._room
        returns = any(nodes[g.domain_of == g.domain_of[move.candidate.node]].any() for g in move.fixes)
        if not kept_out or returns or (nodes & (arrived >= self._allowed)).any():
            raise _BrokenError
        return nodes, bool(certain.any())

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
        """The excess of each group."""
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
        rooms = (self._certain_room, self._room, self._allowed)
        columns += [np.minimum(room, few) for room in rooms]
        for group, counts in zip(self._counted, self._start.counts, strict=True):
            alone = own & (np.bincount(group.domain_of + 1)[group.domain_of + 1] == 1)
            count = np.append(counts, -1)[group.domain_of]
            columns.append(np.where(alone, -2 - count, group.domain_of))
        columns += list(start) if own.any() else []
        return numbered(np.zeros_like(victims), columns)


class _Wave:
    """Some moves in flight together; `nodes`, `most`: as in `Found`, over all moments so far."""

    def __init__(self, interleavings: Interleavings, begin: int, end: int) -> None:
        self._interleavings = interleavings
        self._moves = interleavings.moves[begin:end]
        self._ends = [set(interleavings.ends(made)) for made in range(begin, end + 1)]
        self._looked_at = 0
        static = self._moves[0].candidate.members.static
        self.nodes: list[Bools] = [np.zeros_like(static) for _ in self._moves]
        self.most: Ints = np.ones(len(static), dtype=np.int64)

    def follow(self, begin: _Moment) -> None:
        """Looks at every moment that can follow this one. Raises _BrokenError.

        Replacements are equal, so it is enough to know how many have landed.
        """
        excesses = self._interleavings.excesses(begin)
        todo, seen = [(0, 0, begin)], set[Hashable]()
        while todo:
            gone, landed, moment = todo.pop()
            self._looked_at += 1
            if self._looked_at > MOMENTS:
                raise _BrokenError
            if gone.bit_count() == landed:
                self._check_end(gone, landed, moment, excesses)
            following = [
                (gone | 1 << i, landed, self._interleavings.without(moment, m))
                for i, m in enumerate(self._moves)
                if not gone >> i & 1
            ]
            if gone.bit_count() > landed:
                following += [(gone, landed + 1, after) for after in self._arrivals(gone, landed, moment)]
            for after in following:
                mark = (after[0], after[1], self._interleavings.key(after[2]))
                if mark not in seen:
                    seen.add(mark)
                    todo.append(after)

    def _arrivals(self, gone: int, landed: int, moment: _Moment) -> Iterator[_Moment]:
        """What the next replacement makes of a moment; it may be that of any victim that is gone."""
        for i, move in enumerate(self._moves):
            if gone >> i & 1:
                nodes, room = self._interleavings.open(moment, move)
                self.nodes[i] |= nodes
        if not room:
            raise _BrokenError
        self.most[nodes] = np.maximum(self.most[nodes], landed + 1)
        for node in self._interleavings.representatives(moment, nodes):
            yield self._interleavings.with_one_more(moment, node)

    def _check_end(self, gone: int, landed: int, moment: _Moment, before: Sequence[int]) -> None:
        """No excess is higher when nothing is in flight; the first moves end as if made one by one."""
        if any(a > b for a, b in zip(self._interleavings.excesses(moment), before, strict=True)):
            raise _BrokenError
        if gone == (1 << landed) - 1 and self._interleavings.key(moment) not in self._ends[landed]:
            raise _BrokenError


# How many moves of one component hold in any interleaving: victims and landings kept apart.
#
# The search has followed the moves one after the other, through every landing. They may overlap as long as
# no eviction changes what the filter says of a node on which a replacement could land. Then replacements
# arrive as they could have arrived one after the other, and everything the search knows of that holds.
#
# The proof. The first k moves are with pods that the same groups count, and that carry all of these. For a
# group with maxSkew s, c are the counts per domain before, v the victims in each, and M the highest that the
# lowest count can be after k - 1 arrivals, which fill up the lowest domains first (0 with fewer domains than
# minDomains). R is the nodes that other filters may leave, and on which c - v + 1 - M <= s in every group.
# Asked is that
#
# 1. c - v >= M in every domain with victims;
# 2. no node of R lies in a domain with victims;
# 3. each pod leaves a domain with c - v + 1 - M > s, in a group that its move serves;
# 4. no node that these pods can reach lies outside the domains.
#
# A group whose skew cannot exceed s rejects nothing; 1 and 2 are not asked of it if they hold of another.
#
# - Before the last arrival the minimum is at most M: evictions only lower counts, and fewer than k came.
# - Every replacement lands in R: a filter that leaves it a domain has count + 1 - minimum <= s, a count of
#   at least c - v and a minimum of at most M.
# - Which victims are gone does not matter to the filter on R. By 2 a count of a domain in R is c and what
#   has arrived; by 1 the minimum is that of the domains without victims, or M if lower; by 2 no victim
#   holds room on a node of R.
# - So replacements arrive as they could have one after the other, through placements that were followed.
# - No excess is higher at any moment: the minimum that replacements are judged by never falls. A domain that
#   one enters has at most the minimum + s, now and later; a domain that gives only loses.
#
# Nodes without room take nodes away from the filter, here as one after the other, and M remains the highest;
# what other components may take is reserved (`planner/waves/wave.py`).


class Together(Struct, frozen=True, eq=False):
    """The first `length` moves of a sequence hold in any interleaving, each prefix and part of them as well.

    `most`: int64[N], how many of their replacements a node can get at most, by the constraints alone.
    `nodes`: where each of them may land; () if on all nodes that are destinations of one of them.
    """

    length: int
    most: Ints
    nodes: tuple[Rows, ...] = ()


def together(moves: Sequence[JudgedMove]) -> Together:
    """As many of the moves of a sequence as hold together; 1 if no two do. All are of one component."""
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
    certain = next((i for i, m in enumerate(moves) if not (m.certain and m.helps)), len(moves))
    alike = next((i for i, m in enumerate(moves) if _bound(m) != _bound(moves[0])), len(moves))
    return min(certain, alike)


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


# What earlier replacements would take, or leave, where they land elsewhere than predicted.
#
# A wave is judged in the state that the plan predicts. Whether a move of it is certain depends on the
# others, too: on room that replacements of earlier waves may fill, or may not.


Amounts = dict[str, Ints]
"""int64[N] by resource."""


class Others(NamedTuple):
    """What other components of a wave, and pods that wait, may take: of each node at most, and each pod with
    the nodes, bool[N], of which it takes room on one."""

    most: Amounts
    landings: Sequence[tuple[PodTemplate, Bools]]


class Waits(NamedTuple):
    """So many pods of a template that wait, and the nodes, bool[N], of which each may take room on one."""

    template: PodTemplate
    number: int
    nodes: Bools


class Elsewhere:
    """Earlier replacements that may land elsewhere than predicted: what they take there, or leave. And pods
    that wait, as far as the moves let them in, wherever they find room."""

    def __init__(self, simulation: Simulation, waiting: Waiting | None = None) -> None:
        self._waiting = waiting
        nothing = np.zeros(simulation.state.table.size, dtype=np.int64)
        self._simulation = simulation
        self._requested = simulation.state.requested.copy()
        self._varied: set[int] = set()
        """Components of which a replacement may have landed elsewhere."""
        self._needs: dict[str, Ints] = defaultdict(nothing.copy)
        self._taken: dict[str, Ints] = defaultdict(nothing.copy)
        self._total: Counter[str] = Counter()
        self._reach: dict[bytes, tuple[Bools, Counter[int]]] = {}
        """Where moves may land, and how many are predicted on which node."""
        self._coming = 0
        self._numbers: dict[int, Ints] = {}
        self._landed: dict[int, list[JudgedMove]] = defaultdict(list)
        self._conflicting: dict[int, list[JudgedMove]] = defaultdict(list)
        self._in_component: dict[int, list[tuple[JudgedMove, Bools]]] = defaultdict(list)
        self._members: dict[bool, dict[tuple[int, int], tuple[PodTemplate, Bools]]] = {True: {}, False: {}}

    def add(self, move: JudgedMove) -> None:
        """One more replacement that may land on any of its destinations.

        A move that is not certain may also not be made: then its pod stays where it is.
        """
        if self._waiting is not None:
            self._waiting.let_in |= self._waiting.stirred_by(map(_made, [move]))
        nodes = move.destinations if move.certain else np.union1d(move.destinations, [move.candidate.node])
        others = nodes[nodes != move.landed]
        if not len(others):
            return
        self._varied.add(id(move.component))
        replacement = move.replacement
        for resource, amount in self._simulation.state.holds(replacement):
            self._needs[resource][others] += amount
            self._taken[resource][move.landed] += amount
            self._total[resource] += amount
        self._landed[move.landed].append(move)
        size = self._simulation.state.table.size
        reach = among(size, nodes)
        self._reach.setdefault(reach.tobytes(), (reach, Counter()))[1][move.landed] += 1
        self._coming += 1
        conflicting = conflicts_at_all(replacement)
        if conflicting:
            self._conflicting[move.landed].append(move)
            self._in_component[id(move.component)].append((move, among(size, others)))
        members, kind = self._members[conflicting], (id(move.component), id(replacement))
        if kind not in members:
            members[kind] = (replacement, self._simulation.state.table.none.copy())
        members[kind][1][nodes] = True

    def let_in(self, wave: Collection[JudgedMove]) -> list[Waits]:
        """Pods that wait, and that earlier moves may have let in, or others of the wave."""
        waiting, state = self._waiting, self._simulation.state
        if waiting is None:
            return []
        every = waiting.let_in | waiting.stirred_by(map(_made, wave if len(wave) > 1 else ()))
        found: list[Waits] = []
        for t, number in every.values():
            nodes = self._simulation.static(t)
            for r, amount in state.asks(t):
                free = state.left(r)
                nodes = nodes & ((free + self._taken.get(r, 0) >= amount) | self._simulation.unsure_on)
            if nodes.any():
                found.append(Waits(t, number, nodes))
        return found

    def beside(self, others: Others, waits: Sequence[Waits], move: JudgedMove) -> Others | None:
        """The others, these among them. None where one could spoil more than the room of a node."""
        if self._waiting is None or not waits:
            return others
        most, landings = dict(others.most), list(others.landings)
        for t, number, nodes in waits:
            if self._waiting.spoils(t, move.replacement):
                return None
            landings += [(t, nodes)] * number
            for r, amount in self._simulation.state.holds(t):
                if r in most:
                    most[r] = most[r] + nodes * (amount * number)
        return Others(most, landings)

    def opens(self, move: JudgedMove, anywhere: Bools, free: Mapping[str, Ints]) -> Bools:
        """bool[N]: nodes beyond `anywhere` that are open if replacements of others landed elsewhere."""
        replacement = move.replacement
        asked = self._simulation.state.asks(replacement)
        room = np.zeros_like(anywhere)
        for resource, amount in asked:
            room |= free[resource] < amount
        room &= self._simulation.static(replacement) & ~anywhere
        if room.any():
            for resource, amount in asked:
                room &= free[resource] + self._taken[resource] >= amount
        there = [(node, self._landed[node]) for node in np.flatnonzero(room).tolist() if node in self._landed]
        others = self._landed.items() if conflicts_at_all(replacement) else self._conflicting.items()
        keys = dict.fromkeys(
            ("replacement", key_of(other.pod))
            for node, landed in (*there, *others)
            for other in landed
            if other.component is not move.component
            and (room[node] or can_conflict(other.replacement, replacement))
        )
        near = self._near(move)
        if not keys and not near.any():
            return near
        state = self._simulation.state
        away = [(key, state.pods[key]) for key in keys]
        for key in keys:
            state.remove(key)
        found = self._simulation.framework(replacement).feasible(replacement)
        if near.any() and (affinity := replacement.affinity) is not None:
            freely = replace(replacement, affinity=replace(affinity, pod_affinity=None))
            found |= near & self._simulation.framework(freely).feasible(freely)
        for key, placed in away:
            state.add(key, placed.template, placed.row)
        return found & ~anywhere

    def _near(self, move: JudgedMove) -> Bools:
        """bool[N]: nodes that its required affinity allows where replacements of others may land."""
        terms, table = self._simulation.state.terms, self._simulation.state.table
        found = table.none.copy()
        for term, _ in terms.of(move.replacement).required:
            ids = table.domains(term.topology_key).ids
            for (component, _), (other, nodes) in (
                *self._members[True].items(),
                *self._members[False].items(),
            ):
                if component != id(move.component) and term.matches(other, terms.labels(other.namespace)):
                    found |= (ids >= 0) & np.isin(ids, ids[nodes])
        return found

    def made_room(self, move: JudgedMove, own: Sequence[JudgedMove], judged: Bools) -> Bools:
        """bool[N]: nodes that had no room for the replacement before the waves, and have now, in the domains
        of those that are `judged`: such a domain may be open only if earlier moves of its component (`own`:
        of this wave) landed elsewhere than predicted."""
        state = self._simulation.state
        if not own and id(move.component) not in self._varied:
            return state.table.none
        now, full = self._simulation.static(move.replacement) & ~judged, state.table.none
        for resource, amount in state.asks(move.replacement):
            most = state.allocatable(resource) - amount
            now = now & (state.requested[resource] <= most)
            full = full | (self._requested[resource] > most)
        found = now & full
        if found.any():
            domains = domains_of(move.component)
            found &= members(domains, domains[judged])
        return found

    def leaves_room(
        self,
        move: JudgedMove,
        nodes: Rows,
        free: Mapping[str, Ints],
        others: Others,
        own: int = 0,
        closed: int = 0,
    ) -> bool:
        """Whether, wherever those and the `others` of its wave land, one of the nodes has room for the
        replacement.

        `own`: as many equal replacements may come before it in its own wave, on any node. `closed`: so many
        of the nodes may not be open after all.

        Either all that may land on some node leaves room there; or there are fewer of them than nodes, and
        each takes room on one; or all of it together is too little to fill every node (`never_filled`).
        """
        nodes, free, closings = self._kept_off(move, nodes, free)
        closed += closings
        conflicts = self._conflicts(move, others)
        open_ = safe = nodes if conflicts is self._simulation.state.table.none else nodes[~conflicts[nodes]]
        asked = self._simulation.state.asks(move.replacement)
        for resource, amount in asked:
            room = free[resource][safe] - amount
            safe = safe[room >= self._needs[resource][safe] + others.most[resource][safe] + own * amount]
        if len(safe) > closed:
            return True
        roomy = open_[np.logical_and.reduce([free[r][open_] >= amount for r, amount in asked])]
        if self._fewer_come(len(roomy) - own - closed, roomy, others):
            return True
        coming = self._total + Counter({r: own * amount for r, amount in asked})
        for template, _ in others.landings:
            coming.update(dict(self._simulation.state.holds(template)))
        return never_filled(roomy, free, dict(asked), coming) > closed

    def _fewer_come(self, than: int, nodes: Rows, others: Others) -> bool:
        """Whether fewer moves than that may land on one of these nodes, where they were not predicted."""
        if self._coming + len(others.landings) < than:
            return True
        coming = 0
        for reach, predicted in self._reach.values():
            if coming >= than:
                return False
            there = nodes[reach[nodes]]
            alone = predicted[int(there[0])] if len(there) == 1 else 0
            coming += predicted.total() - alone if len(there) else 0
        reached: dict[int, bool] = {}
        for _, open_ in others.landings:
            if coming >= than:
                return False
            if id(open_) not in reached:
                reached[id(open_)] = bool(open_[nodes].any())
            coming += reached[id(open_)]
        return coming < than

    def _kept_off(
        self, move: JudgedMove, nodes: Rows, free: Mapping[str, Ints]
    ) -> tuple[Rows, Mapping[str, Ints], int]:
        """The nodes and what is free there, with regard to earlier moves of the component that keep the
        replacement off their nodes; and how many of the nodes these may close.

        One that landed elsewhere closes another node, and leaves the one where it was predicted.
        """
        closings = 0
        for other, reach in self._in_component.get(id(move.component), ()):
            there = nodes[reach[nodes]]
            if not len(there) or not can_conflict(other.replacement, move.replacement):
                continue
            closings += 1
            alike = other.candidate.pod_class == move.candidate.pod_class
            if (
                alike
                and (
                    self._domains(move.component)[there] == self._domains(move.component)[other.landed]
                ).any()
            ):
                nodes = np.union1d(nodes, [other.landed])
                free = {r: amounts.copy() for r, amounts in free.items()}
                for resource, amount in self._simulation.state.holds(other.replacement):
                    free[resource][other.landed] += amount
        return nodes, free, closings

    def _domains(self, component: Component) -> Ints:
        """int64[N]: equal for nodes in the same domains, of which none is one node's own."""
        found = self._numbers.get(id(component))
        if found is None:
            columns = [
                np.where(own, -1, g.domain_of)
                for g, own in zip(component.groups, component.own_domain, strict=True)
            ]
            found = numbered(np.zeros(self._simulation.state.table.size, dtype=np.int64), columns)
            self._numbers[id(component)] = found
        return found

    def _conflicts(self, move: JudgedMove, others: Others) -> Bools:
        """bool[N]: nodes where one of another component that conflicts with the replacement may be."""
        nodes = self._simulation.state.table.none
        for other, may_land in others.landings:
            if can_conflict(other, move.replacement):
                nodes = nodes | may_land
        # Two that conflict with nothing do not with each other.
        for kind in (True, False) if conflicts_at_all(move.replacement) else (True,):
            for (component, _), (other, may_land) in self._members[kind].items():
                if component != id(move.component) and can_conflict(other, move.replacement):
                    nodes = nodes | may_land
        return nodes


def domains_of(component: Component) -> Ints:
    """int64[N]: equal for nodes that are in the same domains."""
    nodes = np.zeros(component.simulation.state.table.size, dtype=np.int64)
    return numbered(nodes, [g.domain_of for g in component.groups])


def _made(move: JudgedMove) -> tuple[PodTemplate, int, PodTemplate]:
    return move.pod.template, move.candidate.node, move.replacement
