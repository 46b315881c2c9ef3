"""One key, closed form: the least excess, and the fewest moves that reach it.

With the lowest count raised to L and the highest lowered to L + maxSkew + R, a domain has to give what it
holds above, or take what it lacks below; domains in between absorb the difference. The answer is the best L.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from functools import cached_property
from hashlib import blake2b

import numpy as np
from msgspec import Struct

from rebalancer.planner.cluster.components import Component
from rebalancer.planner.moves import Candidate
from rebalancer.spread.arrays import Bools, Ints, first_places, numbered


class Band(Struct, frozen=True, eq=False):
    """What each domain can hold: `floor` int64[D] pods that stay, `ceiling` int64[D] the most it can take."""

    floor: Ints
    ceiling: Ints


class Level(Struct, frozen=True, eq=False):
    """A best final state: after `moves`, every domain holds between `lower` and `upper`, int64[D]."""

    moves: int
    lower: Ints
    upper: Ints


def fewest_moves(
    counts: Ints, band: Band, max_skew: int, enough_domains: bool, residual: int
) -> Level | None:
    """The fewest moves to an excess of at most `residual`; None if no placement has so little.

    `counts` int64[D], D > 0. With too few domains (minDomains) the minimum counts as 0.
    """
    width = max_skew + residual
    total = int(counts.sum())
    lows = np.arange(total // len(counts) + 1 if enough_domains else 1)
    lower = np.maximum(band.floor[None, :], lows[:, None])
    upper = np.minimum(band.ceiling[None, :], lows[:, None] + width)
    possible = (lower <= upper).all(axis=1) & (lower.sum(axis=1) <= total) & (total <= upper.sum(axis=1))
    if not possible.any():
        return None
    give = np.maximum(counts[None, :] - upper, 0).sum(axis=1)
    take = np.maximum(lower - counts[None, :], 0).sum(axis=1)
    moves = np.where(possible, np.maximum(give, take), np.iinfo(np.int64).max)
    best = int(np.argmin(moves))
    return Level(int(moves[best]), lower[best], upper[best])


def least_excess(counts: Ints, band: Band, max_skew: int, enough_domains: bool, now: int) -> int:
    """The least excess that any placement has; never above `now`."""
    low, high = 0, now
    while low < high:
        middle = (low + high) // 2
        if fewest_moves(counts, band, max_skew, enough_domains, middle) is None:
            low = middle + 1
        else:
            high = middle
    return low


# What a placement of a component still needs at best: the least excess, and the fewest moves to it.
#
# Both are bounds of the final state, whatever way leads there: no sequence of moves does better. How they
# are found depends on the component: in closed form (`ClosedForm`), or by an integer program
# (`program.SeveralKeys`).


class Route(Struct, frozen=True, eq=False):
    """One best final state seen from a placement, `moves` away.

    `gives`: int64[Q, N], positive where it has fewer pods than the placement, the more, the further from it.
    `target`: int64[Q, N], the final state itself, where it is known per node.
    """

    moves: int
    gives: Ints
    target: Ints | None = None


class Remaining(ABC):
    """The bounds of one component for placements int64[Q, N].

    `solver`: how they are found. `domains_only`: whether only counts of whole domains matter; `limits_nodes`:
    while each replacement may close the node that it lands on to the next. `exact`: no bound is lower than
    what it bounds. The bounds of the start are always found; of other placements, what would take more effort
    than is left counts as out of reach.
    """

    solver: str
    domains_only = False
    limits_nodes = False
    _structure: NodeBuckets
    """Made before moves are tried, where not only domains matter."""

    def __init__(self, component: Component) -> None:
        self.component = component
        self.exact = True
        self._start_least: int | None = None
        self._buckets: dict[bytes, Buckets] = {}
        self._latest: deque[tuple[Ints, Buckets]] = deque(maxlen=2)
        """A placement, and that after a move, are asked about several times in a row."""

    @abstractmethod
    def least(self, placed: Ints) -> int:
        """The least total excess of any final state."""

    @abstractmethod
    def moves(self, placed: Ints, residual: int) -> int | None:
        """The fewest moves to a total excess of at most `residual`; None if nothing gets there."""

    @abstractmethod
    def route(self, placed: Ints, residual: int) -> Route | None:
        """A best final state with at most this excess; None if there is none."""

    def bucket_of(self, placed: Ints) -> Ints:
        """int64[N]: each node's bucket. Nodes of one bucket are the same to the component as destinations."""
        return self._at(placed).of

    def key(self, placed: Ints) -> bytes:
        """Equal for placements that are the same to the component: that differ by a permutation of nodes of
        one bucket only."""
        return self._at(placed).key

    def _at(self, placed: Ints) -> Buckets:
        """The buckets of a placement."""
        for known, buckets in self._latest:
            if known is placed:
                return buckets
        key = digest_of(placed)
        found = self._buckets.get(key)
        if found is None:
            found = self._buckets[key] = self._structure.buckets(placed)
        self._latest.append((placed, found))
        return found

    def moves_after(self, placed: Ints, residual: int, candidate: Candidate, landed: int) -> int | None:
        """`moves` of the placement after the candidate's replacement has landed on node `landed`."""
        return self.moves(candidate.moved(placed, landed), residual)

    def forget(self) -> None:
        """Drops what is known of placements but the start: a search of thousands of nodes remembers much."""
        self.component.forget()
        self._buckets.clear()
        self._latest.clear()

    def start_least(self) -> int:
        """`least` of the component's start."""
        if self._start_least is None:
            self._start_least = self.least(self.component.start)
        return self._start_least

    def start_moves(self, residual: int) -> int | None:
        """`moves` of the component's start."""
        return self.moves(self.component.start, residual)


