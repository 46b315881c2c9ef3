"""Pods of others that a move could leave without a node.

What waits may spoil a move (`waiting.py`); here a move may spoil it for others: by room that is spoken for,
and by opening a preemption (`preemptors.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from weakref import ref

import numpy as np
from msgspec import Struct

from rebalancer.bulk_work import remembered
from rebalancer.engine.framework import would_preempt
from rebalancer.engine.plugins.node_volume_limits import free_places, limits
from rebalancer.model.node import HOSTNAME, is_outdated
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.cluster.filled import all_filled, never_filled
from rebalancer.planner.cluster.groups import Groups, can_conflict, conflicts_at_all
from rebalancer.planner.cluster.placing import Placing, by_template
from rebalancer.planner.cluster.preemptors import TRIED, Preemptors, ties, topology_keys
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.planner.plan import Refusal, leaves_out, lets_preempt
from rebalancer.spread.arrays import Bools, Ints, Rows, first_places, numbered

_TRIES = 4_000
"""Nodes tried for all replacements of a plan."""
_PLENTY, _IN_EACH = 16, 4
"""Nodes that keep room for a pod wherever the others go, so that no move is asked about it: in all, and in
each domain of its constraints."""
_WAYS = 64
"""Ways in which some of several pods may be together on a node that are told apart."""
_FEW = 16
"""So many pods to come are asked about exactly."""
_ON_A_NODE = 256
"""So many pods of one template, at most, may come to one node."""
Beside = Sequence[tuple[PodTemplate, Rows]]
"""Replacements, each with the nodes where it may land."""


def usable(simulation: Simulation, pods: Iterable[Pod], gone: Iterable[Pod]) -> Bools:
    """bool[N]: nodes that have room for one of the pods, once those that are to be `gone` are, and all that
    ends. The nodes have then been asked all that these pods ask of them."""
    state, templates = simulation.state, {id(p.template): p.template for p in pods}
    keys = dict.fromkeys((*map(key_of, gone), *simulation.unsure))
    freed = simulation.held_by(
        (state.pods[k].template, state.pods[k].row, 1) for k in keys if k in state.pods
    )
    for key in dict.fromkeys(chain.from_iterable(topology_keys(simulation, t) for t in templates.values())):
        state.table.domains(key)
    found: Bools = state.table.none.copy()
    for t in templates.values():
        found |= simulation.room(t, freed, ended=True) > 0
    return found


def _only_repels(template: PodTemplate) -> bool:
    """Whether of what ties it to others there is nothing but anti-affinity within its node and namespace."""
    a = template.affinity
    if template.attaches or template.host_ports or a is None or a.pod_anti_affinity is None:
        return False
    terms = a.pod_anti_affinity.required
    near = a.pod_affinity is not None and a.pod_affinity.required
    return not near and all(
        t.topology_key == HOSTNAME and not (t.namespaces or t.namespace_selector) for t in terms
    )


class _Comer(Struct, frozen=True, eq=False):
    """A pod that is to be made, or placed, on this node (row). `key`: of the pod that it comes for, while
    that is there; None where it comes in any case. `first`: it finds its node before any replacement."""

    pod: Pod
    row: int
    key: Hashable | None
    first: bool

    @property
    def at(self) -> Hashable:
        """Its key where it is placed."""
        return "to come", id(self)


_Taken = tuple[Hashable, PodTemplate, Hashable | None]
"""A pod that is let in, and the comer's key that it had elsewhere, if it is one."""


