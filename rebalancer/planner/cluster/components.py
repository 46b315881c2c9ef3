"""Constraints that share pods, to be solved together.

Two groups belong together when pods that may move are counted or constrained by both: zone and hostname of
one Deployment, two Deployments under one selector. Everything else meets only in the simulation: room,
ports, inter-pod affinity, budgets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import cached_property
from weakref import ref

import numpy as np
from msgspec import Struct

from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import PodClass, add_yields, needs_and_free, room_for_more
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.spread.arrays import Ints

_TALLIED = 3
"""Placements whose counts are remembered: of one before a move, and of some after it."""


class GroupCounts(Struct, frozen=True, eq=False):
    """For each group of a component its counts, int64[D], and its excess."""

    counts: tuple[Ints, ...]
    excesses: tuple[int, ...]


class Component:
    """Groups, and the classes of pods that couple them.

    `fixed`: int64[Q, N], pods of each class per node that stay for policy's sake; `needs` int64[Q, R], `free`
    int64[R, N]: what a pod asks a node for, what nodes have left; `room`: int64[Q, N], how many more a node
    could take if the other classes' movable pods left it, as far as the component has so many. `classes` are
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
        self._tallied: deque[tuple[Ints, GroupCounts]] = deque(maxlen=_TALLIED)
        self.simulation = simulation
        self.local = {group.index: place for place, group in enumerate(groups)}
        self._start: Callable[[], Ints | None] = lambda: None
        start = self.start
        # Of most components every pod may move: then no array is held.
        nothing = np.broadcast_to(np.zeros(1, dtype=np.int64), start.shape)
        self.fixed: Ints = nothing.copy() if any(pod_class.pinned for pod_class in classes) else nothing
        for index, pod_class in enumerate(classes):
            for node, number in pod_class.pinned.items():
                self.fixed[index, node] = number
        self._given = given or {}
        self.room: Ints = room_for_more(simulation, classes, start, self.fixed, self._given)
        self.counted = tuple(tuple(self.local[group] for group in pod_class.counted) for pod_class in classes)
        self.carried = tuple(tuple(self.local[group] for group in pod_class.carried) for pod_class in classes)
        self.counters = tuple(
            tuple(index for index in range(len(classes)) if place in self.counted[index])
            for place in range(len(groups))
        )
        self.own_domain = tuple(group.layout.own_domain for group in groups)
        self.base = tuple(
            simulation.shared.of(group.counts(simulation.state) - self._of_classes(place, start))
            for place, group in enumerate(groups)
        )

    @property
    def start(self) -> Ints:
        """int64[Q, N]: pods of each class per node at first. The same array as long as somebody holds it: a
        plan has thousands of components, and only those that are searched need theirs."""
        found = self._start()
        if found is None:
            found = np.zeros((len(self.classes), self.simulation.state.table.size), dtype=np.int64)
            for index, pod_class in enumerate(self.classes):
                for node, pods in pod_class.by_node.items():
                    found[index, node] = len(pods)
            self._start = ref(found)
        return found

    def forget(self) -> None:
        """Lets go of the latest placements and their counts, which can be worked out again."""
        self._tallied.clear()

    @cached_property
    def resources(self) -> tuple[Ints, Ints]:
        """`needs` and `free`, as the simulation stands when they are first asked for. In closed form nobody
        asks."""
        return needs_and_free(self.simulation, self.classes, self._given)

    @property
    def needs(self) -> Ints:
        """int64[Q, R]."""
        return self.resources[0]

    @property
    def free(self) -> Ints:
        """int64[R, N]."""
        return self.resources[1]

    @cached_property
    def closed_in(self) -> tuple[bool, ...]:
        """For each group, whether no counted pod can be, or go, where it would not be counted."""
        reach = (self.start + self.room) > 0
        return tuple(
            not reach[list(self.counters[index])][:, group.domain_of < 0].any()
            for index, group in enumerate(self.groups)
        )

    def useful_room(self) -> Ints:
        """`room`, as far as it can matter: no node needs to take more than the fullest holds by now."""
        fullest = [
            int(self.counts(index, self.start).max())
            for index, own in enumerate(self.own_domain)
            if own.any()
        ]
        return np.minimum(self.room, max(fullest, default=0))

    def named(self, indices: Iterable[int]) -> list[Group]:
        """The groups with these numbers over all components."""
        return [self.groups[self.local[i]] for i in indices]

    def yields(self) -> dict[str, Ints]:
        """int64[N] by resource: what the movable pods take, and would leave free."""
        given: dict[str, Ints] = {}
        add_yields(given, self.classes, self.simulation)
        return given

    def roomier(self, given: Mapping[str, Ints]) -> Component | None:
        """The component with more room, if that can matter to it."""
        pods = int(self.start.sum())
        room = room_for_more(self.simulation, self.classes, self.start, self.fixed, given)
        other = copy(self)
        other._given, other.room = given, room
        other._tallied = deque(maxlen=_TALLIED)
        for name in ("resources", "closed_in"):
            other.__dict__.pop(name, None)
        if room is not self.room and (room != self.room).any():
            return other
        if len(self.classes) == 1:
            return None
        asked = self.needs.max(axis=0) * pods
        tight = (self.free < asked[:, None]) & (other.free > self.free)
        return other if tight.any() else None

    def _of_classes(self, group: int, placed: Ints) -> Ints:
        counting = list(self.counters[group])
        per_node = placed[counting[0]] if len(counting) == 1 else placed[counting].sum(axis=0)
        return self.groups[group].layout.by_domain_of_few(per_node)

    def counts(self, group: int, placed: Ints) -> Ints:
        """int64[D]: the group's counts with the classes' pods placed so, int64[Q, N]."""
        return self.base[group] + self._of_classes(group, placed)

    def takes_one_more(self, pod_class: int, node: int, placed: Ints) -> bool:
        """Whether a node has room for one more pod of this class, with the classes' pods placed so."""
        if placed[pod_class, node] >= self.start[pod_class, node] + self.room[pod_class, node]:
            return False
        more = self.needs.T @ (placed[:, node] - self.start[:, node]) + self.needs[pod_class]
        return bool((more <= self.free[:, node]).all())

    def excesses(self, placed: Ints) -> tuple[int, ...]:
        """Every group's excess."""
        return self.tally(placed).excesses

    def tally(self, placed: Ints) -> GroupCounts:
        """Counts and excess of every group; remembered until some other placements are asked for."""
        found = self._known(placed)
        if found is None:
            counts = tuple(self.counts(index, placed) for index in range(len(self.groups)))
            excesses = tuple(group.excess(count) for group, count in zip(self.groups, counts, strict=True))
            found = GroupCounts(counts, excesses)
            self._tallied.append((placed, found))
        return found

    def moved(self, placed: Ints, pod_class: int, node: int, landed: int) -> Ints:
        """The placement after a pod of this class has gone from one node to another. Where the counts before
        are known, those after are, too: two of each group change."""
        after = placed.copy()
        after[pod_class, node] -= 1
        after[pod_class, landed] += 1
        before = self._known(placed)
        if before is not None:
            counts, excesses = list(before.counts), list(before.excesses)
            for index in self.counted[pod_class]:
                group, changed = self.groups[index], counts[index].copy()
                for there, by in ((node, -1), (landed, 1)):
                    if (domain := int(group.domain_of[there])) >= 0:
                        changed[domain] += by
                counts[index], excesses[index] = changed, group.excess(changed)
            self._tallied.append((after, GroupCounts(tuple(counts), tuple(excesses))))
        return after

    def _known(self, placed: Ints) -> GroupCounts | None:
        return next((found for known, found in self._tallied if known is placed), None)


def components(
    groups: Iterable[Group], classes: Iterable[PodClass]
) -> list[tuple[tuple[Group, ...], tuple[PodClass, ...]]]:
    """Groups and classes split into independent parts, in the order of their first group."""
    every = list(groups)
    parent = list(range(len(every)))

    def root(group: int) -> int:
        while parent[group] != group:
            parent[group] = parent[parent[group]]
            group = parent[group]
        return group

    movable = [
        pod_class
        for pod_class in classes
        if pod_class.carried
        and any(len(pods) > pod_class.pinned.get(node, 0) for node, pods in pod_class.by_node.items())
    ]
    for pod_class in movable:
        touched = sorted({*pod_class.counted, *pod_class.carried})
        for other in touched[1:]:
            lower, higher = sorted((root(touched[0]), root(other)))
            parent[higher] = lower
    parts: dict[int, tuple[list[Group], list[PodClass]]] = {}
    for one in every:
        parts.setdefault(root(one.index), ([], []))[0].append(one)
    for pod_class in movable:
        parts[root(pod_class.carried[0])][1].append(pod_class)
    return [(tuple(joined_groups), tuple(joined_classes)) for joined_groups, joined_classes in parts.values()]
