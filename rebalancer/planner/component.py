"""Constraints that share pods, to be solved together.

Two groups belong together when pods that may move are counted or constrained by both: zone and hostname of
one Deployment, two Deployments under one selector. Everything else meets only in the simulation: room,
ports, inter-pod affinity, budgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct

from rebalancer.engine.cluster import PODS
from rebalancer.planner.classes import PodClass
from rebalancer.planner.groups import Group
from rebalancer.planner.simulation import Simulation
from rebalancer.spread.arrays import Bools, Ints


class Tally(Struct, frozen=True, eq=False):
    """For each group of a component its counts, int64[D], and its excess."""

    counts: tuple[Ints, ...]
    excesses: tuple[int, ...]


class Component:
    """Groups, and the classes of pods that couple them.

    `start`, `fixed`: int64[Q, N], pods of each class per node at first, and those of them that stay for
    policy's sake; `needs` int64[Q, R], `free` int64[R, N]: what a pod asks for, what nodes have left; `room`:
    int64[Q, N], how many more a node could take if the other classes' movable pods left it. `classes` are
    those with pods that may move; pods of other classes are part of `base`, the counts per domain that no
    move changes. `given`: int64[N] by resource, what pods of other components could leave free.
    """

    def __init__(
        self,
        groups: tuple[Group, ...],
        classes: tuple[PodClass, ...],
        simulation: Simulation,
        given: Mapping[str, Ints] | None = None,
    ) -> None:
        self.groups = groups
        self.classes = classes
        self._tallied: tuple[Ints, Tally] | None = None
        self.simulation = simulation
        self.room: Ints = _room(simulation, classes, given or {})
        self.local = {g.index: i for i, g in enumerate(groups)}
        n = simulation.state.table.size
        self.start: Ints = np.zeros((len(classes), n), dtype=np.int64)
        self.fixed: Ints = np.zeros((len(classes), n), dtype=np.int64)
        for q, c in enumerate(classes):
            for row, pods in c.by_row.items():
                self.start[q, row] = len(pods)
                self.fixed[q, row] = c.pinned.get(row, 0)
        self.counted = tuple(tuple(self.local[g] for g in c.counted) for c in classes)
        self.carried = tuple(tuple(self.local[g] for g in c.carried) for c in classes)
        self.counters = tuple(
            tuple(q for q in range(len(classes)) if i in self.counted[q]) for i in range(len(groups))
        )
        self.needs, self.free = _resources(simulation, classes, given or {})
        self.own_domain = tuple(_own_domain(g) for g in groups)
        self.base = tuple(
            g.counts(simulation.state) - self._of_classes(i, self.start) for i, g in enumerate(groups)
        )

    @cached_property
    def closed_in(self) -> tuple[bool, ...]:
        """For each group, whether no counted pod can be, or go, where it would not be counted."""
        reach = (self.start + self.room) > 0
        return tuple(
            not reach[list(self.counters[i])][:, g.rows < 0].any() for i, g in enumerate(self.groups)
        )

    @cached_property
    def useful_room(self) -> Ints:
        """`room`, as far as it can matter: no node needs to take more than the fullest holds by now."""
        fullest = [
            int(self.counts(i, self.start).max()) for i, own in enumerate(self.own_domain) if own.any()
        ]
        return np.minimum(self.room, max(fullest, default=0))

    def yields(self) -> dict[str, Ints]:
        """int64[N] by resource: what the movable pods take, and would leave free."""
        given: dict[str, Ints] = {}
        for c, movable in zip(self.classes, self.start - self.fixed, strict=True):
            for resource, amount in (*c.template.requests.items(), (PODS, 1)):
                given[resource] = given.get(resource, 0) + movable * amount
        return given

    def roomier(self, given: Mapping[str, Ints]) -> Component | None:
        """The component with more room, if that can matter to it."""
        other = Component(self.groups, self.classes, self.simulation, given)
        pods = self.start.sum()
        if (np.minimum(other.room, pods) != np.minimum(self.room, pods)).any():
            return other
        asked = self.needs.max(axis=0) * pods
        tight = (self.free < asked[:, None]) & (other.free > self.free)
        return other if len(self.classes) > 1 and tight.any() else None

    def _of_classes(self, group: int, placed: Ints) -> Ints:
        rows = list(self.counters[group])
        return self.groups[group].by_domain(placed[rows].sum(axis=0))

    def counts(self, group: int, placed: Ints) -> Ints:
        """int64[D]: the group's counts with the classes' pods placed so, int64[Q, N]."""
        return self.base[group] + self._of_classes(group, placed)

    def takes_one_more(self, q: int, node: int, placed: Ints) -> bool:
        """Whether a node has room for one more pod of class q, with the classes' pods placed so."""
        if placed[q, node] >= self.start[q, node] + self.room[q, node]:
            return False
        more = self.needs.T @ (placed[:, node] - self.start[:, node]) + self.needs[q]
        return bool((more <= self.free[:, node]).all())

    def excesses(self, placed: Ints) -> tuple[int, ...]:
        """Every group's excess."""
        return self.tally(placed).excesses

    def tally(self, placed: Ints) -> Tally:
        """Counts and excess of every group; remembered until another placement is asked for."""
        if self._tallied is None or self._tallied[0] is not placed:
            counts = tuple(self.counts(i, placed) for i in range(len(self.groups)))
            excesses = tuple(g.excess(c) for g, c in zip(self.groups, counts, strict=True))
            self._tallied = (placed, Tally(counts, excesses))
        return self._tallied[1]


