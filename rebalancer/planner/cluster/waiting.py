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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.engine.state.storage import fully_bound
from rebalancer.model.node import HOSTNAME
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.cluster.bystanders import SpokenFor
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.enough_room import Beside, never_filled
from rebalancer.planner.cluster.groups import Groups, can_conflict, can_open, conflicts_at_all, repels
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.planner.cluster.to_be_made import NOTHING, ToBeMade
from rebalancer.planner.plan import Refusal, comes_first, counted_by_then
from rebalancer.policy.owners import ARRIVAL
from rebalancer.spread.arrays import Bools, Ints, Rows, among, first_places

_TRIED = 16
"""Nodes tried for a waiting pod; one that could go to more of them counts as in the way."""


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
        self._now = self._every = _World(simulation, groups, pods)
        if simulation.unsure and (pods or simulation.early):
            with simulation.without_unsure():
                self._every = _World(simulation, groups, [*pods, *simulation.early])
        self.spoken_for = [self._spoken_for(unsettled, reading) for reading in made]
        self._matters: dict[int, bool] = {}
        self._open: tuple[int, dict[int, Bools]] = -1, {}
        self.let_in: dict[int, tuple[PodTemplate, int]] = {}
        """Templates of pods, and how many, that the moves of the plan so far may let in (`stirred_by`)."""

    def _spoken_for(self, unsettled: Iterable[Pod], made: ToBeMade) -> SpokenFor:
        pods = [*unsettled, *made.again]
        ending = bool(self._simulation.unsure or made.leaves or made.ends)
        first = [p for p in pods if p.waits and not self._late(p, ending)]
        known = set(map(id, first))
        others = [*made.coming, *self._simulation.early, *(p for p in pods if id(p) not in known)]
        return SpokenFor(
            self._simulation, self._groups, pods, made.leaves, others, first, made.ends, made.last
        )

    @property
    def templates(self) -> Collection[PodTemplate]:
        """The templates of the pods, each once."""
        return self._every.templates.values()

    def one(self, template: PodTemplate) -> Pod:
        """The first of the pods of a template."""
        return self._every.pods[id(template)][0]

    @contextmanager
    def _asked_of_every(self) -> Iterator[_World]:
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
    def _ahead(self) -> _World:
        """All that wait or come."""
        return _World(self._simulation, self._groups, [*self._unsettled, *self._coming])

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


