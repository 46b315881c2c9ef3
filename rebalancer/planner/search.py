"""From counts to a sequence that the scheduler follows.

The bound says how few moves a placement needs; the scheduler, not the planner, chooses where a replacement
lands. First the search looks for a *sure* walk: at each move, wherever this and every earlier replacement
landed, the bound falls by one. If there is none, a beam along the landings that the scheduler's scores
predict shows how low harmless moves lead. Then it looks for the walk as low that takes the fewest moves and
has the best odds. Bounded in candidates tried, not in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebalancer.planner.beam import Beam
from rebalancer.planner.component import Component
from rebalancer.planner.effort import Effort
from rebalancer.planner.ground import Ground
from rebalancer.planner.odds import Odds
from rebalancer.planner.potential import Potential
from rebalancer.planner.simulation import Simulation
from rebalancer.planner.step import Step, Walk
from rebalancer.planner.trial import Trial
from rebalancer.planner.walks import Walks
from rebalancer.spread.arrays import Ints

DETOURS = 3
"""Moves beyond the bound that are allowed before more excess is accepted."""
FIRST = 0.25
"""Share of the effort after which the search for a sure walk waits for a sign that there is one."""
BEAM = 3.0
"""Share of the effort that the beam may take: its candidates need no program."""
UNSURE = 0.5
"""Share of the effort for the odds where there is no sure walk."""
LEAST = 0.1
"""A walk that is worth less is none: its evictions would most likely be in vain."""
ALIKE = 0.02
"""Walks whose worth differs by no more than this count as equal."""


class Search:
    """Finds the best walk of one component. It leaves the simulation's state as it was.

    `given`: int64[N] by resource, what other components' pods may leave free before the plan ends; it counts
    for what is proved, not for where the search goes.
    """

    def __init__(
        self,
        simulation: Simulation,
        component: Component,
        trial: Trial,
        effort: int,
        given: Mapping[str, Ints] | None = None,
    ) -> None:
        self._component = component
        self._effort = Effort(effort)
        self.potential = Potential(component, self._effort)
        self._on = Ground(simulation, component, trial, self.potential, self._effort)
        roomier = component.roomier(given) if given and component.classes else None
        self._roomier = Potential(roomier, Effort(0)) if roomier is not None else self.potential

    def run(self) -> Walk:
        """The least excess, then the fewest moves, then the most certain ones, that can be walked to."""
        walk = self._found()
        if self._component.classes:
            self.potential.forget()
        return walk

    def _found(self) -> Walk:
        c = self._component
        now = sum(c.excesses(c.start))
        if not c.classes:
            return Walk((), now, 0, now, proved=True)
        least = self.potential.start_least()
        walks = Walks(self._on, least)
        self._effort.renew(FIRST)
        sure = walks.sure()
        if sure is not None:
            return self._surely(sure, least)
        beam = Beam(self._on)
        self._effort.renew(BEAM)
        lowest = beam.run(least)
        residual, steps = lowest.height[0], lowest.steps
        self._effort.renew()
        if residual == least and (sure := walks.sure()) is not None:
            return self._surely(sure, least)
        found = None
        if residual > least and beam.exhausted:
            # Predicted are the first of equally good nodes; the scheduler takes any of them.
            found = self._likeliest(walks, least, self._fewest(least) + DETOURS)
        if found is not None:
            residual, steps = least, found
        elif steps:
            walks = walks if residual == least else Walks(self._on, residual)
            most = min(len(steps), self._fewest(residual) + DETOURS)
            steps = self._likeliest(walks, residual, most) or steps
        self._effort.renew(FIRST)
        proved = not steps and residual == least and self._proved((), least)
        return Walk(walks.marked(steps), least, self.bound(residual), residual, proved)

    def _fewest(self, residual: int) -> int:
        """The fewest moves to this excess with the room that there is."""
        return self.potential.start_moves(residual) or 0

    def lowest(self) -> int:
        """The least excess of any final state, wherever others' pods go."""
        c = self._component
        return self._roomier.start_least() if c.classes else sum(c.excesses(c.start))

    def bound(self, residual: int) -> int:
        """The fewest moves from the start to a final state with this excess, wherever others' pods go."""
        return self._roomier.start_moves(residual) or 0 if self._component.classes else 0

    def _surely(self, steps: Sequence[Step], least: int) -> Walk:
        return Walk(tuple(steps), least, self.bound(least), least, self._proved(steps, least))

    def _proved(self, steps: Sequence[Step], least: int) -> bool:
        """Whether no other end has less excess, and none as little with fewer moves."""
        best = self._roomier
        return best.exact and best.start_least() == least and self.bound(least) == len(steps)

    def _likeliest(self, walks: Walks, residual: int, most: int) -> tuple[Step, ...] | None:
        """The walk to `residual`, in `most` moves at most, that is worth most; None if none is found."""
        for thorough in (True, False):
            self._effort.renew(UNSURE)
            odds = Odds(self._on, residual, most, thorough=thorough)
            worth, found = odds.best()
            if not self._effort.gone:
                break
        if worth <= LEAST:
            return None
        for allowed in range(self._fewest(residual), len(found) if found else most + 1):
            if (lucky := odds.lucky(allowed)) is not None:
                return lucky
        if found is not None:
            harmless = walks.harmless(len(found))
            if harmless is not None and odds.of(harmless[0]) >= worth - ALIKE:
                return harmless
        return found
