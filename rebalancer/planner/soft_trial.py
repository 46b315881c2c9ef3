"""One candidate move for soft constraints, judged.

The filter does not know soft constraints, so such a move rests on the scheduler's scores: on all of the
best-scored nodes, ties and all, while the victim holds its room and once it is gone, one of the pod's own
soft constraints must need less (`need.py`) and no soft one may have more excess. For hard constraints, for
room and for Pending pods the scores are not trusted: these must hold on every node that the filter leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.planner.classes import Classes, PodClass
from rebalancer.planner.component import Component
from rebalancer.planner.groups import Group, Groups
from rebalancer.planner.need import Needs
from rebalancer.planner.options import Certainty
from rebalancer.planner.simulation import Landing, Simulation
from rebalancer.planner.step import Step
from rebalancer.planner.trial import Verdict
from rebalancer.planner.waiting import Waiting
from rebalancer.policy.quota import unseen
from rebalancer.spread.arrays import Bools, Rows


class SoftRefusal(Struct, frozen=True):
    """A move that is not made, and why. `node`: by number, the best-scored one that speaks against it."""

    code: ReasonCode
    node: int = -1


Judged = dict[tuple[int, int], SoftRefusal]
"""Class (numbered over all classes) and node → why no pod of the class there is moved."""


class SoftMove(Struct, frozen=True, eq=False):
    """A move that serves on `useful`, bool[N]; all best-scored nodes are among them."""

    step: Step
    useful: Bools


class _Useful(Struct, frozen=True, eq=False):
    """bool[N]: where a replacement serves; where the pod's own constraints would gain, others aside."""

    serves: Bools
    gains: Bools
    own: tuple[tuple[Group, Bools], ...]


