"""Pods that are interchangeable for planning: one owner, counted and constrained alike, equal in need.

A plan reasons about counts of such pods per node, never about single pods (16 ms against 4 s); which of
them is evicted is decided by `moves.Victims`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rebalancer.bulk_work import remembered
from rebalancer.engine.state.cluster import PODS, ClusterState
from rebalancer.engine.template_rules import Amounts
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Alike
from rebalancer.model.workload import Workload
from rebalancer.planner.cluster.groups import Group, Groups
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.objective import with_progress
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.owners import Owners
from rebalancer.policy.replace_first import Release
from rebalancer.policy.replacement import alike, edited
from rebalancer.spread.arrays import Bools, Ints

_MANY = 100
"""Things that take a millisecond together, or less."""


@dataclass(eq=False)
class PodClass:
    """Interchangeable pods of one owner.

    `template`, `replacement`: of one of them, for all. `counted`: groups that count them; `carried`: groups
    of their own constraints. `static`: bool[N], nodes for their replacements on an empty cluster.
    `stays`: why policy keeps a pod where it is, if it does. `arranged` makes `by_node` of the `pods`.
    `beyond`: what one of them takes of its node beyond what a replacement does, while it is resized, by the
    id of its template.
    """

    index: int
    owner: Workload | None
    template: PodTemplate
    replacement: PodTemplate
    counted: tuple[int, ...]
    carried: tuple[int, ...]
    static: Bools
    stays: Callable[[Pod], Reason | None]
    arranged: Callable[[Iterable[Pod]], dict[int, list[Pod]]]
    pods: list[Pod] = field(default_factory=list)
    beyond: dict[int, Amounts] = field(default_factory=dict)

    @cached_property
    def by_node(self) -> dict[int, list[Pod]]:
        """The pods on each node, best victim first. Nobody asks of most classes: they are in balance."""
        return self.arranged(self.pods)

    @cached_property
    def pinned(self) -> dict[int, int]:
        """How many of the pods on a node stay for policy's sake; nodes where none does are left out.

        Most classes of a large cluster are in balance, and nobody asks.
        """
        kept = {node: sum(self.stays(p) is not None for p in pods) for node, pods in self.by_node.items()}
        return {node: number for node, number in kept.items() if number}

    @cached_property
    def surplus(self) -> Mapping[str, Ints]:
        """int64[N] by resource: what those that may go take beyond what as many replacements would."""
        found: dict[str, Ints] = {}
        for node, pods in self.by_node.items() if self.beyond else ():
            for pod in pods:
                for resource, amount in self.beyond.get(id(pod.template), ()):
                    if self.stays(pod) is None:
                        there = found.setdefault(resource, np.zeros(len(self.static), dtype=np.int64))
                        there[node] += amount
        return found

    @property
    def stateful(self) -> bool:
        """Whether the owner waits for the victim's end before it makes the replacement."""
        return self.owner is not None and self.owner.kind == "StatefulSet"

    @property
    def ordered(self) -> bool:
        """Whether the owner makes one pod at a time."""
        return self.owner is not None and self.owner.kind == "StatefulSet" and not self.owner.parallel


class Flux:
    """Which pods stay while others come and go that a constraint counts which they carry, or violate: what
    they went for may be over before their replacements are there."""

    def __init__(self, owners: Owners, groups: Groups, state: ClusterState) -> None:
        self._owners, self._groups, self._state = owners, groups, state

    @remembered(by=lambda pod: (id(pod.template), id(pod.owner)))
    def why_not(self, pod: Pod) -> Reason | None:
        """Why the pod stays."""
        if (owner := self._owners.of(pod)) is None:
            return None
        groups, top = self._groups, self._owners.top(owner).key
        carried, in_flux = groups.carried(pod.template), self._counted(pod.namespace)
        for i in dict.fromkeys((*carried, *groups.counted(pod.template))):
            reason = next((reason for other, reason in in_flux.get(i, ()) if other != top), None)
            if reason is not None and (i in carried or self._violated(groups.all[i])):
                return reason
        return None

    @remembered(by=str)
    def _counted(self, namespace: str) -> Mapping[int, list[tuple[str, Reason]]]:
        """By the index of a group: the topmost owners in flux whose pods it counts."""
        found: dict[int, list[tuple[str, Reason]]] = defaultdict(list)
        for top, reason, templates in self._owners.in_flux(namespace):
            for i in {i for t in templates for i in self._groups.counted(t)}:
                found[i].append((top.key, reason))
        return found

    @remembered()
    def _violated(self, group: Group) -> bool:
        return group.excess(group.counts(self._state)) > 0


