"""What a few evictions that go out together come to, in every order in which things can happen.

The evictions are sent one after the other, and the first refusal ends it: so what has been sent is always a
prefix. Any replacement may be placed at any time, on any node that the filter then leaves. Two things make
the orders few enough to be walked through one by one:

- A pod that terminates is not counted, but holds its room. Once it is gone a replacement has at least the
  nodes that it had before, unless it has to be near other pods. So a pod that is gone as soon as it is
  evicted allows every landing that a slower one allows, and it is itself possible: slower ones add nothing.
  Only whether a replacement that waits would push others out is asked with the room still held.
- Replacements of one class are interchangeable, and so are the orders that lead to one placement.

Replacements that have to be near other pods are therefore not part of a joint move.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from msgspec import Struct

from rebalancer.engine.explain import would_preempt
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.spread.arrays import Rows

MOMENTS = 500
"""Moments that are looked at for one set before it counts as too much to foresee."""


class Victim(Struct, frozen=True, eq=False):
    """A pod to evict, what its owner makes in its place, and a number that is equal for
    interchangeable ones."""

    pod: Pod
    replacement: PodTemplate
    alike: int


class Ends(Struct, frozen=True, eq=False):
    """What the set surely comes to.

    `least`, `most`: by how much the excess falls at least, and at most. `waiting`: how many replacements find
    no node if it is broken off after any of the evictions. `nodes`: where each replacement may land.
    """

    least: int
    most: int
    waiting: int
    nodes: tuple[Rows, ...]


class Begun(Struct, frozen=True, eq=False):
    """A set of which evictions have been sent: `sent` of the victims, whose replacements are on no node yet,
    and victims whose replacements are (`gone`, by their keys). `excesses`: of each group, before the
    first."""

    sent: int
    gone: tuple[Hashable, ...]
    excesses: tuple[int, ...]


class BrokenError(Exception):
    """Some order breaks a promise, or there are too many. Its text says what, after "it"."""


class HopelessError(BrokenError):
    """So does the set in whatever order its evictions are sent."""


class EveryOrder:
    """Follows one set from the simulation's present state on, which it leaves as it was.

    `groups`: the hard constraints that count one of the pods. `waiting`: what else waits for a node; nothing
    of it may get one by the set. `lowest`: the lowest priority of a pod on a node. `begun`: that the first
    victims have been evicted already, and what is known from before.
    """

    def __init__(
        self,
        simulation: Simulation,
        victims: Sequence[Victim],
        groups: Sequence[Group],
        waiting: Sequence[PodTemplate] = (),
        *,
        lowest: int,
        begun: Begun | None = None,
    ) -> None:
        self._simulation = simulation
        self._state = simulation.state
        self._victims = victims
        self._groups = groups
        self._waiting = waiting
        self._lowest = lowest
        self._sent = begun.sent if begun is not None else 0
        self._ended = begun.gone if begun is not None else ()
        self._before = begun.excesses if begun is not None else self._excesses()
        self._seen: set[object] = set()
        self._nodes = [simulation.state.table.none.copy() for _ in victims]
        self._rooms = {
            key: self._state.pods[key] for v in victims if (key := key_of(v.pod)) in self._state.pods
        }
        self._gains: list[int] = []
        self._left = 0

    def ends(self) -> Ends:
        """What it comes to. Raises BrokenError."""
        with self._state.removed([key for key in self._ended if key in self._state.pods]):
            return self._ends()

    def _ends(self) -> Ends:
        every = len(self._victims)
        with self._gone(self._victims):
            # Most sets fail here, where all evictions have been sent.
            try:
                self._follow(every, {})
            except BrokenError as e:
                raise HopelessError(*e.args) from None
        for sent in range(max(1, self._sent), every):
            with self._gone(self._victims[:sent]):
                self._follow(sent, {})
        return Ends(
            min(self._gains),
            max(self._gains),
            self._left,
            tuple(self._reached(v.alike) for v in self._victims),
        )

    def _reached(self, alike: int) -> Rows:
        """Where interchangeable replacements may land: one as well as the other."""
        own = [n for n, v in zip(self._nodes, self._victims, strict=True) if v.alike == alike]
        return np.flatnonzero(np.logical_or.reduce(own))

    @property
    def moments(self) -> int:
        """How many were looked at."""
        return len(self._seen)

    def _follow(self, sent: int, landed: dict[int, int]) -> None:
        """From the moment at which so many are sent, and these replacements (by place) are on their nodes."""
        where = sorted((self._victims[i].alike, landed.get(i, -1)) for i in range(sent))
        moment = sent, tuple(where)
        if moment in self._seen:
            return
        self._seen.add(moment)
        if len(self._seen) > MOMENTS:
            raise BrokenError("has too many ways to end")
        left = 0
        tried: set[int] = set()
        for i in range(sent):
            if i in landed:
                continue
            victim = self._victims[i]
            nodes = self._open(victim.replacement, sent)
            self._nodes[i][nodes] = True
            left += not len(nodes)
            if victim.alike in tried:
                continue
            tried.add(victim.alike)
            for node in nodes.tolist():
                with self._placed(i, node):
                    self._follow(sent, {**landed, i: node})
        if left == sent - len(landed):
            self._settled(sent, left)
        if sent < len(self._victims):
            with self._gone(self._victims[sent : sent + 1]):
                self._follow(sent + 1, landed)

    def _open(self, replacement: PodTemplate, sent: int) -> Rows:
        """The nodes that the filter leaves. Raises BrokenError where one of them comes or goes, or somebody
        else could take a place."""
        simulation = self._simulation
        if any(simulation.framework(t).feasible(t).any() for t in self._waiting):
            raise BrokenError("would let in a pod that waits")
        framework = simulation.framework(replacement)
        nodes: Rows = np.flatnonzero(framework.feasible(replacement))
        if simulation.barred[nodes].any():
            raise BrokenError("could end on a node that comes or goes")
        if self._pushes_out(replacement, sent):
            raise BrokenError("would push out pods of lower priority")
        return nodes

    def _pushes_out(self, replacement: PodTemplate, sent: int) -> bool:
        """Whether it would preempt where it has no node, as long as victims hold their room, or at all."""
        simulation = self._simulation
        framework, static = simulation.framework(replacement), simulation.static(replacement)
        if not replacement.preempts or replacement.priority <= self._lowest:
            return False
        nodes = np.flatnonzero(static).tolist()
        with self._held(sent):
            if not framework.feasible(replacement).any() and would_preempt(framework, replacement, nodes):
                return True
        return not framework.feasible(replacement).any() and would_preempt(framework, replacement, nodes)

    @contextmanager
    def _held(self, sent: int) -> Iterator[None]:
        """The state with the victims that were sent terminating, not gone."""
        keys = [key for v in self._victims[:sent] if (key := key_of(v.pod)) in self._rooms]
        with self._state.also([(key, self._rooms[key].template, self._rooms[key].row) for key in keys]):
            for key in keys:
                self._state.terminate(key)
            yield

    def _settled(self, sent: int, left: int) -> None:
        """Nothing more happens by itself: `left` replacements have no node."""
        now = self._excesses()
        if any(a > b for a, b in zip(now, self._before, strict=True)):
            raise BrokenError("could raise the excess of a constraint")
        if sent < len(self._victims):
            self._left = max(self._left, left)
            return
        if left:
            raise BrokenError("could leave a replacement without a node")
        self._gains.append(sum(self._before) - sum(now))
        if self._gains[-1] < 1:
            raise BrokenError("need not lower any excess")

    def _excesses(self) -> tuple[int, ...]:
        return excesses(self._simulation, self._groups)

    @contextmanager
    def _gone(self, victims: Sequence[Victim]) -> Iterator[None]:
        # Of those that were evicted, some are gone for good.
        keys = (key_of(v.pod) for v in victims)
        with self._state.removed([key for key in keys if key in self._state.pods]):
            yield

    @contextmanager
    def _placed(self, i: int, node: int) -> Iterator[None]:
        key = ("replacement", key_of(self._victims[i].pod))
        with self._state.also([(key, self._victims[i].replacement, node)]):
            yield


def excesses(simulation: Simulation, groups: Sequence[Group]) -> tuple[int, ...]:
    """The excess of each group in the simulation's present state."""
    return tuple(g.excess(g.counts(simulation.state)) for g in groups)


def nodes_of_ending(simulation: Simulation, own: Collection[Hashable] = ()) -> Rows:
    """The nodes on which pods end that somebody else deletes: it cannot be said when room opens there. `own`:
    keys of pods that are meant to end."""
    pods = simulation.state.pods
    return np.unique([p.row for key, p in pods.items() if p.terminating and key not in own]).astype(np.intp)


def lowest_priority(simulation: Simulation) -> int:
    """Of all pods on nodes."""
    return min((p.template.priority for p in simulation.state.pods.values()), default=0)
