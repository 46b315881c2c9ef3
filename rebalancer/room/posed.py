"""All that keeps an excess as one component, in a cluster that may have further nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.components import Component, components, concerned
from rebalancer.planner.cluster.groups import Groups
from rebalancer.planner.cluster.pod_classes import Classes
from rebalancer.planner.cluster.view import View
from rebalancer.planner.moves.victims import victim_order
from rebalancer.planner.options import PlanOptions
from rebalancer.room.extended import with_nodes
from rebalancer.room.kinds import NodeKind, named
from rebalancer.spread.constraint import Constraint


class Posed:
    """`component`: the constraints in `keep`, and all that share pods with them, whose pods compete for room;
    pods of others stay where they are. `before`: the cluster without further nodes. `rows`: the
    further nodes, those of one kind after each other."""

    def __init__(
        self,
        snapshot: Snapshot,
        options: PlanOptions,
        keep: Collection[Constraint],
        chosen: Sequence[NodeKind] = (),
        each: int = 1,
    ) -> None:
        """With so many nodes of `each` of these kinds."""
        added = named(chosen, each)
        self.chosen, self.each = chosen, each
        self.before = snapshot
        self.snapshot = with_nodes(snapshot, added) if added else snapshot
        self.view = view = View(self.snapshot, options)
        self.simulation = view.simulation
        groups = Groups(view.simulation.state, (alike.template for alike in self.snapshot.live))
        order = victim_order(self.snapshot, view.evictable.budgets)
        classes = Classes(view.simulation, groups, view.evictable, view.live, order)
        wanted = {g.index for g in groups.all if g.constraint in keep}
        parts = [
            part
            for part in components(groups.all, concerned(classes.all, wanted))
            if part[1] and not wanted.isdisjoint(g.index for g in part[0])
        ]
        self.component = Component(
            tuple(g for own, _ in parts for g in own),
            tuple(c for _, own in parts for c in own),
            view.simulation,
        )
        index = view.simulation.state.table.index
        self.rows = [index[name] for name, _, _ in added]

    @property
    def alike(self) -> list[Sequence[int]]:
        """The rows, by kind."""
        return [self.rows[i : i + self.each] for i in range(0, len(self.rows), self.each)]

    def kind_of(self, row: int) -> NodeKind:
        """Of a further node."""
        return self.chosen[self.rows.index(row) // self.each]

    @property
    def enough(self) -> int:
        """Nodes of each kind beyond which further ones change nothing: a node for every pod, and for every
        domain that is asked for."""
        domains = max((g.constraint.min_domains for g in self.component.groups), default=0)
        return int(self.component.start.sum()) + domains
