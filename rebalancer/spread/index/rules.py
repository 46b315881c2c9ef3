"""Which constraints a pod has, and over which nodes, as `SpreadIndex` asks for them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.spread.arrays import Bools
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.layout import Layout
from rebalancer.spread.nodes import NodeTable


class Rules(Protocol):
    """`rebalancer.engine.state.cluster.ClusterState`, as far as it is needed here. It may be without pods."""

    table: NodeTable

    def constraints(self, template: PodTemplate, hard: bool) -> tuple[Constraint, ...]:
        """The pod's hard or soft constraints, in order."""
        ...

    def eligible(self, template: PodTemplate, constraint: Constraint) -> Bools:
        """bool[N]: nodes whose pods and domains take part."""
        ...

    def eligibility(self, template: PodTemplate, constraint: Constraint) -> Hashable:
        """Equal where `eligible` is equal whatever nodes there are."""
        ...


class Territories:
    """The domains of constraints over the nodes of one time; equal ones are one object.

    `asked`: about how many templates the rules were asked, and may remember something.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.table = rules.table
        self.asked = 0
        self._layouts: dict[tuple[str, bytes], Layout] = {}
        self._known: dict[tuple[str, Hashable], Layout] = {}

    def of(self, template: PodTemplate, constraint: Constraint, eligibility: Hashable) -> Layout:
        """The domains of a constraint that a pod of this template carries."""
        name = constraint.topology_key
        found = self._known.get((name, eligibility))
        if found is None:
            eligible = self.rules.eligible(template, constraint)
            layout = self.table.layout(name, eligible)
            found = self._layouts.setdefault((name, eligible.tobytes()), layout)
            self._known[name, eligibility] = found
        return found

    def row(self, pod: Pod) -> int | None:
        """The number of the node on which it counts; None if it does not count anywhere."""
        return None if pod.finished or pod.terminating else self.table.index.get(pod.node_name)