class _SinglePods:
    """What is asked about single pods of classes, and mostly about few of them.

    It does not know the classes: they refer to it. A circle would keep the cluster of each plan in memory
    until the garbage collector comes.
    """

    def __init__(
        self, simulation: Simulation, groups: Groups, evictable: Evictable, order: Callable[[Pod], object]
    ) -> None:
        self._simulation, self._groups, self._evictable = simulation, groups, evictable
        self._flux = Flux(evictable.owners, groups, simulation.state)
        self._order = order

    def by_node(self, pods: Iterable[Pod]) -> dict[int, list[Pod]]:
        """By the number of the node, the best victim first."""
        index = self._simulation.state.table.index
        found: dict[int, list[Pod]] = {}
        for pod in pods:
            found.setdefault(index[pod.node_name], []).append(pod)
        for there in found.values():
            if len(there) > 1:
                there.sort(key=self._order)  # type: ignore[arg-type]
        return found

    @remembered(by=lambda pod: pod.uid or pod.key)
    def why_not(self, pod: Pod) -> Reason | None:
        """Why policy keeps one of these pods where it is; None if it may be evicted."""
        return self._evictable.why_not(pod) or self._unlike(pod) or self._flux.why_not(pod)

    def _unlike(self, pod: Pod) -> Reason | None:
        owner = self._evictable.owners.of(pod)
        if owner is None:
            return None
        replacements = self._evictable.replacements
        newest = replacements.newest(owner)
        if (reason := edited(pod.template, owner, alike=self._alike(owner), newest=newest)) is not None:
            return reason
        replacement = replacements.of(pod.template, owner)
        if replacement is pod.template:
            return None
        groups = self._groups
        if groups.carried(replacement) == groups.carried(pod.template) and groups.counted(
            replacement
        ) == groups.counted(pod.template):
            return None
        return Reason(
            ReasonCode.ROLLOUT_IN_PROGRESS,
            "its owner's template differs from the pod in labels or constraints: the replacement would count "
            "elsewhere",
            {},
            "let the owner replace its pods (kubectl rollout restart)",
        )

    @remembered(by=lambda owner: owner.key)
    def _alike(self, owner: Workload) -> bool:
        return alike(p.template for p in self._evictable.owners.active(owner))


