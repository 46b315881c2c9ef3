"""Moves for soft constraints, from the state that the moves for the hard ones lead to.

Each component goes downhill by itself. Moves of different components go in waves together, and each is judged
once more as its wave begins and with the others of the wave in flight, for they change each other's scores.
What no longer holds is taken back, and moves that led up to it are not made in vain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner import objective
from rebalancer.planner.bounds import Effort
from rebalancer.planner.bounds.one_key import Band, fewest_moves, least_excess
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group, Groups
from rebalancer.planner.cluster.pod_classes import Classes
from rebalancer.planner.cluster.simulation import Landing, Simulation, key_of
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.hard import Phase, Planned
from rebalancer.planner.moves import Candidate, Judge, JudgedMove, Order, Wave, in_order
from rebalancer.planner.plan import Certainty, Refusal, comes_first, left_alone, reason, refused
from rebalancer.planner.waves.schedule import LARGEST, Schedule
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Bools, Ints, Rows

# What a constraint still needs, and what one more move makes of that.
#
# Two figures, compared in this order: the excess, and the fewest moves to the least excess that can be
# reached. The second is for shapes like [4,4,0,0], where the excess falls only with a later move.

_NEVER = 1 << 40
"""Moves to what cannot be reached."""


class Effect(Struct, frozen=True, eq=False):
    """What a pod that leaves one domain makes of a group, by the domain that takes it; the last entry is for
    nodes of no domain.

    `better`, `worse`: bool[D + 1], of excess and moves. `raises`, `falls`: bool[D + 1], of the excess alone.
    """

    better: Bools
    worse: Bools
    raises: Bools
    falls: Bools


class Needs:
    """The needs of a component's groups as the simulation stands. To be made anew when that changes."""

    def __init__(self, simulation: Simulation, component: Component, judge: Judge) -> None:
        self._simulation = simulation
        self._component = component
        self._judge = judge
        state = simulation.state
        self.counts: dict[int, Ints] = {g.index: g.counts(state) for g in component.groups}
        self.excess: dict[int, int] = {g.index: g.excess(self.counts[g.index]) for g in component.groups}

    def soft_excess(self) -> int:
        """Of all soft constraints of the component."""
        return sum(self.excess[g.index] for g in self._component.groups if not g.constraint.hard)

    def height(self, group: Group, node: int) -> int:
        """How many counted pods the domain of a node has beyond what the constraint allows."""
        domain = int(group.domain_of[node])
        if domain < 0:
            return 0
        counts = self.counts[group.index]
        return max(0, int(counts[domain]) - group.minimum(counts) - group.constraint.max_skew)

    def bucket(self, node: int) -> tuple[int, ...]:
        """Equal for nodes of one bucket: in one domain, or in domains of their own that count the same."""
        component = self._component
        found = []
        for group, alone in zip(component.groups, component.own_domain, strict=True):
            domain = int(group.domain_of[node])
            found += [int(alone[node]), int(self.counts[group.index][domain]) if alone[node] else domain]
        return tuple(found)

    def effect(self, group: Group, node: int) -> Effect:
        """Of a counted pod that leaves node `node`."""
        return self._effect(group, int(group.domain_of[node]))

    @remembered(by=lambda group, leaves: (group.index, leaves))
    def _effect(self, group: Group, leaves: int) -> Effect:
        none = np.zeros(group.size + 1, dtype=np.bool_)
        if not group.size:
            return Effect(none, none, none, none)
        counts, now = self.counts[group.index], self.excess[group.index]
        into: Ints = np.append(np.arange(group.size), -1)
        after = group.excess_after(counts, leaves, into)
        raises, falls = after > now, after < now
        falls[-1] = False  # to be counted nowhere is no better place
        better, worse = falls.copy(), raises.copy()
        same = np.flatnonzero((after == now) & (into != leaves) & (into >= 0))
        if now and len(same):
            *left, by_now = self._moves_after(group, leaves, into[same])
            better[same], worse[same] = np.array(left) < by_now, np.array(left) > by_now
        return Effect(better, worse, raises, falls)

    def _moves_after(self, group: Group, leaves: int, into: Ints) -> Ints:
        """int64[len(into) + 1]: moves that are left after each of these moves; last, those left now."""
        counts, now, band = self.counts[group.index], self.excess[group.index], self._band(group)
        skew, enough = group.constraint.max_skew, group.enough_domains
        least = least_excess(counts, band, skew, enough, now)

        def left(of: Ints) -> int:
            level = fewest_moves(of, band, skew, enough, least)
            return level.moves if level is not None else _NEVER

        # Domains that hold as much, and may, are the same to it.
        padded = [np.append(column, -1)[into] for column in (counts, band.floor, band.ceiling)]
        _, first, same = np.unique(np.stack(padded), axis=1, return_index=True, return_inverse=True)
        found = np.empty(len(first), dtype=np.int64)
        for at, number in enumerate(first):
            after = counts.copy()
            if leaves >= 0:
                after[leaves] -= 1
            if (domain := int(into[number])) >= 0:
                after[domain] += 1
            found[at] = left(after)
        return np.append(found[same.reshape(-1)], left(counts))

    @remembered()
    def _band(self, group: Group) -> Band:
        """What the domains can hold: pods that policy keeps stay; where none may go, none is added."""
        counts = self.counts[group.index]
        movable = np.zeros(self._simulation.state.table.size, dtype=np.int64)
        open_to = np.zeros(len(movable), dtype=np.bool_)
        for pod_class in self._component.classes:
            if group.index in pod_class.counted:
                open_to |= pod_class.static
                for pods in pod_class.by_node.values():
                    for pod in pods:
                        if self._judge.may_go(pod):
                            movable[_place(self._simulation.state, key_of(pod))] += 1
        floor = counts - group.by_domain(movable)
        open_domains = group.by_domain(open_to.astype(np.int64)) > 0
        ceiling = np.where(open_domains, int(counts.sum()) + 1, counts)
        return Band(np.maximum(floor, 0), ceiling)


