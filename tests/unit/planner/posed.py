"""A cluster as the rooms of the planner see it: its components, the judge, and a problem to search."""

from __future__ import annotations

from typing import Any

from rebalancer.planner.bounds import Effort, bounds_of
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.waiting import Waiting, settle
from rebalancer.planner.constraints import HardConstraints, View
from rebalancer.planner.moves import Candidate, victim_order
from rebalancer.planner.plan import PlanOptions
from rebalancer.planner.search.problem import Problem
from tests.support.build import snapshot

ENOUGH = 100_000


class Posed:
    """`components`: those with an excess. `problem`: of the first of them."""

    def __init__(self, *things: Any, options: PlanOptions | None = None, effort: int = ENOUGH) -> None:
        options = options or PlanOptions()
        self.view = View(snapshot(*things), options)
        self.simulation = self.view.simulation
        order = victim_order(self.view.snapshot, self.view.evictable.budgets)
        self.hard = HardConstraints(self.view, options, order)
        first = self.hard.classes.highest_priority
        unsettled = settle(self.simulation, self.view.pending, first)
        self.judge = self.hard.judge(Waiting(self.simulation, self.hard.groups, unsettled))
        self.components = [Component(*v, self.simulation) for v in self.hard.violated]
        self.effort = Effort(effort)

    @property
    def problem(self) -> Problem:
        """The first component's."""
        component = self.components[0]
        remaining = bounds_of(component, self.effort)
        return Problem(self.simulation, component, self.judge, remaining, self.effort)

    def candidate(self, pod: str, component: int = 0) -> Candidate:
        """The pod of this name, or the first whose name begins so."""
        c = self.components[component]
        for q, pod_class in enumerate(c.classes):
            for node, pods in pod_class.by_node.items():
                for p in pods:
                    if p.name.startswith(pod):
                        return Candidate(c, q, node, p)
        raise LookupError(pod)

    def on(self, node: str, component: int = 0) -> Candidate:
        """The best victim on a node."""
        c, number = self.components[component], self.node(node)
        for q, pod_class in enumerate(c.classes):
            if pods := pod_class.by_node.get(number):
                return Candidate(c, q, number, pods[0])
        raise LookupError(node)

    def node(self, name: str) -> int:
        """The number of a node."""
        return self.simulation.state.table.index[name]

    def names(self, nodes: Any) -> list[str]:
        """The names of nodes by number."""
        return [self.simulation.state.table.names[int(n)] for n in nodes]

    def standing(self) -> object:
        """Equal as long as the simulation is as it was."""
        state = self.simulation.state
        return {k: (p.row, p.terminating) for k, p in state.pods.items()}