class SoftTrial:
    """Judges moves for soft constraints on the simulation's present state.

    `groups`, `classes`: of hard and soft constraints. `unplaced`: pods whose place is not settled.
    """

    def __init__(
        self,
        simulation: Simulation,
        groups: Groups,
        classes: Classes,
        waiting: Waiting,
        unplaced: Iterable[Pod],
        certainty: Certainty,
    ) -> None:
        self._simulation = simulation
        self._classes = classes
        self._waiting = waiting
        self._certainty = certainty
        self._admitted = not unseen(simulation.state.snapshot)
        self._waits = list({id(p.template): p.template for p in unplaced}.values())
        self._unplaced: dict[int, list[PodTemplate]] = {}
        for t in self._waits:
            for g in groups.counted(t):
                if not groups.all[g].constraint.hard:
                    self._unplaced.setdefault(g, []).append(t)

    def gains(self, component: Component, needs: Needs, q: int, row: int) -> bool:
        """Whether there is a domain in which a pod of class q from node `row` would help its constraints."""
        return any(
            needs.effect(g, row).better.any()
            for g in _own(component, component.classes[q])
            if needs.excess[g.index]
        )

    def judge(
        self, component: Component, needs: Needs, q: int, row: int, pod: Pod, also: Rows | None = None
    ) -> SoftMove | SoftRefusal:
        """The move of this pod, of the component's class q on node `row`.

        `also`: nodes that come into question beside those that the filter leaves by itself.
        """
        c = component.classes[q]
        useful = self._useful(component, needs, c, row)
        if not (useful.serves & c.static).any():
            harms = bool((useful.gains & c.static).any())
            return SoftRefusal(ReasonCode.WOULD_WORSEN if harms else ReasonCode.NO_FEASIBLE_NODE)
        replacement = self._classes.replacement(pod, c)
        landing = self._simulation.landing(pod, replacement, after_gone=c.stateful)
        refusal = self._refused(component, needs, c, row, pod, replacement, landing, also)
        if refusal is not None:
            return refusal
        if not (useful.serves & landing.anywhere).any():
            return SoftRefusal(ReasonCode.NO_FEASIBLE_NODE)
        best = self._simulation.preferred(pod, replacement, landing)
        wrong = best[~useful.serves[best]]
        if len(wrong):
            node = int(wrong[0])
            harms = bool(useful.gains[node])
            return SoftRefusal(ReasonCode.WOULD_WORSEN if harms else ReasonCode.WOULD_RETURN, node)
        landed = int(self._simulation.expected(pod, replacement, landing, after_gone=c.stateful)[0])
        # What it serves wherever among the best it lands; where that differs, what it is predicted to serve.
        fixed = [(g, gains) for g, gains in useful.own if gains[best].all()]
        fixed = fixed or [(g, gains) for g, gains in useful.own if gains[landed]]
        serves = useful.serves.copy()
        for _, gains in fixed:
            serves &= gains
        serves[best] = True
        if self._comes_first(c, pod, serves):
            return SoftRefusal(ReasonCode.PENDING_PODS)
        nodes = np.flatnonzero(serves & landing.anywhere)
        fixes = tuple(g.index for g, _ in fixed)
        verdict = Verdict(replacement, landing, nodes, certain=False, helps=True, fixes=fixes)
        step = Step(pod, q, row, landed, verdict, nodes, certain=False)
        return SoftMove(step, serves)

    def _refused(
        self,
        component: Component,
        needs: Needs,
        c: PodClass,
        row: int,
        pod: Pod,
        replacement: PodTemplate,
        landing: Landing,
        also: Rows | None,
    ) -> SoftRefusal | None:
        """What forbids the move wherever among the nodes that the filter leaves it would land."""
        if not landing.held.any() or not landing.freed.any():
            return SoftRefusal(ReasonCode.NO_FEASIBLE_NODE)
        nodes = np.flatnonzero(landing.anywhere)
        if also is not None:
            nodes = np.union1d(nodes, also)
        if self._simulation.leaving[nodes].any():
            return SoftRefusal(ReasonCode.NODE_LEAVING)
        if self._certainty == "certain" and (
            not self._admitted or self._simulation.uncertainties(replacement)
        ):
            return SoftRefusal(ReasonCode.NOT_CERTAIN)
        for g in _groups(component, c.counted):
            if g.constraint.hard and needs.effect(g, row).worse[g.rows[nodes]].any():
                return SoftRefusal(ReasonCode.WOULD_WORSEN)
        if self._waiting.interferes(pod, replacement):
            return SoftRefusal(ReasonCode.PENDING_PODS)
        return None

    def _useful(self, component: Component, needs: Needs, c: PodClass, row: int) -> _Useful:
        n = self._simulation.state.table.size
        raises, falls, worse, better = (np.zeros(n, dtype=np.bool_) for _ in range(4))
        own: list[tuple[Group, Bools]] = []
        for g in _groups(component, c.counted):
            if g.constraint.hard:
                continue
            effect = needs.effect(g, row)
            raises |= effect.raises[g.rows]
            worse |= effect.worse[g.rows]
            if needs.excess[g.index] and g.index in c.carried:
                gains = effect.better[g.rows]
                own.append((g, gains))
                falls |= effect.falls[g.rows]
                better |= gains
        # The sum of all excess falls, or, on a plateau, nothing needs more and something less: no move is
        # ever undone by another.
        return _Useful(~raises & (falls | (better & ~worse)), better, tuple(own))

    def _comes_first(self, c: PodClass, pod: Pod, nodes: Bools) -> bool:
        """Whether a waiting pod may be placed before, and is counted by a soft constraint or in the way."""
        counted = {id(t) for g in c.counted for t in self._unplaced.get(g, ())}
        if not self._waits:
            return False
        with self._simulation.without(pod) as leaving:
            for gone in (False, True):
                if gone:
                    leaving.let_go()
                for t in self._waits:
                    open_to = self._simulation.framework(t).feasible(t)
                    if (open_to if id(t) in counted else open_to & nodes).any():
                        return True
        return False


def _groups(component: Component, indices: Sequence[int]) -> list[Group]:
    return [component.groups[component.local[i]] for i in indices]


def _own(component: Component, c: PodClass) -> list[Group]:
    """The soft constraints that a class carries itself, and by which it is counted."""
    return [g for g in _groups(component, c.carried) if not g.constraint.hard and g.index in c.counted]
