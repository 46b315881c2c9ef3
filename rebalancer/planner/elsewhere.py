"""What earlier replacements would take, or leave, where they land elsewhere than predicted.

A wave is judged in the state that the plan predicts. Whether a move of it is certain depends on the others,
too: on room that replacements of earlier waves may fill, or may not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from rebalancer.engine.cluster import PODS
from rebalancer.model.pod import PodTemplate
from rebalancer.planner.component import Component
from rebalancer.planner.meeting import reacts, touch
from rebalancer.planner.simulation import Simulation, key_of
from rebalancer.planner.step import Step
from rebalancer.spread.arrays import Bools, Ints, Rows


class Elsewhere:
    """Earlier replacements that may land elsewhere than predicted: what they take there, or leave."""

    def __init__(self, simulation: Simulation) -> None:
        nothing = np.zeros(simulation.state.table.size, dtype=np.int64)
        self._simulation = simulation
        self._needs: dict[str, Ints] = defaultdict(nothing.copy)
        self._taken: dict[str, Ints] = defaultdict(nothing.copy)
        self._total: Counter[str] = Counter()
        self._landed: dict[int, list[tuple[Component, Step]]] = defaultdict(list)
        self._reacting: dict[int, list[tuple[Component, Step]]] = defaultdict(list)
        self._members: dict[tuple[bool, int, int], tuple[PodTemplate, Bools]] = {}

    def add(self, component: Component, step: Step, nodes: Rows) -> None:
        """One more replacement that may land on any of the nodes."""
        others = nodes[nodes != step.landed]
        if not len(others):
            return
        replacement = step.verdict.replacement
        for resource, amount in needs(replacement):
            self._needs[resource][others] += amount
            self._taken[resource][step.landed] += amount
            self._total[resource] += amount
        self._landed[step.landed].append((component, step))
        if reacts(replacement):
            self._reacting[step.landed].append((component, step))
        kind = (reacts(replacement), id(component), id(replacement))
        if kind not in self._members:
            self._members[kind] = (replacement, self._simulation.state.table.none.copy())
        self._members[kind][1][nodes] = True

    def opens(
        self, component: Component, replacement: PodTemplate, anywhere: Bools, free: Mapping[str, Ints]
    ) -> Bools:
        """bool[N]: nodes beyond `anywhere` that are open if replacements of others landed elsewhere."""
        short, enough = np.zeros_like(anywhere), np.ones_like(anywhere)
        for resource, amount in needs(replacement):
            if resource in free:
                short = short | (free[resource] < amount)
                enough = enough & (free[resource] + self._taken[resource] >= amount)
        room = self._simulation.static(replacement) & ~anywhere & enough & short
        there = [(row, self._landed[row]) for row in np.flatnonzero(room).tolist() if row in self._landed]
        others = self._landed.items() if reacts(replacement) else self._reacting.items()
        keys = dict.fromkeys(
            ("replacement", key_of(step.pod))
            for row, landed in (*there, *others)
            for other, step in landed
            if other is not component and (room[row] or touch(step.verdict.replacement, replacement))
        )
        if not keys:
            return np.zeros_like(anywhere)
        state = self._simulation.state
        away = [(key, state.pods[key]) for key in keys]
        for key in keys:
            state.remove(key)
        found = self._simulation.framework(replacement).feasible(replacement)
        for key, placed in away:
            state.add(key, placed.template, placed.row)
        return found & ~anywhere

    def _touched(self, component: Component, replacement: PodTemplate) -> Bools:
        """bool[N]: nodes where one of another component that touches the replacement may be."""
        nodes, any_ = self._simulation.state.table.none, reacts(replacement)
        for (reacting, owner, _), (other, may_land) in self._members.items():
            if (reacting or any_) and owner != id(component) and touch(other, replacement):
                nodes = nodes | may_land
        return nodes

    def leaves_room(
        self, component: Component, replacement: PodTemplate, nodes: Rows, free: Mapping[str, Ints]
    ) -> bool:
        """Whether, wherever those landed, one of the nodes has room for the replacement.

        Either all that may land on some node leaves room there, or all of it together is too little to fill
        every node: per resource, the nodes that are filled most cheaply count.
        """
        open_ = safe = nodes[~self._touched(component, replacement)[nodes]]
        filled = 0
        for resource, amount in needs(replacement):
            if resource in free:
                room = free[resource] - amount
                to_fill = np.cumsum(np.sort(np.maximum(room[open_] + 1, 0)))
                filled += int(np.searchsorted(to_fill, self._total[resource], side="right"))
                safe = safe[room[safe] >= self._needs[resource][safe]]
        return len(safe) > 0 or filled < len(open_)


def needs(replacement: PodTemplate) -> list[tuple[str, int]]:
    """What a replacement takes of each resource."""
    return [(r, a) for r, a in (*replacement.requests.items(), (PODS, 1)) if a > 0]
