"""Whether pods that go anywhere could leave one of some nodes no room: by their sum, or each whole; and which
of the pods to come find a node in any case."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain

import numpy as np
from msgspec import Struct

from rebalancer.bulk_work import remembered
from rebalancer.engine.plugins.node_volume_limits import free_places, limits
from rebalancer.engine.state.cluster import PODS
from rebalancer.model.node import HOSTNAME
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.quantity import MOST
from rebalancer.planner.cluster.groups import Groups, can_conflict, conflicts_at_all, repels, shuts
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.spread.arrays import Bools, Ints, Rows
from rebalancer.spread.constraint import Constraint

_CHOICES = 256
"""Choices of several pods, so many of each kind, that are told apart."""
_PLENTY, _IN_EACH = 16, 4
"""Nodes that keep room for a pod wherever the others go, so that no move is asked about it: in all, and in
each domain of its constraints."""
FEW = 16
"""So many pods to come are asked about exactly."""
Beside = Sequence[tuple[PodTemplate, Rows]]
"""Replacements, each with the nodes where it may land."""


def never_filled(
    rows: Rows, free: Mapping[str, Ints], asks: Mapping[str, int], coming: Mapping[str, int]
) -> int:
    """How many of these nodes surely keep room for a pod wherever others go that hold so much together, with
    `PODS` their number. `free`: int64[N] by resource."""
    for r, amount in asks.items():
        rows = rows[free[r][rows] >= amount]
    filled = 0
    for r, amount in asks.items():
        # Those that are filled most cheaply could be full.
        costs = np.cumsum(np.sort(free[r][rows] - amount + 1))
        filled += int(np.searchsorted(costs, coming.get(r, 0), side="right"))
    # Each pod fills one node at most.
    return max(0, len(rows) - min(filled, coming.get(PODS, filled)))


def all_filled(room: Ints, asks: Ints, takes: Ints, may: Bools, numbers: tuple[int, ...]) -> bool:
    """Whether so many pods of each kind, each whole on one node, could leave none of the nodes room for a pod
    that asks for so much. `room`: int64[K, R]; `asks`: int64[R]; `takes`: int64[T, R]; `may`: bool[T, K], the
    nodes that a kind can go to. True where they are too many to tell."""
    if len(room) > sum(numbers):
        return False
    if np.prod(np.array(numbers) + 1.0) > _CHOICES:
        return True
    together, possible, at = _unions(numbers)
    held, reached = together @ takes, np.arange(len(together)) == 0
    for has, here in zip(room, may.T, strict=True):
        fills = (held + asks > has).any(axis=1) & ((held <= has) | (held == 0)).all(axis=1)
        fills &= (together[:, ~here] == 0).all(axis=1)
        pairs = possible & reached[:, None] & fills
        if not pairs.any():
            return False
        reached = np.zeros_like(reached)
        reached[at[pairs]] = True
    return True


@lru_cache(maxsize=32)
def _unions(numbers: tuple[int, ...]) -> tuple[Ints, Bools, Ints]:
    """int64[S, T]: every choice of so many of each; bool[S, S]: which of them can be made together; and
    int64[S, S]: the choice that two of them are then."""
    shape = tuple(n + 1 for n in numbers)
    every = np.indices(shape).reshape(len(shape), -1).T.astype(np.int64)
    sums: Ints = every[:, None, :] + every[None, :, :]
    possible: Bools = np.logical_and.reduce(sums <= np.array(numbers), axis=-1)
    at: Ints = np.ravel_multi_index(tuple(np.moveaxis(np.minimum(sums, numbers), -1, 0)), shape)
    return every, possible, at


class Comer(Struct, frozen=True, eq=False):
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


class Open(Struct, frozen=True, eq=False):
    """What is open to pods to come by all but room and volumes, by identity of templates; to others all is.

    `first`: bool[N], the nodes that those that stay leave it, by its constraints, too: others that come may
    but shut some of them to it, each its own domain. `ever`: bool[N], all nodes that it may ever have.
    """

    first: Mapping[int, Bools]
    ever: Mapping[int, Bools]

    def but(self, other: Open) -> Open:
        """The same, but for what the other knows."""
        return Open({**self.first, **other.first}, {**self.ever, **other.ever})


NOTHING_SHUT = Open({}, {})


class EnoughRoom:
    """Which of several pods find a node, wherever the others go.

    `down`: bool[N], nodes to which none of them goes.
    """

    def __init__(self, simulation: Simulation, down: Bools) -> None:
        self._simulation, self._down = simulation, down
        self._movers: list[tuple[int, list[PodTemplate]]] = []

    @remembered()
    def _attached_by(self, template: PodTemplate) -> dict[str, int]:
        """How many volumes of each driver its pod attaches to its node."""
        return {driver: len(a) for driver, a in self._simulation.state.storage.attachments(template).items()}

    def asks(self, template: PodTemplate) -> dict[str, int]:
        """What a node has to have for its pod, places of volumes among it."""
        return dict(self._simulation.state.asks(template)) | self._attached_by(template)

    def takes(self, template: PodTemplate) -> dict[str, int]:
        """What its pod then takes of it."""
        return dict(self._simulation.state.holds(template)) | self._attached_by(template)

    def places(self, templates: Iterable[PodTemplate]) -> dict[str, Ints]:
        """int64[N] by driver of these pods' volumes: how many more each node takes."""
        drivers = dict.fromkeys(chain.from_iterable(map(self._attached_by, templates)))
        state = self._simulation.state
        return {driver: free_places(state, driver, self._limit(driver)) for driver in drivers}

    @remembered(by=str)
    def _limit(self, driver: str) -> Ints:
        return limits(self._simulation.state, driver)

    def couples(self, template: PodTemplate, number: int) -> bool:
        """Whether more than room, places of volumes among it, ties so many pods of a template to others."""
        return conflicts_at_all(template, volumes=False) or self._shares(template, number)

    def _shares(self, template: PodTemplate, number: int) -> bool:
        """Whether what so many of its pods mount is not bound yet, or not theirs alone."""
        state, storage = self._simulation.state, self._simulation.state.storage
        for v in template.volumes if template.attaches else ():
            claim = storage.claim_of(template.namespace, v) if v.kind == "persistentVolumeClaim" else None
            bound = claim is not None and storage.volume(claim.spec.volume_name) is not None
            if not bound or max(number, state.volumes.claims.get(f"{template.namespace}/{v.claim}", 0)) > 1:
                return True
        return False

    def scarce(
        self,
        pods: Sequence[PodTemplate],
        given: Mapping[str, Ints],
        moving: Mapping[str, int],
        *,
        plenty: int = _PLENTY,
        in_each: int = _IN_EACH,
        others: int | None = None,
    ) -> set[int]:
        """Identities of the templates of which a pod might find no node, wherever the other pods go. `given`:
        int64[N] by resource, what those that end hold now; `moving`: what all replacements may hold.
        `plenty`, `in_each`: so many nodes have to keep room, in all and in each domain of its constraints.
        `others`: so many pods may close one node each to it; None: as many of these, and of those that may
        move, as can at all."""
        simulation, number = self._simulation, Counter(map(id, pods))
        every = {id(t): t for t in pods}
        coming, found = Counter(moving), set[int]()
        # Those that differ in what they ask for only are judged by the largest amounts first.
        alike: dict[Hashable, list[tuple[PodTemplate, list[Bools], int]]] = defaultdict(list)
        for i, t in every.items():
            coming.update({r: n * number[i] for r, n in self.takes(t).items()})
            if (open_ := self._open(t, number[i])) is None:
                found.add(i)
                continue
            nodes, domains, closing = open_
            more = 0
            if closing:
                able = [(every[j], n) for j, n in number.items()] if others is None else ()
                more = self._closing(t, able) if others is None else others
            alike[id(nodes), tuple(map(id, domains)), more].append((t, [nodes, *domains], more))
        free = {r: simulation.free(r, ended=True) + given.get(r, 0) for r in coming}
        free |= self.places(every.values())

        def enough(nodes: Bools, asks: Mapping[str, int], wanted: int) -> bool:
            return never_filled(np.flatnonzero(nodes), free, asks, coming) >= wanted

        def keep(within: Sequence[Bools], asks: Mapping[str, int], more: int) -> bool:
            nodes, *each = within
            return enough(nodes, asks, plenty + more) and all(enough(n, asks, in_each + more) for n in each)

        for templates in alike.values():
            _, (nodes, *domains), more = templates[0]
            nodes = nodes & ~self._down
            within = [nodes, *(nodes & domain for domain in domains)]
            asked = [(id(t), self.asks(t)) for t, *_ in templates]
            most: dict[str, int] = {}
            for _, asks in asked:
                most |= {r: max(a, most.get(r, 0)) for r, a in asks.items()}
            if not keep(within, most, more):
                found.update(i for i, asks in asked if not keep(within, asks, more))
        return found

    def _open(self, template: PodTemplate, number: int) -> tuple[Bools, Sequence[Bools], bool] | None:
        """bool[N]: nodes that stay open to so many pods of a template by all but room, whatever the counts
        of its constraints are; the nodes of each of its domains, of which it needs some in each; and whether
        each of the others may close one of these nodes, wherever it comes. None: that is not known."""
        simulation, state = self._simulation, self._simulation.state
        hard, keys = state.constraints(template, hard=True), self._repelled(template)
        wide = [c for c in hard if c.topology_key != HOSTNAME]
        couples = self.couples(template, number)
        if len(wide) > 1 or not keys <= {HOSTNAME} or (couples and not _only_repels(template)):
            return None
        nodes, domains = simulation.static(template), list[Bools]()
        if keys or couples:
            nodes = simulation.framework(template).feasible(template, spread=False)
        for c in hard:
            if c.topology_key == HOSTNAME:
                # The lowest count may be 0 at any time: where a pod has left a node that is shut, say.
                own = c.counts(template.namespace, template.labels)
                nodes = nodes & (state.counts(c.namespace, c.selector) + own <= c.max_skew)
            else:
                domains = self._domains(c, simulation.shared.of(state.eligible(template, c)))
                if len(domains) < c.min_domains:
                    return None
        return simulation.shared.of(nodes), domains, bool(len(wide) < len(hard) or keys or couples)

    @remembered(by=lambda constraint, eligible: (constraint.topology_key, id(eligible)))
    def _domains(self, constraint: Constraint, eligible: Bools) -> list[Bools]:
        """bool[N] for each domain of the constraint over the eligible nodes: its nodes."""
        domains = self._simulation.state.table.domains(constraint.topology_key)
        ids = np.unique(domains.ids[eligible & domains.present])
        return [domains.ids == i for i in ids]

    def _repelled(self, template: PodTemplate) -> set[str]:
        """The topology keys by which required anti-affinity of others may keep its pod off."""
        some = chain(*(self._repelling.get(n, ()) for n in (template.namespace, "")))
        return set(chain.from_iterable(repels(other, template) for other in some))

    def kept_off(self, template: PodTemplate) -> bool:
        """Whether pods that are there may keep its pod off a node by more than their room."""
        return conflicts_at_all(template, volumes=False) or bool(self._repelled(template))

    @cached_property
    def _repelling(self) -> Mapping[str, Sequence[PodTemplate]]:
        """By namespace, or "" for several: templates of pods that are to keep others off."""
        found: dict[str, list[PodTemplate]] = defaultdict(list)
        for t in {id(some.template): some.template for some in self._simulation.snapshot.live}.values():
            anti = t.affinity.pod_anti_affinity if t.affinity is not None else None
            if anti is not None and anti.required:
                near = not any(term.namespaces or term.namespace_selector for term in anti.required)
                found[t.namespace if near else ""].append(t)
        return found

    def _closing(self, template: PodTemplate, able: Iterable[tuple[PodTemplate, int]]) -> int:
        """How many of these pods, and of those that may move, may each close one node to a pod."""
        hosts = [
            c for c in self._simulation.state.constraints(template, hard=True) if c.topology_key == HOSTNAME
        ]

        def closes(other: PodTemplate) -> bool:
            counted = any(c.counts(other.namespace, other.labels) for c in hosts)
            return counted or can_conflict(template, other)

        found = sum(n for other, n in able if closes(other))
        return found + sum(n for n, movers in self._movers if any(map(closes, movers)))

    def may_move(self, groups: Groups) -> Counter[str]:
        """What all replacements of the plan may hold together, by resource: for each constraint as many of
        its largest as it takes to spread them evenly."""
        state, found = self._simulation.state, Counter[str]()
        number: dict[int, int] = {}
        for g in groups.all:
            counts = g.counts_once(state)
            if g.constraint.hard and g.excess(counts):
                above = counts - counts.mean()
                over, lacking = (np.floor(d).clip(min=0).sum() for d in (above, -above))
                number[g.index] = int(max(over, lacking))
        most: dict[int, dict[str, int]] = defaultdict(dict)
        movers: dict[int, dict[int, PodTemplate]] = defaultdict(dict)
        for some in self._simulation.snapshot.live if number else ():
            for i in number.keys() & groups.carried(some.template):
                movers[i][id(some.template)] = some.template
                for r, amount in self.takes(some.template).items():
                    most[i][r] = max(amount, most[i].get(r, 0))
        self._movers = [(number[i], [*some.values()]) for i, some in movers.items()]
        for i, amounts in most.items():
            found.update({r: number[i] * amount for r, amount in amounts.items()})
        return found

    def kept(
        self,
        comers: Sequence[Comer],
        left: Mapping[str, Ints],
        beside: Beside = (),
        open_to: Open = NOTHING_SHUT,
        of: int | None = None,
    ) -> list[tuple[Pod, Bools, int]]:
        """One of the comers of each template, or of one alone (`of`: its number); bool[N], the nodes with
        room for it; and how many of these surely keep it, wherever the other comers go, and replacements
        `beside` them: 0 where that is not known. `left`: int64[N] by resource, what all comers leave."""
        simulation, state = self._simulation, self._simulation.state
        held = simulation.held_by((c.pod.template, c.row, 1) for c in comers)
        free = {r: amounts + held.get(r, 0) for r, amounts in left.items()}
        all_, found = Counter[str](), []
        number = Counter(id(c.pod.template) for c in comers)
        free |= self.places(c.pod.template for c in comers)
        for c in comers:
            all_.update(self.takes(c.pod.template))
        every = {id(t): t for t in (*(c.pod.template for c in comers), *(t for t, _ in beside))}
        pods = [*{id(c.pod.template): c.pod for c in comers}.values()]
        for pod in pods if of is None else [pods[of]]:
            t, asks = pod.template, self.asks(pod.template)
            nodes, exact = simulation.static(t) & ~self._down, id(t) in open_to.first
            if exact:
                nodes = nodes & open_to.first[id(t)]
            open_ = np.logical_and.reduce([nodes, *(free[r] >= amount for r, amount in asks.items())])
            kept, bound = 0, bool(state.constraints(t, hard=True))
            tied = self._shares(t, number[id(t)]) if exact else bound or self.couples(t, number[id(t)])
            if not tied and open_.any():
                keys = {i: shuts(state, o, t) if exact else set[str]() for i, o in every.items()}
                near = Counter(id(o) for o, rows in beside if keys[id(o)] or open_[rows].any())
                whole = number + near - Counter([id(t)])
                rows = np.flatnonzero(open_)
                if len(comers) > FEW:
                    coming = Counter(all_)
                    coming.subtract(self.takes(t))
                    for i, n in near.items():
                        coming.update({r: n * a for r, a in self.takes(every[i]).items()})
                    kept = never_filled(rows, free, asks, coming)
                else:
                    others = [(every[i], n, keys[i]) for i, n in whole.items()]
                    kept = self._keeps(rows, free, asks, others, open_to.ever)
            found.append((pod, open_, kept))
        return found

    def _keeps(
        self,
        rows: Rows,
        free: Mapping[str, Ints],
        asks: Mapping[str, int],
        others: Iterable[tuple[PodTemplate, int, set[str]]],
        ever: Mapping[int, Bools],
    ) -> int:
        """How many of the rows surely keep room, wherever others go. By template: how many, and the keys of
        the domains that each shuts. `ever`: see `Open`."""
        # Those that differ in nothing that matters here are one kind.
        kinds: dict[tuple[tuple[int, ...], bytes], int] = defaultdict(int)
        left, coming, shut = {np.ones(len(rows), np.bool_).tobytes()}, Counter[str](), 0
        for t, n, keys in others:
            takes, all_, nodes = self.takes(t), self.asks(t), self._simulation.static(t)
            there = [free[r] >= amount for r, amount in all_.items() if r in free]
            may = np.logical_and.reduce([nodes & ever.get(id(t), nodes), *there])
            if wide := sorted(keys - {HOSTNAME}):
                left = self._shut(left, n, wide, rows, np.flatnonzero(may))
                if len(left) > _CHOICES:
                    return 0
            elif may[rows].any():
                kinds[(*(takes.get(r, 0) for r in asks), int(bool(keys))), may[rows].tobytes()] += n
                coming.update({r: n * amount for r, amount in takes.items()})
                shut += n * bool(keys)
        every = [np.frombuffer(one, np.bool_) for one in left]
        kept = min(max(0, never_filled(rows[some], free, asks, coming) - shut) for some in every)
        if kept:
            return kept
        # That takes the others for divisible, and for able to go anywhere. Now each is whole. Of a last
        # resource the pod needs all that there is: who shuts a node takes of it.
        room = np.stack([*(free[r][rows] for r in asks), np.full(len(rows), MOST)], axis=1)
        needs = np.array([*asks.values(), MOST])
        held = np.array([takes for takes, _ in kinds], np.int64).reshape(-1, len(needs))
        can = np.array([np.frombuffer(where, np.bool_) for _, where in kinds]).reshape(-1, len(rows))
        for some in every:
            if not kinds and some.any():
                continue
            if not some.any() or self._filled(room[some], needs, held, can[:, some], tuple(kinds.values())):
                return 0
        return 1

    def _shut(self, left: set[bytes], number: int, keys: Sequence[str], rows: Rows, to: Rows) -> set[bytes]:
        """Which of the rows may be left, where such were, once so many pods have come, each to one of the
        nodes `to`, that shut their domains of these keys."""
        table = self._simulation.state.table
        ids = np.stack([table.domains(key).ids for key in keys])
        shut = {
            (ids[:, rows] == one[:, None]).any(axis=0).tobytes() for one in np.unique(ids[:, to], axis=1).T
        }
        for _ in range(number if shut else 0):
            left = {
                (np.frombuffer(one, np.bool_) & ~np.frombuffer(some, np.bool_)).tobytes()
                for one in left
                for some in shut
            }
            if len(left) > _CHOICES:
                break
        return left

    @remembered(by=lambda *question: (*(x.tobytes() for x in question[:-1]), question[-1]))
    def _filled(self, room: Ints, asks: Ints, held: Ints, may: Bools, numbers: tuple[int, ...]) -> bool:
        return all_filled(room, asks, held, may, numbers)


def _only_repels(template: PodTemplate) -> bool:
    """Whether of what ties it to others there is nothing but anti-affinity within its node and namespace."""
    a = template.affinity
    if (
        template.attaches
        or template.host_ports
        or draws(template)
        or a is None
        or a.pod_anti_affinity is None
    ):
        return False
    terms = a.pod_anti_affinity.required
    return all(t.topology_key == HOSTNAME and not (t.namespaces or t.namespace_selector) for t in terms)


def draws(template: PodTemplate) -> bool:
    """Whether its pod needs others near it."""
    a = template.affinity
    return a is not None and a.pod_affinity is not None and bool(a.pod_affinity.required)
