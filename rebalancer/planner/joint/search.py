"""The best joint move from a state: small sets of victims, each followed through every order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations

from msgspec import Struct

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.bounds import Effort
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import PodClass
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.joint.every_order import (
    BrokenError,
    Ends,
    EveryOrder,
    HopelessError,
    Victim,
    lowest_priority,
)
from rebalancer.planner.joint.places import LARGEST, Chosen, places, sets
from rebalancer.planner.waves.limits import Limits


class Found(Struct, frozen=True, eq=False):
    """A joint move: its pods in the order in which they are to be evicted, and what it comes to."""

    chosen: Chosen
    replacements: tuple[PodTemplate, ...]
    ends: Ends

    @property
    def worth(self) -> tuple[int, int, int]:
        """The higher the better: what surely falls, fewer that wait when it is broken off, what may fall."""
        return self.ends.least, -self.ends.waiting, self.ends.most


class JointSearch:
    """Searches the simulation's present state.

    `groups`: all of hard constraints, by index. `waiting`: templates of pods that wait for a node. `limits`:
    of a wave that has no move yet; `unshared`: the same without the shares of owners. `most_waiting`: how
    many may wait if a set is broken off. `replacement`: what takes a pod's place.
    """

    def __init__(
        self,
        simulation: Simulation,
        groups: Sequence[Group],
        waiting: Sequence[PodTemplate],
        limits: Callable[[], Limits],
        unshared: Callable[[], Limits],
        most_waiting: int,
        effort: Effort,
        replacement: Callable[[Pod, PodClass], PodTemplate],
    ) -> None:
        self._simulation = simulation
        self._lowest = lowest_priority(simulation)
        self._groups = groups
        self._waiting = waiting
        self._limits = limits
        self._unshared = unshared
        self._too_many: list[Chosen] = []
        self._most_waiting = most_waiting
        self._effort = effort
        self._replacement = replacement

    def best(
        self,
        own: Sequence[PodClass],
        others: Sequence[PodClass],
        foreseeable: Callable[[PodTemplate], bool],
    ) -> Found | None:
        """The best of the smallest sets that are any good. `own`: the classes of components that are stuck;
        `others`: those that could make room."""
        known = [
            p
            for p in places(self._simulation, self._groups, own, others)
            if foreseeable(p.members.replacement)
        ]
        for size in range(2, LARGEST + 1):
            good = [f for chosen in sets(known, size) for f in self._in_order(chosen)]
            if good:
                return max(good, key=lambda f: f.worth)
            if self._effort.gone:
                break
        return None

    def held_back(self) -> Found | None:
        """After `best` has found none: a set of one owner's pods that would be good, and of which more pods
        would be away together than the owner's share."""
        allowed = (chosen for chosen in self._too_many if _within(self._unshared(), chosen))
        return next((f for chosen in allowed for f in self._tried(chosen)), None)

    def _in_order(self, chosen: Chosen) -> Iterator[Found]:
        """The set in the orders of its evictions that differ, as far as limits allow it."""
        if _within(self._limits(), chosen):
            yield from self._tried(chosen)
        elif len({id(p.members) for p, _ in chosen}) == 1:
            self._too_many.append(chosen)

    def _tried(self, chosen: Chosen) -> Iterator[Found]:
        if self._effort.gone:
            return
        seen: set[tuple[tuple[int, int], ...]] = set()
        for order in permutations(chosen):
            kind = tuple((p.members.index, p.node) for p, _ in order)
            if kind in seen:
                continue
            seen.add(kind)
            try:
                found = self._followed(order)
            except HopelessError:
                return
            except BrokenError:
                continue
            if found.ends.waiting <= self._most_waiting:
                if self._needless(order, found.ends.least):
                    return
                yield found
                if not found.ends.waiting:
                    return

    def _needless(self, chosen: Chosen, gain: int) -> bool:
        """Whether some of the pods alone lower the excess as much: then the others go for nothing."""
        for size in range(1, len(chosen)):
            for part in combinations(chosen, size):
                try:
                    if self._followed(part).ends.least >= gain:
                        return True
                except BrokenError:
                    continue
        return False

    def _followed(self, order: Chosen) -> Found:
        touched = {i for p, _ in order for i in p.members.counted}
        victims = []
        for n, (p, pod) in enumerate(order):
            new = self._replacement(pod, p.members)
            # What mounts a volume of its own is like no other.
            victims.append(Victim(pod, new, n if new.claims else -p.members.index - 1))
        groups = [self._groups[i] for i in sorted(touched)]
        every = EveryOrder(self._simulation, victims, groups, self._waiting, lowest=self._lowest)
        try:
            return Found(order, tuple(v.replacement for v in victims), every.ends())
        finally:
            self._effort.candidates(every.moments)


def _within(limits: Limits, chosen: Chosen) -> bool:
    for place, pod in chosen:
        if not limits.fits(pod, place.members.owner):
            return False
        limits.spend(pod, place.members.owner)
    return True
