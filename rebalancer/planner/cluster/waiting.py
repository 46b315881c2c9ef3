"""Pods that wait for a node, and what they take when an eviction makes room or lowers a count.

A waiting pod with one node to go to is about to be placed there: the plan starts from that. One that is
Pending because of a spread constraint, or for lack of room, becomes feasible when a victim goes, and may be
placed before the victim's replacement: a move must hold with it placed first. One whose volume claim is not
there yet, or not bound, can go as soon as it is: until then it may go wherever it could without volumes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.engine.framework import Frameworks
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.state.interpod_terms import SelectsAll
from rebalancer.engine.state.storage import fully_bound
from rebalancer.model.node import HOSTNAME
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Groups, can_conflict, repels
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.policy.owners import ARRIVAL
from rebalancer.spread.arrays import Bools, Ints, Rows, first_places

_TRIED = 16
"""Nodes tried for a waiting pod; one that could go to more of them counts as in the way."""


def settle(simulation: Simulation, pods: Iterable[Pod], first: int) -> list[Pod]:
    """Places, in the scheduler's order, what has one node to go to; returns the pods whose place is open.

    `first`: the highest priority that a replacement can have.
    """
    unsettled: list[Pod] = []
    templates: set[int] = set()
    for pod in sorted(pods, key=lambda p: (-p.template.priority, p.created or 0.0, p.key)):
        t = pod.template
        if not simulation.static(t).any():
            # No node would take it, whoever went: it is in nobody's way, unless it has just come.
            bare = without_claims(pod, simulation) if _new(pod, simulation.snapshot.now) else pod
            if bare is not pod and simulation.static(bare.template).any():
                unsettled.append(bare)
            continue
        if id(t) not in templates and _settled(simulation, pod, first):
            continue
        templates.add(id(t))
        unsettled.append(pod)
    return unsettled


def _settled(simulation: Simulation, pod: Pod, first: int) -> bool:
    """Places a pod that has one node to go to, or may go to the one that it is nominated for.

    Unless a replacement may come first: one of higher priority, or any, where the pod's scheduler may not
    even run.
    """
    state, t, key = simulation.state, pod.template, key_of(pod)
    if t.priority < first or simulation.uncertainties(t):
        return False
    nominated = state.nominated.get(key)
    with state.unhindered(key):
        nodes = np.flatnonzero(simulation.framework(t).feasible(t))
    if nominated is not None and nominated.row in nodes:
        nodes = nodes[nodes == nominated.row]
    if len(nodes) != 1:
        return False
    if nominated is not None:
        state.unnominate(key)
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
    """The waiting pods of a snapshot whose place is not settled (`settle`), counted by template."""

    def __init__(self, simulation: Simulation, groups: Groups, unsettled: Iterable[Pod]) -> None:
        self._simulation = simulation
        self._groups = groups
        self._templates: dict[int, PodTemplate] = {}
        self._waiting: dict[int, list[Pod]] = defaultdict(list)
        for pod in unsettled:
            self._templates[id(pod.template)] = pod.template
            self._waiting[id(pod.template)].append(pod)
        self._placeable = {i for i, t in self._templates.items() if simulation.framework(t).feasible(t).any()}
        """Templates of pods that had a node to go to, now or after some eviction that was looked at."""
        self.let_in: dict[int, tuple[PodTemplate, int]] = {}
        """Templates of pods, and how many, that the moves of the plan so far may let in (`stirred_by`)."""
        self._mark = simulation.state.mark
        self._open: dict[int, Bools] = {}
        self._room: dict[int, Bools] = {}
        self._apart: dict[int, Bools] = {}
        """By template, as the simulation stood at `_mark`: nodes that take it, that have room for it, and
        that take it but for counts and pods to be near."""
        self._kinds: dict[bytes, int] = {}
        self._met: dict[tuple[int, int], tuple[bool, bool, bool]] = {}

    @property
    def templates(self) -> Collection[PodTemplate]:
        """The templates of the pods, each once."""
        return self._templates.values()

    def one(self, template: PodTemplate) -> Pod:
        """The first of the pods of a template."""
        return self._waiting[id(template)][0]

    def any_placeable(self) -> bool:
        """Whether in the simulation's present state there is a node for one of them."""
        return any(self._simulation.framework(t).feasible(t).any() for t in self._templates.values())

    def concern(self, component: Component) -> bool:
        """Whether a constraint of the component counts one of them, or binds it."""
        own = component.local.keys()
        return any(
            not own.isdisjoint((*self._groups.counted(t), *self._groups.carried(t)))
            for t in self._templates.values()
        )

    def interferes(self, victim: Pod, replacement: PodTemplate) -> Pod | None:
        """A waiting pod that could spoil the move: take the slot, or the last room, it makes.

        Or, with that, raise the excess of any constraint that counts it: that would be the move's doing.
        """
        found = self._interferes(victim, replacement)
        return None if found is None else self.one(found)

    def stirred_by(
        self, moves: Iterable[tuple[PodTemplate, int, PodTemplate]]
    ) -> dict[int, tuple[PodTemplate, int]]:
        """Templates of those that moves may let in, and how many: while one is made, once it is made, or by
        what others of them open to them. `moves`: victims, their nodes by number, replacements."""
        self._renew()
        found: dict[int, tuple[PodTemplate, int]] = {}
        for victim, node, replacement in moves if self._templates else ():
            fits = self._fits(node, dict(self._simulation.state.holds(victim)))
            first = [
                t
                for i, t in self._templates.items()
                if (i in fits or self._room_of(t).any())
                and (self._asked_for(i, t, fits, victim) or self._meet(t, replacement)[2])
            ]
            opened = self._opened(first, self._of_kind, self._room_with(node, fits))
            found |= {id(t): (t, len(self._waiting[id(t)])) for t in (*first, *(t for t, _ in opened))}
        return found

    def spoils(self, waiting: PodTemplate, replacement: PodTemplate) -> bool:
        """Whether the pod anywhere could spoil more for a replacement than the room of its node."""
        touched = {*self._groups.counted(replacement), *self._groups.carried(replacement)}
        return not touched.isdisjoint(self._groups.counted(waiting)) or any(
            key != HOSTNAME for key in repels(waiting, replacement)
        )

    def _interferes(self, victim: Pod, replacement: PodTemplate) -> PodTemplate | None:
        node = self._simulation.state.pods[victim.uid or victim.key].row
        simulation = self._simulation
        freed = dict(simulation.state.holds(victim.template))
        fits = self._fits(node, freed)
        concerned = [t for i, t in self._templates.items() if self._asked_for(i, t, fits, victim.template)]
        if not concerned:
            return None
        self._renew()
        # Most find no room anywhere, with the victim gone or not: they are asked no further.
        able = [t for t in concerned if id(t) in fits or self._room_of(t).any()]
        touched = {*self._groups.counted(replacement), *self._groups.carried(replacement)}
        before = {id(t): self._open_before(t) for t in able}
        linked = self._by_kind(t for t, _ in self._opened(able, self._of_kind, self._room_with(node, fits)))
        apart = {id(t): self._let_in(t) for kind in linked.values() for t in kind}
        with simulation.without(victim) as leaving:
            for gone in (False, True):
                if gone:
                    leaving.let_go()

                def let_in(t: PodTemplate, gone: bool = gone) -> Bools:
                    other = self._touched(t, victim.template) or (gone and id(t) in fits)
                    return self._let_in_now(t) if other else apart[id(t)]

                taken = none = simulation.state.table.none
                last: list[tuple[PodTemplate, int]] = []
                found: list[tuple[PodTemplate, Bools]] = []
                for t in able:
                    nodes = before[id(t)]
                    if self._touched(t, victim.template) or (gone and not nodes[node] and id(t) in fits):
                        nodes = simulation.framework(t).feasible(t)
                    if nodes.any():
                        self._placeable.add(id(t))
                    found.append((t, nodes))
                    if len(last) <= _TRIED:
                        last += [(t, int(n)) for n in np.flatnonzero(nodes)]
                placed = [t for t, nodes in found if nodes.any()]
                chained = self._opened(placed, linked, let_in)
                found += chained
                for t, nodes in found:
                    if nodes.any() and touched.intersection(self._groups.counted(t)):
                        return t
                    was = before.get(id(t), none)
                    if nodes is not was and self._raises(t, nodes & ~was):
                        return t
                    taken = taken | self._closed(t, nodes, replacement)
                open_ = simulation.framework(replacement).feasible(replacement)
                if (open_ & ~taken).any() or self._room_for_all(found, open_, replacement):
                    continue
                # Every node of the replacement may be taken: fine only if one pod waits, and leaves room.
                number = sum(len(self._waiting[id(t)]) for t in concerned)
                alone = number == 1 and not chained and len(last) <= _TRIED
                if last and not (alone and all(self._leaves_room(t, n, replacement) for t, n in last)):
                    return next((t for t, n in last if open_[n]), last[0][0])
        return None

    def _opened(
        self,
        placed: Iterable[PodTemplate],
        among: Mapping[int, Sequence[PodTemplate]],
        nodes_of: Callable[[PodTemplate], Bools],
    ) -> list[tuple[PodTemplate, Bools]]:
        """Those, by kind, that may find a node once the placed, or others of these, have one, and the nodes
        that they may find."""
        found: list[tuple[PodTemplate, Bools]] = []
        left, kinds = set(among), {self._kind(t) for t in placed}
        while kinds:
            reached = left & frozenset().union(*(self._opens(k) for k in kinds))
            left -= reached
            kinds = set()
            for kind in sorted(reached):
                for t in among[kind]:
                    nodes = nodes_of(t)
                    if nodes.any():
                        found.append((t, nodes))
                        kinds.add(kind)
        return found

    def _let_in(self, waiting: PodTemplate) -> Bools:
        """bool[N]: nodes that take the pod, as `_open_before`, if counts and pods to be near let it."""
        found = self._apart.get(id(waiting))
        if found is None:
            found = self._apart[id(waiting)] = self._let_in_now(waiting)
        return found

    def _let_in_now(self, waiting: PodTemplate) -> Bools:
        alone = self._without_others(waiting)
        return self._simulation.framework(alone).feasible(alone, spread=False)

    @remembered()
    def _without_others(self, waiting: PodTemplate) -> PodTemplate:
        a = waiting.affinity
        if a is None or a.pod_affinity is None:
            return waiting
        return replace(waiting, affinity=replace(a, pod_affinity=None))

    def _room_with(self, node: int, fits: Collection[int]) -> Callable[[PodTemplate], Bools]:
        """bool[N] by template: nodes that have room for the pod, and `node` if it has it for `fits`."""

        def room(waiting: PodTemplate) -> Bools:
            nodes = self._room_of(waiting).copy()
            nodes[node] |= id(waiting) in fits
            return nodes

        return room

    @remembered(by=int)
    def _opens(self, kind: int) -> frozenset[int]:
        """The kinds of waiting pods to which a placement of one of this kind can open a node."""
        placed = self._of_kind[kind][0]
        alone = sum(len(self._waiting[id(t)]) for t in self._of_kind[kind]) == 1
        return frozenset(
            k
            for k, (t, *_) in self._of_kind.items()
            if not (alone and k == kind) and self._meet(t, placed)[2]
        )

    @cached_property
    def _of_kind(self) -> dict[int, list[PodTemplate]]:
        return self._by_kind(self._templates.values())

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
            self._apart.clear()

    def _open_before(self, waiting: PodTemplate) -> Bools:
        """bool[N]: nodes that take the pod as the simulation stands before the eviction."""
        found = self._open.get(id(waiting))
        if found is None:
            found = self._open[id(waiting)] = self._simulation.framework(waiting).feasible(waiting)
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

    def _room_for_all(
        self, waiting: Sequence[tuple[PodTemplate, Bools]], nodes: Bools, replacement: PodTemplate
    ) -> bool:
        """Whether one of the nodes has room for the replacement with all that wait, where each may go."""
        state = self._simulation.state
        load: dict[str, Ints] = {}
        for t, open_ in waiting:
            if not open_.any():
                continue
            if self._conflict(t, replacement):
                nodes = nodes & ~self._closed(t, open_, replacement)
            for resource, amount in state.holds(t):
                load[resource] = load.get(resource, 0) + open_ * (amount * len(self._waiting[id(t)]))
        for resource, amount in state.asks(replacement):
            free = state.allocatable(resource) - state.requested[resource] - load.get(resource, 0)
            nodes = nodes & (free >= amount)
        return bool(nodes.any())

    def _raises(self, waiting: PodTemplate, nodes: Bools) -> bool:
        """Whether the pod on one of the nodes would raise the excess of a constraint that counts it."""
        if not nodes.any():
            return False
        # Its own constraints see to themselves.
        beside = set(self._groups.counted(waiting)).difference(self._groups.carried(waiting))
        for group in (self._groups.all[i] for i in sorted(beside)):
            counts = group.counts(self._simulation.state)
            into = group.domain_of[nodes]
            into = into[first_places(into)]
            if group.size and (group.excess_after(counts, -1, into) > group.excess(counts)).any():
                return True
        return False

    def _asked_for(self, key: int, waiting: PodTemplate, fits: Collection[int], victim: PodTemplate) -> bool:
        return key in self._placeable or key in fits or self._concerned(waiting, victim)

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

    def _room_of(self, waiting: PodTemplate) -> Bools:
        """bool[N]: nodes that have room for the pod as the simulation stands before the eviction."""
        found = self._room.get(id(waiting))
        if found is None:
            every = np.arange(self._simulation.state.table.size)
            found = self._room[id(waiting)] = self._simulation.has_room(waiting, every)
        return found

    def _fits(self, node: int, freed: Mapping[str, int]) -> set[int]:
        """Identities of the templates for which the node has room, with what is freed there."""
        state = self._simulation.state
        masks, mask_of, asked = self._asked
        fits = np.array([m[node] for m in masks], np.bool_)[mask_of]
        for resource, amounts in asked.items():
            free = state.allocatable(resource)[node] - state.requested[resource][node]
            fits &= amounts <= free + freed.get(resource, 0)
        ids = list(self._templates)
        return {ids[i] for i in np.flatnonzero(fits)}

    @cached_property
    def _asked(self) -> tuple[list[Bools], Ints, dict[str, Ints]]:
        """Where the pods could go if the cluster were empty: masks of nodes, each once, and which of them is
        a template's; by resource, what each template asks for, below everything where it does not ask."""
        masks: list[Bools] = []
        places: dict[int, int] = {}
        mask_of = np.zeros(len(self._templates), np.int64)
        asked: dict[str, Ints] = {}
        for i, t in enumerate(self._templates.values()):
            mask = self._simulation.static(t)
            if id(mask) not in places:
                places[id(mask)] = len(masks)
                masks.append(mask)
            mask_of[i] = places[id(mask)]
            for resource, amount in self._simulation.state.asks(t):
                if resource not in asked:
                    asked[resource] = np.full(len(self._templates), np.iinfo(np.int64).min)
                asked[resource][i] = amount
        return masks, mask_of, asked

    def _leaves_room(self, waiting: PodTemplate, node: int, replacement: PodTemplate) -> bool:
        state = self._simulation.state
        state.add("waiting", waiting, node)
        try:
            return bool(self._simulation.framework(replacement).feasible(replacement).any())
        finally:
            state.remove("waiting")


