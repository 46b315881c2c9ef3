"""The excess of a cluster, and what the loss of a domain would take beyond what it has to."""

from __future__ import annotations

from msgspec import Struct

from rebalancer.month.world import World
from rebalancer.planner.cluster.groups import Groups


class Measured(Struct, frozen=True):
    """`excess`: of all hard constraints. `loss`: the largest share of a constraint's pods that the fullest
    domain holds beyond the smallest share possible."""

    excess: int
    loss: float


def measure(world: World) -> Measured:
    """Now."""
    templates = {id(p.template): p.template for p in world.pods.values()}
    excess, loss = 0, 0.0
    for group in Groups(world.state, templates.values()).all:
        if not group.size:
            continue
        counts = group.counts_once(world.state)
        excess += group.excess(counts)
        total = int(counts.sum())
        if total:
            loss = max(loss, (int(counts.max()) - -(-total // group.size)) / total)
    return Measured(excess, loss)
