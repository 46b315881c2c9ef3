"""Soft constraints (ScheduleAnyway), balanced where the scheduler's scores are predicted to help.

They come after the plan for the hard constraints, from the state that it ends in. Downhill, component by
component: each move is one that `SoftTrial` lets pass, the fullest domain first; a walk ends with the move
that lowers the excess last. Moves of different components go in waves together, and each is judged once more
as its wave begins and with the others of the wave in flight, for they change each other's scores. What no
longer holds is taken back, and moves that led up to it are not made in vain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.component import Component
from rebalancer.planner.need import Needs
from rebalancer.planner.plan import Blocked
from rebalancer.planner.simulation import Simulation, key_of
from rebalancer.planner.soft_trial import Judged, SoftMove, SoftRefusal, SoftTrial
from rebalancer.planner.step import Step
from rebalancer.planner.trial import Trial
from rebalancer.planner.waves import CROWDED_OUT, LARGEST, Placed, next_wave, waves
from rebalancer.policy.evictable import Evictable

ROUNDS = 8
"""Times that the components are gone through: the moves of one change the scores that others rest on."""

TWINS = 3
"""Victims tried on nodes that the constraints cannot tell apart, before a refusal counts for all of them."""

Spend = Callable[[Component, Step], Reason | None]
"""Counts a move against the caps, or says which forbids it."""


class SoftPlan(Struct, frozen=True, eq=False):
    """The moves, in waves; moves that the caps or the room did not allow; and why no more are made."""

    placed: tuple[Placed, ...]
    given_up: tuple[Blocked, ...]
    refused: Judged


class SoftPlanner:
    """Plans the soft constraints of some components. It leaves the simulation's state as it was."""

    def __init__(
        self,
        simulation: Simulation,
        components: Sequence[Component],
        evictable: Evictable,
        trial: Trial,
        soft_trial: SoftTrial,
        effort: int,
    ) -> None:
        self._simulation = simulation
        self._components = components
        self._evictable = evictable
        self._trial = trial
        self._soft = soft_trial
        self._effort = effort
        self._refused: Judged = {}
        self._given_up: dict[str, Blocked] = {}

    def plan(self, first: int, spend: Spend) -> SoftPlan:
        """Moves from the present state on, in waves numbered from `first`."""
        self._refused, self._given_up = {}, {}
        placed: list[Placed] = []
        with ExitStack() as made:
            for _ in range(ROUNDS):
                self._refused.clear()
                more = self._arranged(self._walks(), next_wave(placed, first))
                placed += more
                if not more:
                    break
                made.enter_context(self._simulation.after(p.step.made for p in more))
        placed = self._not_in_vain(placed, first, frozenset())
        placed, capped = self._within_caps(placed, spend)
        if capped:
            placed = self._not_in_vain(self._arranged(_queues(placed), first), first, capped)
        moved = {p.step.pod.key for p in placed}
        given_up = tuple(b for key, b in sorted(self._given_up.items()) if key not in moved)
        return SoftPlan(tuple(placed), given_up, dict(self._refused))

    def _walks(self) -> list[tuple[Component, list[Step]]]:
        """A walk for each component with an excess, each from where the ones before it lead."""
        found: list[tuple[Component, list[Step]]] = []
        with ExitStack() as walked:
            for component in self._components:
                steps = self._walk(component)
                if steps:
                    found.append((component, steps))
                    walked.enter_context(self._simulation.after(s.made for s in steps))
        return found

    def _walk(self, component: Component) -> list[Step]:
        """Moves up to the last that lowers the soft excess."""
        steps: list[Step] = []
        kept = 0
        tries = self._effort
        with ExitStack() as made:
            needs = self._needs(component)
            lowest = needs.soft_excess()
            while needs.soft_excess():
                step, tries = self._next(component, needs, tries)
                if step is None:
                    break
                steps.append(step)
                made.enter_context(self._simulation.after((step.made,)))
                needs = self._needs(component)
                if needs.soft_excess() < lowest:
                    lowest, kept = needs.soft_excess(), len(steps)
        for s in steps[kept:]:
            self._refused[component.classes[s.q].index, s.row] = SoftRefusal(ReasonCode.NOT_NEEDED)
        return steps[:kept]

    def _needs(self, component: Component) -> Needs:
        return Needs(self._simulation, component, self._trial)

    def _next(self, component: Component, needs: Needs, tries: int) -> tuple[Step | None, int]:
        """The first candidate that holds, and how many tries are left."""
        refusals: dict[object, list[SoftRefusal]] = defaultdict(list)
        for q, row, pod in self._candidates(component, needs):
            if tries <= 0:
                break
            alike = refusals[q, *needs.standing(row)]
            if len(alike) < TWINS:
                tries -= 1
                verdict = self._soft.judge(component, needs, q, row, pod)
                if isinstance(verdict, SoftMove):
                    return verdict.step, tries
                alike.append(verdict)
            self._refused[component.classes[q].index, row] = alike[-1]
        return None, tries

    def _candidates(self, component: Component, needs: Needs) -> Iterator[tuple[int, int, Pod]]:
        """For each class and node the best victim: of the fullest domains first, then in victim order."""
        soft = [g for g in component.groups if not g.constraint.hard and needs.excess[g.index]]
        entries: list[tuple[tuple[object, ...], int, int, Pod]] = []
        for q, c in enumerate(component.classes):
            mine = [g for g in soft if g.index in c.carried]
            for row, pods in c.by_row.items() if mine else ():
                pod = next((p for p in pods if self._may_go(p)), None)
                if pod is not None and self._soft.gains(component, needs, q, row):
                    height = sum(needs.height(g, row) for g in soft if g.index in c.counted)
                    entries.append(((-height, self._trial.order(pod)), q, row, pod))
        for _, q, row, pod in sorted(entries, key=lambda e: e[0]):
            yield q, row, pod

    def _may_go(self, pod: Pod) -> bool:
        return self._trial.may_go(pod) and key_of(pod) in self._simulation.state.pods

    def _arranged(self, walks: Sequence[tuple[Component, list[Step]]], number: int) -> list[Placed]:
        """The steps in waves; of a component with a step that does not hold in its turn, none follows."""
        queues = [(component, list(steps)) for component, steps in walks]
        done: list[Placed] = []
        with ExitStack() as made:
            while queues:
                firsts = [(component, [_anywhere(steps[0])]) for component, steps in queues[:LARGEST]]
                arranged, dropped = waves(self._simulation, self._evictable, firsts, number)
                ended: set[int] = {id(component) for component, _ in dropped}
                for _, step in dropped:
                    self._given_up[step.pod.key] = Blocked(step.pod, CROWDED_OUT)
                while arranged:
                    wave = [p for p in arranged if p.wave == arranged[0].wave]
                    held, failed = self._held(wave)
                    held = [replace(p, wave=number) for p in held]
                    done += held
                    number += bool(held)
                    made.enter_context(self._simulation.after(p.step.made for p in held))
                    for p in held:
                        next(steps for c, steps in queues if c is p.component).pop(0)
                    ended |= failed
                    # What follows was arranged for a wave that was kept whole.
                    arranged = arranged[len(wave) :] if len(held) == len(wave) else []
                queues = [(c, steps) for c, steps in queues if steps and id(c) not in ended]
                queues = [*queues[LARGEST:], *queues[:LARGEST]] if not dropped else queues
        return done

    def _held(self, wave: Sequence[Placed]) -> tuple[list[Placed], set[int]]:
        """The moves of a wave that hold as it begins, with the others in flight; and the components whose
        moves do not hold even alone.

        What fails only for the others' sake may hold in a later wave.
        """
        held: list[tuple[Placed, SoftMove]] = []
        failed: set[int] = set()
        for p in wave:
            s = p.step
            verdict = self._soft.judge(
                p.component, self._needs(p.component), s.q, s.row, s.pod, also=p.destinations
            )
            if isinstance(verdict, SoftMove):
                step = verdict.step
                held.append((replace(p, step=step, destinations=step.destinations), verdict))
            else:
                failed.add(id(p.component))
                self._refused[p.component.classes[s.q].index, s.row] = verdict
        while len(held) > 1 and (apart := self._apart(held)):
            # The first stays in any case: alone it holds.
            held = [h for i, h in enumerate(held) if i not in apart] or held[:1]
        return [p for p, _ in held], failed

    def _apart(self, wave: Sequence[tuple[Placed, SoftMove]]) -> set[int]:
        """Which moves of a wave are not predicted to serve with the others on their way.

        Asked with all victims still there, with all of them gone, and with the replacements placed one after
        the other, forwards and backwards: every order would be too many.
        """
        found: set[int] = set()

        def ask(i: int) -> None:
            placed, move = wave[i]
            replacement = placed.step.verdict.replacement
            framework = self._simulation.framework(replacement)
            mask = framework.feasible(replacement)
            if mask.any():
                totals = framework.score(replacement, mask).totals
                mask &= totals == totals[mask].max()
            if not mask.any() or not move.useful[mask].all():
                found.add(i)

        every = range(len(wave))
        with self._simulation.without(*(p.step.pod for p, _ in wave)) as leaving:
            for i in every:
                p = wave[i][0]
                if not p.component.classes[p.step.q].stateful:
                    ask(i)
            leaving.let_go()
            for i in every:
                ask(i)
        for order in (every, reversed(every)):
            with ExitStack() as made:
                for n, i in enumerate(order):
                    step = wave[i][0].step
                    if n:
                        with self._simulation.without(step.pod) as leaving:
                            leaving.let_go()
                            ask(i)
                    made.enter_context(self._simulation.after((step.made,)))
        return found

    def _not_in_vain(self, placed: list[Placed], first: int, capped: frozenset[int]) -> list[Placed]:
        """Without moves that only prepared for others which are not made; the rest is arranged anew.

        Of components that a cap has cut short the next cycle makes the others.
        """
        while True:
            queues = _queues(placed)
            cut = [
                (component, steps if id(component) in capped else self._up_to_last_gain(component, steps))
                for component, steps in queues
            ]
            if sum(len(s) for _, s in cut) == len(placed):
                return placed
            for (component, steps), (_, left) in zip(queues, cut, strict=True):
                for s in steps[len(left) :]:
                    self._refused[component.classes[s.q].index, s.row] = SoftRefusal(ReasonCode.NOT_NEEDED)
            placed = self._arranged([(c, s) for c, s in cut if s], first)

    def _up_to_last_gain(self, component: Component, steps: list[Step]) -> list[Step]:
        kept, lowest = 0, self._needs(component).soft_excess()
        with ExitStack() as made:
            for i, s in enumerate(steps):
                made.enter_context(self._simulation.after((s.made,)))
                now = sum(
                    g.excess(g.counts(self._simulation.state))
                    for g in component.groups
                    if not g.constraint.hard
                )
                if now < lowest:
                    kept, lowest = i + 1, now
        return steps[:kept]

    def _within_caps(self, placed: list[Placed], spend: Spend) -> tuple[list[Placed], frozenset[int]]:
        """The moves that the caps allow; after one that a cap forbids, none of its component follows."""
        kept: list[Placed] = []
        capped: set[int] = set()
        for p in placed:
            reason = spend(p.component, p.step) if id(p.component) not in capped else None
            if id(p.component) in capped:
                continue
            if reason is None:
                kept.append(p)
            else:
                capped.add(id(p.component))
                self._given_up[p.step.pod.key] = Blocked(p.step.pod, reason)
        return kept, frozenset(capped)


def _anywhere(step: Step) -> Step:
    """The step as one that may share a wave as far as room goes; whether the scores allow it is seen then."""
    return replace(step, destinations=np.flatnonzero(step.verdict.landing.anywhere), certain=True)


def _queues(placed: Sequence[Placed]) -> list[tuple[Component, list[Step]]]:
    """The steps of each component, in order."""
    components = {id(p.component): p.component for p in placed}
    steps: dict[int, list[Step]] = defaultdict(list)
    for p in placed:
        steps[id(p.component)].append(p.step)
    return [(c, steps[i]) for i, c in components.items()]
