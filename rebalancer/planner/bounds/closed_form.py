"""The bounds of a component that one constraint decides: it counts all pods, and they all carry it.

Other constraints of the component may be limits of single nodes only: see `deciding`.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rebalancer.planner.bounds.ceilings import most_when_one_comes
from rebalancer.planner.bounds.one_key import Band, Level, fewest_moves, least_excess
from rebalancer.planner.bounds.remaining import Course, Remaining
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.moves.move import Candidate
from rebalancer.spread.arrays import Ints


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
    """The bounds from the counts per domain alone: each domain is a cell. `anywhere`: pods may stand wherever
    they fit, be it where the scheduler would never put them."""

    solver = "closed form"
    domains_only = True

    def __init__(self, component: Component, by: Deciding, *, anywhere: bool = False) -> None:
        super().__init__(component)
        self._i = by.group
        self.limits_nodes = len(component.groups) > 1
        self._group = component.groups[by.group]
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

    def course(self, placed: Ints, residual: int) -> Course | None:
        """The band of counts that is nearest, and who is above it; if nobody is, who can give."""
        counts = self.component.tally(placed).counts[self._i]
        level = self._level(counts, residual)
        if level is None:
            return None
        above = np.maximum(counts - level.upper, 0)
        gives = above if above.any() else np.maximum(counts - level.lower, 0)
        per_node = np.append(gives, 0)[self._group.domain_of]
        return Course(level.moves, np.broadcast_to(per_node, placed.shape))

    def cell_of(self, placed: Ints) -> Ints:  # noqa: ARG002
        """int64[N]: the domain of each node."""
        return self._group.domain_of

    def key(self, placed: Ints) -> bytes:
        """Equal for placements with equal counts."""
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
