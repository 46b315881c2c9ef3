"""Who could be evicted next: for each cell of interchangeable nodes the best victim."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.planner import objective
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.planner.moves.judge import HardJudge
from rebalancer.planner.moves.move import Candidate
from rebalancer.spread.arrays import Ints


def candidates(
    simulation: Simulation, component: Component, judge: HardJudge, cell_of: Ints, gives: Ints | None = None
) -> Iterator[Candidate]:
    """Possible victims in the simulation's present state, the most promising first.

    `gives`, int64[Q, N]: how much the bound wants pods taken from a node. First comes one victim for each
    cell (`cell_of`, int64[N]); the others of a cell come last, for where they lie may matter to things that
    counts do not see.
    """
    best: dict[tuple[int, int], tuple[tuple[object, ...], Candidate]] = {}
    rest: list[tuple[tuple[object, ...], Candidate]] = []
    for index, pod_class in enumerate(component.classes):
        for node, pods in pod_class.by_node.items():
            pod = next((p for p in pods if judge.may_go(p) and key_of(p) in simulation.state.pods), None)
            if pod is None:
                continue
            wanted = int(gives[index, node]) if gives is not None else 0
            entry = objective.victim(wanted, judge.order(pod)), Candidate(component, index, node, pod)
            cell = (index, int(cell_of[node]))
            if cell not in best:
                best[cell] = entry
            elif entry[0] < best[cell][0]:
                rest.append(best[cell])
                best[cell] = entry
            else:
                rest.append(entry)
    for entries in (list(best.values()), rest):
        for _, candidate in sorted(entries, key=lambda e: e[0]):
            yield candidate