# The scheduler over a state: Pending pods are placed by filter and score, one after the other.
#
# Equal scores go to the first node by name. A pod that finds no node is asked about again after a placement
# that can have opened one to it: only counts of its spread constraints do that, and pods that it wants to
# be near. Many pods of one template without such ties are placed by few rounds of scores.

_FEW = 20
"""So many pods of a template are placed one by one in any case."""


class Waits(Struct, frozen=True, eq=False):
    """Pending pods of one template, in order of arrival. `keys`: under which the state shall hold them."""

    template: PodTemplate
    keys: tuple[Hashable, ...]


def by_template(pods: Iterable[tuple[Hashable, PodTemplate]]) -> list[Waits]:
    """Pods in order of arrival, those of one template together."""
    found: dict[int, tuple[PodTemplate, list[Hashable]]] = {}
    for key, template in pods:
        found.setdefault(id(template), (template, []))[1].append(key)
    return [Waits(template, tuple(keys)) for template, keys in found.values()]


def can_open(state: ClusterState, placed: PodTemplate, waiting: PodTemplate) -> bool:
    """Whether a placement of the one can open a node to the other."""
    near = tuple(state.terms.selects(term) for term, _ in state.terms.of(waiting).required)
    if near and SelectsAll(near).weigh(placed):
        return True
    return any(c.counts(placed.namespace, placed.labels) for c in state.constraints(waiting, hard=True))


