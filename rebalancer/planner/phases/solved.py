"""A component as a search has solved it, and what the plan makes of that."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import PodClass
from rebalancer.planner.moves.move import JudgedMove
from rebalancer.planner.plan import ComponentFigures
from rebalancer.planner.search.search import Search, Walk


class Solved(Struct, frozen=True, eq=False):
    """A component that has an excess, and the walk found for it by a search from its start."""

    groups: tuple[Group, ...]
    classes: tuple[PodClass, ...]
    walk: Walk
    search: Search

    def ending(self, residual: int) -> Solved:
        """The component as the plan leaves it, otherwise than its own walk would."""
        if residual == self.walk.residual:
            return self
        least = min(self.walk.least, residual)
        bound = self.search.bound(residual)
        return replace(
            self,
            walk=replace(
                self.walk, least=least, bound=bound, residual=residual, proved=False, exhausted=False
            ),
        )

    def unmoved(self, residual: int) -> Solved:
        """The component with so much excess, before any of its moves."""
        return replace(self, walk=Walk((), self.walk.least, 0, residual, proved=False))

    def further(self, walk: Walk) -> Solved:
        """The component with a walk that goes on from where the first one led."""
        w = self.walk
        joined = Walk(
            (*w.moves, *walk.moves),
            min(w.least, walk.least),
            # Without classes, moves of others have lowered what it counts.
            w.bound if walk.residual == w.residual or not self.classes else self.search.bound(walk.residual),
            walk.residual,
            w.proved and not walk.moves and w.residual == walk.residual,
            walk.exhausted,
        )
        return replace(self, walk=joined)

    def jointly(self, moves: tuple[JudgedMove, ...], residual: int) -> Solved:
        """The component after a joint move with these of its pods, which leaves so much."""
        return self.further(Walk(moves, min(self.walk.least, residual), 0, residual, proved=False))

    def figures(self) -> ComponentFigures:
        """What solving it came to."""
        w = self.walk
        return ComponentFigures(
            groups=tuple(g.index for g in self.groups),
            pods=sum(len(p) for c in self.classes for p in c.by_node.values()),
            domains=sum(g.size for g in self.groups),
            solver=self.search.solver,
            bound=w.bound,
            least=w.least,
            moves=len(w.moves),
            residual=w.residual,
            proved=w.proved,
        )
