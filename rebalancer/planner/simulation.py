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

from rebalancer.engine.cluster import ClusterState, Placed
from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.framework import Framework, Frameworks
from rebalancer.model.pod import Affinity, Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.meeting import reacts, touch
from rebalancer.planner.victims import is_leaving
from rebalancer.spread.arrays import Bools, Ints, Rows


class Landing(Struct, frozen=True, eq=False):
    """Where the filter lets a replacement go, bool[N].

    `held`: while the victims still hold their room. `freed`: once they are gone. `later`: nodes that open
    only when pods end that somebody else deletes.
    """

    held: Bools
    freed: Bools
    later: Bools

    @property
    def anywhere(self) -> Bools:
        """Every node that can come into question."""
        return self.held | self.freed | self.later


class Made(Struct, frozen=True, eq=False):
    """A move as it went: the victim, its replacement, and the node (by number) where that landed."""

    pod: Pod
    replacement: PodTemplate
    row: int


def key_of(pod: Pod) -> Hashable:
    """The key under which the state holds the pod of a snapshot."""
    return pod.uid or pod.key


class Leaving:
    """Pods that terminate in a state, hold their room, and may then let go of it."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.placed: dict[Hashable, Placed] = {}
        self._gone: set[Hashable] = set()

    def take(self, victim: Pod) -> None:
        """One more pod terminates."""
        key = key_of(victim)
        self.placed[key] = self._state.pods[key]
        self._state.terminate(key)

    def let_go(self, *victims: Pod) -> None:
        """These victims are gone; without a name, all of them."""
        for key in [key_of(v) for v in victims] or self.placed:
            if key not in self._gone:
                self._state.remove(key)
                self._gone.add(key)

    def hold_again(self, victim: Pod) -> None:
        """A victim that let go terminates and holds its room as before."""
        key = key_of(victim)
        self._gone.remove(key)
        self._state.add(key, self.placed[key].template, self.placed[key].row)
        self._state.terminate(key)

    def undo(self, *victims: Pod) -> None:
        """These victims are as they were; without a name, all of them."""
        for key in [key_of(v) for v in victims] or list(self.placed):
            placed = self.placed.pop(key)
            if key in self._gone:
                self._gone.remove(key)
                self._state.add(key, placed.template, placed.row)
            else:
                self._state.restore(key)


class Simulation:
    """A cluster state that moves are tried on and then made on."""

    def __init__(self, snapshot: Snapshot, config: SchedulerConfig | None) -> None:
        self.snapshot = snapshot
        self.state = ClusterState.of(snapshot, config)
        self._frameworks = Frameworks(self.state)
        self._bare = ClusterState(snapshot, self.state.config)
        self._bare_frameworks = Frameworks(self._bare)
        self.leaving: Bools = np.array([is_leaving(n) for n in self.state.table.nodes], dtype=np.bool_)
        """bool[N]: nodes that are cordoned or about to be removed."""
        self._static: dict[int, tuple[PodTemplate, Bools]] = {}
        ending = {key: placed for key, placed in self.state.pods.items() if placed.terminating}
        self._ending: list[Hashable] = list(ending)
        self._ending_rows: Rows = np.array([p.row for p in ending.values()], dtype=np.int64)
        self._reacting = [i for i, p in enumerate(ending.values()) if reacts(p.template)]

    def framework(self, template: PodTemplate) -> Framework:
        """The scheduler profile that places pods of this template."""
        return self._frameworks.of(template)

    def static(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that would take the pod if the cluster were empty (inter-pod affinity aside)."""
        found = self._static.get(id(template))
        if found is None:
            bare = template
            if (a := template.affinity) is not None and (a.pod_affinity or a.pod_anti_affinity):
                bare = msgspec.structs.replace(template, affinity=Affinity(node_affinity=a.node_affinity))
            mask = self._bare_frameworks.of(bare).feasible(bare)
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
        framework = self.framework(replacement)
        with self.without(victim) as leaving:
            held = None if after_gone else framework.feasible(replacement)
            leaving.let_go()
            freed = framework.feasible(replacement)
            held = freed if held is None else held
            if self._ending:
                return self._with_ends(replacement, held, freed)
        return Landing(held, freed, self.state.table.none)

    def _with_ends(self, replacement: PodTemplate, held: Bools, freed: Bools) -> Landing:
        """The landing with regard to pods that somebody else deletes: it has to hold once they are gone, too.

        That may open nodes, and, where the replacement has to be near one of them, close some.
        """
        state, closed = self.state, self.static(replacement) & ~held & ~freed
        affinity = replacement.affinity
        near = affinity is not None and affinity.pod_affinity is not None
        which = set(np.flatnonzero(near | closed[self._ending_rows]).tolist())
        which.update(self._reacting if not reacts(replacement) else range(len(self._ending)))
        gone = [
            (key, state.pods[key])
            for key in (self._ending[i] for i in sorted(which))
            if key in state.pods
            and (near or closed[state.pods[key].row] or touch(state.pods[key].template, replacement))
        ]
        if not gone:
            return Landing(held, freed, state.table.none)
        for key, _ in gone:
            state.remove(key)
        later = self.framework(replacement).feasible(replacement)
        for key, placed in gone:
            state.add(key, placed.template, placed.row)
            state.terminate(key)
        if not later.any():
            return Landing(later, later, later)
        return Landing(held, freed, later & ~held & ~freed)

    @contextmanager
    def without(self, *victims: Pod) -> Iterator[Leaving]:
        """The state with pods terminating; as it was afterwards."""
        leaving = Leaving(self.state)
        try:
            for victim in victims:
                leaving.take(victim)
            yield leaving
        finally:
            leaving.undo()

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

    def uncertainties(self, template: PodTemplate) -> tuple[str, ...]:
        """Why a prediction for such a pod cannot be certain, in sentences; empty if it can."""
        return self.framework(template).uncertainties(template)

    def assumptions(self) -> tuple[str, ...]:
        """What every prediction rests on, in sentences, over all scheduler profiles."""
        profiles = self.state.config.profiles
        return tuple(dict.fromkeys(s for p in profiles for s in Framework(self.state, p).assumptions()))

    def preferred(self, victim: Pod, replacement: PodTemplate, landing: Landing) -> Rows:
        """The best-scored nodes, by number: while the victim holds its room, and once it is gone."""
        best = self.state.table.none
        with self.without(victim) as leaving:
            framework = self.framework(replacement)
            for mask in (landing.held, landing.freed):
                if mask.any():
                    totals = framework.score(replacement, mask).totals
                    best = best | (mask & (totals == totals[mask].max()))
                leaving.let_go()
        return np.flatnonzero(best)

    def expected(self, victim: Pod, replacement: PodTemplate, landing: Landing, *, after_gone: bool) -> Rows:
        """The best-scored nodes, by number, when the replacement is made: at once, or `after_gone`."""
        if np.count_nonzero(landing.held) == 1:
            return np.flatnonzero(landing.held)
        with self.without(victim) as leaving:
            if after_gone:
                leaving.let_go()
            totals = self.framework(replacement).score(replacement, landing.held).totals
        return np.flatnonzero(landing.held & (totals == totals[landing.held].max()))