class _World:
    """Pods that wait, counted by template, in one state of the simulation, where moves are tried.

    `templates`, and the `pods` of each, by its identity.
    """

    def __init__(self, simulation: Simulation, groups: Groups, pods: Iterable[Pod]) -> None:
        self._simulation = simulation
        self._groups = groups
        self.templates: dict[int, PodTemplate] = {}
        self.pods: dict[int, list[Pod]] = defaultdict(list)
        for pod in pods:
            self.templates[id(pod.template)] = pod.template
            self.pods[id(pod.template)].append(pod)
        nominated = simulation.state.nominated
        self._nominated = {
            i: keys
            for i, every in self.pods.items()
            if (keys := [k for k in map(key_of, every) if k in nominated])
        }
        self.placeable = {i for i, t in self.templates.items() if self.feasible(t).any()}
        """Templates of pods that had a node to go to, now or after some eviction that was looked at."""
        self._mark = simulation.state.mark
        self._open: dict[int, Bools] = {}
        self._room: dict[int, Bools] = {}
        self._roomy: dict[int, bool] = {}
        self._apart: dict[int, Bools] = {}
        """By template, as the simulation stood at `_mark`: nodes that take it, that have room for it, whether
        there are such, and nodes that take it but for counts and pods to be near."""
        self._kinds: dict[bytes, int] = {}
        self._met: dict[tuple[int, int], tuple[bool, bool, bool]] = {}

    def stirred_by(
        self, moves: Iterable[tuple[PodTemplate, int, PodTemplate]]
    ) -> dict[int, tuple[PodTemplate, int]]:
        """See `Waiting.stirred_by`."""
        self._renew()
        found: dict[int, tuple[PodTemplate, int]] = {}
        for victim, node, replacement in moves:
            fits = self._fits(node, dict(self._simulation.state.holds(victim)))
            first = [
                t
                for i, t in self.templates.items()
                if (i in fits or self._finds_room(t))
                and (self._asked_for(i, t, fits, victim) or self._meet(t, replacement)[2])
            ]
            opened = self._opened(self._after(first), self._of_kind, self._room_with(node, fits))
            found |= {id(t): (t, len(self.pods[id(t)])) for t in (*first, *(t for t, _ in opened))}
        return found

    def feasible(
        self, waiting: PodTemplate, *, spread: bool = True, alike: PodTemplate | None = None
    ) -> Bools:
        """bool[N]: nodes that take a pod of the template, or of one `alike`. What its own pods are nominated
        for is not in its way."""
        asked = alike or waiting
        with self._simulation.state.unhindered(*self._nominated.get(id(waiting), ())):
            return self._simulation.framework(asked).feasible(asked, spread=spread)

    def interferes(
        self, victim: Pod, replacement: PodTemplate, within: Sequence[Bools]
    ) -> PodTemplate | None:
        """See `Waiting.interferes`. `within`: the nodes that the replacement may count on, while the victim
        holds its room, and once it is gone."""
        node = self._simulation.state.pods[victim.uid or victim.key].row
        simulation = self._simulation
        freed = dict(simulation.state.holds(victim.template))
        fits = self._fits(node, freed)
        concerned = [t for i, t in self.templates.items() if self._asked_for(i, t, fits, victim.template)]
        if not concerned:
            return None
        self._renew()
        if (brought := self._brought(victim, node, replacement, self._room_with(node, fits))) is not None:
            return brought
        # Most find no room anywhere, with the victim gone or not: they are asked no further.
        able = [t for t in concerned if id(t) in fits or self._finds_room(t)]
        touched = {*self._groups.counted(replacement), *self._groups.carried(replacement)}
        before = {id(t): self._open_before(t) for t in able}
        linked = self._by_kind(
            t for t, _ in self._opened(self._after(able), self._of_kind, self._room_with(node, fits))
        )
        apart = {id(t): self._let_in(t) for kind in linked.values() for t in kind}
        with simulation.without(victim) as leaving:
            for gone in (False, True):
                if gone:
                    leaving.let_go()

                def let_in(t: PodTemplate, gone: bool = gone) -> Bools:
                    other = self._touched(t, victim.template) or (gone and id(t) in fits)
                    return self._let_in_now(t) if other else apart[id(t)]

                taken = none = simulation.state.table.none
                found: list[tuple[PodTemplate, Bools]] = []
                for t in able:
                    nodes = before[id(t)]
                    if self._touched(t, victim.template) or (gone and not nodes[node] and id(t) in fits):
                        nodes = self.feasible(t)
                    if nodes.any():
                        self.placeable.add(id(t))
                        found.append((t, nodes))
                chained = self._opened(self._after(t for t, _ in found), linked, let_in)
                placed = (*found, *chained)
                for t, nodes in placed:
                    if touched.intersection(self._groups.counted(t)) or self._meet(replacement, t)[2]:
                        return t
                    was = before.get(id(t), none)
                    if nodes is not was and self._raises(t, nodes & ~was):
                        return t
                    taken = taken | self._closed(t, nodes, replacement)
                open_ = simulation.framework(replacement).feasible(replacement) & within[gone]
                if (open_ & ~taken).any() or (placed and self.room_for_all(placed, open_, replacement)):
                    continue
                number = sum(len(self.pods[id(t)]) for t in concerned)
                if last := self._last(found, number == 1 and not chained, open_, replacement):
                    return last
        return None

    def _last(
        self, found: Iterable[tuple[PodTemplate, Bools]], alone: bool, open_: Bools, replacement: PodTemplate
    ) -> PodTemplate | None:
        """Who could take the last node of the replacement, all of which may be taken: fine only if one pod
        waits, `alone`, and leaves room."""
        last: list[tuple[PodTemplate, int]] = []
        for t, nodes in found:
            if len(last) <= _TRIED:
                last += [(t, int(n)) for n in np.flatnonzero(nodes)]
        alone &= len(last) <= _TRIED
        if not last or (alone and all(self._leaves_room(t, n, replacement) for t, n in last)):
            return None
        return next((t for t, n in last if open_[n]), last[0][0])

    def _brought(
        self, victim: Pod, node: int, replacement: PodTemplate, room: Callable[[PodTemplate], Bools]
    ) -> PodTemplate | None:
        """One of the pods that find a node only near the replacement, or by its count, once it is there: if
        with all of them the excess of a constraint could rise that counts it and does not bind it."""
        number, where = Counter[int](), dict[int, Bools]()
        brought: dict[int, PodTemplate] = {}
        for t, nodes in self._opened(self._opened_by(replacement), self._of_kind, room):
            for i in self._beside(t):
                number[i] += len(self.pods[id(t)])
                where[i] = where.get(i, False) | (nodes & ~self._open_before(t))
                brought[i] = t
        for i, t in brought.items():
            group = self._groups.all[i]
            counts = group.counts(self._simulation.state)
            leaves = int(group.domain_of[node]) if i in self._groups.counted(victim.template) else -1
            into = group.domain_of[where[i]]
            into = into[first_places(into)]
            more = number[i] + (i in self._groups.counted(replacement))
            if group.size and (group.excess_after(counts, leaves, into, more) > group.excess(counts)).any():
                return t
        return None

    @remembered()
    def _opened_by(self, replacement: PodTemplate) -> frozenset[int]:
        """The kinds of waiting pods to which the replacement can open a node."""
        return frozenset(k for k, t in self._let_in_by_others if self._meet(t, replacement)[2])

    def _after(self, placed: Iterable[PodTemplate]) -> frozenset[int]:
        """The kinds of waiting pods to which these can open a node."""
        return frozenset().union(*map(self._opens, {self._kind(t) for t in placed}))

    def _opened(
        self,
        first: frozenset[int],
        among: Mapping[int, Sequence[PodTemplate]],
        nodes_of: Callable[[PodTemplate], Bools],
    ) -> list[tuple[PodTemplate, Bools]]:
        """Those of the kinds that come first, and those that may find a node once others of these have one,
        and the nodes that they may find."""
        found: list[tuple[PodTemplate, Bools]] = []
        left, reached = set(among), first
        while here := left & reached:
            left -= here
            placed = [
                (t, nodes) for kind in sorted(here) for t in among[kind] if (nodes := nodes_of(t)).any()
            ]
            found += placed
            reached = self._after(t for t, _ in placed)
        return found

    def _let_in(self, waiting: PodTemplate) -> Bools:
        """bool[N]: nodes that take the pod, as `_open_before`, if counts and pods to be near let it."""
        found = self._apart.get(id(waiting))
        if found is None:
            found = self._apart[id(waiting)] = self._let_in_now(waiting)
        return found

    def _let_in_now(self, waiting: PodTemplate) -> Bools:
        return self.feasible(waiting, spread=False, alike=self.without_others(waiting))

    @remembered()
    def without_others(self, waiting: PodTemplate) -> PodTemplate:
        """The pod as if it had to be near nobody."""
        a = waiting.affinity
        if a is None or a.pod_affinity is None:
            return waiting
        return replace(waiting, affinity=replace(a, pod_affinity=None))

    def _room_with(self, node: int, fits: Collection[int]) -> Callable[[PodTemplate], Bools]:
        """bool[N] by template: nodes that have room for the pod, and `node` if it has it for `fits`."""

        def room(waiting: PodTemplate) -> Bools:
            nodes = self.room_of(waiting).copy()
            nodes[node] |= id(waiting) in fits
            return nodes

        return room

    @remembered(by=int)
    def _opens(self, kind: int) -> frozenset[int]:
        """The kinds of waiting pods to which a placement of one of this kind can open a node."""
        placed = self._of_kind[kind][0]
        alone = sum(len(self.pods[id(t)]) for t in self._of_kind[kind]) == 1
        return frozenset(
            k for k, t in self._let_in_by_others if not (alone and k == kind) and self._meet(t, placed)[2]
        )

    @cached_property
    def _let_in_by_others(self) -> list[tuple[int, PodTemplate]]:
        """The kinds, and one of each, to which any placement at all can open a node."""
        state = self._simulation.state
        first = ((k, t) for k, (t, *_) in self._of_kind.items())
        return [(k, t) for k, t in first if state.terms.of(t).required or state.constraints(t, hard=True)]

    @cached_property
    def _of_kind(self) -> dict[int, list[PodTemplate]]:
        return self._by_kind(self.templates.values())

    def _by_kind(self, templates: Iterable[PodTemplate]) -> dict[int, list[PodTemplate]]:
        found: dict[int, list[PodTemplate]] = defaultdict(list)
        for t in templates:
            found[self._kind(t)].append(t)
        return found

    def _renew(self) -> None:
        """Forgets what was found in another state of the simulation."""
        if self._mark != self._simulation.state.mark:
            self._mark = self._simulation.state.mark
            self._open.clear()
            self._room.clear()
            self._roomy.clear()
            self._apart.clear()

    def _open_before(self, waiting: PodTemplate) -> Bools:
        """bool[N]: nodes that take the pod as the simulation stands before the eviction."""
        found = self._open.get(id(waiting))
        if found is None:
            found = self._open[id(waiting)] = self.feasible(waiting)
        return found

    def _touched(self, waiting: PodTemplate, victim: PodTemplate) -> bool:
        """Whether the victim's end can matter to where the pod may go beyond the room that it frees."""
        return bool(self._simulation.state.nominated) or self._meet(waiting, victim)[0]

    def _conflict(self, waiting: PodTemplate, other: PodTemplate) -> bool:
        return self._meet(waiting, other)[1]

    def _meet(self, waiting: PodTemplate, other: PodTemplate) -> tuple[bool, bool, bool]:
        """Whether where the other is can matter to the pod beyond room; whether they can conflict; whether
        the other's placement can open a node to it."""
        kinds = self._kind(waiting), self._kind(other)
        found = self._met.get(kinds)
        if found is None:
            conflict = can_conflict(waiting, other)
            counted = self._groups.counted(other)
            bound = not set(self._groups.carried(waiting)).isdisjoint(counted)
            matters = bool(waiting.claims or waiting.resource_claims) or bound or conflict
            opens = can_open(self._simulation.state, other, waiting)
            found = self._met[kinds] = matters, conflict, opens
        return found

    @remembered()
    def _kind(self, template: PodTemplate) -> int:
        """Equal for templates that differ in nothing but what they ask for."""
        t = template
        ties = (t.namespace, t.labels, t.spread, t.affinity, t.volumes, t.host_ports, t.resource_claims)
        whose = (t.node_selector, t.tolerations, t.scheduler_name, t.controller)
        return self._kinds.setdefault(msgspec.msgpack.encode((ties, whose)), len(self._kinds))

    def _closed(self, waiting: PodTemplate, nodes: Bools, replacement: PodTemplate) -> Bools:
        """bool[N]: these nodes, and those off which the pod on one of them would keep the replacement."""
        closed = nodes
        for key in repels(waiting, replacement):
            domains = self._simulation.state.table.domains(key)
            closed = closed | (domains.present & np.isin(domains.ids, domains.ids[nodes & domains.present]))
        return closed

    def room_for_all(
        self,
        waiting: Sequence[tuple[PodTemplate, Bools]],
        nodes: Bools,
        replacement: PodTemplate,
        number: Mapping[int, int] | None = None,
        beside: Beside = (),
    ) -> bool:
        """Whether one of the nodes has room for the replacement with all that wait, and others `beside` it,
        where each may go, or whether they cannot fill all. `number`: of each template, if not all."""
        state = self._simulation.state
        for t, open_ in waiting:
            if self._conflict(t, replacement):
                nodes = nodes & ~self._closed(t, open_, replacement)
        rows = np.flatnonzero(nodes)
        there = np.array([open_ for _, open_ in waiting])[:, rows].T.astype(np.int64)
        which = [self._place[id(t)] for t, _ in waiting]
        asks = dict(state.asks(replacement))
        free = {r: self._simulation.free(r) for r in asks}
        counts = (len(self.pods[id(t)]) if number is None else number[id(t)] for t, _ in waiting)
        many = np.fromiter(counts, np.int64)
        held = {r: self._each[r][which] * many for r in asks if r in self._each}
        fits, taken = np.ones(len(rows), np.bool_), self._simulation.held_by((t, n, 1) for t, n in beside)
        for r, amount in asks.items():
            left = free[r] - taken[r] if r in taken else free[r]
            fits &= left[rows] - (there @ held[r] if r in held else 0) >= amount
        coming = Counter({r: int(amounts.sum()) for r, amounts in held.items()})
        for t, _ in beside:
            coming.update(dict(state.holds(t)))
        return bool(fits.any()) or never_filled(rows, free, asks, coming) > 0

    @cached_property
    def _place(self) -> dict[int, int]:
        """The number of each template, by its identity."""
        return {key: i for i, key in enumerate(self.templates)}

    @cached_property
    def _each(self) -> dict[str, Ints]:
        """By resource: what a pod of each template holds."""
        found: dict[str, Ints] = {}
        for i, t in enumerate(self.templates.values()):
            for resource, amount in self._simulation.state.holds(t):
                if resource not in found:
                    found[resource] = np.zeros(len(self.templates), np.int64)
                found[resource][i] = amount
        return found

    def _raises(self, waiting: PodTemplate, nodes: Bools) -> bool:
        """Whether the pod on one of the nodes would raise the excess of a constraint that counts it."""
        if not nodes.any():
            return False
        for group in (self._groups.all[i] for i in self._beside(waiting)):
            counts = group.counts(self._simulation.state)
            into = group.domain_of[nodes]
            into = into[first_places(into)]
            if group.size and (group.excess_after(counts, -1, into) > group.excess(counts)).any():
                return True
        return False

    @remembered()
    def _beside(self, waiting: PodTemplate) -> list[int]:
        """The groups that count the pod and do not bind it: its own constraints see to themselves."""
        return sorted(set(self._groups.counted(waiting)).difference(self._groups.carried(waiting)))

    def _asked_for(self, key: int, waiting: PodTemplate, fits: Collection[int], victim: PodTemplate) -> bool:
        return key in self.placeable or key in fits or self._concerned(waiting, victim)

    def _concerned(self, waiting: PodTemplate, victim: PodTemplate) -> bool:
        """Whether the victim's end could make a node feasible by a count or by affinity."""
        if set(self._groups.carried(waiting)).intersection(self._groups.counted(victim)):
            return True
        a = waiting.affinity
        if (
            (a is not None and (a.pod_affinity or a.pod_anti_affinity))
            or waiting.host_ports
            or waiting.claims
        ):
            return True
        return (a := victim.affinity) is not None and a.pod_anti_affinity is not None

    def room_of(self, waiting: PodTemplate) -> Bools:
        """bool[N]: nodes that have room for the pod as the simulation stands before the eviction."""
        found = self._room.get(id(waiting))
        if found is None:
            every = np.arange(self._simulation.state.table.size)
            found = self._room[id(waiting)] = self._simulation.has_room(waiting, every)
        return found

    def _finds_room(self, waiting: PodTemplate) -> bool:
        """Whether there are nodes in `room_of`."""
        found = self._roomy.get(id(waiting))
        if found is None:
            found = self._roomy[id(waiting)] = bool(self.room_of(waiting).any())
        return found

    def _fits(self, node: int, freed: Mapping[str, int]) -> set[int]:
        """Identities of the templates for which the node has room, with what is freed there."""
        state = self._simulation.state
        masks, mask_of, asked = self._asked
        fits = np.array([m[node] for m in masks], np.bool_)[mask_of]
        for resource, amounts in asked.items():
            free = state.allocatable(resource)[node] - state.requested[resource][node]
            fits &= amounts <= free + freed.get(resource, 0)
        ids = list(self.templates)
        return {ids[i] for i in np.flatnonzero(fits)}

    @cached_property
    def _asked(self) -> tuple[list[Bools], Ints, dict[str, Ints]]:
        """Where the pods could go if the cluster were empty: masks of nodes, each once, and which of them is
        a template's; by resource, what each template asks for, below everything where it does not ask."""
        masks: list[Bools] = []
        places: dict[int, int] = {}
        mask_of = np.zeros(len(self.templates), np.int64)
        asked: dict[str, Ints] = {}
        for i, t in enumerate(self.templates.values()):
            mask = self._simulation.static(t)
            if id(mask) not in places:
                places[id(mask)] = len(masks)
                masks.append(mask)
            mask_of[i] = places[id(mask)]
            for resource, amount in self._simulation.state.asks(t):
                if resource not in asked:
                    asked[resource] = np.full(len(self.templates), np.iinfo(np.int64).min)
                asked[resource][i] = amount
        return masks, mask_of, asked

    def _leaves_room(self, waiting: PodTemplate, node: int, replacement: PodTemplate) -> bool:
        state = self._simulation.state
        state.add("waiting", waiting, node)
        try:
            return bool(self._simulation.framework(replacement).feasible(replacement).any())
        finally:
            state.remove("waiting")
