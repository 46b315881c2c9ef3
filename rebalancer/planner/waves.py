"""Moves that may be in flight together.

The replacements of one wave arrive in any order, while some victims still hold their room and others are
gone. So a move joins a wave only if nothing in the wave can touch another: one move per component (their
constraints are disjoint), room on every node where replacements of the wave could meet, no shared host port,
no required affinity between them, and every budget kept. The next wave starts from the state that the plan
predicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import PodTemplate
from rebalancer.planner.component import Component
from rebalancer.planner.meeting import Meeting
from rebalancer.planner.search import Step
from rebalancer.planner.simulation import Landing, Simulation
from rebalancer.policy.budgets import Allowance, Budgets
from rebalancer.spread.arrays import Ints, Rows

LARGEST = 50
"""Evictions in flight at most, whatever budgets allow."""


class Placed(Struct, frozen=True, eq=False):
    """A step, its component, the wave it goes in and all nodes on which its replacement may land there."""

    component: Component
    step: Step
    wave: int
    destinations: Rows


def waves(
    simulation: Simulation, budgets: Budgets, walks: Sequence[tuple[Component, Sequence[Step]]]
) -> tuple[list[Placed], list[tuple[Component, Step]]]:
    """The steps of all walks in waves, and those that hold in no wave (their components end there).

    Leaves the simulation's state as it was.
    """
    queues = [(component, list(steps)) for component, steps in walks if steps]
    done: list[Placed] = []
    dropped: list[tuple[Component, Step]] = []
    with ExitStack() as made:
        number = 0
        while any(steps for _, steps in queues):
            number += 1
            wave = _Wave(simulation, budgets)
            for component, steps in queues:
                if steps and len(wave.members) < LARGEST and wave.join(component, steps[0]):
                    steps.pop(0)
            wave.close()
            if not wave.members:
                # Alone in a wave even the first step of every walk fails: others took its room.
                for component, steps in queues:
                    dropped.extend((component, s) for s in steps)
                break
            for component, step, landing in wave.members:
                nodes = np.union1d(np.flatnonzero(landing.anywhere), step.destinations)
                done.append(Placed(component, step, number, nodes))
                made.enter_context(simulation.after((step.made,)))
    return done, dropped


class _Wave:
    """One wave in the making: its victims are terminating in the simulation until it is closed."""

    def __init__(self, simulation: Simulation, budgets: Budgets) -> None:
        self._simulation = simulation
        self._allowance = Allowance(budgets)
        self._meeting = Meeting()
        nothing = np.zeros(simulation.state.table.size, dtype=np.int64)
        self._reserved: dict[str, Ints] = defaultdict(nothing.copy)
        self._victims = simulation.holding()
        self.members: list[tuple[Component, Step, Landing]] = []

    def join(self, component: Component, step: Step) -> bool:
        """Takes the step into the wave if nothing in it can touch another."""
        replacement = step.verdict.replacement
        if not self._allowance.fits(step.pod) or self._meeting.touches(replacement):
            return False
        landing = self._victims.landing(step.pod, replacement, after_gone=component.classes[step.q].stateful)
        room = self._room(replacement, landing)
        if room is None or not _as_judged(component, step, landing):
            self._victims.drop(step.pod)
            return False
        for resource, amount in room.items():
            self._reserved[resource] += amount
        self._allowance.spend(step.pod)
        self._meeting.add(replacement)
        self.members.append((component, step, landing))
        return True

    def close(self) -> None:
        """Gives the victims back to the simulation."""
        self._victims.undo()

    def _room(self, replacement: PodTemplate, landing: Landing) -> dict[str, Ints] | None:
        """What the replacement reserves on each node it could take; None if it could be one too many."""
        state = self._simulation.state
        anywhere = landing.anywhere
        claim: dict[str, Ints] = {}
        for resource, amount in (*replacement.requests.items(), ("pods", 1)):
            if amount <= 0:
                continue
            free = state.allocatable(resource) - state.requested[resource]
            needed = self._reserved[resource] + amount
            freed = free + self._victims.held(resource)
            enough = np.where(landing.held, needed <= free, needed <= freed)
            if not enough[anywhere].all():
                return None
            claim[resource] = anywhere * amount
        return claim


def _as_judged(component: Component, step: Step, landing: Landing) -> bool:
    """Whether all nodes in question lead to outcomes that the search has judged, the predicted one too."""
    if not landing.held.any() or not landing.anywhere[step.landed]:
        return False
    nodes = np.flatnonzero(landing.anywhere)
    new = np.setdiff1d(nodes, step.destinations)
    if not len(new):
        return True
    if not step.certain:
        return True
    rows = np.stack([g.rows for g in component.groups])
    judged = {tuple(column) for column in rows[:, step.destinations].T}
    return all(tuple(column) in judged for column in rows[:, new].T)
