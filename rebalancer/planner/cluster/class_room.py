"""Room as classes of pods share it: what they ask for, what nodes have left, and what the pods give back.

A pod mostly takes of its node what its replacement asks another one for. While it is resized it may take
more, and what its scheduler profile ignores it takes without asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from rebalancer.engine.state.cluster import PODS
from rebalancer.planner.cluster.pod_classes import PodClass
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.spread.arrays import Ints


def add_yields(given: dict[str, Ints], classes: Iterable[PodClass], simulation: Simulation) -> None:
    """Adds to `given`, int64[N] by resource, what the movable pods of these classes take."""
    nothing = simulation.state.table.none
    for pod_class in classes:
        nodes = np.fromiter(pod_class.by_node, dtype=np.intp)
        pods = [len(there) - pod_class.pinned.get(node, 0) for node, there in pod_class.by_node.items()]
        movable = np.array(pods, dtype=np.int64)
        for resource, amount in simulation.state.holds(pod_class.replacement):
            if resource not in given:
                given[resource] = nothing.astype(np.int64)
            given[resource][nodes] += movable * amount
        _add(given, pod_class.surplus)


def needs_and_free(
    simulation: Simulation, classes: tuple[PodClass, ...], given: Mapping[str, Ints]
) -> tuple[Ints, Ints]:
    """(int64[Q, R], int64[R, N]): what a pod of each class needs, and what is free on each node now."""
    state = simulation.state
    asked = [dict(state.asks(pod_class.replacement)) for pod_class in classes]
    names = (*sorted({name for amounts in asked for name in amounts} - {PODS}), PODS)
    needs = [[amounts.get(name, 0) for name in names] for amounts in asked]
    given = _with_spare(simulation, classes, given)
    free = [
        np.maximum(state.allocatable(name) - state.requested[name] + given.get(name, 0), 0) for name in names
    ]
    return np.array(needs, dtype=np.int64).reshape(len(classes), len(names)), np.stack(free)


def _with_spare(
    simulation: Simulation, classes: tuple[PodClass, ...], given: Mapping[str, Ints]
) -> Mapping[str, Ints]:
    """`given`, with what pods of these classes hold beyond their `needs`: while they are resized, and what
    their profile ignores, though another's may not. These may come last: then they are in nobody's way."""
    state, found = simulation.state, dict(given)
    for pod_class in classes:
        spare, asked = dict(pod_class.surplus), dict(state.asks(pod_class.replacement))
        if any(name not in asked for name, _ in state.holds(pod_class.replacement)):
            taken: dict[str, Ints] = {}
            add_yields(taken, (pod_class,), simulation)
            spare |= {name: amounts for name, amounts in taken.items() if name not in asked}
        _add(found, spare)
    return found


def _add(total: dict[str, Ints], more: Mapping[str, Ints]) -> None:
    for resource, amounts in more.items():
        total[resource] = total.get(resource, 0) + amounts


def room_for_more(
    simulation: Simulation,
    classes: tuple[PodClass, ...],
    start: Ints,
    fixed: Ints,
    others: Mapping[str, Ints],
) -> Ints:
    """int64[Q, N]: room for more pods of each class, no more than there are in all, with the movable pods of
    all others out of the way. Many components have as much, and share the array."""
    movable, most = start - fixed, start.sum()
    held = [simulation.state.holds(pod_class.replacement) for pod_class in classes]
    room = np.zeros(movable.shape, dtype=np.int64)
    for index, pod_class in enumerate(classes):
        given: dict[str, Ints] = dict(others)
        for one in classes:
            _add(given, one.surplus)
        for other, amounts in enumerate(held):
            if other != index:
                for resource, amount in amounts:
                    given[resource] = given.get(resource, 0) + movable[other] * amount
        more = np.minimum(simulation.room(pod_class.replacement, given), most)
        # A host port is one pod's alone: where one of the class is, there is no room for another.
        room[index] = np.where(start[index] > 0, 0, more) if pod_class.replacement.host_ports else more
    return simulation.shared.of(room)