# What the scheduler never exceeds, whatever is evicted, in whatever order.
#
# A pod comes into a domain only where the filter admits it: then the domain holds at most the global
# minimum plus maxSkew, the pod included. And no minimum is ever higher than what the emptiest domain could
# hold, or than the mean. So a cordoned node without a pod, counted as a domain of its own, keeps every
# other node at maxSkew pods, and a zone at as many as it has nodes times that. What follows from one
# constraint limits the next, until nothing falls any more.
#
# A domain that holds more than that by now may lose pods, but takes none as long as it holds more.

_ROUNDS = 20
"""Rounds after which the limits are taken as they stand: they hold in each."""


class Ceilings(Struct, frozen=True, eq=False):
    """`pods`: int64[Q, N], how many of a class a node ever holds. `limits`: of each group, the most that a
    domain holds when a pod has come into it that carries the constraint and is counted; None where pods that
    the plan does not move could change that."""

    pods: Ints
    limits: tuple[int | None, ...]


def ceilings(component: Component) -> Ceilings:
    """Of all placements that evictions of the component's pods can lead to from its start."""
    c = component
    pods = np.minimum(c.start + c.room, np.maximum(c.start, c.start.sum(axis=1, keepdims=True)))
    limits: list[int | None] = [None] * len(c.groups)
    for _ in range(_ROUNDS):
        before = pods.copy()
        for group, g in enumerate(c.groups):
            each = c.base[group] + g.by_domain(pods[list(c.counters[group])].sum(axis=0))
            limit = limits[group] = most_when_one_comes(c, group, each)
            if limit is None:
                continue
            for q in (q for q, carried in enumerate(c.carried) if group in carried):
                pods[q] = np.minimum(pods[q], np.maximum(c.start[q], _per_node(c, group, q, limit)))
        if (pods == before).all():
            break
    return Ceilings(pods, tuple(limits))


