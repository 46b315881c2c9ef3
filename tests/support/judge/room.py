"""The fewest nodes to add, by trying all: every choice of shapes and zones, and of each every placement.

Nothing of `rebalancer/room` is used here, and no solver: workloads are a number of equal pods with spread
constraints of their own, nodes a zone and what they have free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement


@dataclass(frozen=True, slots=True)
class Place:
    """A node: its name, its zone and the cpu that it has for the pods that move."""

    name: str
    zone: str
    cpu: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A constraint over zones or over single nodes."""

    by_zone: bool
    max_skew: int
    min_domains: int = 1

    def excess(self, places: Sequence[Place], counts: Sequence[int]) -> int:
        """With so many pods on each node."""
        by: dict[str, int] = {}
        for place, pods in zip(places, counts, strict=True):
            domain = place.zone if self.by_zone else place.name
            by[domain] = by.get(domain, 0) + pods
        low = min(by.values()) if len(by) >= self.min_domains else 0
        return max(0, max(by.values()) - low - self.max_skew)


@dataclass(frozen=True, slots=True)
class Work:
    """So many pods, each asking for so much cpu."""

    pods: int
    cpu: int
    rules: tuple[Rule, ...]


def least(places: Sequence[Place], works: Sequence[Work]) -> int:
    """The least excess that a placement of all pods has."""
    options = []
    for work in works:
        found = [
            (sum(r.excess(places, counts) for r in work.rules), counts)
            for counts in _counts(work.pods, [p.cpu // work.cpu for p in places])
        ]
        options.append(sorted(found))
    return _joint(places, works, options)


def _joint(
    places: Sequence[Place], works: Sequence[Work], options: Sequence[Sequence[tuple[int, tuple[int, ...]]]]
) -> int:
    free = [p.cpu for p in places]
    best = 1 << 30

    def search(i: int, total: int) -> None:
        nonlocal best
        if i == len(works):
            best = total
            return
        for excess, counts in options[i]:
            if total + excess >= best:
                return
            if all(works[i].cpu * c <= f for c, f in zip(counts, free, strict=True)):
                for n, c in enumerate(counts):
                    free[n] -= works[i].cpu * c
                search(i + 1, total + excess)
                for n, c in enumerate(counts):
                    free[n] += works[i].cpu * c

    search(0, 0)
    return best


def _counts(pods: int, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All ways to put so many pods on nodes that take so many each."""
    if not most:
        if not pods:
            yield ()
        return
    for here in range(min(pods, most[0]) + 1):
        for rest in _counts(pods - here, most[1:]):
            yield here, *rest


def least_with(places: Sequence[Place], works: Sequence[Work], kinds: Sequence[Place], number: int) -> int:
    """The least excess with so many added nodes, whichever of these kinds they are."""
    return min(
        least([*places, *(Place(f"new-{i}", k.zone, k.cpu) for i, k in enumerate(added))], works)
        for added in combinations_with_replacement(kinds, number)
    )
