"""The bounds of a component with one constraint that all its pods carry and that counts them all."""

from __future__ import annotations

import numpy as np

from rebalancer.planner.bounds.one_key import Band, Level, fewest_moves, least_excess
from rebalancer.planner.bounds.remaining import Course, Remaining
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.moves.move import Candidate
from rebalancer.spread.arrays import Ints


def closed_form_applies(component: Component) -> bool:
    """One group that counts and constrains every class, all of which can land in the same domains."""
    if len(component.groups) != 1 or not component.groups[0].size:
        return False
    every = range(len(component.classes))
    if any(component.counted[q] != (0,) or component.carried[q] != (0,) for q in every):
        return False
    if not component.closed_in[0]:
        return False
    group = component.groups[0]
    reach = {tuple(group.by_domain((room > 0).astype(np.int64)) > 0) for room in component.room}
    return len(reach) == 1


class ClosedForm(Remaining):
    """The bounds from the counts per domain alone: each domain is a cell."""

    solver = "closed form"
    domains_only = True

    def __init__(self, component: Component) -> None:
        super().__init__(component)
        self._group = component.groups[0]
        self._max_skew = self._group.constraint.max_skew
        self._band = _band(component)

    def least(self, placed: Ints) -> int:
        """The least excess of any final state."""
        counts = self.component.counts(0, placed)
        now = self._group.excess(counts)
        return least_excess(counts, self._band, self._max_skew, self._group.enough_domains, now)

    def moves(self, placed: Ints, residual: int) -> int | None:
        """The fewest moves to an excess of at most `residual`; None if nothing gets there."""
        return self._moves(self.component.tally(placed).counts[0], residual)

    def moves_after(self, placed: Ints, residual: int, candidate: Candidate, landed: int) -> int | None:
        """`moves` after the candidate's replacement has landed on node `landed`: two counts change."""
        counts = self.component.tally(placed).counts[0].copy()
        counts[self._group.domain_of[candidate.node]] -= 1
        counts[self._group.domain_of[landed]] += 1
        return self._moves(counts, residual)

    def course(self, placed: Ints, residual: int) -> Course | None:
        """The band of counts that is nearest, and who is above it; if nobody is, who can give."""
        counts = self.component.tally(placed).counts[0]
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
        return self.component.counts(0, placed).tobytes()

    def _moves(self, counts: Ints, residual: int) -> int | None:
        level = self._level(counts, residual)
        return level.moves if level is not None else None

    def _level(self, counts: Ints, residual: int) -> Level | None:
        return fewest_moves(counts, self._band, self._max_skew, self._group.enough_domains, residual)


def _band(component: Component) -> Band:
    """What the domains can hold at least and at most."""
    g, base = component.groups[0], component.base[0]
    total = int(component.start.sum())
    room = g.by_domain(component.room.max(axis=0))
    start = base + g.by_domain(component.start.sum(axis=0))
    return Band(base + g.by_domain(component.fixed.sum(axis=0)), start + np.minimum(room, total))
