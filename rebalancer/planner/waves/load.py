"""What the replacements of one wave may take of each node, wherever they land."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from rebalancer.engine.state.cluster import PODS
from rebalancer.model.pod import PodTemplate
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.spread.arrays import Bools, Ints

Amounts = dict[str, Ints]
"""int64[N] by resource."""


class Load:
    """Counts the replacements of each component on every node where one of them may land.

    That is no more than its constraints let a node get (`most`, int64[N]), nor than fits there by itself.
    Replacements of one component are equal, and each may take the place of another.
    """

    def __init__(self, nothing: Ints) -> None:
        self._nothing = nothing
        self._total: Amounts = defaultdict(nothing.copy)
        self._members: dict[int, tuple[int, Bools]] = {}
        self._own: dict[int, Amounts] = {}

    def add(self, move: JudgedMove, nodes: Bools, most: Ints, free: Mapping[str, Ints]) -> bool:
        """Adds a replacement that may land on any of the nodes, if it fits there with all others; whether it
        does."""
        component = id(move.component)
        number, there = self._members.get(component, (0, np.zeros_like(nodes)))
        before, there = self._own.get(component, {}), there | nodes
        after = self._amounts(move.replacement, (number + 1) * there, most, free)
        for resource, taken in after.items():
            more = taken - before.get(resource, self._nothing)
            if (self._total[resource] + more > free.get(resource, self._nothing))[there].any():
                return False
        for resource, taken in after.items():
            self._total[resource] += taken - before.get(resource, self._nothing)
        self._members[component], self._own[component] = (number + 1, there), after
        return True

    def left(self, move: JudgedMove, free: Mapping[str, Ints]) -> Amounts:
        """What all other components leave free on each node."""
        own = self._own.get(id(move.component), {})
        return {r: room - self._total[r] + own.get(r, self._nothing) for r, room in free.items()}

    def _amounts(
        self, replacement: PodTemplate, may_land: Ints, most: Ints, free: Mapping[str, Ints]
    ) -> Amounts:
        asked = needs(replacement)
        fit = np.minimum.reduce([free.get(r, self._nothing) // amount for r, amount in asked])
        # One that does not fit by itself is counted all the same, so that it is seen.
        number = np.minimum(may_land, np.maximum(np.minimum(most, fit), 1))
        return {r: number * amount for r, amount in asked}


def needs(replacement: PodTemplate) -> list[tuple[str, int]]:
    """What a replacement takes of each resource."""
    return [(r, a) for r, a in (*replacement.requests.items(), (PODS, 1)) if a > 0]