class SpokenFor:
    """Room that pods need which will have to be made anew, or that wait for the end of others.

    Those of which some could be left out are given a node once, as the scheduler would without any move:
    those that come first now, the others once all that ends is gone. A move is in their way if, with it made,
    those whose nodes it touches find none any more.
    """

    def __init__(
        self,
        simulation: Simulation,
        groups: Groups,
        waiting: Sequence[Pod],
        leaving: Iterable[Pod],
        others: Iterable[Pod],
        first: Collection[Pod],
        ends: Iterable[Pod],
        last: Collection[int],
    ) -> None:
        """`leaving`: on nodes, until they are made anew, of the template that they have then. `others`: to be
        made, or of `waiting`; `first`: those of `waiting` that are placed before a replacement; `ends`: whom
        nobody replaces; `last`: ids of pods that are placed after all others. `groups`: the constraints that
        bind the moves."""
        self._simulation, self._groups, self._ends = simulation, groups, [*map(key_of, ends)]
        self._nominated = [p for p in waiting if key_of(p) in simulation.state.nominated]
        self._preempting = [Preemptors(simulation, waiting, lambda: simulation)]
        self._comers, self._nowhere = list[_Comer](), list[Hashable]()
        # By template: pods that find no node as things stand.
        self._in_vain: dict[int, list[PodTemplate]] = {}
        state = simulation.state
        pods: list[tuple[Pod, Hashable | None]] = [(p, key_of(p)) for p in leaving if key_of(p) in state.pods]
        if not pods and not (others := list(others)):
            return
        pods += [(p, None) for p in others]
        # Of equal ones nobody knows which is on which node.
        early = {id(p.template) for p in first} - {id(p.template) for p, _ in pods}
        pods += [(p, None) for p in first]
        outdated = np.array(state.table.answers(is_outdated), dtype=np.bool_)
        self._down: Bools = simulation.leaving | simulation.failing | outdated
        ending = [*dict.fromkeys((*self._ending, *(key for _, key in pods if key is not None)))]
        given = simulation.held_by((state.pods[key].template, state.pods[key].row, 1) for key in ending)
        scarce = self._scarce([p.template for p, _ in pods], given)
        pods = [(p, key) for p, key in pods if id(p.template) in scarce]
        every = {id(p.template): p.template for p, _ in pods}
        slots = {i: int(simulation.room(t, given, ended=True).sum()) for i, t in every.items()}
        # First those that are nominated, for their nodes are theirs, and those that come first; then the
        # largest, so that as many as can be find a node.
        able = [i for i, (p, _) in enumerate(pods) if slots[id(p.template)]]
        held = {i for i in able if key_of(pods[i][0]) in state.nominated}
        soon = {i for i in able if id(pods[i][0].template) in early}
        late = {i for i in able if id(pods[i][0]) in last}
        able.sort(key=lambda i: (i not in held, i not in soon, i in late, slots[id(pods[i][0].template)]))

        def place(numbers: Iterable[int]) -> dict[Hashable, int]:
            placing = Placing(state, self._down, kept=simulation.daemons.kept)
            placing.place(by_template((("to come", i), pods[i][0].template) for i in numbers))
            return placing.placed

        with state.unhindered(*(key_of(p) for p, _ in pods)):
            now = place(i for i in able if i in soon)
            with state.removed(ending):
                later = place(i for i in able if ("to come", i) not in now)
                for key in later:
                    state.remove(key)
            for key in now:
                state.remove(key)
        rows = now | later
        for i in able:
            if (row := rows.get(("to come", i))) is not None:
                pod, key = pods[i]
                self._comers.append(_Comer(pod, row, key, ("to come", i) in now))
        nowhere = [p for i, p in enumerate(pods) if ("to come", i) not in rows]
        self._nowhere = [key for _, key in nowhere if key is not None]
        stuck = (p for p, _ in nowhere if not (p.waits and p.uid))
        for p, _ in nowhere:
            alike = self._in_vain.setdefault(id(p.template), [])
            alike += [p.template] * (len(alike) < _ON_A_NODE)
        self._preempting.append(Preemptors(simulation, stuck, _later(ref(self))))
        self._left: tuple[int, dict[str, Ints]] | None = None
        self._takers: tuple[int, dict[int, Bools]] = 0, {}
        self._last: tuple[int, list[tuple[int, Bools, int]], dict[int, Bools]] | None = None
        self._later: tuple[int, tuple[Placing, Simulation]] | None = None
        self._able: tuple[int, dict[tuple[int, int], list[list[_Taken]]]] = 0, {}
        self._tries = _TRIES

    def _scarce(self, pods: Sequence[PodTemplate], given: Mapping[str, Ints]) -> set[int]:
        """Identities of the templates of which a pod might find no node, wherever the other pods go. `given`:
        int64[N] by resource, what those that end hold now."""
        simulation, number = self._simulation, Counter(map(id, pods))
        state, here = simulation.state, Counter(t.namespace for t in pods)
        every = {id(t): t for t in pods}
        coming: Counter[str] = Counter()
        found: set[int] = set()
        # Those that differ in what they ask for only are judged by the largest amounts first.
        alike: dict[tuple[int, tuple[str, ...], int], list[tuple[PodTemplate, Bools]]] = defaultdict(list)
        for i, t in every.items():
            coming.update({r: n * number[i] for r, n in self._takes(t).items()})
            keys = tuple(sorted({c.topology_key for c in state.constraints(t, hard=True)} - {HOSTNAME}))
            if not self._couples(t, number[i]):
                nodes = simulation.static(t)
                alike[id(nodes), keys, 0].append((t, nodes))
            elif _only_repels(t):
                # Each that comes may close one node to it.
                nodes = simulation.framework(t).feasible(t, spread=False)
                alike[i, keys, here[t.namespace]].append((t, nodes))
            else:
                found.add(i)
        coming += self._may_move()
        free = {r: simulation.free(r, ended=True) + given.get(r, 0) for r in coming}
        free |= self._places(every.values())

        def enough(nodes: Bools, asks: Mapping[str, int], wanted: int) -> bool:
            return never_filled(np.flatnonzero(nodes), free, asks, coming) >= wanted

        def plenty(keys: Iterable[str], nodes: Bools, asks: Mapping[str, int], more: int) -> bool:
            domains = [state.table.domains(key) for key in keys]
            each = ((d.ids == i) & nodes for d in domains for i in np.unique(d.ids[nodes & d.present]))
            return enough(nodes, asks, _PLENTY + more) and all(enough(n, asks, _IN_EACH + more) for n in each)

        for (_, keys, more), templates in alike.items():
            nodes = templates[0][1] & ~self._down
            asked = [(id(t), self._asks(t)) for t, _ in templates]
            most: dict[str, int] = {}
            for _, asks in asked:
                most |= {r: max(a, most.get(r, 0)) for r, a in asks.items()}
            if not plenty(keys, nodes, most, more):
                found.update(i for i, asks in asked if not plenty(keys, nodes, asks, more))
        return found

    def _may_move(self) -> Counter[str]:
        """What all replacements of the plan may hold together, by resource: for each constraint as many of
        its largest as it takes to spread them evenly."""
        state, groups, found = self._simulation.state, self._groups, Counter[str]()
        number: dict[int, int] = {}
        for g in groups.all:
            counts = g.counts_once(state)
            if g.constraint.hard and g.excess(counts):
                above = counts - counts.mean()
                over, lacking = (np.floor(d).clip(min=0).sum() for d in (above, -above))
                number[g.index] = int(max(over, lacking))
        most: dict[int, dict[str, int]] = defaultdict(dict)
        for some in self._simulation.snapshot.live if number else ():
            for i in number.keys() & groups.carried(some.template):
                for r, amount in self._takes(some.template).items():
                    most[i][r] = max(amount, most[i].get(r, 0))
        for i, amounts in most.items():
            found.update({r: number[i] * amount for r, amount in amounts.items()})
        return found

    @remembered()
    def _attached_by(self, template: PodTemplate) -> dict[str, int]:
        """How many volumes of each driver its pod attaches to its node."""
        return {driver: len(a) for driver, a in self._simulation.state.storage.attachments(template).items()}

    def _asks(self, template: PodTemplate) -> dict[str, int]:
        """What a node has to have for its pod, places of volumes among it."""
        return dict(self._simulation.state.asks(template)) | self._attached_by(template)

    def _takes(self, template: PodTemplate) -> dict[str, int]:
        """What its pod then takes of it."""
        return dict(self._simulation.state.holds(template)) | self._attached_by(template)

    def _places(self, templates: Iterable[PodTemplate]) -> dict[str, Ints]:
        """int64[N] by driver of these pods' volumes: how many more each node takes."""
        drivers = dict.fromkeys(chain.from_iterable(map(self._attached_by, templates)))
        state = self._simulation.state
        return {driver: free_places(state, driver, self._limit(driver)) for driver in drivers}

    @remembered(by=str)
    def _limit(self, driver: str) -> Ints:
        return limits(self._simulation.state, driver)

    def _couples(self, template: PodTemplate, number: int) -> bool:
        """Whether more than room, places of volumes among it, ties so many pods of a template to others: what
        they mount is not bound yet, or not theirs alone."""
        if conflicts_at_all(template, volumes=False):
            return True
        state, storage = self._simulation.state, self._simulation.state.storage
        for v in template.volumes if template.attaches else ():
            claim = storage.claim_of(template.namespace, v) if v.kind == "persistentVolumeClaim" else None
            bound = claim is not None and storage.volume(claim.spec.volume_name) is not None
            if not bound or max(number, state.volumes.claims.get(f"{template.namespace}/{v.claim}", 0)) > 1:
                return True
        return False

    @property
    def _ending(self) -> list[Hashable]:
        """Whoever ends, and is no comer's former self."""
        there = self._simulation.state.pods
        return [key for key in dict.fromkeys((*self._simulation.unsure, *self._ends)) if key in there]

    def _now(self, victims: Iterable[Pod] = ()) -> list[_Comer]:
        """Those that are still to come, without the victims' own."""
        there, moved = self._simulation.state.pods, {key_of(v) for v in victims}
        return [c for c in self._comers if c.key is None or (c.key in there and c.key not in moved)]

    def _room(self, comers: Sequence[_Comer]) -> dict[str, Ints]:
        """int64[N] by resource: what they leave of each node, once all that ends is gone."""
        state = self._simulation.state
        key = hash((state.mark, *map(id, comers)))
        if self._left is None or self._left[0] != key:
            taken = [(c.pod.template, c.row, 1) for c in comers]
            ending = (*self._ending, *(c.key for c in comers if c.key is not None))
            taken += [(state.pods[key].template, state.pods[key].row, -1) for key in dict.fromkeys(ending)]
            held = self._simulation.held_by(taken)
            # A resize that cannot be had asks for what it does not hold.
            every = dict.fromkeys((*held, *(r for c in comers for r, _ in state.asks(c.pod.template))))
            room = {r: self._simulation.free(r, ended=True) - held.get(r, 0) for r in every}
            self._left = key, room
        return self._left[1]

    def left_out(self, victim: Pod, replacement: PodTemplate, nodes: Rows, *, stays: bool) -> Refusal | None:
        """Why the move would leave another pod without a node, wherever among the nodes it ends. `stays`: the
        victim is replaced first: it holds its room for a while, and not in the end."""
        for still in (True, False) if stays else (False,):
            if (other := self._in_the_way(victim, replacement, nodes, stays=still)) is not None:
                return leaves_out(victim, other)
        # Whoever ends now keeps room, too, and some wait for longer than that.
        with self._simulation.without_unsure():
            if (robbed := self._robbed(replacement, nodes)) is not None:
                return leaves_out(victim, robbed)
            other = self._preempting[0].let_in(victim, replacement, nodes)
        rest = self._preempting[0 if self._simulation.unsure else 1 :]
        others = (some.let_in(victim, replacement, nodes) for some in rest)
        other = other or next(filter(None, others), None)
        other = other or self._bereft(victim, replacement, nodes)
        return lets_preempt(victim, other) if other is not None else None

    def _bereft(self, victim: Pod, replacement: PodTemplate, nodes: Rows) -> Pod | None:
        """One to come that has a node now, and with the replacement there has none before the victim, or
        another, has ended: if it comes until then, it preempts."""
        state, asked = self._simulation.state, dict[int, _Comer]()
        for comer in self._now([victim]):
            if comer.pod.template.preempts and comer.pod.template.priority > state.lowest_priority:
                asked.setdefault(id(comer.pod.template), comer)
        for comer in asked.values():
            template, takes = comer.pod.template, self._takes_now(comer)
            tied = self._tied(template, replacement, victim.template)
            if not takes.any() or not (tied or takes.sum() == 1):
                continue  # it has none as it is, or more than the replacement can take
            with state.removed([comer.key] if comer.key is not None else []):
                for row in (nodes if tied else nodes[takes[nodes]])[:TRIED].tolist():
                    with state.also([(("replacement", "tried"), replacement, row)]):
                        framework = self._simulation.framework(template)
                        if not framework.feasible(template).any() and would_preempt(
                            framework, template, range(state.table.size)
                        ):
                            return comer.pod
        return None

    def _takes_now(self, comer: _Comer) -> Bools:
        """bool[N]: the nodes that would take it as things stand, without its former self."""
        state, template = self._simulation.state, comer.pod.template
        if self._takers[0] != state.mark:
            self._takers = state.mark, {}
        found = self._takers[1].get(id(template))
        if found is None:
            known = self._takers[1]
            with state.removed([comer.key] if comer.key is not None else []):
                found = known[id(template)] = self._simulation.framework(template).feasible(template)
        return found

    def _robbed(self, replacement: PodTemplate, nodes: Rows) -> Pod | None:
        """One that has preempted others on one of the nodes, and could find its room taken: then it may
        preempt yet others, wherever it finds room in the end. A replacement of higher priority takes it."""
        state = self._simulation.state
        for pod in self._nominated:
            place, template = state.nominated.get(key_of(pod)), pod.template
            if place is None or place.row not in nodes or replacement.priority <= template.priority:
                continue
            with state.unhindered(key_of(pod)):
                if self._simulation.framework(template).diagnose_node(template, place.row) is not None:
                    continue
                with state.also([(("replacement", "tried"), replacement, place.row)]):
                    if self._simulation.framework(template).diagnose_node(template, place.row) is not None:
                        return pod
        return None

    def _in_the_way(self, victim: Pod, replacement: PodTemplate, nodes: Rows, *, stays: bool) -> Pod | None:
        """One that may find no node any more with the replacement on one of the nodes. `stays`: the victim is
        replaced first, and holds its room for a while."""
        if not self._comers or not (comers := self._now([victim])):
            return None
        state, room = self._simulation.state, self._room(comers)
        own = {} if stays else dict(state.holds(victim.template))
        at = state.table.index.get(victim.node_name, -1)
        short = np.zeros(len(nodes), np.bool_)
        for resource, amount in state.asks(replacement):
            if resource in room:
                short |= room[resource][nodes] + own.get(resource, 0) * (nodes == at) < amount
        # Where earlier moves took their room, they are elsewhere by now.
        over = np.logical_or.reduce([r < 0 for r in room.values()])
        full = set(np.flatnonzero(over).tolist()).intersection(c.row for c in comers) if over.any() else ()
        every = {id(c.pod.template): c.pod.template for c in comers}
        ties = {i for i, t in every.items() if self._tied(t, replacement, victim.template)}
        tied = [c for c in comers if id(c.pod.template) in ties] if ties else []
        displaced = [c for c in comers if id(c.pod.template) in ties or c.row in full]
        here = [c for c in comers if c.row == at]
        let_in = [] if stays or at < 0 else self._let_in(victim, at, comers, here)
        here = here if let_in else []
        for taken in ([], *let_in):
            if (pod := self._fills(victim, replacement, nodes, comers, taken, stays=stays)) is not None:
                return pod
        if not (short.any() or displaced or here):
            return None
        closed = self._closed(replacement, nodes, room, [*displaced, *here])
        rows = self._differing(nodes, short, tied, closed) if displaced or here else nodes[short]
        if len(rows) > TRIED:
            return comers[0].pod
        if (pod := self._left_out(victim, replacement, rows, comers, displaced, stays=stays)) is not None:
            return pod
        displaced += [c for c in here if c not in displaced]
        for taken in let_in:
            pod = self._left_out(victim, replacement, rows, comers, displaced, taken, stays=stays)
            if pod is not None:
                return pod
        return None

    def _let_in(
        self, victim: Pod, at: int, comers: Sequence[_Comer], here: Sequence[_Comer]
    ) -> list[list[_Taken]]:
        """Who may come to the victim's node (row `at`) once it is gone, and all that ends, before those that
        are to come `here`: pods that found no node, and of few comers those for which there was no room
        there. As many of each template as find room, and several together, the largest first, and the
        smallest."""
        mark = hash((self._simulation.state.mark, *map(id, comers)))
        if self._able[0] != mark:
            self._able = mark, {}
        known = self._able[1].get((id(victim.template), at))
        if known is not None:
            return known
        (placing, later), room = self._as_it_will_be(), self._room(comers)
        state, own = placing.state, dict(self._simulation.state.holds(victim.template))
        kept = [dict(self._simulation.state.holds(c.pod.template)) for c in here]
        gone = [key for key in (key_of(victim), *(c.at for c in here)) if key in state.pods]
        some: dict[int, list[_Taken]] = defaultdict(list)
        for i, t in enumerate(chain.from_iterable(self._in_vain.values())):
            some[id(t)].append((("let in", i), t, None))
        for c in comers if len(comers) <= _FEW else ():
            if c.row != at:
                some[id(c.pod.template)].append((("let in", c.at), c.pod.template, c.at))
        free, able = dict[str, int](), list[tuple[float, list[_Taken]]]()
        for there in some.values():
            t = there[0][1]
            asks = dict(self._simulation.state.asks(t))
            for r in asks:
                if r not in free:
                    left = room[r] if r in room else self._simulation.free(r, ended=True)
                    free[r] = int(left[at]) + sum(k.get(r, 0) for k in kept) + own.get(r, 0)
            before = all(free[r] - own.get(r, 0) >= n for r, n in asks.items())
            if any(free[r] < n for r, n in asks.items()) or (before and there[0][2] is not None):
                continue
            if not self._simulation.static(t)[at]:
                continue
            if self._couples(t, len(there)) or state.constraints(t, hard=True):
                with state.removed(gone):
                    if not later.framework(t).feasible(t)[at]:
                        continue
            able.append((max((n / max(free[r], 1) for r, n in asks.items()), default=0.0), there))
        able.sort(key=lambda one: -one[0])
        ways = [[there] for _, there in able]
        if len(able) > 1:
            ways += [[there for _, there in able], [there for _, there in reversed(able)]]
        found = self._able[1][id(victim.template), at] = [self._together_in(way, free) for way in ways]
        return found

    def _together_in(self, way: Iterable[Iterable[_Taken]], free: Mapping[str, int]) -> list[_Taken]:
        """Those that find room, one after the other."""
        left, found = dict(free), list[_Taken]()
        for one in chain.from_iterable(way):
            holds = dict(self._simulation.state.asks(one[1]))
            if all(left[r] >= n for r, n in holds.items()):
                found.append(one)
                left |= {r: left[r] - n for r, n in holds.items()}
        return found

    def _fills(
        self,
        victim: Pod,
        replacement: PodTemplate,
        nodes: Rows,
        comers: Sequence[_Comer],
        taken: Sequence[_Taken] = (),
        *,
        stays: bool,
    ) -> Pod | None:
        """One to which others, some of another size, surely leave a node if they come first, and with the
        replacement, and those that are let in where the victim was, perhaps none."""
        state = self._simulation.state
        mark = hash((state.mark, *map(id, comers)))
        if self._last is None or self._last[0] != mark:
            alone = self._alone(comers)
            every, early = self._kept(comers, alone=alone), {id(c.pod.template) for c in comers if c.first}
            last = [
                (i, open_, kept)
                for i, (pod, open_, kept) in enumerate(every)
                if 0 < kept <= 2 and len(every) > 1 and id(pod.template) not in early
            ]
            self._last = mark, last, alone
        gone = [] if stays or key_of(victim) not in state.pods else [key_of(victim)]
        at = state.table.index.get(victim.node_name, -1)
        came = [(key, t, at) for key, t, _ in taken]
        for i, open_, before in self._last[1]:
            if before > 1 + bool(taken):
                continue
            for row in nodes[open_[nodes]].tolist():
                self._tries -= 1
                with state.removed(gone), state.also([*came, (("replacement", "tried"), replacement, row)]):
                    [(pod, _, kept)] = self._kept(comers, alone=self._last[2], of=i)
                if not kept or self._tries < 0:
                    return pod
        return None

    def _alone(self, comers: Sequence[_Comer]) -> dict[int, Bools]:
        """By template of which one pod comes, and whose constraints count no other comer: bool[N], the nodes
        that these leave it."""
        number = Counter(id(c.pod.template) for c in comers)
        found: dict[int, Bools] = {}
        for c in comers if len(comers) <= _FEW else ():
            t = c.pod.template
            asked = self._simulation.state.constraints(t, hard=True) if number[id(t)] == 1 else ()
            others = (o.pod.template for o in comers if o is not c)
            if not asked or any(a.counts(o.namespace, o.labels) for o in others for a in asked):
                continue
            placing, later = self._as_it_will_be()
            nodes = later.state.table.none == later.state.table.none
            with placing.state.removed([c.at]):
                for a in asked:
                    group = later.group(a, later.state.eligible(t, a))
                    if group.size:
                        admits = group.admits(group.counts(later.state), a.counts(t.namespace, t.labels))
                        nodes = nodes & np.append(admits, True)[group.domain_of]
            found[id(t)] = nodes
        return found

    def _closed(
        self, replacement: PodTemplate, nodes: Rows, room: Mapping[str, Ints], comers: Sequence[_Comer]
    ) -> Iterator[Ints]:
        """Columns that tell nodes apart by which of these pods together have room there, and which with the
        replacement beside them; 0 where it makes no difference."""
        state, every = self._simulation.state, {id(c.pod.template): c.pod.template for c in comers}
        number = Counter(id(c.pod.template) for c in comers)
        sets, whole = _together([number[i] for i in every])
        asks, taken = [dict(state.asks(t)) for t in every.values()], dict(state.holds(replacement))
        elsewhere = np.array([~self._simulation.static(t)[nodes] for t in every.values()], np.int64)
        before = (sets > 0).astype(np.int64) @ elsewhere == 0
        after = before.copy()
        for r in dict.fromkeys(chain.from_iterable(asks)):
            needed = (sets @ np.array([a.get(r, 0) for a in asks], np.int64))[:, None]
            for fits, free in ((before, room[r][nodes]), (after, room[r][nodes] - taken.get(r, 0))):
                fits &= (needed <= free) | (needed == 0)
        less = (before & ~after).any(axis=0)
        if not whole:
            # Of more together nothing is known: where not all have room, each node is of its own sort.
            less |= before.any(axis=0) & ~after[-1]
            yield np.where(less, np.arange(1, len(nodes) + 1), 0)
        elif less.any():
            yield from np.where(less, 1 + before + after, 0)

    def _differing(self, nodes: Rows, short: Bools, tied: Sequence[_Comer], closed: Iterable[Ints]) -> Rows:
        """The nodes among which the replacement's place may make a difference: one of each sort."""
        single = short | np.isin(nodes, [c.row for c in tied])
        keys: dict[str, None] = {}
        for t in {id(c.pod.template): c.pod.template for c in tied}.values():
            keys |= dict.fromkeys(topology_keys(self._simulation, t))
        table = self._simulation.state.table
        columns = [table.domains(key).ids[nodes] for key in keys if key != HOSTNAME]
        sorts = numbered(np.zeros(len(nodes), np.int64), [*columns, *closed])
        # First those that it closes: most are refused there.
        found = (*nodes[first_places(sorts)][::-1].tolist(), *nodes[single].tolist())
        return np.array(list(dict.fromkeys(found)), dtype=np.intp)

    def _left_out(
        self,
        victim: Pod,
        replacement: PodTemplate,
        rows: Rows,
        comers: Sequence[_Comer],
        displaced: Sequence[_Comer],
        taken: Sequence[_Taken] = (),
        *,
        stays: bool,
    ) -> Pod | None:
        """One that finds no node with the replacement on one of the rows, where the displaced, and those on
        that row, look for another. `taken`: who is let in, and has come to the victim's node before."""
        (placing, _), chosen = self._as_it_will_be(), set(map(id, comers))
        state, other = placing.state, set(map(id, displaced))
        gone: list[Hashable] = [c.at for c in self._now() if id(c) not in chosen]
        if not stays and key_of(victim) in state.pods:
            gone.append(key_of(victim))
        moved = {former for *_, former in taken if former is not None}
        gone += moved
        at = state.table.index.get(victim.node_name, -1)
        for row in rows.tolist():
            self._tries -= 1
            away = {c.at: c for c in comers if (id(c) in other or c.row == row) and c.at not in moved}
            if self._tries < 0:
                return next(iter(away.values()), comers[0]).pod
            came = [*((key, t, at) for key, t, _ in taken), (("replacement", "tried"), replacement, row)]
            with state.removed([*gone, *away]), state.also(came):
                left = placing.place(by_template((key, c.pod.template) for key, c in away.items()))
                for key in placing.placed:
                    state.remove(key)
                placing.placed.clear()
            lost = (comer for key, comer in away.items() if any(key in some.keys for some in left))
            if (other_pod := next((c.pod for c in lost if not c.first), None)) is not None:
                return other_pod
        return None

    def _as_it_will_be(self) -> tuple[Placing, Simulation]:
        """The scheduler over the cluster, and this, once all that ends is gone, and all are there that are to
        come."""
        now, state = self._now(), self._simulation.state
        mark = hash((state.mark, *map(id, now)))
        if self._later is None or self._later[0] != mark:
            later = state.copy()
            ending = (*(c.key for c in now if c.key is not None), *self._nowhere)
            for pod in dict.fromkeys((*self._ending, *ending)):
                later.drop(pod)
            for key in later.nominated.keys() & {key_of(c.pod) for c in now}:
                later.unnominate(key)
            for c in now:
                later.add(c.at, c.pod.template, c.row)
            placing = Placing(later, self._down, kept=self._simulation.daemons.kept)
            self._later = mark, (placing, self._simulation.over(later))
        return self._later[1]

    def crowded(self, moves: Sequence[tuple[PodTemplate, Rows, int]]) -> bool:
        """See `Waiting.crowded`."""
        if len(moves) < 2 or not self._comers or not (comers := self._now()):
            return False
        beside = [(t, others) for t, nodes, landed in moves if len(others := nodes[nodes != landed])]
        for t in {id(c.pod.template): c.pod.template for c in comers}.values():
            # Each alone may close another domain to it.
            if sum(self._closes(replacement, t) for replacement, _ in beside) > 1:
                return True
        after = [kept for *_, kept in self._kept(comers, beside)]
        if all(after):
            return False
        room, rows = self._room(comers), np.unique([c.row for c in comers])
        taken = self._simulation.held_by((t, nodes, 1) for t, nodes in beside)
        if any((taken[r] > np.maximum(room[r], 0))[rows].any() for r in taken.keys() & room.keys()):
            return True
        before = (kept for *_, kept in self._kept(comers))
        return len(after) > 1 and any(b and not a for b, a in zip(before, after, strict=True))

    def _kept(
        self,
        comers: Sequence[_Comer],
        beside: Beside = (),
        alone: Mapping[int, Bools] | None = None,
        of: int | None = None,
    ) -> list[tuple[Pod, Bools, int]]:
        """One of the comers of each template, or of one alone (`of`: its number); bool[N], the nodes with
        room for it; and how many of these surely keep it, wherever the other comers go, and replacements
        `beside` them: 0 where that is not known. `alone`: see `_alone`."""
        simulation, state = self._simulation, self._simulation.state
        held = simulation.held_by((c.pod.template, c.row, 1) for c in comers)
        free = {r: left + held.get(r, 0) for r, left in self._room(comers).items()}
        coming, found = Counter[str](), []
        number = Counter(id(c.pod.template) for c in comers)
        free |= self._places(c.pod.template for c in comers)
        for c in comers:
            coming.update(self._takes(c.pod.template))
        every = {id(t): t for t in (*(c.pod.template for c in comers), *(t for t, _ in beside))}
        pods = [*{id(c.pod.template): c.pod for c in comers}.values()]
        for pod in pods if of is None else [pods[of]]:
            t, others = pod.template, coming.copy()
            asks = self._asks(t)
            nodes = simulation.static(t) & ~self._down
            if alone and id(t) in alone:
                nodes = nodes & alone[id(t)]
            open_ = np.logical_and.reduce([nodes, *(free[r] >= amount for r, amount in asks.items())])
            kept, bound = 0, bool(state.constraints(t, hard=True)) and not (alone and id(t) in alone)
            if not (bound or self._couples(t, number[id(t)])):
                others.subtract(self._takes(t))
                near = [o for o, rows in beside if open_[rows].any()]
                for other in near:
                    others.update(self._takes(other))
                rows = np.flatnonzero(open_)
                kept = never_filled(rows, free, asks, others)
                if len(rows) and not kept and len(comers) <= _FEW:
                    # That takes the others for divisible, and for able to go anywhere.
                    whole = Counter(id(o) for o in near) + number
                    whole[id(t)] -= 1
                    kept = int(
                        not self._all_filled(rows, free, asks, [(every[i], n) for i, n in whole.items()])
                    )
            found.append((pod, open_, kept))
        return found

    def _all_filled(
        self,
        rows: Rows,
        free: Mapping[str, Ints],
        asks: Mapping[str, int],
        others: Iterable[tuple[PodTemplate, int]],
    ) -> bool:
        """Whether others, each whole on a node that takes it, could leave no room on any of the rows."""
        needs = np.stack([free[r][rows] - amount + 1 for r, amount in asks.items()], axis=1)
        # Those that differ in nothing that matters here are one kind.
        kinds: dict[tuple[tuple[int, ...], bytes], int] = defaultdict(int)
        for t, n in others:
            takes, all_ = self._takes(t), self._asks(t)
            there = [free[r][rows] >= amount for r, amount in all_.items() if r in free]
            may = np.logical_and.reduce([self._simulation.static(t)[rows], *there])
            if n and may.any():
                kinds[tuple(takes.get(r, 0) for r in asks), may.tobytes()] += n
        if not kinds:
            return False
        held = np.array([takes for takes, _ in kinds], np.int64)
        may = np.array([np.frombuffer(where, np.bool_) for _, where in kinds])
        return self._filled(needs, held, may, tuple(kinds.values()))

    @remembered(by=lambda needs, held, may, numbers: (*(x.tobytes() for x in (needs, held, may)), numbers))
    def _filled(self, needs: Ints, held: Ints, may: Bools, numbers: tuple[int, ...]) -> bool:
        return all_filled(needs, held, may, numbers)

    @remembered(by=lambda *templates: tuple(map(id, templates)))
    def _tied(self, template: PodTemplate, *others: PodTemplate) -> bool:
        return any(ties(self._simulation, template, other) for other in others)

    @remembered(by=lambda *templates: tuple(map(id, templates)))
    def _closes(self, replacement: PodTemplate, template: PodTemplate) -> bool:
        """Whether by more than its room it may keep a pod off a domain: conflicts, or a count."""
        asked = self._simulation.state.constraints(template, hard=True)
        counted = any(c.counts(replacement.namespace, replacement.labels) for c in asked)
        return counted or can_conflict(template, replacement)


def _together(numbers: Sequence[int]) -> tuple[Ints, bool]:
    """int64[S, T]: how many of each template are together, in any way: each alone, others up to
    `_WAYS`, and all of them last; and whether that is every way."""
    every, found = tuple(numbers), dict[tuple[int, ...], None]()
    last = dict.fromkeys([(0,) * len(every)])
    for _ in range(sum(every)):
        more = ((way, i) for way in last for i, most in enumerate(every) if way[i] < most)
        last = dict.fromkeys((*way[:i], way[i] + 1, *way[i + 1 :]) for way, i in more)
        if found and len(found) + len(last) > _WAYS:
            break
        found |= last
    return np.array([*found, every], np.int64), every in found


def _later(spoken_for: ref[SpokenFor]) -> Callable[[], Simulation]:
    """The cluster as it will be; without a circle, which would keep it in memory after the plan."""

    def later() -> Simulation:
        found = spoken_for()
        assert found is not None, "who asks is one of its own"
        return found._as_it_will_be()[1]

    return later
