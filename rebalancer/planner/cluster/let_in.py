"""Which waiting pods a move lets in, and whether they could spoil it, in one state of the simulation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.cluster.enough_room import Beside, never_filled
from rebalancer.planner.cluster.groups import Groups, can_conflict, can_open, repels
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.spread.arrays import Bools, Ints, first_places

_TRIED = 16
"""Nodes tried for a waiting pod; one that could go to more of them counts as in the way."""


class LetIn:
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
