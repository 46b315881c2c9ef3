"""Pods that wait for a node, and what they take when an eviction makes room or lowers a count.

A waiting pod with one node to go to is about to be placed there: the plan starts from that. Where the
scheduler has found no node for it before, it may be tried late: a move must hold without it, too, as it must
with and without pods that somebody else has deleted, whose room others wait for. One that is
Pending because of a spread constraint, or for lack of room, becomes feasible when a victim goes, and may be
placed before the victim's replacement: a move must hold with it placed first. One whose volume claim is not
there yet, or not bound, can go as soon as it is: until then it may go wherever it could without volumes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from rebalancer.engine.state.storage import fully_bound
from rebalancer.model.node import HOSTNAME
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.cluster.bystanders import SpokenFor
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.enough_room import Beside
from rebalancer.planner.cluster.groups import Groups, can_open, conflicts_at_all, repels
from rebalancer.planner.cluster.let_in import LetIn
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.planner.cluster.to_be_made import NOTHING, ToBeMade
from rebalancer.planner.plan import Refusal, comes_first, counted_by_then
from rebalancer.policy.owners import ARRIVAL
from rebalancer.spread.arrays import Bools, Rows, among


def settle(simulation: Simulation, pods: Iterable[Pod], first: int) -> list[Pod]:
    """Places, in the scheduler's order, what has one node to go to; returns the pods whose place is open.

    `first`: the highest priority that a replacement can have.
    """
    unsettled: list[Pod] = []
    templates: set[int] = set()
    earlier = simulation.state.table.none
    for pod in sorted(pods, key=lambda p: (-p.template.priority, p.created or 0.0, p.key)):
        t = pod.template
        if not simulation.static(t).any():
            # No node would take it, whoever went: it is in nobody's way, unless it has just come.
            bare = without_claims(pod, simulation) if _new(pod, simulation.snapshot.now) else pod
            if bare is not pod and simulation.static(bare.template).any():
                unsettled.append(bare)
            continue
        if id(t) not in templates:
            if _settled(simulation, pod, first, earlier):
                continue
            with simulation.state.unhindered(key_of(pod)):
                earlier = earlier | simulation.framework(t).feasible(t)
        templates.add(id(t))
        unsettled.append(pod)
    return unsettled


def _settled(simulation: Simulation, pod: Pod, first: int, earlier: Bools) -> bool:
    """Places a pod that has one node to go to, or may go to the one that it is nominated for.

    Unless one that comes before may take that (`earlier`, bool[N]), or a replacement: one of higher priority,
    or any, where the pod's scheduler may not even run. A pod for which the scheduler found no node before may
    be in backoff: it is placed early.
    """
    state, t, key = simulation.state, pod.template, key_of(pod)
    if t.priority < first or simulation.uncertainties(t):
        return False
    nominated = state.nominated.get(key)
    with state.unhindered(key):
        nodes = np.flatnonzero(simulation.framework(t).feasible(t))
    if nominated is not None and nominated.row in nodes:
        nodes = nodes[nodes == nominated.row]
    if len(nodes) != 1 or earlier[nodes[0]]:
        return False
    if nominated is not None:
        state.unnominate(key)
    if pod.unschedulable:
        simulation.place_early(pod, int(nodes[0]))
    else:
        state.add(("placed", key), t, int(nodes[0]))
    return True


def _new(pod: Pod, now: float) -> bool:
    return pod.created is None or now - pod.created < ARRIVAL


def without_claims(pod: Pod, simulation: Simulation) -> Pod:
    """The pod without its volumes, if a claim of it is not there or waits for its volume; else the pod."""
    storage = simulation.state.storage
    if not storage.known:
        return pod
    claims = [storage.claim(pod.namespace, name) for name in pod.template.claims]
    if all(c is not None and (fully_bound(c) or storage.waits(c)) for c in claims):
        return pod
    return replace(pod, template=replace(pod.template, volumes=()))


class Waiting:
    """The waiting pods of a snapshot whose place is not settled (`settle`).

    They are asked about as the simulation stands, and without the pods that may be gone, or not be there yet
    (`Simulation.unsure`): the latter then wait with the others.
    """

    def __init__(
        self,
        simulation: Simulation,
        groups: Groups,
        unsettled: Iterable[Pod],
        made: Sequence[ToBeMade] = (NOTHING,),
    ) -> None:
        """`made`: who waits for another's end may lose its node to any of them. See `to_be_made`."""
        self._simulation = simulation
        self._groups = groups
        unsettled = list(unsettled)
        pods = [*unsettled, *made[0].again]
        self._unsettled, self._coming = pods, [*made[0].anew.values(), *made[0].coming]
        self._now = self._every = LetIn(simulation, groups, pods)
        if simulation.unsure and (pods or simulation.early):
            with simulation.without_unsure():
                self._every = LetIn(simulation, groups, [*pods, *simulation.early])
        self.spoken_for = [self._spoken_for(unsettled, reading) for reading in made]
        self._matters: dict[int, bool] = {}
        self._open: tuple[int, dict[int, Bools]] = -1, {}
        self.let_in: dict[int, tuple[PodTemplate, int]] = {}
        """Templates of pods, and how many, that the moves of the plan so far may let in (`stirred_by`)."""

    def _spoken_for(self, unsettled: Iterable[Pod], made: ToBeMade) -> SpokenFor:
        pods = [*unsettled, *made.again]
        table, open_ = self._simulation.state.table, self._simulation.state.table.none
        wanting = (*pods, *made.leaving, *made.coming) if made.rolls else ()
        for t in {id(p.template): p.template for p in wanting}.values():
            open_ = open_ | self._simulation.static(t)
        leaves = made.leaves(lambda node: node in table.index and bool(open_[table.index[node]]))
        ending = bool(self._simulation.unsure or leaves or made.ends)
        first = [p for p in pods if p.waits and not self._late(p, ending)]
        known = set(map(id, first))
        others = [*made.coming, *self._simulation.early, *(p for p in pods if id(p) not in known)]
        return SpokenFor(self._simulation, self._groups, pods, leaves, others, first, made.ends, made.last)

    @property
    def templates(self) -> Collection[PodTemplate]:
        """The templates of the pods, each once."""
        return self._every.templates.values()

    def one(self, template: PodTemplate) -> Pod:
        """The first of the pods of a template."""
        return self._every.pods[id(template)][0]

    @contextmanager
    def _asked_of_every(self) -> Iterator[LetIn]:
        """All that may wait, in the state that goes with them."""
        if self._every is self._now:
            yield self._every
        else:
            with self._simulation.without_unsure():
                yield self._every

    def open_to(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that would take a pod of the template, now or without those that are unsure."""
        nodes = self._simulation.state.table.none
        if id(template) in self._now.templates:
            nodes = self._now.feasible(template)
        if self._every is not self._now:
            with self._asked_of_every() as every:
                nodes = nodes | every.feasible(template)
        return nodes

    def any_placeable(self) -> bool:
        """Whether in the simulation's present state there is, or may be, a node for one of them."""
        return any(self.open_to(t).any() for t in self.templates)

    def concern(self, component: Component) -> bool:
        """Whether a constraint of the component counts one of them, or binds it."""
        own = component.local.keys()
        return any(
            not own.isdisjoint((*self._groups.counted(t), *self._groups.carried(t))) for t in self.templates
        )

    def interferes(self, victim: Pod, replacement: PodTemplate) -> Pod | None:
        """A waiting pod that could spoil the move: take the slot, or the last room, it makes.

        Or, with that, raise the excess of any constraint that counts it: that would be the move's doing.
        """
        found = self._now.interferes(victim, replacement, [self._simulation.state.table.every] * 2)
        if found is None and self._every is not self._now and self._unsure_matter(victim):
            # What only their end opens is of no use to the replacement before.
            within: list[Bools] = []
            with self._simulation.without(victim) as leaving:
                within.append(self._simulation.framework(replacement).feasible(replacement).copy())
                leaving.let_go()
                within.append(self._simulation.framework(replacement).feasible(replacement).copy())
            with self._asked_of_every() as every:
                found = every.interferes(victim, replacement, within)
        return None if found is None else self.one(found)

    def why_not(self, victim: Pod, replacement: PodTemplate, nodes: Rows, *, stays: bool) -> Refusal | None:
        """Why the move is spoilt by pods that wait, or harms these or others; see `SpokenFor.left_out`."""
        other = self.interferes(victim, replacement) or self._comes_before(replacement, nodes, victim)
        if other is not None:
            return comes_first(victim, other)
        if (other := self._counted_by_then(replacement, victim)) is not None:
            return counted_by_then(victim, other)
        asked = (s.left_out(victim, replacement, nodes, stays=stays) for s in self.spoken_for)
        return next((why for why in asked if why is not None), None)

    def crowded(self, moves: Sequence[tuple[Pod, PodTemplate, Rows, int]]) -> bool:
        """Whether replacements that may land on these nodes could together take what each alone leaves to
        others, or to one of them that waits for its victim's end.

        The last is the node on which the state has the replacement already, or -1.
        """
        landings = [(replacement, nodes, landed) for _, replacement, nodes, landed in moves]
        for i, (victim, replacement, nodes, landed) in enumerate(moves):
            if landed < 0 and self._waits_for_end(victim):
                within = among(self._simulation.state.table.size, nodes)
                others = ((t, n[within[n] & (n != at)]) for t, n, at in (*landings[:i], *landings[i + 1 :]))
                beside = [(t, there) for t, there in others if len(there)]
                if self._comes_before(replacement, nodes, victim, beside) is not None:
                    return True
        return any(s.crowded(landings) for s in self.spoken_for)

    def _waits_for_end(self, victim: Pod) -> bool:
        """Whether its owner makes the replacement only then, and others come by then."""
        return bool(self._coming) and victim.owner is not None and victim.owner.kind == "StatefulSet"

    def _comes_before(
        self, replacement: PodTemplate, nodes: Rows, victim: Pod, beside: Beside = ()
    ) -> Pod | None:
        """One that is made before a replacement that waits for its victim's end, and with all that wait or
        come, and replacements `beside` it, could take the last of the nodes: or leave them, where the
        replacement has to be near it."""
        if not self._waits_for_end(victim):
            return None
        simulation, state = self._simulation, self._simulation.state
        coming = [p for p in self._still_coming() if key_of(p) != key_of(victim)]
        number = Counter(id(p.template) for p in (*self._unsettled, *coming))
        within = among(state.table.size, nodes)
        leaving = [p for p in coming if p.node_name]
        if leaving and state.terms.of(replacement).required:
            keys = map(key_of, (victim, *leaving))
            with simulation.without_unsure(), state.removed([k for k in keys if k in state.pods]):
                within &= simulation.framework(replacement).feasible(replacement, spread=False)
            if not within.any():
                return next((p for p in leaving if can_open(state, p.template, replacement)), None)

        def some(able: Mapping[int, Bools]) -> list[tuple[PodTemplate, Bools]]:
            """Those that may go to the nodes, if they together could take the last of them."""
            there = [
                (t, able[i]) for i, t in world.templates.items() if number[i] and (able[i] & within).any()
            ]
            fits = not there or world.room_for_all(there, within, replacement, number, beside)
            return [] if fits else there

        world = self._ahead
        if not some({i: simulation.static(t) for i, t in world.templates.items()}):
            return None
        able = {id(t) for t, _ in some(self._open_to_coming())}
        return next((p for p in coming if id(p.template) in able), None)

    def _counted_by_then(self, replacement: PodTemplate, victim: Pod) -> Pod | None:
        """One that is made before a replacement that waits for its victim's end, and that this one's
        constraints count: which nodes they leave it is not known."""
        if not self._waits_for_end(victim):
            return None
        hard = self._simulation.state.constraints(replacement, hard=True)
        every = (t for t in self._ahead.templates.values() if hard)
        counted = {id(t) for t in every if any(c.counts(t.namespace, t.labels) for c in hard)}
        coming = self._still_coming() if counted else ()
        return next((p for p in coming if id(p.template) in counted and key_of(p) != key_of(victim)), None)

    def _still_coming(self) -> list[Pod]:
        """Those that are to be made, and those that are to leave where they are."""
        there = self._simulation.state.pods
        return [p for p in self._coming if not p.node_name or key_of(p) in there]

    @cached_property
    def _ahead(self) -> LetIn:
        """All that wait or come."""
        return LetIn(self._simulation, self._groups, [*self._unsettled, *self._coming])

    def _open_to_coming(self) -> dict[int, Bools]:
        """bool[N] by template: nodes that may take one that waits or comes, once all that leaves is gone. Its
        constraints bar nodes where it comes alone, and they are kept: nobody is moved for them. So does whom
        it has to be near, unless that is to come, too."""
        state, groups = self._simulation.state, self._groups
        if self._open[0] != state.mark:
            found, coming = dict[int, Bools](), self._still_coming()
            beside: dict[str, list[PodTemplate]] = defaultdict(list)
            for p in (*self._unsettled, *coming):
                beside[p.namespace].append(p.template)
            kept = {g.index for g in groups.all if not g.excess(g.counts(state))}
            bound: dict[int, bool] = {}
            for i, t in self._ahead.templates.items():
                hard = state.constraints(t, hard=True)
                counted = (any(c.counts(o.namespace, o.labels) for c in hard) for o in beside[t.namespace])
                bound[i] = kept.issuperset(groups.carried(t)) and sum(counted) <= 1
            leaving = [key_of(p) for p in coming if p.node_name]
            with self._asked_of_every(), state.removed(k for k in leaving if k in state.pods):
                every = self._ahead.templates
                for i, t in every.items():
                    near = state.terms.of(t).required and any(can_open(state, o, t) for o in every.values())
                    asked = self._ahead.without_others(t) if near else t
                    found[i] = self._ahead.feasible(t, spread=bound[i], alike=asked)
            self._open = state.mark, found
        return self._open[1]

    def _late(self, pod: Pod, ending: bool) -> bool:
        """Whether the pod may be placed after a replacement: it is in backoff, or waits for another's end."""
        if id(pod.template) not in self._now.placeable:
            return ending
        return bool(pod.unschedulable) and key_of(pod) not in self._simulation.state.nominated

    def _unsure_matter(self, victim: Pod) -> bool:
        """Whether the pods that wait may go elsewhere without those that are unsure."""
        simulation = self._simulation
        state = simulation.state
        if simulation.early or simulation.unsure_on[state.pods[key_of(victim)].row]:
            return True
        found = self._matters.get(state.mark)
        if found is None:
            ending = [state.pods[key].template for key in simulation.unsure if key in state.pods]
            found = any(map(conflicts_at_all, ending)) or any(map(conflicts_at_all, self.templates))
            if not found:
                with self._asked_of_every() as every:
                    found = any((every.room_of(t) & simulation.unsure_on).any() for t in self.templates)
            self._matters = {state.mark: found}
        return found

    def stirred_by(
        self, moves: Iterable[tuple[PodTemplate, int, PodTemplate]]
    ) -> dict[int, tuple[PodTemplate, int]]:
        """Templates of those that moves may let in, and how many: while one is made, once it is made, or by
        what others of them open to them. `moves`: victims, their nodes by number, replacements."""
        moves = list(moves) if self.templates else []
        if not moves:
            return {}
        with self._asked_of_every() as every:
            return every.stirred_by(moves)

    def spoils(self, waiting: PodTemplate, replacement: PodTemplate) -> bool:
        """Whether the pod anywhere could spoil more for a replacement than the room of its node."""
        touched = {*self._groups.counted(replacement), *self._groups.carried(replacement)}
        return not touched.isdisjoint(self._groups.counted(waiting)) or any(
            key != HOSTNAME for key in repels(waiting, replacement)
        )
