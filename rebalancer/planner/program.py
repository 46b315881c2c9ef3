"""Several keys: an integer program over counts of identical pods per cell, solved with HiGHS.

    minimise    residual excess first, then pods that leave their cell
    subject to  every class keeps its number of pods; pods that stay, stay; no cell takes more than it has
                room for, by class and by resource; lowest and highest count of each group enclose its
                domains; no excess above today's

Single-threaded and bounded by nodes of the search tree, not by the clock: the same input, the same answer.
"""

from __future__ import annotations

import highspy
import numpy as np
from msgspec import Struct

from rebalancer.planner.cells import Cells
from rebalancer.planner.component import Component
from rebalancer.spread.arrays import Ints

TREE_NODES = 500
"""Nodes of the branch-and-bound tree after which the bound is taken as it stands."""


class Target(Struct, frozen=True, eq=False):
    """A best final state: `residual` excess, `moves`, and `placed` int64[Q, C] per cell.

    `exact` is False when the search was cut short: then `moves` is a lower bound.
    """

    residual: int
    moves: int
    placed: Ints
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
) -> tuple[Target | None, int]:
    """The best final state from a placement, int64[Q, N]; None if none has so little excess; and the steps
    of the simplex algorithm that it took to know.

    `residual`: at most this excess in all, then the fewest moves; None: the least excess, then the fewest.
    """
    inf = highspy.kHighsInf
    groups = component.groups
    n_classes, n_cells, n_groups = len(component.classes), len(cells), len(groups)

    now, stay = cells.sums(placed), cells.sums(component.fixed)
    total = now.sum(axis=1)
    most = cells.sums(np.minimum(component.start + component.room, total[:, None]))
    y = np.arange(n_classes * n_cells).reshape(n_classes, n_cells)
    out = y + y.size
    low = [2 * y.size + 3 * i for i in range(n_groups)]
    lower = np.zeros(2 * y.size + 3 * n_groups)
    upper = np.full(len(lower), inf)
    lower[: y.size] = stay.reshape(-1)
    upper[: y.size] = np.minimum(np.maximum(most, now), total[:, None]).reshape(-1)
    # Every variable has finite bounds: presolve has been seen to cut off the optimum without them.
    upper[y.size : 2 * y.size] = now.reshape(-1)
    cost = np.zeros(len(lower))
    cost[y.size : 2 * y.size] = 1.0
    rows = _Rows()
    for q in range(n_classes):
        rows.add([(int(v), 1.0) for v in y[q]], float(total[q]), float(total[q]))
        for c in range(n_cells):
            if now[q, c] > stay[q, c]:
                rows.add([(int(out[q, c]), 1.0), (int(y[q, c]), 1.0)], float(now[q, c]), inf)
    began = cells.sums(component.start)
    for need, free in zip(component.needs.T, component.free, strict=True):
        if n_classes > 1 and need.any():
            space = np.bincount(cells.of, weights=free, minlength=n_cells)
            for c in range(n_cells):
                terms = [(int(y[q, c]), float(need[q])) for q in range(n_classes) if need[q]]
                rows.add(terms, -inf, float(space[c] + need @ began[:, c]))
    weight = float(total.sum() + 1)
    excesses = component.excesses(placed)
    for i, g in enumerate(groups):
        lo, hi, over = low[i], low[i] + 1, low[i] + 2
        counting = component.counters[i]
        counted = int(component.counts(i, placed).sum())
        # Pods on nodes that do not count may come to ones that do.
        everybody = float(component.base[i].sum() + total[list(counting)].sum())
        upper[hi] = everybody
        upper[lo] = everybody if g.enough_domains and g.size else 0.0
        if g.size and component.closed_in[i]:
            # Wherever its pods go they are counted: the mean lies between lowest and highest.
            lower[hi] = float(-(-counted // g.size))
            upper[lo] = min(upper[lo], float(counted // g.size))
        cost[over] = weight if residual is None else 0.0
        upper[over] = float(excesses[i])
        rows.add([(over, 1.0), (hi, -1.0), (lo, 1.0)], -float(g.constraint.max_skew), inf)
        domain_terms: dict[int, list[tuple[int, float]]] = {}
        for c in range(n_cells):
            terms = [(int(y[q, c]), 1.0) for q in counting]
            if cells.alone[i][c]:
                k, base = float(cells.size[c]), float(cells.size[c] * cells.count_alone[i][c])
                rows.add([*terms, (lo, -k)], -base, inf)
                rows.add([*terms, (hi, -k)], -inf, -base)
            elif cells.shared[i][c] >= 0:
                domain_terms.setdefault(int(cells.shared[i][c]), []).extend(terms)
        for d in range(g.size):
            if d in domain_terms:
                base = float(component.base[i][d])
                rows.add([*domain_terms[d], (lo, -1.0)], -base, inf)
                rows.add([*domain_terms[d], (hi, -1.0)], -inf, -base)
    if residual is not None:
        rows.add([(low[i] + 2, 1.0) for i in range(n_groups)], -inf, float(residual))
    found, steps = _run(rows, lower, upper, cost)
    if found is None:
        return None, steps
    values, exact, bound = found
    placed_after = np.rint(values[: y.size]).astype(np.int64).reshape(n_classes, n_cells)
    over_values = [round(values[low[i] + 2]) for i in range(n_groups)]
    least = sum(over_values) if residual is None else residual
    moves = int(np.maximum(now - placed_after, 0).sum())
    if not exact:
        moves = max(0, int(np.ceil(bound - (weight * least if residual is None else 0.0) - 1e-6)))
    return Target(least, moves, placed_after, exact), steps


def _run(
    rows: _Rows, lower: np.ndarray, upper: np.ndarray, cost: np.ndarray
) -> tuple[tuple[np.ndarray, bool, float] | None, int]:
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
    if status == highspy.HighsModelStatus.kInfeasible or info.primal_solution_status != 2:
        return None, info.simplex_iteration_count
    values = np.array(solver.getSolution().col_value)
    optimal = status == highspy.HighsModelStatus.kOptimal
    return (values, optimal, info.mip_dual_bound), info.simplex_iteration_count