class Classes:
    """The classes of a cluster, and why which of their pods stays. Most constraints hold, and nobody asks
    about their pods: a class is made when somebody does."""

    def __init__(
        self,
        simulation: Simulation,
        groups: Groups,
        evictable: Evictable,
        pods: Iterable[Alike],
        order: Callable[[Pod], object],
    ) -> None:
        self._replacements, self._owners = evictable.replacements, evictable.owners
        self._budgets, self._replace_first = evictable.budgets, evictable.replace_first
        self._index: dict[tuple[object, ...], PodClass] = {}
        self._simulation, self._groups = simulation, groups
        self._single = _SinglePods(simulation, groups, evictable, order)
        self._pods = list(pods)
        self._made: dict[int, PodClass] = {}
        self._by_group: dict[int, list[int]] = defaultdict(list)
        self._in: dict[str, list[int]] = defaultdict(list)
        for place, group in enumerate(self._pods):
            self._in[group.template.namespace].append(place)

    @property
    def all(self) -> list[PodClass]:
        """Every class."""
        return self._of(place for place in range(len(self._pods)) if self._touched(place))

    @property
    def carrying(self) -> list[PodClass]:
        """Every class with a constraint of its own."""
        return self._of(filter(self._carries, range(len(self._pods))))

    def more_carry_than(self, number: int) -> bool:
        """Whether `carrying` are more; it makes no more of them to tell."""
        found: set[int] = set()
        for place in filter(self._carries, range(len(self._pods))):
            found.update(id(c) for c in self._of((place,)))
            if len(found) > number:
                return True
        return False

    def counted_by(self, group: Group) -> list[PodClass]:
        """The classes that a group counts, or binds."""
        return self._of(self._touching(group))

    def coupled(self, groups: Collection[Group]) -> list[PodClass]:
        """The classes that these groups count or bind, and those that further groups of theirs do, and so on:
        those with constraints of their own. Whether their pods may move is not asked.
        """
        found = {place for group in groups for place in self._touching(group)}
        reached = {group.index for group in groups}
        todo = [place for place in found if self._carries(place)]
        while todo:
            for group in self._touched(todo.pop()) - reached:
                reached.add(group)
                more = set(self._by_group[group]) - found
                found |= more
                todo += (place for place in more if self._carries(place))
        return self._of(filter(self._carries, found))

    @property
    def highest_priority(self) -> int:
        """The highest that a replacement can have."""
        every = (group for place, group in enumerate(self._pods) if self._touched(place))
        return max((self._replacement(group)[1].priority for group in every), default=0)

    def _touching(self, group: Group) -> list[int]:
        """Pods, by place, that a group counts or binds: of its namespace, which is gone through once."""
        for place in self._in.pop(group.constraint.namespace, ()):
            for index in self._touched(place):
                self._by_group[index].append(place)
        return self._by_group[group.index]

    def _carries(self, place: int) -> bool:
        return bool(self._groups.carried(self._pods[place].template))

    def _touched(self, place: int) -> set[int]:
        template = self._pods[place].template
        return {*self._groups.carried(template), *self._groups.counted(template)}

    def _of(self, places: Iterable[int]) -> list[PodClass]:
        """The classes of these pods, each once, in their order."""
        wanted = sorted(places)
        for place in with_progress(wanted, self._simulation.on_progress, _MANY):
            if place not in self._made:
                self._make(place)
        return list({id(self._made[place]): self._made[place] for place in wanted}.values())

    def _make(self, place: int) -> None:
        group = self._pods[place]
        found = self._made[place] = self._class(place)
        found.pods += group.pods
        if beyond := self._beyond(group.template, found.replacement):
            found.beyond[id(group.template)] = beyond

    def _replacement(self, group: Alike) -> tuple[Workload | None, PodTemplate]:
        owner = self._owners.of(group.one)
        return owner, self._replacements.of(group.template, owner) if owner is not None else group.template

    def _class(self, place: int) -> PodClass:
        """The class of pods of this place."""
        template = self._pods[place].template
        carried, counted = self._groups.carried(template), self._groups.counted(template)
        owner, replacement = self._replacement(self._pods[place])
        signature = (
            owner.key if owner else "",
            *self._signature(template, replacement, carried, counted),
        )
        found = self._index.get(signature)
        if found is None:
            found = self._index[signature] = PodClass(
                place,
                owner,
                template,
                replacement,
                counted,
                carried,
                self._simulation.static(replacement),
                self._single.why_not,
                self._single.by_node,
            )
        return found

    def _beyond(self, template: PodTemplate, replacement: PodTemplate) -> Amounts:
        """What a pod of the template holds and its replacement does not."""
        if template is replacement:
            return ()
        holds = self._simulation.state.holds
        new = dict(holds(replacement))
        more = ((resource, amount - new.get(resource, 0)) for resource, amount in holds(template))
        return tuple((resource, amount) for resource, amount in more if amount > 0)

    def why_not(self, pod: Pod) -> Reason | None:
        """Why policy keeps one of these pods where it is; None if it may be evicted."""
        return self._single.why_not(pod)

    def ends(self, pod: Pod) -> bool:
        """`Owners.ends`."""
        return self._owners.ends(pod)

    def release(self, pod: Pod) -> Release | None:
        """How the pod is released, if it is replaced first."""
        found = self._replace_first.of(pod)
        return found if isinstance(found, Release) else None

    def kept(self, pod: Pod) -> Reason | None:
        """Why its budget keeps a pod that policy lets go, unless it is replaced first."""
        return self._budgets.why_not(pod)

    def replacement(self, pod: Pod, pod_class: PodClass) -> PodTemplate:
        """What takes this very pod's place."""
        if pod_class.owner is None:
            return pod.template
        return self._replacements.of(pod.template, pod_class.owner)

    def _signature(
        self,
        template: PodTemplate,
        replacement: PodTemplate,
        carried: tuple[int, ...],
        counted: tuple[int, ...],
    ) -> tuple[object, ...]:
        affinity, state = template.affinity, self._simulation.state
        return (
            carried,
            counted,
            frozenset(state.holds(replacement)),
            frozenset(state.asks(replacement)),
            replacement.host_ports,
            replacement.priority,
            id(affinity) if affinity and (affinity.pod_affinity or affinity.pod_anti_affinity) else 0,
            id(self._simulation.static(replacement)),
        )


# Room as classes of pods share it: what they ask for, what nodes have left, and what the pods give back.
#
# A pod mostly takes of its node what its replacement asks another one for. While it is resized it may take
# more, and what its scheduler profile ignores it takes without asking.


