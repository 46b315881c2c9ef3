"""What would do as well as a single new node: an existing one that had more."""

from __future__ import annotations

from collections.abc import Collection

from rebalancer.engine.state.cluster import PODS
from rebalancer.planner.bounds.added_nodes import Added, fewest_nodes
from rebalancer.planner.cluster.effort import Effort
from rebalancer.planner.options import PlanOptions
from rebalancer.room.advice import Enlarged
from rebalancer.room.extended import enlarged
from rebalancer.room.posed import Posed
from rebalancer.room.told import wanted
from rebalancer.spread.constraint import Constraint

_ASKED = 6
"""Nodes of which the program is asked."""


def instead(
    first: Posed,
    options: PlanOptions,
    keep: Collection[Constraint],
    posed: Posed,
    best: Added,
    effort: Effort,
) -> Enlarged | None:
    """Existing nodes that could take the new one's pods if they had a little more, those that lack least: as
    many as lack the same. None if none would do."""
    if not best.everywhere:
        return None
    placed = best.placed[:, best.nodes[0]]
    state = first.simulation.state
    needed = wanted(state, [(c, int(n)) for c, n in zip(posed.component.classes, placed, strict=True) if n])
    where = posed.kind_of(best.nodes[0]).labels.items()
    near = [
        row
        for row, node in enumerate(state.table.nodes)
        if where <= node.labels.items() and not first.simulation.barred[row]
    ]
    lacking: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for row in near:
        lack = {
            r: amount
            + _comes(first, posed, best, row, r)
            - int(state.allocatable(r)[row] - state.requested[r][row])
            for r, amount in sorted(needed.items())
        }
        if lack.get(PODS, 0) <= 0:
            more = tuple((r, amount) for r, amount in lack.items() if amount > 0)
            lacking.setdefault(more, []).append(state.table.names[row])
    asked = 0
    for more, names in sorted(lacking.items(), key=lambda item: (len(item[0]), item[0])):
        good = []
        for name in names:
            if asked >= _ASKED or effort.gone:
                break
            asked += 1
            if more and _does(first, options, keep, name, dict(more), best.excess, effort):
                good.append(name)
        if good:
            return Enlarged(tuple(good), dict(more))
    return None


def _comes(first: Posed, posed: Posed, best: Added, row: int, resource: str) -> int:
    """How much more the pods take that are on an existing node beside the new one."""
    there = posed.simulation.state.table.index[first.simulation.state.table.names[row]]
    held = (
        dict(posed.simulation.state.holds(c.replacement)).get(resource, 0) for c in posed.component.classes
    )
    more = best.placed[:, there] - posed.component.start[:, there]
    return sum(amount * int(n) for amount, n in zip(held, more, strict=True))


def _does(
    first: Posed,
    options: PlanOptions,
    keep: Collection[Constraint],
    name: str,
    more: dict[str, int],
    excess: int,
    effort: Effort,
) -> bool:
    larger = Posed(enlarged(first.snapshot, name, more), options, keep)
    found = fewest_nodes(larger.component, (), effort)
    return found is not None and found.exact and found.excess <= excess
