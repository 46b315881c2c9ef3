"""The best joint move from a state: small sets of victims, each followed through every order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations, combinations_with_replacement, islice, permutations

import numpy as np
from msgspec import Struct

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.planner.bounds import Effort
from rebalancer.planner.cluster.components import Component
from rebalancer.planner.cluster.groups import Group, Groups
from rebalancer.planner.cluster.pod_classes import Classes, PodClass
from rebalancer.planner.cluster.simulation import Landing, Simulation, autoscaled, key_of
from rebalancer.planner.joint.every_order import (
    BrokenError,
    Ends,
    EveryOrder,
    HopelessError,
    Victim,
    lowest_priority,
    nodes_of_ending,
)
from rebalancer.planner.moves import Candidate, HardJudge, JudgedMove, Wave
from rebalancer.planner.plan import Joint, JointMove, Refusal, refused
from rebalancer.planner.waves.wave import Limits, draining_budgets
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Rows

# Who may take part in a joint move: pods by class and node, those that could lower an excess first.

LARGEST = 4
"""Pods of one joint move."""
MOST = 80
"""Places that are combined. Where there are more, those that only make room are left out."""


class Place(Struct, frozen=True, eq=False):
    """Pods of one class on one node that may be evicted, the best victims first; no more than one set takes.

    `over`: whether they are in a domain that holds too many, of a constraint that counts them.
    """

    members: PodClass
    node: int
    pods: tuple[Pod, ...]
    over: bool


Chosen = tuple[tuple[Place, Pod], ...]
"""The pods of a set."""


def places(
    simulation: Simulation, groups: Sequence[Group], own: Sequence[PodClass], others: Sequence[PodClass]
) -> list[Place]:
    """Those of the stuck components' classes (`own`), and of others that could make room for them.

    `groups`: all groups, by index.
    """
    ending = nodes_of_ending(simulation)
    found = [p for c in own for p in _of(simulation, groups, c, ending)]
    if len(found) > MOST:
        return [p for p in found if p.over][:MOST]
    wanted = np.logical_or.reduce([c.static for c in own]) if own else simulation.state.table.none
    near = (c for c in others if any(wanted[node] for node in c.by_node))
    more = (p for c in near for p in _of(simulation, groups, c, ending) if wanted[p.node])
    beside = list(islice(more, MOST - len(found) + 1))
    return found + beside if len(found) + len(beside) <= MOST else found


def _of(simulation: Simulation, groups: Sequence[Group], c: PodClass, ending: Rows) -> Iterator[Place]:
    r = c.replacement
    near = r.affinity is not None and r.affinity.pod_affinity is not None
    if c.owner is None or r.migrates or near or c.static[ending].any():
        return
    for node in sorted(c.by_node):
        if r.host_ports and _shares_a_port(simulation, r, node):
            continue
        free = (p for p in c.by_node[node] if c.stays(p) is None and key_of(p) in simulation.state.pods)
        if pods := tuple(islice(free, 1 if c.ordered else LARGEST)):
            yield Place(c, node, pods, any(_over(simulation, groups[i], node) for i in c.counted))


def _shares_a_port(simulation: Simulation, template: PodTemplate, node: int) -> bool:
    """Whether several pods on the node have a host port of the template: the first of them to go would free
    it in the scheduler's books, and not on the node."""
    ports = {(p.port, p.protocol) for p in template.host_ports}
    there = (p.template.host_ports for p in simulation.state.pods.values() if p.row == node)
    return sum(any((p.port, p.protocol) in ports for p in own) for own in there) > 1


def _over(simulation: Simulation, group: Group, node: int) -> bool:
    domain = int(group.domain_of[node])
    if domain < 0:
        return False
    counts = group.counts(simulation.state)
    return bool(counts[domain] > group.minimum(counts) + group.constraint.max_skew)


