"""The integer program over final placements, without those that the scheduler never comes to.

`program` asks what fits. Here a pod that moves also has to be let in by its own constraints (`ceilings`): a
domain holds no more than can ever come into it, or it has taken nobody. And no constraint ends worse. What
remains is still a bound: whether one order of evictions leads there is for the search to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import highspy
import numpy as np
from msgspec import Struct

from rebalancer.planner.bounds.ceilings import Ceilings
from rebalancer.planner.bounds.cells import Cells
from rebalancer.planner.bounds.program import Program
from rebalancer.planner.cluster.components import Component
from rebalancer.spread.arrays import Ints


class _Domain(Struct, frozen=True, eq=False):
    """A domain of a group: its cells, the group's classes that carry it, how many pods of these it holds, and
    may hold when one has come."""

    group: int
    cells: tuple[int, ...]
    carriers: tuple[int, ...]
    held: int
    most: int


class AdmittedProgram(Program):
    """A further variable for each domain that holds more than can come into it: whether it still does."""

    def __init__(
        self,
        component: Component,
        placed: Ints,
        cells: Cells,
        residual: int | None,
        ceilings: Ceilings,
        *,
        only: Sequence[int] | None = None,
    ) -> None:
        self._ceilings = ceilings
        self.component, self.cells, self.placed = component, cells, placed
        crowded = sum(d.held > d.most for d in self._limited)
        super().__init__(component, placed, cells, residual, only=only, further=crowded)
        self._no_more_than_comes()
        for group, excess in enumerate(component.excesses(placed)):
            self.upper[self._low(group) + 2] = excess

    @cached_property
    def _limited(self) -> list[_Domain]:
        """The domains that are whole cells, of groups with a limit."""
        found = []
        for group, limit in enumerate(self._ceilings.limits):
            if limit is not None:
                found += self._domains_of(group, limit)
        return found

    def _domains_of(self, group: int, limit: int) -> list[_Domain]:
        c, cells = self.component, self.cells
        carriers = tuple(q for q in c.counters[group] if group in c.carried[q])
        others = [q for q in c.counters[group] if q not in carriers]
        by_domain = c.groups[group].by_domain
        held = by_domain(self.placed[list(carriers)].sum(axis=0)) if carriers else ()
        stay = c.base[group] + by_domain(c.fixed[others].sum(axis=0))
        where: dict[int, list[int]] = {}
        for cell, domain in enumerate(cells.domains(group)):
            if domain >= 0:
                where.setdefault(domain, []).append(cell)
        return [
            _Domain(group, tuple(its), carriers, int(held[d]), max(0, limit - int(stay[d])))
            for d, its in where.items()
            if carriers
        ]

    def _classes(self) -> None:
        super()._classes()
        ever = self.cells.sums(np.maximum(self._ceilings.pods, self.component.fixed)).reshape(-1)
        own = slice(0, self.after.size)
        self.upper[own] = np.minimum(self.upper[own], ever)

    def _no_more_than_comes(self) -> None:
        """A domain holds at most what can come into it; or more, and then nobody has come."""
        inf, crowded = highspy.kHighsInf, len(self.upper)
        for d in self._limited:
            own = [(int(self.after[q, cell]), 1.0) for q in d.carriers for cell in d.cells]
            if d.held <= d.most:
                self.rows.add(own, -inf, float(d.most))
                continue
            crowded -= 1
            self.upper[crowded] = 1.0
            self.rows.add([*own, (crowded, -float(d.held - d.most))], -inf, float(d.most))
            for q in d.carriers:
                some = float(self.total[q])
                for cell in d.cells:
                    stays = [(int(self.after[q, cell]), 1.0), (crowded, some)]
                    self.rows.add(stays, -inf, float(self.now[q, cell]) + some)
