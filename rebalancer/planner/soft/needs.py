"""What a constraint still needs, and what one more move makes of that.

Two figures, compared in this order: the excess, and the fewest moves to the least excess that can be reached.
The second is for shapes like [4,4,0,0], where the excess falls only with a later move.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from msgspec import Struct

from rebalancer.engine.state.cluster import ClusterState
from rebalancer.planner.bounds.one_key import Band, fewest_moves, least_excess
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.planner.moves.judge import Judge
from rebalancer.spread.arrays import Bools, Ints

_NEVER = 1 << 40
"""Moves to what cannot be reached."""


class Effect(Struct, frozen=True, eq=False):
    """What a pod that leaves one domain makes of a group, by the domain that takes it; the last entry is for
    nodes of no domain.

    `better`, `worse`: bool[D + 1], of excess and moves. `raises`, `falls`: bool[D + 1], of the excess alone.
    """

    better: Bools
    worse: Bools
    raises: Bools
    falls: Bools


class Needs:
    """The needs of a component's groups as the simulation stands. To be made anew when that changes."""

    def __init__(self, simulation: Simulation, component: Component, judge: Judge) -> None:
        self._simulation = simulation
        self._component = component
        self._judge = judge
        self._bands: dict[int, Band] = {}
        self._effects: dict[tuple[int, int], Effect] = {}
        state = simulation.state
        self.counts: dict[int, Ints] = {g.index: g.counts(state) for g in component.groups}
        self.excess: dict[int, int] = {g.index: g.excess(self.counts[g.index]) for g in component.groups}

    def soft_excess(self) -> int:
        """Of all soft constraints of the component."""
        return sum(self.excess[g.index] for g in self._component.groups if not g.constraint.hard)

    def height(self, group: Group, node: int) -> int:
        """How many counted pods the domain of a node has beyond what the constraint allows."""
        domain = int(group.domain_of[node])
        if domain < 0:
            return 0
        counts = self.counts[group.index]
        return max(0, int(counts[domain]) - group.minimum(counts) - group.constraint.max_skew)

    def cell(self, node: int) -> tuple[int, ...]:
        """Equal for nodes of one cell: in one domain, or in domains of their own that count the same."""
        component = self._component
        found = []
        for group, alone in zip(component.groups, component.own_domain, strict=True):
            domain = int(group.domain_of[node])
            found += [int(alone[node]), int(self.counts[group.index][domain]) if alone[node] else domain]
        return tuple(found)

    def effect(self, group: Group, node: int) -> Effect:
        """Of a counted pod that leaves node `node`."""
        leaves = int(group.domain_of[node])
        found = self._effects.get((group.index, leaves))
        if found is None:
            found = self._effects[group.index, leaves] = self._effect(group, leaves)
        return found

    def _effect(self, group: Group, leaves: int) -> Effect:
        none = np.zeros(group.size + 1, dtype=np.bool_)
        if not group.size:
            return Effect(none, none, none, none)
        counts, now = self.counts[group.index], self.excess[group.index]
        into: Ints = np.append(np.arange(group.size), -1)
        after = group.excess_after(counts, leaves, into)
        raises, falls = after > now, after < now
        falls[-1] = False  # to be counted nowhere is no better place
        better, worse = falls.copy(), raises.copy()
        same = np.flatnonzero((after == now) & (into != leaves) & (into >= 0))
        if now and len(same):
            *left, by_now = self._moves_after(group, leaves, into[same])
            better[same], worse[same] = np.array(left) < by_now, np.array(left) > by_now
        return Effect(better, worse, raises, falls)

    def _moves_after(self, group: Group, leaves: int, into: Ints) -> Ints:
        """int64[len(into) + 1]: moves that are left after each of these moves; last, those left now."""
        counts, now, band = self.counts[group.index], self.excess[group.index], self._band(group)
        skew, enough = group.constraint.max_skew, group.enough_domains
        least = least_excess(counts, band, skew, enough, now)

        def left(of: Ints) -> int:
            level = fewest_moves(of, band, skew, enough, least)
            return level.moves if level is not None else _NEVER

        # Domains that hold as much, and may, are the same to it.
        padded = [np.append(column, -1)[into] for column in (counts, band.floor, band.ceiling)]
        _, first, same = np.unique(np.stack(padded), axis=1, return_index=True, return_inverse=True)
        found = np.empty(len(first), dtype=np.int64)
        for at, number in enumerate(first):
            after = counts.copy()
            if leaves >= 0:
                after[leaves] -= 1
            if (domain := int(into[number])) >= 0:
                after[domain] += 1
            found[at] = left(after)
        return np.append(found[same.reshape(-1)], left(counts))

    def _band(self, group: Group) -> Band:
        """What the domains can hold: pods that policy keeps stay; where none may go, none is added."""
        found = self._bands.get(group.index)
        if found is None:
            counts = self.counts[group.index]
            movable = np.zeros(self._simulation.state.table.size, dtype=np.int64)
            open_to = np.zeros(len(movable), dtype=np.bool_)
            for pod_class in self._component.classes:
                if group.index in pod_class.counted:
                    open_to |= pod_class.static
                    for pods in pod_class.by_node.values():
                        for pod in pods:
                            if self._judge.may_go(pod):
                                movable[_place(self._simulation.state, key_of(pod))] += 1
            floor = counts - group.by_domain(movable)
            open_domains = group.by_domain(open_to.astype(np.int64)) > 0
            ceiling = np.where(open_domains, int(counts.sum()) + 1, counts)
            found = self._bands[group.index] = Band(np.maximum(floor, 0), ceiling)
        return found


def _place(state: ClusterState, key: Hashable) -> int:
    """The node of a pod, or of what has replaced it."""
    return (state.pods.get(key) or state.pods["replacement", key]).row
