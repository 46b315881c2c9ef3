"""Who could be evicted next: for each cell of interchangeable nodes the best victim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rebalancer.planner import objective
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.planner.moves.judge import HardJudge
from rebalancer.planner.moves.move import Candidate
from rebalancer.spread.arrays import Ints


class Victims:
    """The pods of a component that may go, the best victim first: sorted once for all moves of a search."""

    def __init__(self, simulation: Simulation, component: Component, judge: HardJudge) -> None:
        self._simulation = simulation
        self._component = component
        self._candidates = sorted(
            (
                Candidate(component, index, node, pod)
                for index, pod_class in enumerate(component.classes)
                for node, pods in pod_class.by_node.items()
                for pod in pods
                if judge.may_go(pod)
            ),
            key=lambda c: judge.order(c.pod),
        )
        self._keys = [key_of(c.pod) for c in self._candidates]
        self._classes = np.array([c.pod_class for c in self._candidates], dtype=np.intp)
        self._nodes = np.array([c.node for c in self._candidates], dtype=np.intp)

    def now(self, cell_of: Ints, gives: Ints | None = None) -> Iterator[Candidate]:
        """Possible victims in the simulation's present state, the most promising first.

        `gives`, int64[Q, N]: how much the bound wants pods taken from a node. First comes one victim for each
        cell (`cell_of`, int64[N]); the others of a cell come last, for where they lie may matter to things
        that counts do not see. Later changes of the state do not concern what is asked for now.
        """
        ranked: Sequence[int] = range(len(self._keys))
        if gives is not None:
            ranked = objective.victims(gives[self._classes, self._nodes]).tolist()
        there = self._simulation.state.pods
        return self._by_cell([i for i in ranked if self._keys[i] in there], cell_of)

    def _by_cell(self, ranked: Iterable[int], cell_of: Ints) -> Iterator[Candidate]:
        places: set[tuple[int, int]] = set()
        cells: set[tuple[int, int]] = set()
        rest: list[Candidate] = []
        for candidate in map(self._candidates.__getitem__, ranked):
            place = candidate.pod_class, candidate.node
            if place in places:
                continue
            places.add(place)
            cell = candidate.pod_class, int(cell_of[candidate.node])
            if cell in cells:
                rest.append(candidate)
            else:
                cells.add(cell)
                yield candidate
        yield from rest
