"""Several keys: an integer program over counts of identical pods per cell, solved with HiGHS.

    minimise    residual excess first, then pods that leave their cell
    subject to  every class keeps its number of pods; pods that stay, stay; no cell takes more than it has
                room for, by class and by resource; lowest and highest count of each group enclose its
                domains; no excess above today's

Single-threaded and bounded by nodes of the search tree, not by the clock: the same input, the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np
from msgspec import Struct

from rebalancer.planner import objective
from rebalancer.planner.bounds.cells import Cells
from rebalancer.planner.cluster.components import Component
from rebalancer.spread.arrays import Ints

TREE_NODES = 500
"""Nodes of the branch-and-bound tree after which the bound is taken as it stands."""


class FinalState(Struct, frozen=True, eq=False):
    """A best final state: `residual` excess, `moves`, and `placed` int64[Q, C] per cell.

    `exact` is False when the search was cut short: then `moves` is a lower bound.
    """

    residual: int
    moves: int
    placed: Ints
    exact: bool


class LeastExcess(Struct, frozen=True):
    """No placement has less. `exact`: one has as much; False when the search was cut short."""

    excess: int
    exact: bool


class _Rows:
    """Rows of a sparse matrix, with bounds."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def add(self, terms: list[tuple[int, float]], lower: float, upper: float) -> None:
        self.starts.append(len(self.columns))
        for column, value in terms:
            self.columns.append(column)
            self.values.append(value)
        self.lower.append(lower)
        self.upper.append(upper)


def solve(
    component: Component, placed: Ints, cells: Cells, residual: int | None
) -> tuple[FinalState | None, int]:
    """The best final state from a placement, int64[Q, N]; None if none has so little excess; and the steps
    of the simplex algorithm that it took to know.

    `residual`: at most this excess in all, then the fewest moves; None: the least excess, then the fewest.
    """
    program = _Program(component, placed, cells, residual)
    found = _run(program.rows, program.lower, program.upper, program.cost)
    if found.values is None:
        return None, found.steps
    return program.target(found.values, exact=found.optimal, bound=found.bound), found.steps


def least_excess(component: Component, cells: Cells, groups: Sequence[int]) -> LeastExcess:
    """The least excess that these groups of the component can have in sum, whatever becomes of the others."""
    program = _Program(component, component.start, cells, None, only=groups)
    found = _run(program.rows, program.lower, program.upper, program.cost)
    # A bound that is no number, or below 0, says nothing.
    proved = max(0, int(np.ceil(found.bound - 1e-6))) if np.isfinite(found.bound) else 0
    now = sum(component.excesses(component.start)[i] for i in groups)
    return LeastExcess(min(proved, now), found.optimal or proved >= now)


