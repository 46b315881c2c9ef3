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