def _own_domain(group: Group) -> Bools:
    """bool[N]: nodes that are the only eligible one of their domain, as with hostname."""
    if not group.size:
        return np.zeros(len(group.rows), dtype=np.bool_)
    sizes = np.bincount(group.rows[group.rows >= 0], minlength=group.size)
    own: Bools = (group.rows >= 0) & (sizes[group.rows] == 1)
    return own


def _resources(
    simulation: Simulation, classes: tuple[PodClass, ...], given: Mapping[str, Ints]
) -> tuple[Ints, Ints]:
    """(int64[Q, R], int64[R, N]): what a pod of each class needs, and what is free on each node now."""
    state = simulation.state
    names = sorted({r for c in classes for r, amount in c.replacement.requests.items() if amount > 0})
    needs = [[*(c.replacement.requests.get(r, 0) for r in names), 1] for c in classes]
    free = [
        np.maximum(state.allocatable(r) - state.requested[r] + given.get(r, 0), 0) for r in (*names, PODS)
    ]
    return np.array(needs, dtype=np.int64).reshape(len(classes), len(names) + 1), np.stack(free)


def _room(simulation: Simulation, classes: tuple[PodClass, ...], others: Mapping[str, Ints]) -> Ints:
    """int64[Q, N]: room for more pods of each class, with the others' movable pods out of the way."""
    n = simulation.state.table.size
    movable = np.zeros((len(classes), n), dtype=np.int64)
    for q, c in enumerate(classes):
        for row, pods in c.by_row.items():
            movable[q, row] = len(pods) - c.pinned.get(row, 0)
    rows = np.zeros((len(classes), n), dtype=np.int64)
    for q, c in enumerate(classes):
        given: dict[str, Ints] = dict(others)
        for p, other in enumerate(classes):
            if p != q:
                for resource, amount in (*other.replacement.requests.items(), ("pods", 1)):
                    given[resource] = given.get(resource, 0) + movable[p] * amount
        rows[q] = simulation.room(c.replacement, given)
    return rows


def components(
    groups: Iterable[Group], classes: Iterable[PodClass]
) -> list[tuple[tuple[Group, ...], tuple[PodClass, ...]]]:
    """Groups and classes split into independent parts, in the order of their first group."""
    every = list(groups)
    parent = list(range(len(every)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    movable = [
        c for c in classes if c.carried and any(len(p) > c.pinned.get(r, 0) for r, p in c.by_row.items())
    ]
    for c in movable:
        touched = sorted({*c.counted, *c.carried})
        for other in touched[1:]:
            a, b = sorted((root(touched[0]), root(other)))
            parent[b] = a
    parts: dict[int, tuple[list[Group], list[PodClass]]] = {}
    for g in every:
        parts.setdefault(root(g.index), ([], []))[0].append(g)
    for c in movable:
        parts[root(c.carried[0])][1].append(c)
    return [(tuple(gs), tuple(cs)) for gs, cs in parts.values()]
