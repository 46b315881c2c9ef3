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

from rebalancer.bulk_work import Recent, remembered
from rebalancer.engine.framework import would_preempt
from rebalancer.model.node import HOSTNAME, is_outdated
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.cluster.enough_room import FEW, Beside, Comer, EnoughRoom, Open
from rebalancer.planner.cluster.groups import Groups, can_conflict, can_draw
from rebalancer.planner.cluster.placing import Placing, Waits, by_template
from rebalancer.planner.cluster.preemptors import TRIED, Preemptors, PushedOut, ties, topology_keys
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.planner.plan import Refusal, leaves_homeless, leaves_out, lets_preempt
from rebalancer.spread.arrays import Bools, Ints, Rows, first_places, numbered

_TRIES = 4_000
"""Nodes tried for all replacements of a plan."""
_WAYS = 64
"""Ways in which some of several pods may be together on a node that are told apart."""
_STATES = 8
"""States of the simulation of which is remembered what was found in them."""
_ORDERS = 4
"""Orders in which pods to come are tried."""
_ON_A_NODE = 256
"""So many pods of one template, at most, may come to one node."""


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


_Taken = tuple[Hashable, PodTemplate, Hashable | None]
"""A pod that is let in, and the comer's key that it had elsewhere, if it is one."""
_Kept = tuple[int, Comer, Bools, int]
"""A comer: its number by templates; the nodes with room for it; and how many of these it surely keeps."""


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
        self._simulation, self._ends = simulation, [*map(key_of, ends)]
        self._nominated = [p for p in waiting if key_of(p) in simulation.state.nominated]
        self._waiting = Preemptors(simulation, waiting, lambda: simulation)
        self._stuck: Preemptors | None = None
        self._comers, self._nowhere = list[Comer](), list[Hashable]()
        # By template: pods that find no node as things stand.
        self._in_vain: dict[int, list[PodTemplate]] = {}
        state = simulation.state
        pods: list[tuple[Pod, Hashable | None]] = [(p, key_of(p)) for p in leaving if key_of(p) in state.pods]
        others, at_once = list(others), {id(p.template) for p in self._waiting.at_once()}
        if not (pods or others or at_once):
            return
        pods += [(p, None) for p in others]
        # Of equal ones nobody knows which is on which node.
        early = {id(p.template) for p in first} - {id(p.template) for p, _ in pods}
        pods += [(p, None) for p in first]
        outdated = np.array(state.table.answers(is_outdated), dtype=np.bool_)
        self._down: Bools = simulation.leaving | simulation.failing | outdated
        ending = [*dict.fromkeys((*self._ending, *(key for _, key in pods if key is not None)))]
        given = simulation.held_by((state.pods[key].template, state.pods[key].row, 1) for key in ending)
        self._enough = EnoughRoom(simulation, self._down)
        moving = self._enough.may_move(groups)
        scarce = self._enough.scarce([p.template for p, _ in pods], given, moving)
        for p, _ in pods:
            moving.update(self._enough.takes(p.template))
        preempt = [p.template for p, _ in pods if self._waiting.may_preempt(p)]
        # These may not wait until the others have ended.
        scarce |= self._enough.scarce(preempt, {}, moving) if preempt else set()
        self._sure = [
            (p.template, np.flatnonzero(simulation.static(p.template)), key)
            for p, key in pods
            if id(p.template) not in scarce
        ]
        pods = [(p, key) for p, key in pods if id(p.template) in scarce]
        placed = self._placed([p for p, _ in pods], early, last, ending, given)
        for i, (row, soon) in placed.items():
            pod, key = pods[i]
            self._comers.append(Comer(pod, row, key, soon))
        nowhere = [p for i, p in enumerate(pods) if i not in placed]
        self._nowhere = [key for _, key in nowhere if key is not None]
        stuck = [p for p, _ in nowhere if id(p.template) in at_once or not (p.waits and p.uid)]
        for p, _ in nowhere:
            alike = self._in_vain.setdefault(id(p.template), [])
            alike += [p.template] * (len(alike) < _ON_A_NODE)
        self._left = Recent[dict[str, Ints]](_STATES)
        self._takers = Recent[dict[int, Bools]](_STATES)
        self._last = Recent[tuple[list[_Kept], Open]](_STATES)
        self._later = Recent[tuple[Placing, Simulation]](1)
        self._able = Recent[dict[Hashable, list[list[_Taken]]]](_STATES)
        # With the templates of the questions, so that no other one can get the identity of one of them.
        self._known = dict[Hashable, tuple[PodTemplate, PodTemplate, Pod | None]]()
        self._tries = _TRIES
        self._stuck = Preemptors(simulation, stuck, _later(ref(self)))
        self._pushed_out = PushedOut(self._stuck, simulation, self._enough, given, moving)

    def _placed(
        self,
        pods: Sequence[Pod],
        early: Collection[int],
        last: Collection[int],
        ending: Collection[Hashable],
        given: Mapping[str, Ints],
    ) -> dict[int, tuple[int, bool]]:
        """The nodes (rows) of those that find one, by their number, and whether they find it before all that
        ends, which gives up so much (`given`), is gone. `early`: ids of the templates that can.

        Nobody knows in which order they come. So that as many as can be find a node, those that found none
        come before the others, of whatever priority, in the next of a few tries."""
        simulation, state = self._simulation, self._simulation.state
        every = {id(p.template): p.template for p in pods}
        slots = {i: int(simulation.room(t, given, ended=True).sum()) for i, t in every.items()}
        # First those that are nominated, for their nodes are theirs, and those that come first; then the
        # largest.
        able = [i for i, p in enumerate(pods) if slots[id(p.template)]]
        held = {i for i in able if key_of(pods[i]) in state.nominated}
        soon = {i for i in able if id(pods[i].template) in early}
        late = {i for i in able if id(pods[i]) in last}
        able.sort(key=lambda i: (i not in held, i not in soon, i in late, slots[id(pods[i].template)]))

        def place(numbers: Sequence[int]) -> dict[Hashable, int]:
            placing, left = Placing(state, self._down, kept=simulation.daemons.kept), list[Waits]()
            for some in (held, preferred - held, {*numbers} - preferred - held):
                there = by_template((("to come", i), pods[i].template) for i in numbers if i in some)
                left = placing.place(there, left)
            return placing.placed

        found, preferred = dict[int, tuple[int, bool]](), set[int]()
        with state.unhindered(*map(key_of, pods)):
            for _ in range(_ORDERS):
                now = place([i for i in able if i in soon])
                with state.removed(ending):
                    later = place([i for i in able if ("to come", i) not in now])
                    for key in later:
                        state.remove(key)
                for key in now:
                    state.remove(key)
                rows = now | later
                here = {i: (rows[key], key in now) for i in able if (key := ("to come", i)) in rows}
                found = max(found, here, key=len)
                missing = {*able} - here.keys() - late
                if missing <= preferred:
                    break
                preferred = preferred | missing
        return found

    @property
    def _ending(self) -> list[Hashable]:
        """Whoever ends, and is no comer's former self."""
        there = self._simulation.state.pods
        return [key for key in dict.fromkeys((*self._simulation.unsure, *self._ends)) if key in there]

    def _now(self, victims: Iterable[Pod] = ()) -> list[Comer]:
        """Those that are still to come, without the victims' own."""
        there, moved = self._simulation.state.pods, {key_of(v) for v in victims}
        return [c for c in self._comers if c.key is None or (c.key in there and c.key not in moved)]

    def _beside(self) -> Beside:
        """Those still to come that find a node in any case, and may take it from one that does not. Of many
        it is not known whom they leave one."""
        there, some = self._simulation.state.pods, self._sure if len(self._sure) <= FEW else ()
        return [(t, rows) for t, rows, key in some if key is None or key in there]

    def _room(self, comers: Sequence[Comer]) -> dict[str, Ints]:
        """int64[N] by resource: what they leave of each node, once all that ends is gone."""
        return self._left.of(self._mark(comers), lambda: self._room_now(comers))

    def _room_now(self, comers: Sequence[Comer]) -> dict[str, Ints]:
        state, taken = self._simulation.state, [(c.pod.template, c.row, 1) for c in comers]
        ending = (*self._ending, *(c.key for c in comers if c.key is not None))
        taken += [(state.pods[key].template, state.pods[key].row, -1) for key in dict.fromkeys(ending)]
        held = self._simulation.held_by(taken)
        # A resize that cannot be had asks for what it does not hold.
        every = dict.fromkeys((*held, *(r for c in comers for r, _ in state.asks(c.pod.template))))
        return {r: self._simulation.free(r, ended=True) - held.get(r, 0) for r in every}

    def _mark(self, comers: Iterable[Comer]) -> int:
        """Of the simulation as it stands, and of these."""
        return hash((self._simulation.state.mark, *map(id, comers)))

    def left_out(self, victim: Pod, replacement: PodTemplate, nodes: Rows, *, stays: bool) -> Refusal | None:
        """Why the move would leave another pod without a node, wherever among the nodes it ends. `stays`: the
        victim is replaced first: it holds its room for a while, and not in the end."""
        comers = self._now([victim]) if self._comers else []
        for still in ((True, False) if stays else (False,)) if comers else ():
            asked = victim.template, replacement
            where = self._mark(comers), victim.node_name, hash(nodes.tobytes()), still
            key = (*map(id, asked), *where)
            if key not in self._known:
                found = self._in_the_way(victim, replacement, nodes, comers, stays=still)
                self._known[key] = *asked, found
            if (other := self._known[key][-1]) is not None:
                return leaves_out(victim, other)
        # Whoever ends now keeps room, too, and some wait for longer than that.
        with self._simulation.without_unsure():
            if (robbed := self._robbed(replacement, nodes)) is not None:
                return leaves_out(victim, robbed)
            other = self._waiting.let_in(victim, replacement, nodes)
        if self._stuck is not None:
            if (crowded := self._stuck.crowded(nodes)) is not None:
                return leaves_out(victim, crowded)
            if (homeless := self._pushed_out.homeless(victim, replacement, nodes)) is not None:
                return leaves_homeless(victim, homeless)
        if self._simulation.unsure:
            other = other or self._waiting.let_in(victim, replacement, nodes)
        if self._stuck is not None:
            other = other or self._stuck.let_in(victim, replacement, nodes)
        other = other or self._bereft(victim, replacement, nodes)
        return lets_preempt(victim, other) if other is not None else None

    def _bereft(self, victim: Pod, replacement: PodTemplate, nodes: Rows) -> Pod | None:
        """One to come that has a node now, and with the replacement there has none before the victim, or
        another, has ended: if it comes until then, it preempts."""
        state, asked = self._simulation.state, dict[int, Comer]()
        for comer in self._now([victim]):
            if comer.pod.template.preempts and comer.pod.template.priority > state.lowest_priority:
                asked.setdefault(id(comer.pod.template), comer)
        for comer in asked.values():
            template, takes = comer.pod.template, self._takes_now(comer)
            tied = id(template) in self._tied(replacement, victim.template)
            if not takes.any() or not (tied or takes.sum() == 1):
                continue  # it has none as it is, or more than the replacement can take
            rows = nodes[takes[nodes]] if takes.sum() == 1 else nodes[:0]
            if tied:
                rows = self._differing(replacement, nodes, np.isin(nodes, rows), [comer], ())
            if len(rows) > TRIED:
                return comer.pod
            with state.removed([comer.key] if comer.key is not None else []):
                for row in rows.tolist():
                    with state.also([(("replacement", "tried"), replacement, row)]):
                        framework = self._simulation.framework(template)
                        if not framework.feasible(template).any() and would_preempt(
                            framework, template, range(state.table.size)
                        ):
                            return comer.pod
        return None

    def _takes_now(self, comer: Comer) -> Bools:
        """bool[N]: the nodes that would take it as things stand, without its former self."""
        state, template = self._simulation.state, comer.pod.template
        known = self._takers.of(state.mark, dict)
        found = known.get(id(template))
        if found is None:
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

    def _in_the_way(
        self, victim: Pod, replacement: PodTemplate, nodes: Rows, comers: Sequence[Comer], *, stays: bool
    ) -> Pod | None:
        """One of the comers that may find no node any more with the replacement on one of the nodes. `stays`:
        the victim is replaced first, and holds its room for a while."""
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
        ties = self._tied(replacement, victim.template)
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
        rows = self._differing(replacement, nodes, short, tied, closed) if displaced or here else nodes[short]
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
        self, victim: Pod, at: int, comers: Sequence[Comer], here: Sequence[Comer]
    ) -> list[list[_Taken]]:
        """Who may come to the victim's node (row `at`) once it is gone, and all that ends, before those that
        are to come `here`: pods that found no node, and of few others those for which there was no room
        there. As many of each template as find room, and several together, the largest first, and the
        smallest."""
        known, move = self._able.of(self._mark(comers), dict), (id(victim.template), at)
        if move in known:
            return known[move]
        (placing, later), room = self._as_it_will_be(), self._room(comers)
        state, own = placing.state, dict(self._simulation.state.holds(victim.template))
        kept = [dict(self._simulation.state.holds(c.pod.template)) for c in here]
        gone = [key for key in (key_of(victim), *(c.at for c in here)) if key in state.pods]
        free, able, tied = dict[str, int](), list[tuple[float, list[_Taken]]](), self._tied(victim.template)
        for there in self._who_could_come(comers, at):
            t = there[0][1]
            asks = dict(self._simulation.state.asks(t))
            for r in asks:
                if r not in free:
                    left = room[r] if r in room else self._simulation.free(r, ended=True)
                    free[r] = int(left[at]) + sum(k.get(r, 0) for k in kept) + own.get(r, 0)
            before = all(free[r] - own.get(r, 0) >= n for r, n in asks.items())
            could = before and id(t) not in self._in_vain and id(t) not in tied
            if could or any(free[r] < n for r, n in asks.items()):
                continue
            if not self._simulation.static(t)[at]:
                continue
            if self._enough.couples(t, len(there)) or state.constraints(t, hard=True):
                with state.removed(gone):
                    if not later.framework(t).feasible(t)[at]:
                        continue
            able.append((max((n / max(free[r], 1) for r, n in asks.items()), default=0.0), there))
        able.sort(key=lambda one: -one[0])
        ways = [[there] for _, there in able]
        if len(able) > 1:
            ways += [[there for _, there in able], [there for _, there in reversed(able)]]
        found = known[move] = [self._together_in(way, free) for way in ways]
        return found

    def _who_could_come(self, comers: Sequence[Comer], at: int) -> Iterable[list[_Taken]]:
        """By template: pods that found no node, and few with one elsewhere, that may go here (row `at`)."""
        found: dict[int, list[_Taken]] = defaultdict(list)
        for i, t in enumerate(chain.from_iterable(self._in_vain.values())):
            found[id(t)].append((("let in", i), t, None))
        for c in comers if len(comers) <= FEW else ():
            if c.row != at:
                found[id(c.pod.template)].append((("let in", c.at), c.pod.template, c.at))
        for i, (t, rows) in enumerate(self._beside()):
            if at in rows:
                found[id(t)].append((("let in", "in any case", i), t, None))
        return found.values()

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
        comers: Sequence[Comer],
        taken: Sequence[_Taken] = (),
        *,
        stays: bool,
    ) -> Pod | None:
        """One to which others, some of another size, surely leave a node if they come first, and with the
        replacement, and those that are let in where the victim was, perhaps none."""
        state = self._simulation.state
        last, open_ = self._last.of(self._mark(comers), lambda: self._kept(comers))
        if not last:
            return None
        gone = [] if stays or key_of(victim) not in state.pods else [key_of(victim)]
        at = state.table.index.get(victim.node_name, -1)
        came = [(key, t, at) for key, t, _ in taken]
        tied = self._tied(replacement, victim.template) & open_.ever.keys()
        number = self._number(comers)
        # Each of those that the move opens a node to may fill one, too.
        most = 1 + bool(taken) + sum(number[i] for i in tied)
        for i, comer, free, before in last:
            if before > most and id(comer.pod.template) not in tied:
                continue
            rows, now = nodes[free[nodes]], open_
            if tied:
                # Of many nodes it loses only such as are shut with others.
                rows = self._differing(replacement, nodes, free[nodes] & (before <= most), [comer], ())
            elif at >= 0 and (taken or free[at]) and not len(rows):
                rows = nodes[:1]
            for row in rows.tolist():
                self._tries -= 1
                there = [*came, (("replacement", "tried"), replacement, row)]
                if tied:
                    now = open_.but(self._open(comers, tied, gone, there))
                with state.removed(gone), state.also(there):
                    room = self._room_now(comers)
                    [(_, _, kept)] = self._enough.kept(comers, room, self._beside(), now, of=i)
                if not kept or self._tries < 0:
                    return comer.pod
        return None

    def _kept(self, comers: Sequence[Comer]) -> tuple[list[_Kept], Open]:
        """Those to which the others surely leave a node; and what is open to whom."""
        open_, early = self._open(comers), {id(c.pod.template) for c in comers if c.first}
        sure = self._beside()
        every = self._enough.kept(comers, self._room(comers), sure, open_)
        of = {id(c.pod): c for c in comers}
        last = [
            (i, of[id(pod)], nodes, kept)
            for i, (pod, nodes, kept) in enumerate(every)
            if kept and id(pod.template) not in early
            if id(pod.template) in open_.first or sure or len(every) > 1
        ]
        return last, open_

    def _open(
        self,
        comers: Sequence[Comer],
        only: Collection[int] | None = None,
        gone: Iterable[Hashable] = (),
        also: Sequence[tuple[Hashable, PodTemplate, int]] = (),
    ) -> Open:
        """What is open to few pods to come, or to those of some templates `only`, once all that ends is gone.
        `gone`, `also`: see `_left_to`."""
        first, ever = dict[int, Bools](), dict[int, Bools]()
        number, every = self._number(comers), {id(c.pod.template): c.pod.template for c in comers}
        asked_about = [*every]
        every |= {id(t): t for t, _ in self._beside()}
        for i, t in every.items() if len(comers) <= FEW else ():
            asked = self._simulation.state.constraints(t, hard=True)
            if not (asked or self._enough.kept_off(t)) or (only is not None and i not in only):
                continue
            others = [o for j, o in every.items() if j != i or number[i] > 1]
            if any(can_draw(o, t) for o in others):
                continue
            # Who is counted when it comes may shut a domain to it, and open all others.
            counted = any(a.counts(o.namespace, o.labels) for o in others for a in asked)
            ever[i] = self._left_to(t, gone, also, spread=not counted)
            if i in asked_about and not counted:
                first[i] = ever[i]
        return Open(first, ever)

    def _number(self, comers: Sequence[Comer]) -> Counter[int]:
        """How many are to come, by identity of their templates, with those that find a node in any case."""
        return Counter([id(c.pod.template) for c in comers] + [id(t) for t, _ in self._beside()])

    def _left_to(
        self,
        template: PodTemplate,
        gone: Iterable[Hashable] = (),
        also: Sequence[tuple[Hashable, PodTemplate, int]] = (),
        *,
        spread: bool = True,
    ) -> Bools:
        """bool[N]: the nodes that are open to its pod by what is required between pods, by host ports and by
        its constraints (`spread`), once all that ends is `gone`, and these, with none that is to come but
        those that are there `also`."""
        placing, later = self._as_it_will_be()
        away = {*gone, *(c.at for c in self._now())} & placing.state.pods.keys()
        with placing.state.removed(away), placing.state.also(also):
            nodes = later.framework(template).fits_beside(template)
            for a in later.state.constraints(template, hard=True) if spread else ():
                group = later.group(a, later.state.eligible(template, a))
                if group.size:
                    own = a.counts(template.namespace, template.labels)
                    admits = group.admits(group.counts(later.state), own)
                    nodes = nodes & np.append(admits, True)[group.domain_of]
        return nodes

    def _closed(
        self, replacement: PodTemplate, nodes: Rows, room: Mapping[str, Ints], comers: Sequence[Comer]
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

    def _differing(
        self,
        replacement: PodTemplate,
        nodes: Rows,
        short: Bools,
        tied: Sequence[Comer],
        closed: Iterable[Ints],
    ) -> Rows:
        """The nodes among which the replacement's place may make a difference: one of each sort."""
        single = short | np.isin(nodes, [c.row for c in tied])
        keys: dict[str, None] = {}
        for t in {id(t): t for t in (replacement, *(c.pod.template for c in tied))}.values():
            keys |= dict.fromkeys(topology_keys(self._simulation, t) if tied else ())
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
        comers: Sequence[Comer],
        displaced: Sequence[Comer],
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

        def made() -> tuple[Placing, Simulation]:
            later = state.copy()
            ending = (*(c.key for c in now if c.key is not None), *self._nowhere)
            for pod in dict.fromkeys((*self._ending, *ending)):
                later.drop(pod)
            for key in later.nominated.keys() & {key_of(c.pod) for c in now}:
                later.unnominate(key)
            for c in now:
                later.add(c.at, c.pod.template, c.row)
            placing = Placing(later, self._down, kept=self._simulation.daemons.kept)
            return placing, self._simulation.over(later)

        return self._later.of(self._mark(now), made)

    def crowded(self, moves: Sequence[tuple[PodTemplate, Rows, int]]) -> bool:
        """See `Waiting.crowded`."""
        if len(moves) < 2 or not self._comers or not (comers := self._now()):
            return False
        beside = [(t, others) for t, nodes, landed in moves if len(others := nodes[nodes != landed])]
        for t in {id(c.pod.template): c.pod.template for c in comers}.values():
            # Each alone may close another domain to it.
            if sum(self._closes(replacement, t) for replacement, _ in beside) > 1:
                return True
        room, sure = self._room(comers), self._beside()
        _, open_ = self._last.of(self._mark(comers), lambda: self._kept(comers))
        after = [kept for *_, kept in self._enough.kept(comers, room, [*sure, *beside], open_)]
        if all(after):
            return False
        rows = np.unique([c.row for c in comers])
        taken = self._simulation.held_by((t, nodes, 1) for t, nodes in beside)
        if any((taken[r] > np.maximum(room[r], 0))[rows].any() for r in taken.keys() & room.keys()):
            return True
        before = (kept for *_, kept in self._enough.kept(comers, room, sure, open_))
        return bool(sure or len(after) > 1) and any(b and not a for b, a in zip(before, after, strict=True))

    @remembered(by=lambda *templates: tuple(map(id, templates)))
    def _tied(self, *others: PodTemplate) -> frozenset[int]:
        """Identities of the templates of those to which it matters, beyond room, where these are."""
        every = {id(c.pod.template): c.pod.template for c in self._comers}
        every |= {id(t): t for t, *_ in self._sure} if len(self._sure) <= FEW else {}
        return frozenset(i for i, t in every.items() if any(ties(self._simulation, t, o) for o in others))

    @remembered(by=lambda *templates: tuple(map(id, templates)))
    def _closes(self, replacement: PodTemplate, template: PodTemplate) -> bool:
        """Whether by more than its room it may keep a pod off a domain, or a node."""
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
