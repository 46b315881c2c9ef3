"""Who could be evicted next: for each set of interchangeable nodes the best victim."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.model.pod import Pod
from rebalancer.planner.component import Component
from rebalancer.planner.simulation import Simulation, key_of
from rebalancer.planner.trial import Trial
from rebalancer.spread.arrays import Ints

Candidate = tuple[int, int, Pod]
"""A class of the component, a node's number, and the victim."""


def candidates(
    simulation: Simulation, component: Component, trial: Trial, twins: Ints, gives: Ints | None = None
) -> Iterator[Candidate]:
    """Possible victims in the simulation's present state.

    Where `gives`, int64[Q, N], is higher comes first, then the better victim. First one for each set of
    interchangeable nodes (`twins`, int64[N]); its twins come last, for where they lie may matter to things
    that counts do not see.
    """
    best: dict[tuple[int, int], tuple[tuple[object, ...], int, int, Pod]] = {}
    rest: list[tuple[tuple[object, ...], int, int, Pod]] = []
    for q, pod_class in enumerate(component.classes):
        for row, pods in pod_class.by_row.items():
            pod = next((p for p in pods if trial.may_go(p) and key_of(p) in simulation.state.pods), None)
            if pod is None:
                continue
            first = -int(gives[q, row]) if gives is not None else 0
            entry = ((first, trial.order(pod)), q, row, pod)
            twin = (q, int(twins[row]))
            if twin not in best:
                best[twin] = entry
            elif entry[0] < best[twin][0]:
                rest.append(best[twin])
                best[twin] = entry
            else:
                rest.append(entry)
    for entries in (list(best.values()), rest):
        for _, q, row, pod in sorted(entries, key=lambda e: e[0]):
            yield q, row, pod
