"""Walks for the components that hard constraints couple, in waves, until nothing more is gained.

Components share nothing but room, ports, inter-pod affinity and budgets, so each is searched by itself, from
where the others' moves lead. What stays stuck gets further turns, for the room that others freed; and where
few components are violated, all of them are searched together, for one may have to give way to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from msgspec.structs import replace

from rebalancer.planner.beam import Beam
from rebalancer.planner.classes import PodClass
from rebalancer.planner.component import Component
from rebalancer.planner.effort import Effort
from rebalancer.planner.ground import Ground
from rebalancer.planner.groups import Group
from rebalancer.planner.plan import Blocked
from rebalancer.planner.potential import Potential
from rebalancer.planner.result import Part
from rebalancer.planner.search import BEAM, Search
from rebalancer.planner.simulation import Simulation
from rebalancer.planner.step import Step
from rebalancer.planner.trial import Trial
from rebalancer.planner.waiting import Waiting
from rebalancer.planner.waves import CROWDED_OUT, Placed, next_wave, waves
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Ints

PASSES = 3
"""Times that the components are gone through: room that one frees may be what another lacks."""
TOGETHER = 12
"""Violated components that are also searched as one, as long as there are no more."""

Violated = list[tuple[tuple[Group, ...], tuple[PodClass, ...]]]


class HardPhase:
    """Plans moves for hard constraints from the simulation's present state on. It leaves that as it was."""

    def __init__(
        self,
        simulation: Simulation,
        evictable: Evictable,
        trial: Trial,
        waiting: Waiting,
        violated: Violated,
        effort: int,
    ) -> None:
        self._simulation = simulation
        self._evictable = evictable
        self._trial = trial
        self._waiting = waiting
        self._violated = violated
        self._effort = effort

    def moves(self, parts: dict[int, Part], first: int) -> tuple[list[Placed], list[Blocked]]:
        """The moves, in waves from `first`, and those for which no wave was found; `parts` are filled."""
        placed, dropped = self._turns(parts, first)
        if 1 < len(self._violated) <= TOGETHER and self._may_gain(parts, self._left(placed)):
            further = placed + self._together(placed, first)
            anew = self._together([], first)
            best = min((placed, further, anew), key=lambda p: (sum(self._left(p)), len(p)))
            if best is not placed:
                placed, dropped = best, []
        return placed, [Blocked(s.pod, CROWDED_OUT) for _, s in dropped]

    def _may_gain(self, parts: dict[int, Part], left: Sequence[int]) -> bool:
        """Whether the room of others is what keeps one of the components from less excess."""
        return any(i in parts and excess > parts[i].search.lowest() for i, excess in enumerate(left))

    def ended(self, parts: dict[int, Part]) -> None:
        """Makes the parts say what excess each component is left with in the simulation's present state."""
        for i, left in enumerate(self._left([])):
            if i in parts and left != parts[i].walk.residual:
                parts[i] = parts[i].ending(left)

    def _left(self, placed: Sequence[Placed]) -> list[int]:
        """The excess of each component after these moves."""
        with self._simulation.after(p.step.made for p in placed):
            state = self._simulation.state
            return [sum(g.excess(g.counts(state)) for g in groups) for groups, _ in self._violated]

    def _turns(
        self, parts: dict[int, Part], first: int
    ) -> tuple[list[Placed], Sequence[tuple[Component, Step]]]:
        """Each component by itself, in turns, until a turn adds nothing."""
        placed: list[Placed] = []
        dropped: Sequence[tuple[Component, Step]] = ()
        total: dict[str, Ints] = {}
        for v in self._violated:
            for resource, amount in Component(*v, self._simulation).yields().items():
                total[resource] = total.get(resource, 0) + amount
        with ExitStack() as made:
            for turn in range(PASSES):
                walks: list[tuple[Component, Sequence[Step]]] = []
                with ExitStack() as walked:
                    for i, (groups, classes) in enumerate(self._violated):
                        component = Component(groups, classes, self._simulation)
                        if not any(component.excesses(component.start)):
                            continue
                        own = component.yields()
                        others = {r: a - own.get(r, 0) for r, a in total.items()}
                        search = Search(self._simulation, component, self._trial, self._effort, others)
                        walk = search.run()
                        known = parts.get(i)
                        parts[i] = known.further(walk) if known else Part(groups, classes, walk, search)
                        # A later turn builds on landings that are only predicted.
                        sure = turn == 0 and first == 1
                        steps = [replace(s, certain=s.certain and sure) for s in walk.steps]
                        walks.append((component, steps))
                        walked.enter_context(self._simulation.after(s.made for s in steps))
                more, dropped = self._waves(walks, next_wave(placed, first))
                placed += more
                if not more:
                    break
                made.enter_context(self._simulation.after(p.step.made for p in more))
        return placed, dropped

    def _together(self, placed: Sequence[Placed], first: int) -> list[Placed]:
        """Moves that lower the excess of all stuck components together, after those already placed."""
        stuck = [v for v, left in zip(self._violated, self._left(placed), strict=True) if left]
        with self._simulation.after(p.step.made for p in placed):
            component = Component(
                tuple(g for groups, _ in stuck for g in groups),
                tuple(c for _, classes in stuck for c in classes),
                self._simulation,
            )
            if not component.classes:
                return []
            effort = Effort(self._effort)
            effort.renew(BEAM)
            potential = Potential(component, effort)
            beam = Beam(Ground(self._simulation, component, self._trial, potential, effort))
            steps = beam.run(0).steps
            found, _ = self._waves([(component, steps)], next_wave(placed, first))
            return found

    def _waves(
        self, walks: Sequence[tuple[Component, Sequence[Step]]], first: int
    ) -> tuple[list[Placed], list[tuple[Component, Step]]]:
        return waves(self._simulation, self._evictable, walks, first, self._waiting)
