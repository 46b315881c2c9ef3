"""The fewest added nodes that leave the least excess: the program of `program`, with nodes that need not be.

Some nodes of the component's cluster are empty ones that could be added. Each is a bucket of its own, with a
variable that says whether it is there: only then it takes pods, and only then its domain counts where no
other node is in it. Order, budgets and harm on the way are left out, as in `least_excess`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import highspy
import numpy as np
from msgspec import Struct

from rebalancer.planner.bounds.one_key import Buckets, NodeBuckets
from rebalancer.planner.bounds.program import Program, Solved, run
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.objective import Effort
from rebalancer.spread.arrays import Bools, Ints

_ALONE = 2_000
"""Classes times nodes up to which every node is a bucket of its own. Beyond that equal nodes share one, and
two kinds of pods may then share what no single node of it has."""


class Added(Struct, frozen=True, eq=False):
    """`excess`: the least with as many nodes as there may be; by group in `excesses`. `nodes`: rows of the
    fewest of them that leave no more. `placed`: int64[Q, N], where pods of each class then are, as few as
    possible on these nodes; `everywhere`: it says so of all nodes, not only of these. `exact`: both figures
    are proved."""

    excess: int
    excesses: tuple[int, ...]
    nodes: tuple[int, ...]
    placed: Ints
    everywhere: bool
    exact: bool


def fewest_nodes(component: Component, could_be: Sequence[Sequence[int]], effort: Effort) -> Added | None:
    """`could_be`: rows of the nodes that could be added, alike in each sequence. None: nothing was found, as
    far as the effort goes."""
    rows = [row for alike in could_be for row in alike]
    apart = np.zeros(component.start.shape[1], dtype=np.int64)
    alone = component.start.size <= _ALONE
    apart[rows] = 1 + np.arange(len(rows))
    if alone:
        apart = np.arange(component.start.shape[1])
    buckets = NodeBuckets(component, apart).buckets(component.start)
    program = _Program(component, buckets, could_be)
    best = program.least_excess_then_nodes(effort)
    if best.values is None:
        return None
    excesses, used = program.excesses(best.values), program.used(best.values)
    lean = program.fewest_pods(sum(excesses), len(used), effort) if used else best
    values = lean.values if lean.values is not None else best.values
    exact = best.optimal and (alone or len(component.classes) == 1)
    used = program.used(values)
    every = range(component.start.shape[1]) if alone else used
    return Added(sum(excesses), program.excesses(values), used, program.pods(values, every), alone, exact)


class _Program(Program):
    """Further variables: whether each added node is there; for each group, whether it has enough domains, and
    whether each domain is there that only added nodes are in."""

    def __init__(self, component: Component, buckets: Buckets, could_be: Sequence[Sequence[int]]) -> None:
        self._alike = could_be
        self._rows = np.array([row for alike in could_be for row in alike], dtype=np.int64)
        self._added: Bools = np.zeros(component.start.shape[1], dtype=np.bool_)
        self._added[self._rows] = True
        self._lasting = [
            np.unique(g.domain_of[~self._added & (g.domain_of >= 0)]).tolist() for g in component.groups
        ]
        self._new = [
            np.setdiff1d(np.arange(g.size), lasting).tolist()
            for g, lasting in zip(component.groups, self._lasting, strict=True)
        ]
        n_groups, n_new = len(component.groups), sum(map(len, self._new))
        further = len(self._rows) + n_groups + n_new
        self._first = 2 * len(component.classes) * len(buckets) + 3 * n_groups
        self._bucket_of_row = {int(row): int(buckets.of[row]) for row in self._rows}
        self._is = {int(row): self._first + i for i, row in enumerate(self._rows)}
        self._enough = self._first + len(self._rows)
        domains = [(i, d) for i, new in enumerate(self._new) for d in new]
        self._there = {key: self._enough + n_groups + i for i, key in enumerate(domains)}
        super().__init__(component, component.start, buckets, None, only=range(n_groups), further=further)
        self.upper[self._first :] = 1.0
        self._nodes()

    def least_excess_then_nodes(self, effort: Effort) -> Solved:
        """Of the placements with the least excess one with the fewest nodes."""
        self.cost[:] = 0.0
        for index in range(len(self.component.groups)):
            self.cost[self._low(index) + 2] = float(len(self._rows) + 1)
        self.cost[list(self._is.values())] = 1.0
        return self._run(effort)

    def fewest_pods(self, excess: int, nodes: int, effort: Effort) -> Solved:
        """With no more excess and nodes than these, as few pods as possible on the nodes."""
        overs = [(self._low(index) + 2, 1.0) for index in range(len(self.component.groups))]
        self.rows.add(overs, -highspy.kHighsInf, float(excess))
        self.rows.add([(column, 1.0) for column in self._is.values()], -highspy.kHighsInf, float(nodes))
        self.cost[:] = 0.0
        for bucket in self._bucket_of_row.values():
            self.cost[self.after[:, bucket]] = 1.0
        return self._run(effort)

    def _run(self, effort: Effort) -> Solved:
        found = run(self, effort.tree_nodes(self.rows.nonzeros))
        effort.program(found.steps)
        return found

    def excesses(self, values: np.ndarray) -> tuple[int, ...]:
        """The excess of each group."""
        return tuple(round(values[self._low(index) + 2]) for index in range(len(self.component.groups)))

    def used(self, values: np.ndarray) -> tuple[int, ...]:
        """Rows of the nodes that are there."""
        return tuple(row for row, column in self._is.items() if values[column] > 0.5)

    def pods(self, values: np.ndarray, rows: Sequence[int]) -> Ints:
        """int64[Q, N]: what is placed on these nodes, each of which is a bucket."""
        placed = np.zeros_like(self.component.start)
        for row in rows:
            placed[:, row] = np.rint(values[self.after[:, self.buckets.of[row]]]).astype(np.int64)
        return placed

    def _nodes(self) -> None:
        """A node takes pods only if it is there. Of those that are alike, earlier ones come first."""
        inf = highspy.kHighsInf
        for row, column in self._is.items():
            for variable in self.after[:, self._bucket_of_row[row]].tolist():
                if self.upper[variable]:
                    self.rows.add([(variable, 1.0), (column, -self.upper[variable])], -inf, 0.0)
        for alike in self._alike:
            for one, next_ in pairwise(alike):
                self.rows.add([(self._is[one], 1.0), (self._is[next_], -1.0)], 0.0, inf)

    def _may_have_enough_domains(self, index: int) -> bool:
        return self.component.groups[index].enough_domains

    def _certain_domains(self, index: int) -> int:
        return len(self._lasting[index])

    def _domains(self, index: int) -> None:
        """The count of each domain that is there lies between the group's lowest and its highest."""
        component, buckets, group = self.component, self.buckets, self.component.groups[index]
        counting = component.counters[index]
        terms: dict[int, list[tuple[int, float]]] = {}
        of_added = {bucket: row for row, bucket in self._bucket_of_row.items()}
        for bucket in range(len(buckets)):
            here = [(int(self.after[pod_class, bucket]), 1.0) for pod_class in counting]
            if buckets.alone[index][bucket] and bucket not in of_added:
                size = float(buckets.size[bucket])
                self._between(
                    index,
                    here,
                    size,
                    float(buckets.size[bucket] * buckets.count_alone[index][bucket]),
                )
                continue
            row = of_added.get(bucket)
            domain = int(group.domain_of[row]) if row is not None else int(buckets.shared[index][bucket])
            if domain >= 0:
                terms.setdefault(domain, []).extend(here)
        for domain, here in terms.items():
            base = float(component.base[index][domain])
            if domain in self._new[index]:
                self._new_domain(index, domain, here, base)
            else:
                self._between(index, here, 1.0, base)
        self._enough_domains(index)

    def _new_domain(self, index: int, domain: int, terms: list[tuple[int, float]], base: float) -> None:
        """It is there if one of its nodes is; then it bounds lowest and highest."""
        there, inf = self._there[index, domain], highspy.kHighsInf
        most = self.upper[self._low(index)]
        nodes = [self._is[int(r)] for r in self._rows if self.component.groups[index].domain_of[r] == domain]
        for column in nodes:
            self.rows.add([(there, 1.0), (column, -1.0)], 0.0, inf)
        self.rows.add([(there, 1.0), *((column, -1.0) for column in nodes)], -inf, 0.0)
        self.rows.add([*terms, (self._low(index), -1.0), (there, -most)], -base - most, inf)
        self.rows.add([*terms, (self._low(index) + 1, -1.0), (there, base)], -inf, 0.0)

    def _enough_domains(self, index: int) -> None:
        """With fewer domains than minDomains the lowest count is 0."""
        lasting = len(self._lasting[index])
        missing = self.component.groups[index].constraint.min_domains - lasting
        if lasting and missing <= 0:
            return
        enough, lowest, inf = self._enough + index, self._low(index), highspy.kHighsInf
        there = [(self._there[index, d], 1.0) for d in self._new[index]]
        self.rows.add([*there, (enough, -float(max(missing, 1)))], 0.0, inf)
        self.rows.add([(lowest, 1.0), (enough, -self.upper[lowest])], -inf, 0.0)
