"""What earlier replacements would take, or leave, where they land elsewhere than predicted.

A wave is judged in the state that the plan predicts. Whether a move of it is certain depends on the others,
too: on room that replacements of earlier waves may fill, or may not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from rebalancer.model.pod import PodTemplate
from rebalancer.planner.cluster.conflicts import can_conflict, conflicts_at_all
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.spread.arrays import Bools, Ints, Rows


class Elsewhere:
    """Earlier replacements that may land elsewhere than predicted: what they take there, or leave."""

    def __init__(self, simulation: Simulation) -> None:
        nothing = np.zeros(simulation.state.table.size, dtype=np.int64)
        self._simulation = simulation
        self._needs: dict[str, Ints] = defaultdict(nothing.copy)
        self._taken: dict[str, Ints] = defaultdict(nothing.copy)
        self._total: Counter[str] = Counter()
        self._landed: dict[int, list[JudgedMove]] = defaultdict(list)
        self._conflicting: dict[int, list[JudgedMove]] = defaultdict(list)
        self._members: dict[bool, dict[tuple[int, int], tuple[PodTemplate, Bools]]] = {True: {}, False: {}}

    def add(self, move: JudgedMove) -> None:
        """One more replacement that may land on any of its destinations.

        A move that is not certain may also not be made: then its pod stays where it is.
        """
        nodes = move.destinations if move.certain else np.union1d(move.destinations, [move.candidate.node])
        others = nodes[nodes != move.landed]
        if not len(others):
            return
        replacement = move.replacement
        for resource, amount in self._simulation.state.holds(replacement):
            self._needs[resource][others] += amount
            self._taken[resource][move.landed] += amount
            self._total[resource] += amount
        self._landed[move.landed].append(move)
        conflicting = conflicts_at_all(replacement)
        if conflicting:
            self._conflicting[move.landed].append(move)
        members, kind = self._members[conflicting], (id(move.component), id(replacement))
        if kind not in members:
            members[kind] = (replacement, self._simulation.state.table.none.copy())
        members[kind][1][nodes] = True

    def opens(self, move: JudgedMove, anywhere: Bools, free: Mapping[str, Ints]) -> Bools:
        """bool[N]: nodes beyond `anywhere` that are open if replacements of others landed elsewhere."""
        replacement = move.replacement
        asked = self._simulation.state.asks(replacement)
        room = np.zeros_like(anywhere)
        for resource, amount in asked:
            room |= free[resource] < amount
        room &= self._simulation.static(replacement) & ~anywhere
        if room.any():
            for resource, amount in asked:
                room &= free[resource] + self._taken[resource] >= amount
        there = [(node, self._landed[node]) for node in np.flatnonzero(room).tolist() if node in self._landed]
        others = self._landed.items() if conflicts_at_all(replacement) else self._conflicting.items()
        keys = dict.fromkeys(
            ("replacement", key_of(other.pod))
            for node, landed in (*there, *others)
            for other in landed
            if other.component is not move.component
            and (room[node] or can_conflict(other.replacement, replacement))
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

    def leaves_room(
        self, move: JudgedMove, nodes: Rows, free: Mapping[str, Ints], own: int = 0, closed: int = 0
    ) -> bool:
        """Whether, wherever those landed, one of the nodes has room for the replacement.

        `own`: as many equal replacements may come before it in its own wave, on any node. `closed`: so many
        of the nodes may not be open after all.

        Either all that may land on some node leaves room there, or all of it together is too little to fill
        every node: per resource, the nodes that are filled most cheaply count.
        """
        conflicts = self._conflicts(move)
        open_ = safe = nodes if conflicts is self._simulation.state.table.none else nodes[~conflicts[nodes]]
        asked = self._simulation.state.asks(move.replacement)
        for resource, amount in asked:
            room = free[resource][safe] - amount
            safe = safe[room >= self._needs[resource][safe] + own * amount]
        if len(safe) > closed:
            return True
        # What each node takes until it is full, and what there is to fill them with.
        fillings = [
            (np.maximum(free[r][open_] - amount + 1, 0), self._total[r] + own * amount) for r, amount in asked
        ]
        # The second count is exact, and sorts all nodes.
        most = len(open_) - closed
        return any(sum(count(*f) for f in fillings) < most for count in (_filled_at_most, _filled))

    def _conflicts(self, move: JudgedMove) -> Bools:
        """bool[N]: nodes where one of another component that conflicts with the replacement may be."""
        nodes = self._simulation.state.table.none
        # Two that conflict with nothing do not with each other.
        for kind in (True, False) if conflicts_at_all(move.replacement) else (True,):
            for (component, _), (other, may_land) in self._members[kind].items():
                if component != id(move.component) and can_conflict(other, move.replacement):
                    nodes = nodes | may_land
        return nodes


def _filled_at_most(to_fill: Ints, total: int) -> int:
    """No more nodes than this can be filled: those that take less than half of the average, for nothing, and
    as many of the others as if each took no more than that."""
    half = int(to_fill.mean() / 2) + 1 if len(to_fill) else 1
    return int(np.count_nonzero(to_fill < half)) + total // half


def _filled(to_fill: Ints, total: int) -> int:
    """How many nodes can be filled, the cheapest first."""
    return int(np.searchsorted(np.cumsum(np.sort(to_fill)), total, side="right"))
