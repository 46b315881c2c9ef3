"""May a move be in flight beside others that it was not planned beside?

Moves of one wave were planned for every order in which they can end. Moves of different waves were not: the
later one was planned with the earlier ones landed. It may start before that only if they cannot meet: nothing
in ports, volumes and required affinity between them, and room for all of them on every node where the
replacement and others that are still to be placed may land. Who was placed already takes its room as a pod.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rebalancer.planner.cluster.conflicts import can_conflict
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.plan import Move


def may_fly(simulation: Simulation, move: Move, others: Sequence[Move], unplaced: Collection[str]) -> bool:
    """Whether the move and the others in flight keep out of each other's way, with the pods as they are."""
    for other in others:
        if can_conflict(move.replacement, other.replacement, beyond_node=True):
            return False
        if can_conflict(move.replacement, other.replacement) and _common(move, other):
            return False
    state, table = simulation.state, simulation.state.table
    coming = [o for o in others if o.pod.uid in unplaced]
    taken = state.holds(move.replacement)
    for node in move.destinations:
        there = [o for o in coming if node in o.destinations]
        if not there:
            continue
        row = table.index.get(node)
        if row is None:
            return False
        asked = {r for m in (move, *there) for r, _ in state.asks(m.replacement)}
        for resource, amount in taken:
            theirs = sum(dict(state.holds(o.replacement)).get(resource, 0) for o in there)
            free = int(state.allocatable(resource)[row] - state.requested[resource][row])
            if resource in asked and free < amount + theirs:
                return False
    return True


def _common(one: Move, other: Move) -> bool:
    """Whether both may land on the same node, or where the other's victim still is."""
    return not {*one.destinations}.isdisjoint({*other.destinations, other.pod.node_name})