class _Left:
    """Pods that found no node, by template in order, and by where a placement can matter to them."""

    def __init__(self) -> None:
        self._all: dict[int, Waits] = {}
        self._in_namespace: dict[str, dict[int, None]] = {}

    def put(self, waits: Waits) -> None:
        """What is left of this template now."""
        key, namespace = id(waits.template), self._in_namespace.setdefault(waits.template.namespace, {})
        if waits.keys:
            self._all[key] = waits
            namespace[key] = None
        else:
            self._all.pop(key, None)
            namespace.pop(key, None)

    def beside(self, placed: PodTemplate, state: ClusterState) -> list[Waits]:
        """Pods that a placed one may concern: of its namespace, or such as want to be near others."""
        near = [k for k, w in self._all.items() if state.terms.of(w.template).required]
        return [self._all[k] for k in dict.fromkeys((*self._in_namespace.get(placed.namespace, ()), *near))]

    def all(self) -> list[Waits]:
        """All of them."""
        return list(self._all.values())


class Placing:
    """The scheduler. `down`: bool[N], nodes that do not exist for it any more. `order`: all nodes; of equally
    good ones it takes the first in it."""

    def __init__(self, state: ClusterState, down: Bools | None = None, order: Rows | None = None) -> None:
        self.state = state
        self._order = np.arange(state.table.size) if order is None else order
        self.frameworks = Frameworks(state)
        self._down = down
        self.placed: dict[Hashable, int] = {}

    def feasible(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that take the pod now."""
        mask = self.frameworks.of(template).feasible(template)
        return mask if self._down is None else mask & ~self._down

    def place(self, every: Sequence[Waits], others: Iterable[Waits] = ()) -> list[Waits]:
        """Places what finds a node, higher priorities first; returns what does not. `others` found none
        before, and are asked again where a placement may have opened one."""
        left = _Left()
        for waits in others:
            left.put(waits)
        together = by_template((key, waits.template) for waits in every for key in waits.keys)
        for waits in sorted(together, key=lambda w: -w.template.priority):
            before = len(self.placed)
            left.put(self._some(waits))
            if len(self.placed) > before:
                self._again(left, waits.template)
        return left.all()

    def _again(self, left: _Left, placed: PodTemplate) -> None:
        """Tries those again to which the last placements may have opened a node."""
        opened = [placed]
        while opened:
            at = opened.pop()
            for waits in left.beside(at, self.state):
                if can_open(self.state, at, waits.template):
                    before = len(self.placed)
                    left.put(self._some(waits))
                    if len(self.placed) > before:
                        opened.append(waits.template)

    def _some(self, waits: Waits) -> Waits:
        """Places pods of one template until no node takes one; what is left."""
        template, keys = waits.template, list(waits.keys)
        tied = bool(
            self.state.constraints(template, hard=True)
            or template.host_ports
            or template.attaches
            or self.state.terms.of(template).required
            or self.state.terms.of(template).required_anti
        )
        while keys:
            mask = self.feasible(template)
            number = int(np.count_nonzero(mask))
            if not number:
                break
            totals = self.frameworks.of(template).score(template, mask).totals if number > 1 else None
            at_once = 1 if tied or len(keys) <= _FEW else max(1, min(len(keys), number // 4))
            rows = self._order[mask[self._order]]
            if totals is not None:
                rows = rows[np.argsort(-totals[rows], kind="stable")]
            for row in rows[:at_once].tolist():
                key = keys.pop(0)
                self.state.add(key, template, row)
                self.placed[key] = row
        return Waits(template, tuple(keys))


def at_rest(state: ClusterState, snapshot: Snapshot) -> tuple[Placing, list[Waits], list[Waits]]:
    """The state once nothing is under way: pods that terminate are gone, and what waits has a node if one
    takes it. Who placed them, what is left, and what is left of pods that wait for their own node
    (DaemonSets).
    """
    for key in list(state.nominated):
        state.unnominate(key)
    waiting = [p for p in snapshot.pods if p.waits]
    for pod in waiting:
        state.drop(("placed", key_of(pod)))
    nodes, index = state.table.nodes, state.table.index
    for pod in snapshot.over:
        if not pod.finished and pod.node_name in index and nodes[index[pod.node_name]].ready:
            state.remove(key_of(pod))
    placing = Placing(state)
    waiting.sort(key=lambda p: (p.created or 0.0, p.key))
    left = placing.place(by_template((key_of(p), p.template) for p in waiting))
    its_own = {key_of(p) for p in waiting if p.owner is not None and p.owner.kind == "DaemonSet"}
    every = [(k, w.template) for w in left for k in w.keys]
    return (
        placing,
        by_template((k, t) for k, t in every if k not in its_own),
        by_template((k, t) for k, t in every if k in its_own),
    )
