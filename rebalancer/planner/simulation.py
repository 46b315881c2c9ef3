"""Eviction and rescheduling, on the production engine.

A replacement is placed while victims still hold their room (a ReplicaSet replaces at once) or after they are
gone (a StatefulSet; a slow scheduler). A move has to hold in both worlds, so both are asked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
import numpy as np
from msgspec import Struct

from rebalancer.engine.cluster import PODS, ClusterState, Placed
from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.framework import Framework
from rebalancer.model.pod import Affinity, Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.spread.arrays import Bools, Ints, Rows


class Landing(Struct, frozen=True, eq=False):
    """Where the filter lets a replacement go, bool[N].

    `held`: while the victims still hold their room. `freed`: once they are gone.
    """

    held: Bools
    freed: Bools

    @property
    def anywhere(self) -> Bools:
        """Every node that can come into question."""
        return self.held | self.freed


class Made(Struct, frozen=True, eq=False):
    """A move as it went: the victim, its replacement, and the node (by number) where that landed."""

    pod: Pod
    replacement: PodTemplate
    row: int


def key_of(pod: Pod) -> Hashable:
    """The key under which the state holds the pod of a snapshot."""
    return pod.uid or pod.key


class Simulation:
    """A cluster state that moves are tried on and then made on."""

    def __init__(self, snapshot: Snapshot, config: SchedulerConfig | None) -> None:
        self.snapshot = snapshot
        self.state = ClusterState.of(snapshot, config)
        self._frameworks: dict[str, Framework] = {}
        self._bare = ClusterState(snapshot, self.state.config)
        self._bare_frameworks: dict[str, Framework] = {}
        self._static: dict[int, tuple[PodTemplate, Bools]] = {}

    def framework(self, template: PodTemplate) -> Framework:
        """The scheduler profile that places pods of this template."""
        return _bound(self._frameworks, self.state, template)

    def static(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that would take the pod if the cluster were empty (inter-pod affinity aside)."""
        found = self._static.get(id(template))
        if found is None:
            bare = template
            if (a := template.affinity) is not None and (a.pod_affinity or a.pod_anti_affinity):
                bare = msgspec.structs.replace(template, affinity=Affinity(node_affinity=a.node_affinity))
            mask = _bound(self._bare_frameworks, self._bare, bare).feasible(bare)
            found = self._static[id(template)] = (template, mask)
        return found[1]

    def room(self, template: PodTemplate, given: Mapping[str, Ints]) -> Ints:
        """int64[N]: how many more pods of this template each node has resources for; 0 where it can't go.

        `given`: resources that others would give up.
        """
        state = self.state
        most = np.where(self.static(template), np.iinfo(np.int64).max, 0)
        for resource, amount in (*template.requests.items(), ("pods", 1)):
            if amount > 0:
                free = state.allocatable(resource) - state.requested[resource] + given.get(resource, 0)
                most = np.minimum(most, np.maximum(free, 0) // amount)
        return most

    def landing(self, victim: Pod, replacement: PodTemplate, *, after_gone: bool) -> Landing:
        """Where one victim's replacement can go; `after_gone`: its owner waits for the victim's end."""
        victims = Victims(self)
        try:
            return victims.landing(victim, replacement, after_gone=after_gone)
        finally:
            victims.undo()

    @contextmanager
    def without(self, victim: Pod) -> Iterator[Victims]:
        """The state with a pod terminating; as it was afterwards."""
        held = Victims(self)
        held.take(victim)
        try:
            yield held
        finally:
            held.undo()

    @contextmanager
    def after(self, moves: Iterable[Made]) -> Iterator[None]:
        """The state with moves made, the victims gone and the replacements there; as it was afterwards."""
        state = self.state
        undo: list[tuple[Hashable, Placed, Hashable]] = []
        for move in moves:
            victim = key_of(move.pod)
            was = state.pods[victim]
            state.remove(victim)
            replacement: Hashable = ("replacement", victim)
            state.add(replacement, move.replacement, move.row)
            undo.append((victim, was, replacement))
        try:
            yield
        finally:
            for victim, was, replacement in reversed(undo):
                state.remove(replacement)
                state.add(victim, was.template, was.row)

    def holding(self) -> Victims:
        """An empty set of victims, to be undone by its owner."""
        return Victims(self)

    def uncertainties(self, template: PodTemplate) -> tuple[str, ...]:
        """Why a prediction for such a pod cannot be certain, in sentences; empty if it can."""
        found: tuple[str, ...] = getattr(self.framework(template), "uncertainties", lambda _: ())(template)
        return found

    def preferred(self, victim: Pod, replacement: PodTemplate, landing: Landing) -> Rows:
        """The best-scored nodes, by number: while the victim holds its room, and once it is gone."""
        best = self.state.table.none
        with self.without(victim) as held:
            framework = self.framework(replacement)
            for mask in (landing.held, landing.freed):
                if mask.any():
                    totals = framework.score(replacement, mask).totals
                    best = best | (mask & (totals == totals[mask].max()))
                held.let_go()
        return np.flatnonzero(best)

    def favourite(self, replacement: PodTemplate, nodes: Rows) -> int:
        """The best-scored of some nodes as things stand; the first in order of name among equals."""
        if len(nodes) == 1:
            return int(nodes[0])
        mask = np.zeros(self.state.table.size, dtype=np.bool_)
        mask[nodes] = True
        totals = self.framework(replacement).score(replacement, mask).totals
        return int(nodes[int(np.argmax(totals[nodes]))])


class Victims:
    """Pods that terminate in the state, hold their room, and may then let go of it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._state = simulation.state
        self._placed: dict[Hashable, Placed] = {}
        self._gone: set[Hashable] = set()

    def take(self, victim: Pod) -> None:
        """One more pod terminates."""
        key = key_of(victim)
        self._placed[key] = self._state.pods[key]
        self._state.terminate(key)

    def let_go(self, *victims: Pod) -> None:
        """These victims are gone; without a name, all of them."""
        for key in [key_of(v) for v in victims] or list(self._placed):
            if key not in self._gone:
                self._state.remove(key)
                self._gone.add(key)

    def come_back(self) -> None:
        """The victims that are gone hold their room again, terminating."""
        for key in self._gone:
            self._state.add(key, self._placed[key].template, self._placed[key].row)
            self._state.terminate(key)
        self._gone.clear()

    def drop(self, victim: Pod) -> None:
        """The pod, which holds its room, does not terminate after all."""
        del self._placed[key_of(victim)]
        self._state.restore(key_of(victim))

    def landing(self, victim: Pod, replacement: PodTemplate, *, after_gone: bool) -> Landing:
        """Takes one more victim; where its replacement can go while all hold their room, and when none."""
        self.take(victim)
        framework = self._simulation.framework(replacement)
        if after_gone:
            self.let_go(victim)
        held = framework.feasible(replacement)
        self.let_go()
        freed = framework.feasible(replacement)
        self.come_back()
        return Landing(held, freed)

    def held(self, resource: str) -> Ints:
        """int64[N]: what the victims hold of a resource."""
        amounts = np.zeros(self._state.table.size, dtype=np.int64)
        for placed in self._placed.values():
            amounts[placed.row] += 1 if resource == PODS else placed.template.requests.get(resource, 0)
        return amounts

    def undo(self) -> None:
        """All victims are as they were."""
        self.come_back()
        for key in self._placed:
            self._state.restore(key)
        self._placed.clear()


def _bound(frameworks: dict[str, Framework], state: ClusterState, template: PodTemplate) -> Framework:
    found = frameworks.get(template.scheduler_name)
    if found is None:
        profile = state.config.profile(template.scheduler_name)
        found = frameworks[template.scheduler_name] = Framework(state, profile)
    return found