def sets(found: Sequence[Place], size: int) -> Iterator[Chosen]:
    """Every set of so many pods with one at least whose domain holds too many: of one class first, then of
    several. Of more than three pods only those of one class."""
    over = [p for p in found if p.over]
    classes = dict.fromkeys(id(p.members) for p in over)
    for c in classes:
        own = [p for p in over if id(p.members) == c]
        yield from filter(None, (_chosen(s) for s in combinations_with_replacement(own, size)))
    if size > LARGEST - 1:
        return
    for chosen in combinations_with_replacement(found, size):
        if any(p.over for p in chosen) and len({id(p.members) for p in chosen}) > 1:
            yield from filter(None, (_chosen(chosen),))


def _chosen(chosen: Sequence[Place]) -> Chosen | None:
    """The pods of these places, as often as each is named; None if one has not so many."""
    taken: dict[int, int] = {}
    pods = []
    for place in chosen:
        number = taken.get(id(place), 0)
        if number >= len(place.pods):
            return None
        taken[id(place)] = number + 1
        pods.append((place, place.pods[number]))
    return tuple(pods)


class Found(Struct, frozen=True, eq=False):
    """A joint move: its pods in the order in which they are to be evicted, and what it comes to."""

    chosen: Chosen
    replacements: tuple[PodTemplate, ...]
    ends: Ends

    @property
    def worth(self) -> tuple[int, int, int]:
        """The higher the better: what surely falls, fewer that wait when it is broken off, what may fall."""
        return self.ends.least, -self.ends.waiting, self.ends.most


class JointSearch:
    """Searches the simulation's present state.

    `groups`: all of hard constraints, by index. `waiting`: templates of pods that wait for a node. `limits`:
    of a wave that has no move yet; `unshared`: the same without the shares of owners. `most_waiting`: how
    many may wait if a set is broken off. `replacement`: what takes a pod's place.
    """

    def __init__(
        self,
        simulation: Simulation,
        groups: Sequence[Group],
        waiting: Sequence[PodTemplate],
        limits: Callable[[], Limits],
        unshared: Callable[[], Limits],
        most_waiting: int,
        effort: Effort,
        replacement: Callable[[Pod, PodClass], PodTemplate],
    ) -> None:
        self._simulation = simulation
        self._lowest = lowest_priority(simulation)
        self._groups = groups
        self._waiting = waiting
        self._limits = limits
        self._unshared = unshared
        self._too_many: list[Chosen] = []
        self._most_waiting = most_waiting
        self._effort = effort
        self._replacement = replacement

    def best(
        self,
        own: Sequence[PodClass],
        others: Sequence[PodClass],
        foreseeable: Callable[[PodTemplate], bool],
    ) -> Found | None:
        """The best of the smallest sets that are any good. `own`: the classes of components that are stuck;
        `others`: those that could make room."""
        known = [
            p
            for p in places(self._simulation, self._groups, own, others)
            if foreseeable(p.members.replacement)
        ]
        for size in range(2, LARGEST + 1):
            good = [f for chosen in sets(known, size) for f in self._in_order(chosen)]
            if good:
                return max(good, key=lambda f: f.worth)
            if self._effort.gone:
                break
        return None

    def held_back(self) -> Found | None:
        """After `best` has found none: a set of one owner's pods that would be good, and of which more pods
        would be away together than the owner's share."""
        allowed = (chosen for chosen in self._too_many if _within(self._unshared(), chosen))
        return next((f for chosen in allowed for f in self._tried(chosen)), None)

    def _in_order(self, chosen: Chosen) -> Iterator[Found]:
        """The set in the orders of its evictions that differ, as far as limits allow it."""
        if _within(self._limits(), chosen):
            yield from self._tried(chosen)
        elif len({id(p.members) for p, _ in chosen}) == 1:
            self._too_many.append(chosen)

    def _tried(self, chosen: Chosen) -> Iterator[Found]:
        if self._effort.gone:
            return
        seen: set[tuple[tuple[int, int], ...]] = set()
        for order in permutations(chosen):
            kind = tuple((p.members.index, p.node) for p, _ in order)
            if kind in seen:
                continue
            seen.add(kind)
            try:
                found = self._followed(order)
            except HopelessError:
                return
            except BrokenError:
                continue
            if found.ends.waiting <= self._most_waiting:
                if self._needless(order, found.ends.least):
                    return
                yield found
                if not found.ends.waiting:
                    return

    def _needless(self, chosen: Chosen, gain: int) -> bool:
        """Whether some of the pods alone lower the excess as much: then the others go for nothing."""
        for size in range(1, len(chosen)):
            for part in combinations(chosen, size):
                try:
                    if self._followed(part).ends.least >= gain:
                        return True
                except BrokenError:
                    continue
        return False

    def _followed(self, order: Chosen) -> Found:
        touched = {i for p, _ in order for i in p.members.counted}
        victims = []
        for n, (p, pod) in enumerate(order):
            new = self._replacement(pod, p.members)
            # What mounts a volume of its own is like no other.
            victims.append(Victim(pod, new, n if new.claims else -p.members.index - 1))
        groups = [self._groups[i] for i in sorted(touched)]
        every = EveryOrder(self._simulation, victims, groups, self._waiting, lowest=self._lowest)
        try:
            return Found(order, tuple(v.replacement for v in victims), every.ends())
        finally:
            self._effort.candidates(every.moments)


