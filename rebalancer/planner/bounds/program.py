"""Several keys: an integer program over counts of identical pods per bucket, solved with HiGHS.

    minimise    residual excess first, then pods that leave their bucket
    subject to  every class keeps its number of pods; pods that stay, stay; no bucket takes more than it has
                room for, by class and by resource; lowest and highest count of each group enclose its
                domains; no excess above today's

Single-threaded and bounded by its size and by nodes of the search tree (`effort`), not by the clock: the same
input, the same answer. `run` is the only place that asks the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import highspy
import numpy as np
from msgspec import Struct

from rebalancer.planner import objective
from rebalancer.planner.bounds.one_key import (
    Buckets,
    Ceilings,
    NodeBuckets,
    Remaining,
    Route,
    ceilings,
    digest_of,
)
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.moves import Candidate
from rebalancer.planner.objective import Effort, tree_nodes
from rebalancer.spread.arrays import Ints
from rebalancer.spread.arrays import Rows as Indices


class FinalState(Struct, frozen=True, eq=False):
    """A best final state: `residual` excess, `moves`, and `placed` int64[Q, C] per bucket.

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


class Rows:
    """Rows of a sparse matrix, with bounds."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    @property
    def nonzeros(self) -> int:
        """How large the matrix is."""
        return len(self.columns)

    def add(self, terms: list[tuple[int, float]], lower: float, upper: float) -> None:
        self.starts.append(len(self.columns))
        for column, value in terms:
            self.columns.append(column)
            self.values.append(value)
        self.lower.append(lower)
        self.upper.append(upper)


def solve(program: Program, effort: Effort) -> tuple[FinalState | None, bool]:
    """The best final state, or None; and whether there is no better one, or none at all. How long it takes is
    counted, and not bounded by what is left."""
    found = run(program, tree_nodes(program.rows.nonzeros))
    effort.program(found.steps)
    if found.values is None:
        return None, found.optimal
    return program.target(found.values, exact=found.optimal, bound=found.bound), found.optimal


def least_excess(program: Program, effort: Effort) -> LeastExcess:
    """The least excess that the groups it asks about (`only`) can have in sum, whatever becomes of others."""
    assert program.only is not None
    found = run(program, effort.tree_nodes(program.rows.nonzeros))
    effort.program(found.steps)
    # A bound that is no number, or below 0, says nothing.
    proved = max(0, int(np.ceil(found.bound - 1e-6))) if np.isfinite(found.bound) else 0
    excesses = program.component.excesses(program.placed)
    now = sum(excesses[group] for group in program.only)
    return LeastExcess(min(proved, now), found.optimal or proved >= now)


class Program:
    """Variables, in this order, and rows:

    after     int[Q, C]   pods of a class in a bucket afterwards
    leaving   int[Q, C]   pods of a class that leave a bucket
    and for each group its lowest count, its highest count, and its excess.
    """

    def __init__(
        self,
        component: Component,
        placed: Ints,
        buckets: Buckets,
        residual: int | None,
        *,
        only: Sequence[int] | None = None,
        further: int = 0,
    ) -> None:
        """From a placement, int64[Q, N]. `residual`: at most this excess in all, then the fewest moves; None:
        the least excess, then the fewest. `only`: groups whose excess alone is asked about, whatever moves it
        takes and whom they harm. `further`: variables beyond these, for what is built on it."""
        self.component, self.buckets, self.residual = component, buckets, residual
        self.only = only
        self.placed = placed
        self.rows = Rows()
        self.now = buckets.sums(placed)
        self.total = self.now.sum(axis=1)
        self.after = np.arange(self.now.size).reshape(self.now.shape)
        n_groups = len(component.groups)
        self.lower = np.zeros(2 * self.after.size + 3 * n_groups + further)
        self.upper = np.full(len(self.lower), highspy.kHighsInf)
        self.cost = np.zeros(len(self.lower))
        self.weight, self.eviction = objective.weights(int(self.total.sum()))
        if only is not None:
            self.weight, self.eviction = 1.0, 0.0
        self._classes()
        self._room()
        for index, excess in enumerate(component.excesses(placed)):
            self._group(index, float(excess))
        if residual is not None:
            terms = [(self._low(index) + 2, 1.0) for index in range(n_groups)]
            self.rows.add(terms, -highspy.kHighsInf, float(residual))

    def _low(self, group: int) -> int:
        """The variable of a group's lowest count; its highest count and its excess follow."""
        return 2 * self.after.size + 3 * group

    def _classes(self) -> None:
        """Every class keeps its number of pods; those that stay, stay."""
        component, buckets, now, after = self.component, self.buckets, self.now, self.after
        stay = buckets.sums(component.fixed)
        most = buckets.sums(np.minimum(component.start + component.room, self.total[:, None]))
        leaving = after + after.size
        self.lower[: after.size] = stay.reshape(-1)
        self.upper[: after.size] = np.minimum(np.maximum(most, now), self.total[:, None]).reshape(-1)
        # Every variable has finite bounds: presolve has been seen to cut off the optimum without them.
        self.upper[after.size : 2 * after.size] = now.reshape(-1)
        self.cost[after.size : 2 * after.size] = self.eviction
        for pod_class, total in enumerate(self.total):
            self.rows.add([(int(variable), 1.0) for variable in after[pod_class]], float(total), float(total))
            for bucket in range(len(buckets)):
                if now[pod_class, bucket] > stay[pod_class, bucket]:
                    terms = [
                        (int(leaving[pod_class, bucket]), 1.0),
                        (int(after[pod_class, bucket]), 1.0),
                    ]
                    self.rows.add(terms, float(now[pod_class, bucket]), highspy.kHighsInf)

    def _room(self) -> None:
        """No bucket takes more of a resource than its nodes have, where it could."""
        component, buckets, n_buckets = self.component, self.buckets, len(self.buckets)
        began = buckets.sums(component.start)
        most = self.upper[: self.after.size].reshape(self.after.shape)
        for need, free in zip(component.needs.T, component.free, strict=True):
            asking = np.flatnonzero(need)
            if len(component.classes) > 1 and len(asking):
                space = np.bincount(buckets.of, weights=free, minlength=n_buckets) + need @ began
                for bucket in np.flatnonzero(need @ most > space):
                    terms = zip(self.after[asking, bucket].tolist(), need[asking].tolist(), strict=True)
                    self.rows.add(list(terms), -highspy.kHighsInf, float(space[bucket]))

    def _group(self, index: int, excess: float) -> None:
        """Lowest and highest count of a group enclose its domains; its excess is no more than today's."""
        component, group = self.component, self.component.groups[index]
        lowest, highest, over = self._low(index), self._low(index) + 1, self._low(index) + 2
        counted = int(component.counts(index, self.placed).sum())
        # Pods on nodes that do not count may come to ones that do.
        everybody = float(component.base[index].sum() + self.total[list(component.counters[index])].sum())
        self.upper[highest] = everybody
        self.upper[lowest] = everybody if self._may_have_enough_domains(index) else 0.0
        domains = self._certain_domains(index)
        if domains and component.closed_in[index]:
            # Wherever its pods go they are counted: the mean lies between lowest and highest.
            self.lower[highest] = float(-(-counted // group.size))
            self.upper[lowest] = min(self.upper[lowest], float(counted // domains))
        wanted = self.residual is None and (self.only is None or index in self.only)
        self.cost[over] = self.weight if wanted else 0.0
        self.upper[over] = excess if self.only is None else everybody
        self.rows.add(
            [(over, 1.0), (highest, -1.0), (lowest, 1.0)],
            -float(group.constraint.max_skew),
            highspy.kHighsInf,
        )
        self._domains(index)

    def _may_have_enough_domains(self, index: int) -> bool:
        """Whether the lowest count of a group can be more than 0."""
        group = self.component.groups[index]
        return group.enough_domains and bool(group.size)

    def _certain_domains(self, index: int) -> int:
        """How many domains a group has at least."""
        return self.component.groups[index].size

    def _domains(self, index: int) -> None:
        """The count of each domain lies between the group's lowest and its highest."""
        component, buckets = self.component, self.buckets
        counting = component.counters[index]
        shared: dict[int, list[tuple[int, float]]] = {}
        for bucket in range(len(buckets)):
            terms = [(int(self.after[pod_class, bucket]), 1.0) for pod_class in counting]
            if buckets.alone[index][bucket]:
                size = float(buckets.size[bucket])
                self._between(
                    index,
                    terms,
                    size,
                    float(buckets.size[bucket] * buckets.count_alone[index][bucket]),
                )
            elif buckets.shared[index][bucket] >= 0:
                shared.setdefault(int(buckets.shared[index][bucket]), []).extend(terms)
        for domain in range(component.groups[index].size):
            if domain in shared:
                self._between(index, shared[domain], 1.0, float(component.base[index][domain]))

    def _between(self, index: int, terms: list[tuple[int, float]], size: float, base: float) -> None:
        """`size` domains that count alike, with `base` pods beside those of the terms."""
        lowest, highest, inf = self._low(index), self._low(index) + 1, highspy.kHighsInf
        self.rows.add([*terms, (lowest, -size)], -base, inf)
        self.rows.add([*terms, (highest, -size)], -inf, -base)

    def target(self, values: np.ndarray, *, exact: bool, bound: float) -> FinalState:
        """What the solver found; `bound` is what it has proved of the objective."""
        placed = np.rint(values[: self.after.size]).astype(np.int64).reshape(self.after.shape)
        over = [round(values[self._low(index) + 2]) for index in range(len(self.component.groups))]
        least = sum(over) if self.residual is None else self.residual
        moves = int(np.maximum(self.now - placed, 0).sum())
        if not exact:
            moves = max(
                0, int(np.ceil(bound - (self.weight * least if self.residual is None else 0.0) - 1e-6))
            )
        return FinalState(least, moves, placed, exact)


class Solved(NamedTuple):
    """`values` of the best solution found, None without one; `optimal`: there is no better one, or none at
    all; `bound`: what is proved of the objective; the `steps` of the simplex algorithm that it took."""

    values: np.ndarray | None
    optimal: bool
    bound: float
    steps: int


class _Quiet(highspy.Highs):  # type: ignore[misc]
    """HiGHS without output, of which it has some as soon as it has callbacks (1.16)."""

    def enableCallbacks(self) -> None:  # noqa: N802
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()


_NOT_ASKED = Solved(None, optimal=False, bound=-highspy.kHighsInf, steps=0)


def run(program: Program, tree_nodes: int) -> Solved:
    """Solves it, as far as so many nodes of the search tree go; with none it is not asked."""
    if not tree_nodes:
        return _NOT_ASKED
    rows, cost = program.rows, program.cost
    lp = highspy.HighsLp()
    lp.num_col_ = len(cost)
    lp.num_row_ = len(rows.lower)
    lp.col_cost_ = cost
    lp.col_lower_ = program.lower
    lp.col_upper_ = program.upper
    lp.row_lower_ = np.array(rows.lower)
    lp.row_upper_ = np.array(rows.upper)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * len(cost)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array([*rows.starts, len(rows.columns)], dtype=np.int32)
    lp.a_matrix_.index_ = np.array(rows.columns, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(rows.values)
    solver = _Quiet()
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    solver.setOptionValue("mip_max_nodes", tree_nodes)
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
        return Solved(None, infeasible, bound, info.simplex_iteration_count)
    values = np.array(solver.getSolution().col_value)
    optimal = status == highspy.HighsModelStatus.kOptimal
    return Solved(values, optimal, float(info.mip_dual_bound), info.simplex_iteration_count)


# The integer program over final placements, without those that the scheduler never comes to.
#
# `program` asks what fits. Here a pod that moves also has to be let in by its own constraints (`ceilings`):
# a domain holds no more than can ever come into it, or it has taken nobody. And no constraint ends worse.
# What remains is still a bound: whether one order of evictions leads there is for the search to find.


class _Domain(Struct, frozen=True, eq=False):
    """A domain of a group: its buckets, the group's classes that carry it, how many pods of these it holds,
    and may hold when one has come."""

    group: int
    buckets: tuple[int, ...]
    carriers: tuple[int, ...]
    held: int
    most: int


class AdmittedProgram(Program):
    """A further variable for each domain that holds more than can come into it: whether it still does."""

    def __init__(
        self,
        component: Component,
        placed: Ints,
        buckets: Buckets,
        residual: int | None,
        ceilings: Ceilings,
        *,
        only: Sequence[int] | None = None,
    ) -> None:
        self._ceilings = ceilings
        self.component, self.buckets, self.placed = component, buckets, placed
        crowded = sum(d.held > d.most for d in self._limited)
        super().__init__(component, placed, buckets, residual, only=only, further=crowded)
        self._no_more_than_comes()
        for group, excess in enumerate(component.excesses(placed)):
            self.upper[self._low(group) + 2] = excess

    @cached_property
    def _limited(self) -> list[_Domain]:
        """The domains that are whole buckets, of groups with a limit."""
        found = []
        for group, limit in enumerate(self._ceilings.limits):
            if limit is not None:
                found += self._domains_of(group, limit)
        return found

    def _domains_of(self, group: int, limit: int) -> list[_Domain]:
        c, buckets = self.component, self.buckets
        carriers = tuple(q for q in c.counters[group] if group in c.carried[q])
        others = [q for q in c.counters[group] if q not in carriers]
        by_domain = c.groups[group].by_domain
        held = by_domain(self.placed[list(carriers)].sum(axis=0)) if carriers else ()
        stay = c.base[group] + by_domain(c.fixed[others].sum(axis=0))
        where: dict[int, list[int]] = {}
        for bucket, domain in enumerate(buckets.domains(group)):
            if domain >= 0:
                where.setdefault(domain, []).append(bucket)
        return [
            _Domain(group, tuple(its), carriers, int(held[d]), max(0, limit - int(stay[d])))
            for d, its in where.items()
            if carriers
        ]

    def _classes(self) -> None:
        super()._classes()
        ever = self.buckets.sums(np.maximum(self._ceilings.pods, self.component.fixed)).reshape(-1)
        own = slice(0, self.after.size)
        self.upper[own] = np.minimum(self.upper[own], ever)

    def _no_more_than_comes(self) -> None:
        """A domain holds at most what can come into it; or more, and then nobody has come."""
        inf, crowded = highspy.kHighsInf, len(self.upper)
        for d in self._limited:
            own = [(int(self.after[q, bucket]), 1.0) for q in d.carriers for bucket in d.buckets]
            if d.held <= d.most:
                self.rows.add(own, -inf, float(d.most))
                continue
            crowded -= 1
            self.upper[crowded] = 1.0
            self.rows.add([*own, (crowded, -float(d.held - d.most))], -inf, float(d.most))
            for q in d.carriers:
                some = float(self.total[q])
                for bucket in d.buckets:
                    stays = [(int(self.after[q, bucket]), 1.0), (crowded, some)]
                    self.rows.add(stays, -inf, float(self.now[q, bucket]) + some)


# The bounds of any component, by the integer program, remembered.

_REDIRECTIONS = 6
"""Pods of a route that are tried at another node, before a program is solved."""


class SeveralKeys(Remaining):
    """Solves a program for what cannot be told from an earlier one, as long as the effort lasts."""

    solver = "HiGHS"

    def __init__(self, component: Component, effort: Effort) -> None:
        super().__init__(component)
        self._effort = effort
        self._structure = NodeBuckets(component)
        self._ceilings = ceilings(component)
        # As the simulation stands now, before moves are tried on it.
        assert component.resources
        self._moves: dict[tuple[bytes, int], int | None] = {}
        self._routes: dict[tuple[bytes, int], Route | None] = {}

    def least(self, placed: Ints) -> int:
        """The least total excess of any final state."""
        now = sum(self.component.excesses(placed))
        if not now:
            return 0
        target = self._solve(placed, None)
        if target is None or target.residual >= now:
            return now
        self._moves[self._at(placed).key, target.residual] = target.moves
        self._routes[digest_of(placed), target.residual] = self._spread(placed, target)
        return target.residual

    def moves(self, placed: Ints, residual: int) -> int | None:
        """The fewest moves to a total excess of at most `residual`; None if nothing gets there."""
        key = (self._at(placed).key, residual)
        if key not in self._moves:
            if sum(self.component.excesses(placed)) <= residual:
                self._moves[key] = 0
            else:
                route = self.route(placed, residual)
                if route is None and self._effort.gone:
                    return None
                self._moves[key] = route.moves if route is not None else None
        return self._moves[key]

    def route(self, placed: Ints, residual: int) -> Route | None:
        """A best final state with at most this excess; None if there is none."""
        key = (digest_of(placed), residual)
        if key not in self._routes:
            if self._effort.gone and placed is not self.component.start:
                return None
            target = self._solve(placed, residual)
            self._routes[key] = self._spread(placed, target) if target is not None else None
        return self._routes[key]

    def moves_after(self, placed: Ints, residual: int, candidate: Candidate, landed: int) -> int | None:
        """`moves` of the placement after the candidate's replacement has landed on node `landed`.

        If the placement's route, with nodes of one bucket swapped or one pod sent elsewhere, goes through
        that move, nothing needs to be solved: no move brings the end nearer by more than one.
        """
        after = candidate.moved(placed, landed)
        if (self._at(after).key, residual) not in self._moves:
            route = self.route(placed, residual)
            if route is not None and route.moves > 0 and route.target is not None:
                target = self._through(placed, route.target, candidate, landed)
                if target is None:
                    target = self._redirected(placed, route.target, residual, candidate, landed)
                if target is not None and self._no_higher(target, after):
                    self._moves[self._at(after).key, residual] = route.moves - 1
                    self._routes[digest_of(after), residual] = Route(
                        route.moves - 1, np.maximum(after - target, 0), target
                    )
        return self.moves(after, residual)

    def forget(self) -> None:
        """Drops what is known of placements but the start: a search of thousands of nodes remembers much."""
        key = self._at(self.component.start).key
        super().forget()
        self._moves = {k: moves for k, moves in self._moves.items() if k[0] == key}
        self._routes.clear()

    def _solve(self, placed: Ints, residual: int | None) -> FinalState | None:
        program = AdmittedProgram(self.component, placed, self._at(placed), residual, self._ceilings)
        target, proved = solve(program, self._effort)
        self.exact &= proved
        return target

    def _spread(self, placed: Ints, target: FinalState) -> Route:
        """The final state spread over the nodes of each bucket, as evenly as it goes."""
        buckets = self._at(placed)
        change = target.placed - buckets.sums(placed)
        gives = np.maximum(-change, 0)[:, buckets.of]
        if not target.exact:
            return Route(target.moves, gives)
        final = placed.copy()
        for bucket in np.flatnonzero(change.any(axis=0)):
            nodes = np.flatnonzero(buckets.of == bucket)
            # First what leaves, so that what comes finds the emptiest nodes.
            for pod_class in sorted(
                np.flatnonzero(change[:, bucket]).tolist(),
                key=lambda pod_class: (change[pod_class, bucket] > 0, pod_class),
            ):
                _distribute(final, self.component.fixed, pod_class, nodes, int(change[pod_class, bucket]))
        if sum(self.component.excesses(final)) > target.residual:
            # Which pod of a bucket goes where is not the program's concern: this is not how it gets there.
            return Route(target.moves, gives)
        return Route(target.moves, gives, final)

    def _through(self, placed: Ints, target: Ints, candidate: Candidate, landed: int) -> Ints | None:
        """The target, nodes of one bucket swapped, such that the victim's node gives and `landed` takes."""
        of = self._at(placed).of
        pod_class, left = candidate.pod_class, candidate.node
        final = target.copy()
        for node, other, sign in ((left, landed, 1), (landed, left, -1)):
            if sign * (placed[pod_class, node] - final[pod_class, node]) > 0:
                continue
            bucket = np.flatnonzero((of == of[node]) & (sign * (placed[pod_class] - final[pod_class]) > 0))
            bucket = bucket[bucket != other]
            if not len(bucket):
                return None
            swap = int(bucket[0])
            if self._structure.single[node]:
                final[:, [node, swap]] = final[:, [swap, node]]
            else:
                # Only the sum over the bucket matters: the pod may as well go from, or to, this node.
                final[pod_class, node] -= sign
                final[pod_class, swap] += sign
        return final

    def _no_higher(self, target: Ints, placed: Ints) -> bool:
        """Whether no group has more excess in the target than in the placement: no move may raise one."""
        now = self.component.excesses(placed)
        return all(e <= n for e, n in zip(self.component.excesses(target), now, strict=True))

    def _redirected(
        self, placed: Ints, target: Ints, residual: int, candidate: Candidate, landed: int
    ) -> Ints | None:
        """The target with one pod at `landed` instead of elsewhere, if the candidate's node gives and the end
        is as good."""
        component, pod_class = self.component, candidate.pod_class
        if placed[pod_class, candidate.node] <= target[
            pod_class, candidate.node
        ] or not component.takes_one_more(pod_class, landed, target):
            return None
        takers = np.flatnonzero(target[pod_class] > placed[pod_class])
        near = sum((g.domain_of[takers] == g.domain_of[landed]).astype(np.int64) for g in component.groups)
        for taker in takers[np.argsort(-near, kind="stable")][:_REDIRECTIONS]:
            final = target.copy()
            final[pod_class, taker] -= 1
            final[pod_class, landed] += 1
            if sum(component.excesses(final)) <= residual:
                return final
        return None


def _distribute(final: Ints, fixed: Ints, pod_class: int, nodes: Indices, change: int) -> None:
    """Adds `change` pods of a class to the nodes, or takes them away, the emptiest or fullest first."""
    step = 1 if change > 0 else -1
    for _ in range(abs(change)):
        here = final[:, nodes].sum(axis=0) * step
        if step < 0:
            movable = final[pod_class, nodes] > fixed[pod_class, nodes]
            here = np.where(movable, here, np.iinfo(np.int64).max)
        final[pod_class, nodes[int(np.argmin(here))]] += step