def most_when_one_comes(component: Component, group: int, each: Ints) -> int | None:
    """The most that a domain of the group holds once a pod has come that carries the constraint and is
    counted, if domains never hold more than `each`, int64[D]. None: a pod that the plan does not move may
    come, and nothing is known."""
    c, g = component, component.groups[group]
    if not g.size or any(g.constraint.counts(t.namespace, t.labels) for t in c.simulation.coming):
        return None
    if not g.enough_domains:
        return g.constraint.max_skew
    # The one that comes is not counted yet.
    others = int(c.base[group].sum() + c.start[list(c.counters[group])].sum()) - 1
    return g.constraint.max_skew + max(0, min(int(each.min()), others // g.size))


def _per_node(c: Component, group: int, pod_class: int, limit: int) -> Ints:
    """int64[N]: pods of the class that a node holds at most once one has come; those that never move are in
    each domain's way."""
    g = c.groups[group]
    inside: Bools = g.domain_of >= 0
    if pod_class not in c.counters[group]:
        return np.where(inside, np.iinfo(np.int64).max, 0)
    stay = c.base[group] + g.by_domain(c.fixed[list(c.counters[group])].sum(axis=0))
    return np.where(inside, limit - stay[g.domain_of] + c.fixed[pod_class], 0)


# The bounds of a component that one constraint decides: it counts all pods, and they all carry it.
#
# Other constraints of the component may be limits of single nodes only: see `deciding`.


class Deciding(Struct, frozen=True, eq=False):
    """The group (its number within the component) whose counts are all that matters. `room`: int64[Q, N], how
    many more pods of each class a node could take."""

    group: int
    room: Ints


def deciding(component: Component) -> Deciding | None:
    """The group by which the component can be solved in closed form, if there is one.

    Every group counts and constrains every class, and all classes can land in the same domains. A group with
    a domain for each node (hostname) only limits what a node may hold, to maxSkew pods, as long as its lowest
    count stays 0: that is if more domains are empty than there are pods to fill them.
    """
    c = component
    every = tuple(range(len(c.groups)))
    if any(set(of) != set(every) for of in (*c.counted, *c.carried)) or not all(c.closed_in):
        return None
    wide = [i for i in every if not _limits_nodes(c, i)] if len(every) > 1 else [0]
    if len(wide) != 1 or not c.groups[wide[0]].size:
        return None
    room = c.room
    for i in every:
        if i != wide[0]:
            left = c.groups[i].constraint.max_skew - c.counts(i, c.start)
            room = np.minimum(room, np.append(left, 0)[c.groups[i].domain_of])
    group = c.groups[wide[0]]
    reach = {tuple(group.by_domain((more > 0).astype(np.int64)) > 0) for more in room}
    return Deciding(wide[0], room) if len(reach) == 1 else None


def _limits_nodes(component: Component, i: int) -> bool:
    """Whether a group that holds is no more than a limit of what each node takes, whatever is moved."""
    group, counts = component.groups[i], component.counts(i, component.start)
    inside = group.domain_of >= 0
    if not group.size or (inside & ~component.own_domain[i]).any() or group.minimum(counts):
        return False
    if int(counts.max()) > group.constraint.max_skew:
        return False
    movable = int((component.start - component.fixed).sum())
    return not group.enough_domains or int(np.count_nonzero(counts == 0)) > movable


class ClosedForm(Remaining):
    """The bounds from the counts per domain alone: each domain is a bucket, but for those of one node each.
    `anywhere`: pods may stand wherever they fit, be it where the scheduler would never put them."""

    solver = "closed form"

    def __init__(self, component: Component, by: Deciding, *, anywhere: bool = False) -> None:
        super().__init__(component)
        self._i = by.group
        self.limits_nodes = len(component.groups) > 1
        self._group = component.groups[by.group]
        inside = self._group.domain_of >= 0
        self.domains_only = self.limits_nodes or not component.own_domain[by.group][inside].all()
        if not self.domains_only:
            self._structure = NodeBuckets(component)
        self._max_skew = self._group.constraint.max_skew
        fits = _fits(component, by)
        self._band = fits if anywhere else _let_in(component, by, fits)
        self._levels: dict[tuple[bytes, int], Level | None] = {}
        """By counts and residual: a placement is asked about as the end of one move, and before the next."""

    def least(self, placed: Ints) -> int:
        """The least excess of any final state."""
        counts = self.component.counts(self._i, placed)
        now = self._group.excess(counts)
        return least_excess(counts, self._band, self._max_skew, self._group.enough_domains, now)

    def moves(self, placed: Ints, residual: int) -> int | None:
        """The fewest moves to an excess of at most `residual`; None if nothing gets there."""
        return self._moves(self.component.tally(placed).counts[self._i], residual)

    def moves_after(self, placed: Ints, residual: int, candidate: Candidate, landed: int) -> int | None:
        """`moves` after the candidate's replacement has landed on node `landed`: two counts change."""
        counts = self.component.tally(placed).counts[self._i].copy()
        counts[self._group.domain_of[candidate.node]] -= 1
        counts[self._group.domain_of[landed]] += 1
        return self._moves(counts, residual)

    def route(self, placed: Ints, residual: int) -> Route | None:
        """The band of counts that is nearest, and who is above it; if nobody is, who can give."""
        counts = self.component.tally(placed).counts[self._i]
        level = self._level(counts, residual)
        if level is None:
            return None
        above = np.maximum(counts - level.upper, 0)
        # Of many small domains others give once the highest have given.
        first = above.any() and self.domains_only
        gives = above if first else np.maximum(counts - level.lower, 0)
        per_node = np.append(gives, 0)[self._group.domain_of]
        return Route(level.moves, np.broadcast_to(per_node, placed.shape))

    def bucket_of(self, placed: Ints) -> Ints:
        """int64[N]: the domain of each node, or its bucket."""
        return self._group.domain_of if self.domains_only else super().bucket_of(placed)

    def key(self, placed: Ints) -> bytes:
        """Equal for placements with equal counts, of domains or buckets."""
        if not self.domains_only:
            return super().key(placed)
        return self.component.tally(placed).counts[self._i].tobytes()

    def _moves(self, counts: Ints, residual: int) -> int | None:
        level = self._level(counts, residual)
        return level.moves if level is not None else None

    def forget(self) -> None:
        """Drops what is known of placements."""
        super().forget()
        self._levels.clear()

    def _level(self, counts: Ints, residual: int) -> Level | None:
        key = counts.tobytes(), residual
        if key not in self._levels:
            self._levels[key] = fewest_moves(
                counts, self._band, self._max_skew, self._group.enough_domains, residual
            )
        return self._levels[key]


def _fits(component: Component, by: Deciding) -> Band:
    """What the domains can hold at least and at most."""
    g, base = component.groups[by.group], component.base[by.group]
    total = int(component.start.sum())
    room = g.by_domain(by.room.max(axis=0))
    start = base + g.by_domain(component.start.sum(axis=0))
    return Band(base + g.by_domain(component.fixed.sum(axis=0)), start + np.minimum(room, total))


def _let_in(component: Component, by: Deciding, fits: Band) -> Band:
    """No more in a domain than the scheduler ever lets in."""
    start, ceiling = component.counts(by.group, component.start), fits.ceiling
    while (most := most_when_one_comes(component, by.group, ceiling)) is not None:
        lowered = np.minimum(ceiling, np.maximum(start, most))
        if (lowered == ceiling).all():
            break
        ceiling = lowered
    return Band(fits.floor, ceiling)


# Buckets: nodes that are interchangeable for a component, taken together.
#
# Two nodes fall into one bucket when they lie in the same domain of every key that groups nodes (zone) and,
# where a key gives each node a domain of its own (hostname), count the same there, hold the same pods of
# the component and have as much room. The integer program then has a variable per bucket, not per node.


def digest(*arrays: Ints) -> bytes:
    """Sixteen bytes that stand for these arrays in a memo. Those of 5,000 nodes would take 40 kB each, and a
    search remembers thousands."""
    made = blake2b(digest_size=16)
    for array in arrays:
        made.update(array.tobytes())
    return made.digest()


def digest_of(placed: Ints) -> bytes:
    """`digest` of a placement, int64[Q, N], of which few entries are not 0."""
    flat = placed.reshape(-1)
    places = np.flatnonzero(flat)
    return digest(places, flat[places])


class NodeBuckets:
    """What of a component's buckets no placement changes."""

    def __init__(self, component: Component, apart: Ints | None = None) -> None:
        """`apart`: int64[N], nodes with different numbers are not taken together."""
        own = component.own_domain
        n_nodes = component.start.shape[1]
        self.component = component
        self.single: Bools = np.logical_or.reduce([np.zeros(n_nodes, dtype=np.bool_), *own])
        columns: list[Ints] = [] if apart is None else [apart]
        for group, alone, base in zip(component.groups, own, component.base, strict=True):
            columns.append(alone.astype(np.int64))
            columns.append(
                np.where(alone, base[group.domain_of], group.domain_of) if group.size else group.domain_of
            )
        # Where every key groups nodes, only sums over the domain matter, and who can go there at all.
        columns.extend(np.where(self.single, fixed, 0) for fixed in component.fixed)
        columns.extend(np.where(self.single, room, room > 0) for room in component.useful_room())
        self.numbers = numbered(np.zeros(n_nodes, dtype=np.int64), columns)

    def buckets(self, placed: Ints) -> Buckets:
        """The buckets of a placement, int64[Q, N]."""
        return Buckets(self, placed)


class Buckets:
    """The buckets of a placement.

    `of`: int64[N], each node's bucket. `size[c]`: nodes in it. `shared[g][c]`: the domain of group g in which
    the whole bucket lies, -1 none; where `alone[g][c]`, each of its nodes is a domain of its own, with
    `count_alone[g][c]` pods that no move changes. `key`: equal for placements that differ by a permutation
    of nodes of one bucket only.
    """

    def __init__(self, structure: NodeBuckets, placed: Ints) -> None:
        self._component = structure.component
        self.of: Ints = numbered(structure.numbers, (np.where(structure.single, p, 0) for p in placed))
        self.size: Ints = np.bincount(self.of)
        self._first = first = first_places(self.of)
        here = np.where(structure.single[first], placed[:, first], 0)
        self.key = digest(structure.numbers[first], here, self.size, self.sums(placed))

    @cached_property
    def alone(self) -> list[Bools]:
        """bool[C] for each group."""
        return [alone[self._first] for alone in self._component.own_domain]

    @cached_property
    def shared(self) -> list[Ints]:
        """int64[C] for each group."""
        groups = zip(self._component.groups, self.alone, strict=True)
        return [np.where(alone, -1, g.domain_of[self._first]) for g, alone in groups]

    def domains(self, group: int) -> list[int]:
        """The domain of the group that each bucket lies in as a whole, or is; -1 where there is none."""
        own = self._component.groups[group].domain_of[self._first]
        whole = np.where(self.alone[group] & (self.size > 1), -1, own)
        return [int(d) for d in whole]

    @cached_property
    def count_alone(self) -> list[Ints]:
        """int64[C] for each group."""
        component = self._component
        return [
            np.where(alone, base[group.domain_of[self._first]], 0)
            if group.size
            else np.zeros(len(self), dtype=np.int64)
            for group, alone, base in zip(component.groups, self.alone, component.base, strict=True)
        ]

    def sums(self, per_node: Ints) -> Ints:
        """int64[Q, C] of an int64[Q, N]."""
        return np.stack(
            [np.bincount(self.of, weights=pods, minlength=len(self)) for pods in per_node]
        ).astype(np.int64)

    def __len__(self) -> int:
        """The number of buckets."""
        return len(self.size)