class _Program:
    """Variables, in this order, and rows:

    y     int[Q, C]   pods of a class in a cell afterwards
    out   int[Q, C]   pods of a class that leave a cell
    and for each group its lowest count, its highest count, and its excess.
    """

    def __init__(
        self,
        component: Component,
        placed: Ints,
        cells: Cells,
        residual: int | None,
        *,
        only: Sequence[int] | None = None,
    ) -> None:
        """`only`: groups whose excess alone is asked about, whatever moves it takes and whom they harm."""
        self.component, self.cells, self.residual = component, cells, residual
        self.only = only
        self.placed = placed
        self.rows = _Rows()
        self.now = cells.sums(placed)
        self.total = self.now.sum(axis=1)
        self.y = np.arange(self.now.size).reshape(self.now.shape)
        n_groups = len(component.groups)
        self.lower = np.zeros(2 * self.y.size + 3 * n_groups)
        self.upper = np.full(len(self.lower), highspy.kHighsInf)
        self.cost = np.zeros(len(self.lower))
        self.weight, self.eviction = objective.weights(int(self.total.sum()))
        if only is not None:
            self.weight, self.eviction = 1.0, 0.0
        self._classes()
        self._room()
        for i, excess in enumerate(component.excesses(placed)):
            self._group(i, float(excess))
        if residual is not None:
            terms = [(self._low(i) + 2, 1.0) for i in range(n_groups)]
            self.rows.add(terms, -highspy.kHighsInf, float(residual))

    def _low(self, group: int) -> int:
        """The variable of a group's lowest count; its highest count and its excess follow."""
        return 2 * self.y.size + 3 * group

    def _classes(self) -> None:
        """Every class keeps its number of pods; those that stay, stay."""
        component, cells, now, y = self.component, self.cells, self.now, self.y
        stay = cells.sums(component.fixed)
        most = cells.sums(np.minimum(component.start + component.room, self.total[:, None]))
        out = y + y.size
        self.lower[: y.size] = stay.reshape(-1)
        self.upper[: y.size] = np.minimum(np.maximum(most, now), self.total[:, None]).reshape(-1)
        # Every variable has finite bounds: presolve has been seen to cut off the optimum without them.
        self.upper[y.size : 2 * y.size] = now.reshape(-1)
        self.cost[y.size : 2 * y.size] = self.eviction
        for q, total in enumerate(self.total):
            self.rows.add([(int(v), 1.0) for v in y[q]], float(total), float(total))
            for c in range(len(cells)):
                if now[q, c] > stay[q, c]:
                    terms = [(int(out[q, c]), 1.0), (int(y[q, c]), 1.0)]
                    self.rows.add(terms, float(now[q, c]), highspy.kHighsInf)

    def _room(self) -> None:
        """No cell takes more of a resource than its nodes have."""
        component, cells, n_cells = self.component, self.cells, len(self.cells)
        n_classes = len(component.classes)
        began = cells.sums(component.start)
        for need, free in zip(component.needs.T, component.free, strict=True):
            if n_classes > 1 and need.any():
                space = np.bincount(cells.of, weights=free, minlength=n_cells)
                for c in range(n_cells):
                    terms = [(int(self.y[q, c]), float(need[q])) for q in range(n_classes) if need[q]]
                    self.rows.add(terms, -highspy.kHighsInf, float(space[c] + need @ began[:, c]))

    def _group(self, i: int, excess: float) -> None:
        """Lowest and highest count of a group enclose its domains; its excess is no more than today's."""
        component, g = self.component, self.component.groups[i]
        lo, hi, over = self._low(i), self._low(i) + 1, self._low(i) + 2
        counted = int(component.counts(i, self.placed).sum())
        # Pods on nodes that do not count may come to ones that do.
        everybody = float(component.base[i].sum() + self.total[list(component.counters[i])].sum())
        self.upper[hi] = everybody
        self.upper[lo] = everybody if g.enough_domains and g.size else 0.0
        if g.size and component.closed_in[i]:
            # Wherever its pods go they are counted: the mean lies between lowest and highest.
            self.lower[hi] = float(-(-counted // g.size))
            self.upper[lo] = min(self.upper[lo], float(counted // g.size))
        wanted = self.residual is None and (self.only is None or i in self.only)
        self.cost[over] = self.weight if wanted else 0.0
        self.upper[over] = excess if self.only is None else everybody
        self.rows.add([(over, 1.0), (hi, -1.0), (lo, 1.0)], -float(g.constraint.max_skew), highspy.kHighsInf)
        self._domains(i)

    def _domains(self, i: int) -> None:
        """The count of each domain lies between the group's lowest and its highest."""
        component, cells = self.component, self.cells
        counting = component.counters[i]
        shared: dict[int, list[tuple[int, float]]] = {}
        for c in range(len(cells)):
            terms = [(int(self.y[q, c]), 1.0) for q in counting]
            if cells.alone[i][c]:
                size = float(cells.size[c])
                self._between(i, terms, size, float(cells.size[c] * cells.count_alone[i][c]))
            elif cells.shared[i][c] >= 0:
                shared.setdefault(int(cells.shared[i][c]), []).extend(terms)
        for d in range(component.groups[i].size):
            if d in shared:
                self._between(i, shared[d], 1.0, float(component.base[i][d]))

    def _between(self, i: int, terms: list[tuple[int, float]], size: float, base: float) -> None:
        """`size` domains that count alike, with `base` pods beside those of the terms."""
        lo, hi, inf = self._low(i), self._low(i) + 1, highspy.kHighsInf
        self.rows.add([*terms, (lo, -size)], -base, inf)
        self.rows.add([*terms, (hi, -size)], -inf, -base)

    def target(self, values: np.ndarray, *, exact: bool, bound: float) -> FinalState:
        """What the solver found; `bound` is what it has proved of the objective."""
        placed = np.rint(values[: self.y.size]).astype(np.int64).reshape(self.y.shape)
        over = [round(values[self._low(i) + 2]) for i in range(len(self.component.groups))]
        least = sum(over) if self.residual is None else self.residual
        moves = int(np.maximum(self.now - placed, 0).sum())
        if not exact:
            moves = max(
                0, int(np.ceil(bound - (self.weight * least if self.residual is None else 0.0) - 1e-6))
            )
        return FinalState(least, moves, placed, exact)


class _Found(NamedTuple):
    """`values` of the best solution found, None without one; `optimal`: there is no better one; `bound`: what
    is proved of the objective; the `steps` of the simplex algorithm that it took."""

    values: np.ndarray | None
    optimal: bool
    bound: float
    steps: int


def _run(rows: _Rows, lower: np.ndarray, upper: np.ndarray, cost: np.ndarray) -> _Found:
    lp = highspy.HighsLp()
    lp.num_col_ = len(cost)
    lp.num_row_ = len(rows.lower)
    lp.col_cost_ = cost
    lp.col_lower_ = lower
    lp.col_upper_ = upper
    lp.row_lower_ = np.array(rows.lower)
    lp.row_upper_ = np.array(rows.upper)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * len(cost)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array([*rows.starts, len(rows.columns)], dtype=np.int32)
    lp.a_matrix_.index_ = np.array(rows.columns, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(rows.values)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    solver.setOptionValue("mip_max_nodes", TREE_NODES)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 0.5)
    # Counts are small integers: what is this close to one, is one. Heuristics cost more than they find.
    solver.setOptionValue("mip_feasibility_tolerance", 1e-4)
    solver.setOptionValue("mip_heuristic_effort", 0.0)
    solver.passModel(lp)
    solver.run()
    status = solver.getModelStatus()
    info = solver.getInfo()
    infeasible = status == highspy.HighsModelStatus.kInfeasible
    if infeasible or info.primal_solution_status != 2:
        bound = float("inf") if infeasible else float(info.mip_dual_bound)
        return _Found(None, False, bound, info.simplex_iteration_count)
    values = np.array(solver.getSolution().col_value)
    optimal = status == highspy.HighsModelStatus.kOptimal
    return _Found(values, optimal, float(info.mip_dual_bound), info.simplex_iteration_count)
