"""An integer program over the final state: the least remaining excess, then the fewest moved pods.

Order, room that victims hold and budgets between waves are left out, so both figures are lower bounds of
what any sequence of moves reaches (the second: of those that reach the first).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import highspy

from tests.support.judge.cells import Cells, Counts
from tests.support.scheduler.filters import clash


@dataclass(frozen=True, order=True)
class Bound:
    """Least remaining excess, fewest evictions for it, and a final state that has both."""

    excess: int
    evictions: int
    target: Counts = ()
    proved: bool = True


def bound(cells: Cells, start: Counts | None = None, seconds: float = 60) -> Bound:
    """The bound from `start`, or from where the cells are."""
    start = cells.start if start is None else start
    if not cells.total_excess(start):
        return Bound(0, 0, start)
    program = _Program(cells, start, seconds)
    return program.solve()


class _Program:
    """Variables: pods of each movable kind per node; arrivals; an excess and a minimum per group."""

    def __init__(self, cells: Cells, start: Counts, seconds: float) -> None:
        self.cells, self.start = cells, start
        self.h = highspy.Highs()
        self.h.silent()
        for option, value in (
            ("threads", 1),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.99),
            ("time_limit", seconds),
        ):
            self.h.setOptionValue(option, value)
        self.at: dict[tuple[int, int], highspy.highs.highs_var] = {}
        self.arrivals: list[highspy.highs.highs_var] = []
        self._places()
        self._room()
        self.excesses = [e for g in range(len(cells.groups)) if (e := self._excess(g)) is not None]

    def solve(self) -> Bound:
        """First the excess, then, holding it, the moves. Figures are integers: a gap below 1 is none.

        Out of time, the figures are what is proved, and there is no target.
        """
        least, proved = self._minimum(self.excesses)
        if not proved:
            return Bound(least, 0, (), False)
        self.h.addConstr(self.h.qsum(self.excesses) <= least)
        fewest, proved = self._minimum(self.arrivals)
        if not proved:
            return Bound(least, fewest, (), False)
        values = self.h.getSolution().col_value
        target = tuple(
            tuple(
                round(values[self.at[k, n].index]) if (k, n) in self.at else count
                for n, count in enumerate(row)
            )
            for k, row in enumerate(self.start)
        )
        return Bound(least, fewest, target)

    def _minimum(self, terms: list[highspy.highs.highs_var]) -> tuple[int, bool]:
        """The least sum, or a lower bound of it and False."""
        if not terms:
            return 0, True
        self.h.minimize(self.h.qsum(terms))
        if self.h.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            return round(self.h.getObjectiveValue()), True
        return max(0, ceil(self.h.getInfo().mip_dual_bound - 1e-6)), False

    def _places(self) -> None:
        h, cells = self.h, self.cells
        for k, kind in enumerate(cells.kinds):
            if not kind.worth_moving:
                continue
            total = sum(self.start[k])
            for n in range(len(cells.nodes)):
                here = self.start[k][n]
                most = total if n in kind.may_go else here
                if kind.ports:
                    most = min(most, max(here, 1))
                if not most:
                    continue
                x = self.at[k, n] = h.addIntegral(0, most)
                if most > here:
                    arrived = h.addVariable(0, most - here)
                    h.addConstr(arrived - x >= -here)
                    self.arrivals.append(arrived)
            h.addConstr(h.qsum(self.at[k, n] for n in range(len(cells.nodes)) if (k, n) in self.at) == total)

    def _room(self) -> None:
        """What is asked of a node stays within what it has, or within what is asked already."""
        h, cells = self.h, self.cells
        for n in range(len(cells.nodes)):
            mine = [k for k in range(len(cells.kinds)) if (k, n) in self.at]
            for resource in {r for k in mine for r, v in cells.kinds[k].requests if v}:
                asked = [dict(kind.requests).get(resource, 0) for kind in cells.kinds]
                used = sum(a * self.start[k][n] for k, a in enumerate(asked))
                fixed = sum(a * self.start[k][n] for k, a in enumerate(asked) if k not in mine)
                room = max(used, cells.free[n].get(resource, 0)) - fixed
                if sum(asked[k] * sum(self.start[k]) for k in mine) > room:
                    h.addConstr(h.qsum(asked[k] * self.at[k, n] for k in mine if asked[k]) <= room)
            for i, a in enumerate(mine):
                for b in mine[i + 1 :]:
                    if any(clash(p, q) for p in cells.kinds[a].ports for q in cells.kinds[b].ports):
                        most = max(1, self.start[a][n] + self.start[b][n])
                        h.addConstr(self.at[a, n] + self.at[b, n] <= most)

    def _excess(self, g: int) -> highspy.highs.highs_var | None:
        """e ≥ count(domain) − minimum − maxSkew; the minimum is 0 below minDomains."""
        h, cells, group = self.h, self.cells, self.cells.groups[g]
        domains = list(cells.tally(self.start, g))
        if not domains or not any(g in kind.counted_by for kind in cells.kinds):
            return None
        most = sum(
            sum(row) for kind, row in zip(cells.kinds, self.start, strict=True) if g in kind.counted_by
        )
        e = h.addIntegral(0, most)
        minimum = h.addIntegral(0, most if len(domains) >= group.min_domains else 0)
        for domain in domains:
            places = [n for n, d in enumerate(cells.domain[g]) if d == domain and cells.eligible[g][n]]
            members = [k for k, kind in enumerate(cells.kinds) if g in kind.counted_by]
            terms = [self.at[k, n] for k in members for n in places if (k, n) in self.at]
            fixed = sum(self.start[k][n] for k in members for n in places if (k, n) not in self.at)
            if terms:
                h.addConstr(h.qsum(terms) - minimum - e <= group.max_skew - fixed)
                h.addConstr(h.qsum(terms) - minimum >= -fixed)
            else:
                h.addConstr(minimum + e >= fixed - group.max_skew)
                h.addConstr(minimum <= fixed)
        return e
