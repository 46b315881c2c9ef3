"""What the replacements of one wave may take of each node, wherever they land."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import PodTemplate
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.spread.arrays import Bools, Ints

Amounts = dict[str, Ints]
"""int64[N] by resource."""


class Load:
    """Counts the replacements of each component on every node where one of them may land.

    That is no more than its constraints let a node get (`most`, int64[N]), nor than fits there by itself.
    Replacements of one component are equal, and each may take the place of another. What none of them asks a
    node for is not looked at, however much they take of it.
    """

    def __init__(self, state: ClusterState, nothing: Ints) -> None:
        self._state = state
        self._nothing = nothing
        self._asked: set[str] = set()
        self._total: Amounts = defaultdict(nothing.copy)
        self._members: dict[int, tuple[int, Bools]] = {}
        self._own: dict[int, Amounts] = {}

    def add(self, move: JudgedMove, nodes: Bools, most: Ints, free: Mapping[str, Ints]) -> bool:
        """Adds a replacement that may land on any of the nodes, if it fits there with all others; whether it
        does."""
        component = id(move.component)
        number, there = self._members.get(component, (0, np.zeros_like(nodes)))
        before, there = self._own.get(component), there | nodes
        after = self._amounts(move.replacement, number + 1, there, most, free)
        more = after if before is None else {r: taken - before[r] for r, taken in after.items()}
        total = {r: self._total[r] + amounts for r, amounts in more.items()}
        asked = self._asked.union(r for r, _ in self._state.asks(move.replacement))
        if any(((total[r] > free[r]) & there).any() for r in asked.intersection(total)):
            return False
        self._asked = asked
        self._total.update(total)
        self._members[component], self._own[component] = (number + 1, there), after
        return True

    def left(self, move: JudgedMove, free: Mapping[str, Ints]) -> Amounts:
        """What all other components leave free on each node."""
        own = self._own.get(id(move.component), {})
        return {r: room - self._total[r] + own.get(r, self._nothing) for r, room in free.items()}

    def _amounts(
        self, replacement: PodTemplate, number: int, there: Bools, most: Ints, free: Mapping[str, Ints]
    ) -> Amounts:
        """What so many of these take of each node at most, if they may land `there`."""
        taken: Ints = number * there
        if number > 1:
            taken = np.minimum(taken, np.maximum(most, 1))
            room = [(free[r], amount) for r, amount in self._state.asks(replacement)]
            if any((here < taken * amount).any() for here, amount in room):
                # One that does not fit by itself is counted all the same, so that it is seen.
                fit = np.minimum.reduce([here // amount for here, amount in room])
                taken = np.minimum(taken, np.maximum(fit, 1))
        return {r: taken * amount for r, amount in self._state.holds(replacement)}
