"""Moves that may be in flight together.

The replacements of one wave arrive in any order, while some victims still hold their room and others are
gone. So a move joins a wave only if nothing in the wave can touch another: one move per component (their
constraints are disjoint), room on every node where replacements of the wave could meet, no shared host port,
no required affinity between them, and every budget and quota kept. The next wave starts from the state that
the plan predicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.workload import Workload
from rebalancer.planner.component import Component
from rebalancer.planner.elsewhere import Elsewhere, needs
from rebalancer.planner.meeting import Meeting
from rebalancer.planner.simulation import Leaving, Simulation
from rebalancer.planner.step import Step
from rebalancer.planner.waiting import Waiting
from rebalancer.policy.budgets import Allowance
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.quota import Charged
from rebalancer.spread.arrays import Bools, Ints, Rows

LARGEST = 50
"""Evictions in flight at most, whatever budgets allow."""

CROWDED_OUT = Reason(
    ReasonCode.NO_FEASIBLE_NODE,
    "in no wave would its replacement surely find room: others of the plan need the same",
    {},
    "the next cycle plans it anew",
)
"""Why a move was planned and then not kept."""


class Placed(Struct, frozen=True, eq=False):
    """A step, its component, the wave it goes in and all nodes on which its replacement may land there."""

    component: Component
    step: Step
    wave: int
    destinations: Rows


def waves(
    simulation: Simulation,
    evictable: Evictable,
    walks: Sequence[tuple[Component, Sequence[Step]]],
    first: int = 1,
    waiting: Waiting | None = None,
) -> tuple[list[Placed], list[tuple[Component, Step]]]:
    """The steps of all walks in waves, numbered from `first`, and those that hold in no wave.

    Where the victims of a wave together would make room for a `waiting` pod, its moves go one by one, as far
    as no such pod is in their way. Leaves the simulation's state as it was.
    """
    queues = [(component, list(steps)) for component, steps in walks if steps]
    done: list[Placed] = []
    dropped: list[tuple[Component, Step]] = []
    elsewhere = Elsewhere(simulation)
    unsure: set[int] = set()
    with ExitStack() as made:
        number = first - 1
        while any(steps for _, steps in queues):
            number += 1
            heads = [(component, steps[0]) for component, steps in queues if steps]
            members, opened = _wave(simulation, evictable, heads, elsewhere, waiting)
            if opened and waiting is not None:
                free = [h for h in heads if not waiting.interferes(h[1].pod, h[1].verdict.replacement)]
                each = (_wave(simulation, evictable, [h], elsewhere, None)[0] for h in free)
                members = next((m for m in each if m), [])
            if not members:
                # Even alone in a wave the first step of every walk fails: others took its room.
                for component, steps in queues:
                    dropped.extend((component, s) for s in steps)
                break
            joined = {step.pod.key for _, step, _ in members}
            for _, steps in queues:
                if steps and steps[0].pod.key in joined:
                    steps.pop(0)
            for component, step, nodes in members:
                elsewhere.add(component, step, np.union1d(nodes, step.destinations))
            for component, member, nodes in members:
                if not member.certain:
                    unsure.add(id(component))
                # What follows a move that may end otherwise may, too.
                step = replace(member, certain=id(component) not in unsure)
                done.append(Placed(component, step, number, np.union1d(nodes, step.destinations)))
                made.enter_context(simulation.after((step.made,)))
    return done, dropped


def _wave(
    simulation: Simulation,
    evictable: Evictable,
    heads: Sequence[tuple[Component, Step]],
    elsewhere: Elsewhere,
    waiting: Waiting | None,
) -> tuple[list[tuple[Component, Step, Rows]], bool]:
    """A wave of some of these steps, with all nodes in question for each; and whether it lets in a pod that
    waits."""
    with simulation.without() as leaving:
        wave = _Wave(simulation, evictable, leaving)
        for component, step in heads:
            if len(wave.members) < LARGEST:
                wave.join(component, step)
        return wave.settled(elsewhere), waiting is not None and waiting.any_placeable()


def next_wave(placed: Sequence[Placed], first: int = 1) -> int:
    """The number of the wave after the last one."""
    return placed[-1].wave + 1 if placed else first


class _Wave:
    """One wave in the making: its victims are terminating in the simulation."""

    def __init__(self, simulation: Simulation, evictable: Evictable, leaving: Leaving) -> None:
        self._simulation = simulation
        self._allowance = Allowance(evictable.budgets)
        self._charged = Charged(evictable.quotas)
        self._meeting = Meeting()
        self._in_order: list[Workload | None] = []
        self._leaving = leaving
        self._nothing = np.zeros(simulation.state.table.size, dtype=np.int64)
        self._reserved: dict[str, Ints] = defaultdict(self._nothing.copy)
        self.members: list[tuple[Component, Step, Bools]] = []

    def join(self, component: Component, step: Step) -> None:
        """Takes the step in if, while victims hold their room, nothing in the wave can touch another."""
        replacement = step.verdict.replacement
        owner = component.classes[step.q].owner
        if component.classes[step.q].ordered and owner in self._in_order:
            return
        if not self._allowance.fits(step.pod) or self._meeting.touches(replacement):
            return
        if not self._charged.fits(step.pod, owner):
            return
        self._leaving.take(step.pod)
        stateful = component.classes[step.q].stateful
        if stateful:
            # Its owner makes the replacement once it is gone: its own room is free by then.
            self._leaving.let_go(step.pod)
        held = self._simulation.framework(replacement).feasible(replacement)
        free = self._free()
        if stateful:
            self._leaving.hold_again(step.pod)
        # Room that another victim of the wave still holds may come too late for the predicted landing.
        awaited = bool(self.members) and not held[step.landed]
        if awaited or not held.any() or not self._fits(replacement, held, free):
            self._leaving.undo(step.pod)
            return
        self._allowance.spend(step.pod)
        self._charged.spend(step.pod, owner)
        self._meeting.add(replacement)
        if component.classes[step.q].ordered:
            self._in_order.append(owner)
        self.members.append((component, step, held))

    def settled(self, elsewhere: Elsewhere) -> list[tuple[Component, Step, Rows]]:
        """The members that hold once all victims are gone too, each with all nodes in question."""
        self._leaving.let_go()
        self._reserved.clear()
        free = self._free()
        fitting: list[tuple[Component, Step, Bools, Bools]] = []
        for component, step, held in self.members:
            replacement = step.verdict.replacement
            freed = self._simulation.framework(replacement).feasible(replacement)
            anywhere = held | freed
            judged = freed.any() and _as_judged(component, step, anywhere)
            if judged and self._fits(replacement, anywhere, free):
                fitting.append((component, step, anywhere, held & freed))
        load: dict[str, Ints] = defaultdict(self._nothing.copy)
        for _, step, anywhere, _ in fitting:
            _charge(load, step, anywhere, 1)
        settled = []
        for component, step, anywhere, sure in fitting:
            _charge(load, step, anywhere, -1)
            left = {resource: room - load[resource] for resource, room in free.items()}
            step, nodes = self._certainty(elsewhere, component, step, anywhere, sure, left)
            settled.append((component, step, np.flatnonzero(nodes)))
            _charge(load, step, anywhere, 1)
        return settled

    def _certainty(
        self,
        elsewhere: Elsewhere,
        component: Component,
        step: Step,
        anywhere: Bools,
        sure: Bools,
        left: Mapping[str, Ints],
    ) -> tuple[Step, Bools]:
        """The step, certain if it is so wherever earlier replacements landed, and all nodes in question.

        `left`: what the others of the wave leave free on each node, if all of them land there.
        """
        replacement = step.verdict.replacement
        certain = step.certain and all(
            elsewhere.leaves_room(component, replacement, nodes, left)
            for nodes in (np.flatnonzero(sure), *step.open)
        )
        if certain:
            wide = anywhere | elsewhere.opens(component, replacement, anywhere, self._free())
            certain = _as_judged(component, step, wide)
            anywhere = wide if certain else anywhere
        return replace(step, certain=certain), anywhere

    def _free(self) -> dict[str, Ints]:
        state = self._simulation.state
        return {r: state.allocatable(r) - state.requested[r] for r in state.requested}

    def _fits(self, replacement: PodTemplate, nodes: Bools, free: dict[str, Ints]) -> bool:
        """Whether all that may land on any of the nodes fits there together; reserves it if so."""
        asked = needs(replacement)
        for resource, amount in asked:
            if (self._reserved[resource][nodes] + amount > free.get(resource, self._nothing)[nodes]).any():
                return False
        for resource, amount in asked:
            self._reserved[resource][nodes] += amount
        return True


def _charge(load: dict[str, Ints], step: Step, anywhere: Bools, sign: int) -> None:
    """Adds what a replacement takes on every node that it may land on, or takes it off again."""
    nodes = np.union1d(np.flatnonzero(anywhere), step.destinations)
    for resource, amount in needs(step.verdict.replacement):
        load[resource][nodes] += sign * amount


def _as_judged(component: Component, step: Step, anywhere: Bools) -> bool:
    """Whether all nodes in question lead to outcomes that the search has judged, the predicted one too."""
    if not anywhere[step.landed]:
        return False
    new = np.setdiff1d(np.flatnonzero(anywhere), step.destinations)
    if not len(new) or not step.certain:
        return True
    rows = np.stack([g.rows for g in component.groups])
    judged = {tuple(column) for column in rows[:, step.destinations].T}
    return all(tuple(column) in judged for column in rows[:, new].T)