def add_yields(given: dict[str, Ints], classes: Iterable[PodClass], simulation: Simulation) -> None:
    """Adds to `given`, int64[N] by resource, what the movable pods of these classes take."""
    every = list(classes)
    on = [len(c.by_node) for c in every]
    nodes = np.fromiter((node for c in every for node in c.by_node), dtype=np.intp)
    movable = (len(pods) - c.pinned.get(node, 0) for c in every for node, pods in c.by_node.items())
    pods = np.fromiter(movable, dtype=np.int64)
    each: dict[str, Ints] = {}
    for place, pod_class in enumerate(every):
        for resource, amount in simulation.state.holds(pod_class.replacement):
            if resource not in each:
                each[resource] = np.zeros(len(every), dtype=np.int64)
            each[resource][place] = amount
    for resource, amounts in each.items():
        there = given.setdefault(resource, simulation.state.table.none.astype(np.int64))
        np.add.at(there, nodes, pods * np.repeat(amounts, on))
    for pod_class in every:
        _add(given, pod_class.surplus)


def add_held(
    given: dict[str, Ints], template: PodTemplate, nodes: Ints | int, pods: Ints | int, simulation: Simulation
) -> None:
    """Adds to `given`, int64[N] by resource, what so many pods of a template hold on each node named."""
    for resource, amount in simulation.state.holds(template):
        if resource not in given:
            given[resource] = simulation.state.table.none.astype(np.int64)
        given[resource][nodes] += pods * amount


def needs_and_free(
    simulation: Simulation, classes: tuple[PodClass, ...], given: Mapping[str, Ints]
) -> tuple[Ints, Ints]:
    """(int64[Q, R], int64[R, N]): what a pod of each class needs, and what is free on each node now."""
    state = simulation.state
    asked = [dict(state.asks(pod_class.replacement)) for pod_class in classes]
    names = (*sorted({name for amounts in asked for name in amounts} - {PODS}), PODS)
    needs = [[amounts.get(name, 0) for name in names] for amounts in asked]
    given = _with_spare(simulation, classes, given)
    free = [np.maximum(simulation.free(name) + given.get(name, 0), 0) for name in names]
    return np.array(needs, dtype=np.int64).reshape(len(classes), len(names)), np.stack(free)


def _with_spare(
    simulation: Simulation, classes: tuple[PodClass, ...], given: Mapping[str, Ints]
) -> Mapping[str, Ints]:
    """`given`, with what pods of these classes hold beyond their `needs`: while they are resized, and what
    their profile ignores, though another's may not. These may come last: then they are in nobody's way."""
    state, found = simulation.state, dict(given)
    for pod_class in classes:
        spare, asked = dict(pod_class.surplus), dict(state.asks(pod_class.replacement))
        if any(name not in asked for name, _ in state.holds(pod_class.replacement)):
            taken: dict[str, Ints] = {}
            add_yields(taken, (pod_class,), simulation)
            spare |= {name: amounts for name, amounts in taken.items() if name not in asked}
        _add(found, spare)
    return found


def _add(total: dict[str, Ints], more: Mapping[str, Ints]) -> None:
    for resource, amounts in more.items():
        total[resource] = total.get(resource, 0) + amounts


def room_for_more(
    simulation: Simulation,
    classes: tuple[PodClass, ...],
    start: Ints,
    fixed: Ints,
    others: Mapping[str, Ints],
) -> Ints:
    """int64[Q, N]: room for more pods of each class, no more than there are in all, with the movable pods of
    all others out of the way. Many components have as much, and share the array."""
    movable, most = start - fixed, start.sum()
    held = [simulation.state.holds(pod_class.replacement) for pod_class in classes]
    room = np.zeros(movable.shape, dtype=np.int64)
    total: dict[str, Ints] = dict(others)
    for one, movable_pods, amounts in zip(classes, movable, held, strict=True):
        _add(total, one.surplus)
        _add(total, {resource: movable_pods * amount for resource, amount in amounts})
    for index, pod_class in enumerate(classes):
        own = {resource: -movable[index] * amount for resource, amount in held[index]}
        given = {**total, **{resource: total[resource] + amounts for resource, amounts in own.items()}}
        more = np.minimum(simulation.room(pod_class.replacement, given), most)
        # A host port is one pod's alone: where one of the class is, there is no room for another.
        room[index] = np.where(start[index] > 0, 0, more) if pod_class.replacement.host_ports else more
    return simulation.shared.of(room)