def _place(state: ClusterState, key: Hashable) -> int:
    """The node of a pod, or of what has replaced it."""
    return (state.pods.get(key) or state.pods["replacement", key]).row


# One candidate move for soft constraints, judged.
#
# The filter does not know soft constraints, so such a move rests on the scheduler's scores: on all of the
# best-scored nodes, ties and all, while the victim holds its room and once it is gone, one of the pod's own
# soft constraints must need less (`soft.needs`) and no soft one may have more excess. For hard constraints,
# for room and for Pending pods the scores are not trusted: these must hold on every node that the filter
# leaves.

_BINDING = "DoNotSchedule would make it binding for the scheduler"
_SOFT = "its workload is to be replaced first, which is not done for soft constraints: scores are guesses"


class _Useful(Struct, frozen=True, eq=False):
    """bool[N]: where a replacement serves; where the pod's own constraints would gain, others aside."""

    serves: Bools
    gains: Bools
    own: tuple[tuple[Group, Bools], ...]


class SoftJudge(Judge):
    """Judges moves for soft constraints on the simulation's present state.

    `groups`, `classes`: of hard and soft constraints. No pod is replaced first for them: scores are guesses.
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
        if (kept := self._classes.kept(pod)) is not None:
            return Refusal(pod, kept)
        if self._classes.release(pod) is not None:
            return refused(pod, ReasonCode.NOT_REPLACED_FIRST, _SOFT)
        useful = self._useful(needs, candidate)
        if not (useful.serves & members.static).any():
            harms = bool((useful.gains & members.static).any())
            return refused(pod, ReasonCode.WOULD_WORSEN if harms else ReasonCode.NO_FEASIBLE_NODE)
        replacement, landing = self.landing(candidate)
        if (why := self._forbidden(needs, candidate, replacement, landing, also)) is not None:
            return Refusal(pod, why)
        nodes = np.flatnonzero(landing.anywhere)
        if self.simulation.leaves_alone(pod, replacement, nodes):
            return left_alone(pod)
        if (harm := self.waiting.why_not(pod, replacement, nodes, stays=False)) is not None:
            return harm
        if not (useful.serves & landing.anywhere).any():
            return refused(pod, ReasonCode.NO_FEASIBLE_NODE)
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
        if (other := self._comes_first(candidate, serves)) is not None:
            return comes_first(pod, other)
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

    def elsewhere(self, wave: Sequence[JudgedMove]) -> set[int]:
        """Which moves of a wave are not predicted to serve with the others on their way.

        Asked with all victims still there, with all of them gone, and with the replacements placed one after
        the other, forwards and backwards: every order would be too many.
        """
        found: set[int] = set()

        def ask(move: int) -> None:
            replacement = wave[move].replacement
            framework = self.simulation.framework(replacement)
            mask = framework.best(replacement, framework.feasible(replacement))
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
    ) -> Reason | None:
        """What forbids the move wherever among the nodes that the filter leaves it would land."""
        if (why := self.unplaceable(replacement, landing, also)) is not None:
            return why
        if self.certainty == "certain" and self.doubt(replacement):
            return reason(ReasonCode.NOT_CERTAIN)
        nodes = np.flatnonzero(landing.anywhere)
        if also is not None:
            nodes = np.union1d(nodes, also)
        for group in candidate.component.named(candidate.members.counted):
            if (
                group.constraint.hard
                and needs.effect(group, candidate.node).worse[group.domain_of[nodes]].any()
            ):
                return reason(ReasonCode.WOULD_WORSEN)
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

    def _comes_first(self, candidate: Candidate, nodes: Bools) -> Pod | None:
        """A waiting pod that may be placed before, and is counted by a soft constraint or in the way."""
        if not self.waiting.templates:
            return None
        counted = {id(t) for g in candidate.members.counted for t in self._unplaced.get(g, ())}
        with self.simulation.without(candidate.pod) as leaving:
            for gone in (False, True):
                if gone:
                    leaving.let_go()
                for t in self.waiting.templates:
                    open_to = self.waiting.open_to(t)
                    if (open_to if id(t) in counted else open_to & nodes).any():
                        return self.waiting.one(t)
        return None


# Moves of one component downhill: each is one that the soft judge lets pass, the fullest domain first.
#
# They end with the move that lowers the excess last. The search takes no step back.

TRIED_PER_CELL = 3
"""Victims tried on nodes that the constraints cannot tell apart, before a refusal counts for all of them."""

WhyNot = dict[tuple[int, int], Reason]
"""`Candidate.place` → why no pod there is moved."""


class Descent:
    """Descends once, from the simulation's present state, which it leaves as it was.

    `why_not`: after `run`, why no pod of a place was moved, as far as one was tried.
    """

    def __init__(self, simulation: Simulation, component: Component, judge: SoftJudge, effort: int) -> None:
        self._simulation = simulation
        self._component = component
        self._judge = judge
        self._effort = Effort(effort, simulation.spent)
        self.why_not: WhyNot = {}

    def run(self) -> Sequence[JudgedMove]:
        """Moves up to the last that lowers the soft excess."""
        moves: list[JudgedMove] = []
        with ExitStack() as made:
            needs = self._needs()
            while needs.soft_excess():
                move = self._next(needs)
                if move is None:
                    break
                moves.append(move)
                made.enter_context(self._simulation.after((move,)))
                needs = self._needs()
        kept = up_to_last_gain(self._simulation, self._component, moves)
        self.why_not.update((m.candidate.place, reason(ReasonCode.NOT_NEEDED)) for m in moves[len(kept) :])
        return kept

    def _needs(self) -> Needs:
        return Needs(self._simulation, self._component, self._judge)

    def _next(self, needs: Needs) -> JudgedMove | None:
        """The first candidate that holds."""
        refusals: dict[object, list[Reason]] = defaultdict(list)
        for candidate in self._candidates(needs):
            if self._effort.gone:
                break
            bucket = refusals[candidate.pod_class, needs.bucket(candidate.node)]
            if len(bucket) < TRIED_PER_CELL:
                self._effort.candidates()
                verdict = self._judge.judge(needs, candidate)
                if not isinstance(verdict, Refusal):
                    return verdict
                bucket.append(verdict.reason)
            self.why_not[candidate.place] = bucket[-1]
        return None

    def _candidates(self, needs: Needs) -> Iterator[Candidate]:
        """For each class and node the best victim: of the fullest domains first, then in victim order."""
        soft = [g for g in self._component.groups if not g.constraint.hard and needs.excess[g.index]]
        entries: list[tuple[tuple[object, ...], Candidate]] = []
        for index, pod_class in enumerate(self._component.classes):
            mine = [g for g in soft if g.index in pod_class.carried]
            for node, pods in pod_class.by_node.items() if mine else ():
                there = (p for p in pods if self._judge.may_go(p))
                pod = next((p for p in there if key_of(p) in self._simulation.state.pods), None)
                if pod is not None:
                    candidate = Candidate(self._component, index, node, pod)
                    if self._judge.gains(needs, candidate):
                        height = sum(needs.height(g, node) for g in soft if g.index in pod_class.counted)
                        entries.append((objective.victim(height, self._judge.order(pod)), candidate))
        for _, candidate in sorted(entries, key=lambda e: e[0]):
            yield candidate


def up_to_last_gain(
    simulation: Simulation, component: Component, moves: Sequence[JudgedMove]
) -> Sequence[JudgedMove]:
    """The moves without those at the end that lower no excess."""
    soft = [g for g in component.groups if not g.constraint.hard]

    def rank(made: int) -> objective.Rank:
        excess = sum(g.excess(g.counts(simulation.state)) for g in soft)
        return objective.rank(excess, moves[:made])

    kept, best = 0, rank(0)
    with ExitStack() as made:
        for i, move in enumerate(moves, 1):
            made.enter_context(simulation.after((move,)))
            if (here := rank(i)) < best:
                kept, best = i, here
    return moves[:kept]


TURNS = 8
"""Times that the components are gone through: the moves of one change the scores that others rest on."""

Sequences = Sequence[Sequence[JudgedMove]]


class SoftPhase(Phase):
    """Each component downhill; what a wave changes for its own moves is judged again."""

    turns = TURNS

    def __init__(
        self,
        simulation: Simulation,
        evictable: Evictable,
        judge: SoftJudge,
        components: Sequence[Component],
        effort: int,
    ) -> None:
        super().__init__(simulation, evictable)
        self._judge = judge
        self._components = components
        self._effort = effort
        self._dropped: dict[str, JudgedMove] = {}
        self._why_not: WhyNot = {}

    def plan(self) -> Planned:
        """The moves, in waves, and why no more are made."""
        return replace(super().plan(), why_not=self._why_not)

    def sequences(self, turn: int) -> Iterator[Sequence[JudgedMove]]:  # noqa: ARG002
        """The way down of each component with an excess."""
        self._why_not.clear()
        for component in self._components:
            descent = Descent(self.simulation, component, self._judge, self._effort)
            if moves := descent.run():
                yield moves
            self._why_not.update(descent.why_not)

    def scheduled(self, sequences: Sequences) -> Schedule:
        """The moves in waves; of a component with a move that does not hold in its turn, none follows."""
        queues = [list(moves) for moves in sequences]
        waves: list[Wave] = []
        with ExitStack() as made:
            while queues:
                found = self.scheduler.schedule([[_anywhere(moves[0])] for moves in queues[:LARGEST]])
                ended = {id(m.component) for m in found.dropped}
                self._dropped.update((m.pod.key, m) for m in found.dropped)
                for wave in found.waves:
                    held, failed = self._held(wave)
                    ended |= failed
                    if held:
                        waves.append(held)
                        made.enter_context(self.simulation.after(held))
                    for m in held:
                        next(moves for moves in queues if moves and moves[0].component is m.component).pop(0)
                    if len(held) < len(wave):
                        # What follows was arranged for a wave that is kept whole.
                        break
                queues = [moves for moves in queues if moves and id(moves[0].component) not in ended]
                queues = queues if found.dropped else [*queues[LARGEST:], *queues[:LARGEST]]
        return Schedule(tuple(waves), tuple(self._dropped.values()))

    def _held(self, wave: Wave) -> tuple[list[JudgedMove], set[int]]:
        """The moves of a wave that hold as it begins, with the others in flight; and the components whose
        moves do not hold even alone.

        What fails only for the others' sake may hold in a later wave.
        """
        held: list[JudgedMove] = []
        failed: set[int] = set()
        for m in wave:
            needs = Needs(self.simulation, m.component, self._judge)
            verdict = self._judge.judge(needs, m.candidate, also=m.destinations)
            if isinstance(verdict, Refusal):
                failed.add(id(m.component))
                self._why_not[m.candidate.place] = verdict.reason
            else:
                held.append(verdict)
        while len(held) > 1 and (elsewhere := self._judge.elsewhere(held)):
            # The first stays in any case: alone it holds.
            held = [m for i, m in enumerate(held) if i not in elsewhere] or held[:1]
        return held, failed

    def improved(self, found: Schedule) -> Schedule:
        """Without moves that only prepared for others which are not made; the rest is arranged anew."""
        while True:
            sequences = _sequences(found.waves)
            cut = [up_to_last_gain(self.simulation, moves[0].component, moves) for moves in sequences]
            in_vain = [m for moves, left in zip(sequences, cut, strict=True) for m in moves[len(left) :]]
            if not in_vain:
                return found
            self._why_not.update((m.candidate.place, reason(ReasonCode.NOT_NEEDED)) for m in in_vain)
            found = self.scheduled([moves for moves in cut if moves])


def _anywhere(move: JudgedMove) -> JudgedMove:
    """The move as one that may share a wave as far as room goes; whether the scores allow it is seen then."""
    return replace(move, destinations=np.flatnonzero(move.landing.anywhere), certain=True)


def _sequences(waves: Sequence[Wave]) -> Sequences:
    """The moves of each component, in order."""
    sequences: dict[int, list[JudgedMove]] = defaultdict(list)
    for m in in_order(waves):
        sequences[id(m.component)].append(m)
    return list(sequences.values())
