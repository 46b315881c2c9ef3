"""One candidate move for soft constraints, judged.

The filter does not know soft constraints, so such a move rests on the scheduler's scores: on all of the
best-scored nodes, ties and all, while the victim holds its room and once it is gone, one of the pod's own
soft constraints must need less (`soft.needs`) and no soft one may have more excess. For hard constraints, for
room and for Pending pods the scores are not trusted: these must hold on every node that the filter leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.planner.cluster.groups import Group, Groups
from rebalancer.planner.cluster.pod_classes import Classes
from rebalancer.planner.cluster.simulation import Landing, Simulation
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.moves.judge import Judge
from rebalancer.planner.moves.move import Candidate, JudgedMove
from rebalancer.planner.moves.refusals import refused
from rebalancer.planner.moves.victims import Order
from rebalancer.planner.options import Certainty
from rebalancer.planner.plan import Refusal
from rebalancer.planner.soft.needs import Needs
from rebalancer.spread.arrays import Bools, Rows

_BINDING = "DoNotSchedule would make it binding for the scheduler"


class _Useful(Struct, frozen=True, eq=False):
    """bool[N]: where a replacement serves; where the pod's own constraints would gain, others aside."""

    serves: Bools
    gains: Bools
    own: tuple[tuple[Group, Bools], ...]