def _within(limits: Limits, chosen: Chosen) -> bool:
    for place, pod in chosen:
        if not limits.fits(pod, place.members.owner):
            return False
        limits.spend(pod, place.members.owner)
    return True


# Joint moves after the single ones, as waves of their own.
#
# Single moves come first: they need no trust in several evictions at once. Where they leave an excess, the
# best set of a few evictions is looked for, and after it the single moves that it has made possible.

EFFORT = 5
"""Share of the effort of a component that the search for one joint move may take."""

Coupled = tuple[tuple[Group, ...], tuple[PodClass, ...]]
"""Groups that share pods which may move, and the classes of these."""


class JointPhase:
    """Plans one joint move at a time, from the simulation's present state on."""

    def __init__(
        self,
        simulation: Simulation,
        evictable: Evictable,
        groups: Groups,
        classes: Classes,
        judge: HardJudge,
        joint: Joint,
        effort: int,
    ) -> None:
        self._simulation = simulation
        self._evictable = evictable
        self._groups = groups
        self._classes = classes
        self._judge = judge
        one = 0 if autoscaled(simulation.snapshot.nodes) else 1
        self._most_waiting = {"never": 0, "exchange": one, "all": LARGEST}[joint]
        self._effort = effort
        self.refused: tuple[Refusal, ...] = ()
        """After `wave` has found none: pods of a set that would be good, and may not go together."""

    def wave(self, violated: Sequence[Coupled], number: int, *, sure: bool) -> Wave:
        """The best joint move, as moves of one wave; none if there is none. `number`: its own in the plan;
        `sure`: no earlier move may have landed elsewhere."""
        stuck = [v for v in violated if self._excess(v[0])]
        own = [c for _, classes in stuck for c in classes]
        if not own:
            return ()
        known = set(map(id, own))
        others = [c for c in self._classes.all if id(c) not in known and c.owner is not None]
        limits = partial(Limits, self._evictable, draining_budgets(self._simulation, self._evictable.budgets))
        search = JointSearch(
            self._simulation,
            self._groups.all,
            tuple(self._judge.waiting.templates),
            limits,
            partial(limits, shares=False),
            self._most_waiting,
            Effort(EFFORT * self._effort, self._simulation.spent),
            self._classes.replacement,
        )
        found = search.best(own, others, self._judge.foreseeable)
        if found is None:
            self.refused = self._held_back(search.held_back(), limits())
            return ()
        return self._moves(found, violated, number, sure=sure)

    def _held_back(self, found: Found | None, limits: Limits) -> tuple[Refusal, ...]:
        """The pods of a set that the share of their owner forbids."""
        if found is None:
            return ()
        pods = [pod for _, pod in found.chosen]
        owner = self._evictable.shares.top(pods[0])
        assert owner is not None
        together, gain, most = len(pods), found.ends.least, limits.of_owner(pods[0])
        message = (
            f"with {together - 1} others of {owner.kind} {owner.name} it would lower the excess by {gain}, "
            f"but no more than {most} of its {owner.replicas} pods may be away together"
        )
        share = -(-100 * together // max(1, owner.replicas))
        remedy = (
            f"evictions.inFlightPerOwner: {share}%, if so many may be away; a Deployment's maxUnavailable "
            "bounds it, too"
        )
        return tuple(
            refused(pod, ReasonCode.JOINT_MOVE, message, remedy=remedy, together=together, most=most)
            for pod in pods
        )

    def _excess(self, groups: Iterable[Group]) -> int:
        return sum(g.excess(g.counts(self._simulation.state)) for g in groups)

    def _moves(self, found: Found, violated: Sequence[Coupled], number: int, *, sure: bool) -> Wave:
        components: dict[int, Component] = {}
        for place, _ in found.chosen:
            c = place.members
            if id(c) not in components:
                groups, classes = next((v for v in violated if any(c is o for o in v[1])), ((), ()))
                alone = tuple(self._groups.all[i] for i in sorted({*c.counted, *c.carried}))
                made = Component(groups or alone, classes or (c,), self._simulation)
                components.update((id(o), made) for o in made.classes)
        landed = self._landed(found)
        certain = sure and found.ends.least == found.ends.most
        pods = tuple(pod.key for _, pod in found.chosen)
        joint = JointMove(number, pods, found.ends.waiting, found.ends.least)
        return [
            JudgedMove(
                Candidate(
                    components[id(p.members)], components[id(p.members)].classes.index(p.members), p.node, pod
                ),
                replacement,
                self._landing(nodes),
                nodes,
                certain=certain,
                helps=True,
                fixes=self._fixes(p.members, p.node),
                landed=node,
                joint=joint,
            )
            for (p, pod), replacement, nodes, node in zip(
                found.chosen, found.replacements, found.ends.nodes, landed, strict=True
            )
        ]

    def _fixes(self, members: PodClass, node: int) -> tuple[Group, ...]:
        """The violated groups that count the pod."""
        every = (self._groups.all[i] for i in members.counted)
        return tuple(g for g in every if g.domain_of[node] >= 0 and self._excess([g]))

    def _landing(self, nodes: Rows) -> Landing:
        mask = self._simulation.state.table.none.copy()
        mask[nodes] = True
        shared = self._simulation.shared.of(mask)
        return Landing(shared, shared, self._simulation.state.table.none)

    def _landed(self, found: Found) -> list[int]:
        """Where the scheduler's scores put the replacements, with all victims gone."""
        simulation, state = self._simulation, self._simulation.state
        landed: dict[int, int] = {}
        with state.removed([key_of(pod) for _, pod in found.chosen]):
            while len(landed) < len(found.chosen):
                # Every order ends with all of them placed, this one as well.
                i, open_ = next(
                    (i, open_)
                    for i, new in enumerate(found.replacements)
                    if i not in landed and (open_ := self._open(new)).any()
                )
                new = found.replacements[i]
                totals = simulation.framework(new).score(new, open_).totals
                landed[i] = int(np.flatnonzero(open_ & (totals == totals[open_].max()))[0])
                state.add(("predicted", i), new, landed[i])
            for i in landed:
                state.remove(("predicted", i))
        return [landed[i] for i in range(len(landed))]

    def _open(self, new: PodTemplate) -> np.ndarray:
        return self._simulation.framework(new).feasible(new)
