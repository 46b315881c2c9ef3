"""What the checks look at: workloads, constraints as resolved, nodes and counts, each found once."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rebalancer.findings.subject import ByLabels, Subject, subjects
from rebalancer.model.pod import PodTemplate, TopologySpreadConstraint
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Bools, frozen
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.nodes import ByIdentity


class Written(Struct, frozen=True, eq=False):
    """One constraint of a workload: as written, as meant, and its place in the list."""

    index: int
    written: TopologySpreadConstraint
    meant: Constraint

    @property
    def field(self) -> str:
        """Its place, relative to the pod's spec."""
        return f"topologySpreadConstraints[{self.index}]"


class Survey:
    """A cluster, or manifests without one: then `has_nodes` is False and nothing is said of domains."""

    def __init__(self, simulation: Simulation, evictable: Evictable) -> None:
        self.simulation = simulation
        self.snapshot = simulation.snapshot
        self.state = simulation.state
        self.table = simulation.state.table
        self.has_nodes = bool(self.table.size)
        self.ready: Bools = np.fromiter((n.ready for n in self.table.nodes), dtype=np.bool_)
        frozen(self.ready)
        self.held = evictable.held
        self.every = subjects(self.snapshot, evictable.owners)
        namespaces = {s.namespace for s in self.every} | {b.metadata.namespace for b in self.snapshot.budgets}
        self.in_scope = frozenset(n for n in namespaces if evictable.outside(n) is None)
        self.subjects = [s for s in self.every if s.namespace in self.in_scope]
        self.labels = ByLabels(self.every)
        self._groups: dict[tuple[Constraint, int], tuple[Bools, Group]] = {}
        self._written: ByIdentity[tuple[Written, ...]] = ByIdentity()
        self._usable: ByIdentity[Bools] = ByIdentity()
        self._reachable: ByIdentity[Bools] = ByIdentity()
        self._domains: ByIdentity[Bools] = ByIdentity()
        self._nested: ByIdentity[tuple[int, ...]] = ByIdentity()

    def constraints(self, template: PodTemplate) -> tuple[Written, ...]:
        """The template's own constraints; defaults of the scheduler profile are not the workload's."""
        found = self._written.get(template)
        if found is None:
            meant = {hard: iter(self.state.constraints(template, hard)) for hard in (True, False)}
            found = tuple(
                Written(i, w, next(meant[w.when_unsatisfiable == "DoNotSchedule"]))
                for i, w in enumerate(template.spread)
            )
            self._written.put(found, template)
        return found

    def expected(self, constraint: Constraint) -> int:
        """How many pods it would count with every workload at its largest."""
        s = constraint.selector
        if s is None or s.empty:
            return 0
        return sum(other.most for other in self.labels.select(constraint.namespace, s))

    def alone(self, subject: Subject, constraint: Constraint) -> bool:
        """Whether it counts this workload's pods and no others."""
        s = constraint.selector
        if s is None or s.empty:
            return False
        found = self.labels.select(constraint.namespace, s)
        return len(found) == 1 and found[0] is subject

    def group(self, template: PodTemplate, constraint: Constraint) -> Group:
        """The constraint over its eligible nodes."""
        eligible = self.state.eligible(template, constraint)
        key = (constraint, id(eligible))
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = eligible, Group(-1, constraint, eligible, self.state)
        return found[1]

    def usable(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that the pod's affinity admits and whose taints it tolerates."""
        admitted, refused = self.table.admitted(template), self.table.untolerated(template.tolerations)
        found = self._usable.get(admitted, refused)
        return found if found is not None else self._usable.put(admitted & ~refused, admitted, refused)

    def reachable(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that take new pods: ready, not cordoned, their taints tolerated.

        What node affinity leaves out is not looked at.
        """
        refused = self.table.untolerated(template.tolerations)
        found = self._reachable.get(refused)
        if found is None:
            found = self._reachable.put(self.ready & ~self.table.unschedulable & ~refused, refused)
        return found

    def domains(self, group: Group, nodes: Bools) -> Bools:
        """bool[D]: domains with one of these nodes, which are one array wherever they are asked about."""
        found = self._domains.get(group.layout, nodes)
        if found is None:
            found = np.zeros(group.size, dtype=np.bool_)
            rows = group.domain_of[nodes]
            found[rows[rows >= 0]] = True
            frozen(found)
            self._domains.put(found, group.layout, nodes)
        return found

    def nested(self, fine: Group, coarse: Group, usable: Bools) -> tuple[int, ...]:
        """How many fine domains each coarse one has; empty if one lies in several, or in none."""
        found = self._nested.get(fine.layout, coarse.layout, usable)
        if found is not None:
            return found
        rows = np.flatnonzero(usable & (fine.domain_of >= 0) & (coarse.domain_of >= 0))
        pairs = np.unique(fine.domain_of[rows] * max(coarse.size, 1) + coarse.domain_of[rows])
        sizes: tuple[int, ...] = ()
        if len(pairs) == fine.size == len(np.unique(pairs // max(coarse.size, 1))):
            sizes = tuple(np.bincount(pairs % max(coarse.size, 1), minlength=coarse.size).tolist())
        return self._nested.put(sizes, fine.layout, coarse.layout, usable)