class SoftJudge(Judge):
    """Judges moves for soft constraints on the simulation's present state.

    `groups`, `classes`: of hard and soft constraints.
    """

    def __init__(
        self,
        simulation: Simulation,
        groups: Groups,
        classes: Classes,
        order: Callable[[Pod], Order],
        waiting: Waiting,
        certainty: Certainty,
    ) -> None:
        super().__init__(simulation, classes, order, waiting, certainty)
        self._unplaced: dict[int, list[PodTemplate]] = {}
        for template in waiting.templates:
            for group in groups.counted(template):
                if not groups.all[group].constraint.hard:
                    self._unplaced.setdefault(group, []).append(template)

    def gains(self, needs: Needs, candidate: Candidate) -> bool:
        """Whether there is a domain in which the pod would help its own constraints."""
        members = candidate.members
        return any(
            needs.effect(group, candidate.node).better.any()
            for group in candidate.component.named(members.carried)
            if not group.constraint.hard and group.index in members.counted and needs.excess[group.index]
        )

    def judge(self, needs: Needs, candidate: Candidate, also: Rows | None = None) -> JudgedMove | Refusal:
        """The move, where the constraints need `needs`.

        `also`: nodes that come into question beside those that the filter leaves by itself.
        """
        pod, members = candidate.pod, candidate.members
        useful = self._useful(needs, candidate)
        if not (useful.serves & members.static).any():
            harms = bool((useful.gains & members.static).any())
            return refused(pod, ReasonCode.WOULD_WORSEN if harms else ReasonCode.NO_FEASIBLE_NODE)
        replacement, landing = self.landing(candidate)
        code = self._forbidden(needs, candidate, replacement, landing, also)
        if code is None and not (useful.serves & landing.anywhere).any():
            code = ReasonCode.NO_FEASIBLE_NODE
        if code is not None:
            return refused(pod, code)
        best = self.simulation.preferred(pod, replacement, landing)
        wrong = best[~useful.serves[best]]
        if len(wrong):
            return self._preferred_elsewhere(pod, int(wrong[0]), useful)
        after_gone = members.stateful
        landed = int(self.simulation.expected(pod, replacement, landing, after_gone=after_gone)[0])
        # What it serves wherever among the best it lands; where that differs, what it is predicted to serve.
        fixed = [(group, gains) for group, gains in useful.own if gains[best].all()]
        fixed = fixed or [(group, gains) for group, gains in useful.own if gains[landed]]
        serves = useful.serves.copy()
        for _, gains in fixed:
            serves &= gains
        serves[best] = True
        if self._comes_first(candidate, serves):
            return refused(pod, ReasonCode.PENDING_PODS)
        return JudgedMove(
            candidate,
            replacement,
            landing,
            np.flatnonzero(serves & landing.anywhere),
            certain=False,
            helps=True,
            fixes=tuple(group for group, _ in fixed),
            landed=landed,
            serves=serves,
        )

    def astray(self, wave: Sequence[JudgedMove]) -> set[int]:
        """Which moves of a wave are not predicted to serve with the others on their way.

        Asked with all victims still there, with all of them gone, and with the replacements placed one after
        the other, forwards and backwards: every order would be too many.
        """
        found: set[int] = set()

        def ask(move: int) -> None:
            replacement = wave[move].replacement
            framework = self.simulation.framework(replacement)
            mask = framework.feasible(replacement)
            if mask.any():
                totals = framework.score(replacement, mask).totals
                mask &= totals == totals[mask].max()
            serves = wave[move].serves
            if not mask.any() or serves is None or not serves[mask].all():
                found.add(move)

        every = range(len(wave))
        with self.simulation.without(*(going.pod for going in wave)) as leaving:
            for move in every:
                if not wave[move].late:
                    ask(move)
            leaving.let_go()
            for move in every:
                ask(move)
        for order in (every, reversed(every)):
            with ExitStack() as made:
                for earlier, move in enumerate(order):
                    if earlier:
                        with self.simulation.without(wave[move].pod) as leaving:
                            leaving.let_go()
                            ask(move)
                    made.enter_context(self.simulation.after((wave[move],)))
        return found

    def _forbidden(
        self,
        needs: Needs,
        candidate: Candidate,
        replacement: PodTemplate,
        landing: Landing,
        also: Rows | None,
    ) -> ReasonCode | None:
        """What forbids the move wherever among the nodes that the filter leaves it would land."""
        if (code := self.unplaceable(landing, also)) is not None:
            return code
        if self.certainty == "certain" and not self.foreseeable(replacement):
            return ReasonCode.NOT_CERTAIN
        nodes = np.flatnonzero(landing.anywhere)
        if also is not None:
            nodes = np.union1d(nodes, also)
        for group in candidate.component.named(candidate.members.counted):
            if (
                group.constraint.hard
                and needs.effect(group, candidate.node).worse[group.domain_of[nodes]].any()
            ):
                return ReasonCode.WOULD_WORSEN
        if self.waiting.interferes(candidate.pod, replacement):
            return ReasonCode.PENDING_PODS
        return None

    def _preferred_elsewhere(self, pod: Pod, node: int, useful: _Useful) -> Refusal:
        """The best-scored node speaks against the move."""
        best = (
            f"the scheduler's scores prefer {self.simulation.state.table.names[node]} for its replacement, "
        )
        if useful.gains[node]:
            code, message = ReasonCode.WOULD_WORSEN, "where it would raise the excess of another constraint"
        else:
            code, message = ReasonCode.WOULD_RETURN, "where it would not help"
        return refused(pod, code, best + message, remedy=_BINDING)

    def _useful(self, needs: Needs, candidate: Candidate) -> _Useful:
        n_nodes = self.simulation.state.table.size
        raises, falls, worse, better = (np.zeros(n_nodes, dtype=np.bool_) for _ in range(4))
        own: list[tuple[Group, Bools]] = []
        for group in candidate.component.named(candidate.members.counted):
            if group.constraint.hard:
                continue
            effect = needs.effect(group, candidate.node)
            raises |= effect.raises[group.domain_of]
            worse |= effect.worse[group.domain_of]
            if needs.excess[group.index] and group.index in candidate.members.carried:
                gains = effect.better[group.domain_of]
                own.append((group, gains))
                falls |= effect.falls[group.domain_of]
                better |= gains
        # The sum of all excess falls, or, on a plateau, nothing needs more and something less: no move is
        # ever undone by another.
        return _Useful(~raises & (falls | (better & ~worse)), better, tuple(own))

    def _comes_first(self, candidate: Candidate, nodes: Bools) -> bool:
        """Whether a waiting pod may be placed before, and is counted by a soft constraint or in the way."""
        if not self.waiting.templates:
            return False
        counted = {id(t) for g in candidate.members.counted for t in self._unplaced.get(g, ())}
        with self.simulation.without(candidate.pod) as leaving:
            for gone in (False, True):
                if gone:
                    leaving.let_go()
                for t in self.waiting.templates:
                    open_to = self.simulation.framework(t).feasible(t)
                    if (open_to if id(t) in counted else open_to & nodes).any():
                        return True
        return False
