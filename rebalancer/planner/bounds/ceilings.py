"""What the scheduler never exceeds, whatever is evicted, in whatever order.

A pod comes into a domain only where the filter admits it: then the domain holds at most the global minimum
plus maxSkew, the pod included. And no minimum is ever higher than what the emptiest domain could hold, or
than the mean. So a cordoned node without a pod, counted as a domain of its own, keeps every other node at
maxSkew pods, and a zone at as many as it has nodes times that. What follows from one constraint limits the
next, until nothing falls any more.

A domain that holds more than that by now may lose pods, but takes none as long as it holds more.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rebalancer.planner.cluster.components import Component
from rebalancer.spread.arrays import Bools, Ints

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
    known = [_known(c, group) for group in range(len(c.groups))]
    limits: list[int | None] = [None] * len(c.groups)
    for _ in range(_ROUNDS):
        before = pods.copy()
        for group in (g for g, may_be in enumerate(known) if may_be):
            limit = limits[group] = _minimum(c, group, pods) + c.groups[group].constraint.max_skew
            for q, carried in enumerate(c.carried):
                if group in carried:
                    pods[q] = np.minimum(pods[q], np.maximum(c.start[q], _most(c, group, q, limit)))
        if (pods == before).all():
            break
    return Ceilings(pods, tuple(limits))


def _known(c: Component, group: int) -> bool:
    """Whether all that the group will count is known: no pod comes that the plan does not move."""
    constraint = c.groups[group].constraint
    coming = c.simulation.coming
    return c.groups[group].size > 0 and not any(constraint.counts(t.namespace, t.labels) for t in coming)


def _minimum(c: Component, group: int, pods: Ints) -> int:
    """What the global minimum is at most when a pod comes that is counted and carries the constraint."""
    g, counters = c.groups[group], list(c.counters[group])
    if not g.enough_domains:
        return 0
    each = c.base[group] + g.by_domain(pods[counters].sum(axis=0)) if counters else c.base[group]
    # The one that comes is not counted yet.
    others = int(c.base[group].sum() + c.start[counters].sum()) - 1
    return max(0, min(int(each.min()), others // g.size))


def _most(c: Component, group: int, pod_class: int, limit: int) -> Ints:
    """int64[N]: pods of the class that a node holds at most once one has come; those that never move are in
    each domain's way."""
    g = c.groups[group]
    inside: Bools = g.domain_of >= 0
    if pod_class not in c.counters[group]:
        return np.where(inside, np.iinfo(np.int64).max, 0)
    stay = c.base[group] + g.by_domain(c.fixed[list(c.counters[group])].sum(axis=0))
    return np.where(inside, limit - stay[g.domain_of] + c.fixed[pod_class], 0)
