"""Where things may stand after some moves: the scheduler, not the plan, chooses among the nodes it is left.

Each move multiplies the placements that a component may be in. A move is *certain* only if it holds in every
one of them; placements that no later move can tell apart count once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.planner.component import Component
from rebalancer.planner.ground import Ground
from rebalancer.planner.meeting import touch
from rebalancer.planner.simulation import Made
from rebalancer.planner.trial import Verdict
from rebalancer.spread.arrays import Bools, Ints, Rows

MOST = 32
"""Placements kept apart; where there could be more, no further move is taken to be certain."""


class Belief(Struct, frozen=True, eq=False):
    """A placement, int64[Q, N], that the moves so far may have led to, and these moves as they landed."""

    placed: Ints
    made: tuple[Made, ...] = ()


class Outlook(Struct, frozen=True, eq=False):
    """All beliefs after some moves, the predicted one first; not `complete` if there were too many."""

    beliefs: tuple[Belief, ...]
    complete: bool = True


class Advance(Struct, frozen=True, eq=False):
    """What a move makes of an outlook: the one after it, and every node the replacement may land on.

    `open`: the nodes that are open to it in each belief, at once and later. The move does no harm on any
    landing of any belief. `sure`: on each, the replacement stays out of the domain it left and the end comes
    nearer.
    """

    outlook: Outlook
    destinations: Rows
    verdict: Verdict
    sure: bool
    open: tuple[Rows, ...] = ()


class Beliefs:
    """Follows moves of one component through all their landings.

    `nearer` says whether a move of class q from one node to another brings the end nearer in a placement.
    `distinct`: bool[N], nodes that are never taken for one another, because victims may come from them.
    """

    def __init__(self, on: Ground, nearer: Callable[[Ints, int, int, int], bool], distinct: Bools) -> None:
        self._on = on
        self._nearer = nearer
        self.distinct = distinct
        # In closed form only the counts of whole domains matter; to pods that touch each other, every node.
        self._apart = distinct & (not on.potential.closed) | _touching(on.component)
        self._rows: Rows = np.flatnonzero(self._apart)
        self._alike: Ints = np.arange(len(distinct))
        """Nodes with one number were followed as one: beliefs that only swap them are not kept apart."""

    def advance(self, outlook: Outlook, q: int, row: int, pod: Pod) -> Advance | None:
        """The outlook after a move; None if in one of the beliefs it could do harm."""
        after: dict[bytes, Belief] = {}
        destinations: list[Rows] = []
        verdicts: list[Verdict] = []
        sure = True
        for belief in outlook.beliefs:
            with self._on.simulation.after(belief.made):
                verdict = self._on.trial.best(self._on.component, belief.placed, q, row, pod)
                if verdict is None:
                    return None
                landings = self.landings(belief.placed, q, pod, verdict)
            verdicts.append(verdict)
            destinations.append(verdict.destinations)
            for node in landings:
                placed = moved(belief.placed, q, row, node)
                sure = sure and verdict.certain and verdict.helps
                sure = sure and self._nearer(belief.placed, q, row, node)
                made = Made(pod, verdict.replacement, node)
                after.setdefault(self._key(placed), Belief(placed, (*belief.made, made)))
        alike = np.isin(self._alike, self._alike[np.concatenate(destinations)])
        complete = outlook.complete and len(after) <= MOST
        kept = Outlook(tuple(after.values())[:MOST], complete)
        open_ = {
            nodes.tobytes(): nodes
            for v in verdicts
            for nodes in (np.flatnonzero(v.landing.held & v.landing.freed),)
        }
        return Advance(kept, np.flatnonzero(alike), verdicts[0], sure and complete, tuple(open_.values()))

    def landings(self, placed: Ints, q: int, pod: Pod, verdict: Verdict) -> list[int]:
        """A node for each distinct landing, the scheduler's favourite first."""
        late = self._on.component.classes[q].stateful
        best = self._on.simulation.expected(pod, verdict.replacement, verdict.landing, after_gone=late)
        nodes = np.concatenate((best[:1], verdict.destinations))
        own = np.where(self._apart[nodes], nodes, -1)
        kinds = self._on.potential.twins(placed)[nodes] * (len(self.distinct) + 1) + own
        _, first, kind = np.unique(kinds, return_index=True, return_inverse=True)
        for i, number in enumerate(first):
            alike = np.unique(self._alike[nodes[kind == i]])
            if len(alike) > 1:
                self._alike[np.isin(self._alike, alike)] = self._alike[nodes[number]]
        return [int(nodes[i]) for i in np.sort(first)]

    def _key(self, placed: Ints) -> bytes:
        """Equal for placements that differ by landings on interchangeable nodes only."""
        return self._on.potential.key(placed) + placed[:, self._rows].tobytes()


def _touching(component: Component) -> bool:
    """Whether which of several like nodes a replacement takes can matter to a later one.

    To one of its own class it does not as long as they keep apart, or together, by node only: that finds as
    many nodes left, wherever the first one went.
    """
    replacements = [c.replacement for c in component.classes]
    return any(touch(one, other) for one, other in combinations(replacements, 2)) or any(
        touch(one, one, beyond_node=True) for one in replacements
    )


def moved(placed: Ints, q: int, row: int, landed: int) -> Ints:
    """The placement, int64[Q, N], after a move of class q from node `row` to node `landed`."""
    after = placed.copy()
    after[q, row] -= 1
    after[q, landed] += 1
    return after
