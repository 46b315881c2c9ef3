"""Constraint groups: each resolved constraint with its eligible nodes, once, however many pods carry it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rebalancer.engine.cluster import ClusterState
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints
from rebalancer.spread.constraint import Constraint


class Group:
    """A constraint over one set of eligible nodes.

    `rows`: int64[N], each node's domain, -1 where the node is not eligible; `names[d]` is the label value.
    """

    def __init__(self, index: int, constraint: Constraint, eligible: Bools, state: ClusterState) -> None:
        self.index = index
        self.constraint = constraint
        self.layout = state.table.layout(constraint.topology_key, eligible)
        self.names, self.rows = self.layout.names, self.layout.rows
        self.eligible = eligible
        self.size = len(self.names)
        self.enough_domains = self.size >= constraint.min_domains

    def counts(self, state: ClusterState) -> Ints:
        """int64[D]: pods that the scheduler counts in each domain."""
        return self.by_domain(state.counts(self.constraint.namespace, self.constraint.selector))

    def by_domain(self, per_node: Ints) -> Ints:
        """int64[D] of an int64[N]."""
        return self.layout.by_domain(per_node)

    def minimum(self, counts: Ints) -> int:
        """The global minimum; 0 with fewer eligible domains than minDomains."""
        return int(counts.min()) if self.enough_domains and self.size else 0

    def skew(self, counts: Ints) -> int:
        """Highest count minus the global minimum."""
        return int(counts.max()) - self.minimum(counts) if self.size else 0

    def excess(self, counts: Ints) -> int:
        """What of the skew exceeds maxSkew."""
        return max(0, self.skew(counts) - self.constraint.max_skew)

    def excess_after(self, counts: Ints, leaves: int, into: Ints) -> Ints:
        """int64[len(into)]: the excess after a pod went from domain `leaves` to each of the domains `into`.

        A domain of -1 counts nobody.
        """
        less = counts.copy()
        if leaves >= 0:
            less[leaves] -= 1
        padded = np.append(less, np.iinfo(np.int64).min)
        highest = np.maximum(less.max(), padded[into] + 1)
        lowest = np.zeros(len(into), dtype=np.int64)
        if self.enough_domains:
            low = less.min()
            lowest += low
            if np.count_nonzero(less == low) == 1:
                lowest[padded[into] == low] = min(low + 1, np.min(less, where=less > low, initial=low + 1))
        result: Ints = np.maximum(highest - lowest - self.constraint.max_skew, 0)
        return result


class Groups:
    """All groups of a cluster, and which of them a template carries and which count it."""

    def __init__(self, state: ClusterState, templates: Iterable[PodTemplate], *, hard: bool = True) -> None:
        self._state = state
        self._hard = hard
        self.all: list[Group] = []
        self._index: dict[tuple[Constraint, bytes], int] = {}
        self._by_namespace: dict[str, list[Group]] = {}
        self._carried: dict[int, tuple[int, ...]] = {}
        self._counted: dict[int, tuple[int, ...]] = {}
        self._keep: list[PodTemplate] = []
        for t in templates:
            self.carried(t)

    def carried(self, template: PodTemplate) -> tuple[int, ...]:
        """Indices of the groups of the template's own constraints, in its order."""
        found = self._carried.get(id(template))
        if found is None:
            self._keep.append(template)
            state = self._state
            found = tuple(
                self._group(c, state.eligible(template, c)) for c in state.constraints(template, self._hard)
            )
            self._carried[id(template)] = found
        return found

    def counted(self, template: PodTemplate) -> tuple[int, ...]:
        """Indices of the groups that count a pod of this template. Ask after all groups are known."""
        found = self._counted.get(id(template))
        if found is None:
            self._keep.append(template)
            found = tuple(
                g.index
                for g in self._by_namespace.get(template.namespace, ())
                if g.constraint.counts(template.namespace, template.labels)
            )
            self._counted[id(template)] = found
        return found

    def _group(self, constraint: Constraint, eligible: Bools) -> int:
        key = (constraint, eligible.tobytes())
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = len(self.all)
            group = Group(found, constraint, eligible, self._state)
            self.all.append(group)
            self._by_namespace.setdefault(constraint.namespace, []).append(group)
        return found
