"""Pods on nodes, and what they hold there, changed pod by pod.

`add`, `terminate`, `remove` and their inverses touch one node's entries; nothing is recomputed for the
cluster. `stamp` says when each node changed last, so that what is remembered per template can be brought
up to date for exactly the nodes that changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import NamedTuple, Self

import numpy as np

from rebalancer.engine.state.interpod_terms import TermIndex
from rebalancer.engine.state.storage import Storage, VolumeUse
from rebalancer.engine.template_rules import (
    Amounts,
    beside,
    held_requests,
    host_ports,
    otherwise_held,
    peculiarities,
    scored_requests,
)
from rebalancer.engine.version import DECISIVE, OF_RESIZES, Change, ServerVersion
from rebalancer.model.pod import HostPort, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.spread.arrays import Columns, Ints
from rebalancer.spread.nodes import ByIdentity
from rebalancer.spread.tally import Tally

# Host ports in the scheduler's books.
#
# The books know that a port is taken on a node, not how often. Two pods can only share one if somebody else
# gave them their node; the first of them to go frees it. Rule: framework/types.go, ``HostPortInfo.Remove``.


class HostPorts:
    """By port: int64[N], 1 where it is taken."""

    def __init__(self, size: int, version: ServerVersion) -> None:
        """No ports taken on `size` nodes. `version` decides whose ports count."""
        self._version = version
        self._taken: Columns[HostPort] = Columns(size)

    def __iter__(self) -> Iterator[HostPort]:
        """The ports that are taken somewhere, or were."""
        return iter(self._taken)

    def __getitem__(self, port: HostPort) -> Ints:
        """int64[N]; callers only read it, and not beyond the next change."""
        return self._taken[port]

    def hold(self, template: PodTemplate, row: int, *, held: bool) -> None:
        """A pod takes its ports on a node, or frees them."""
        for port in host_ports(template, self._version):
            change = int(held) - int(self._taken[port][row])
            if change:
                self._taken.add(port, row, change)

    def copy(self) -> HostPorts:
        """An independent copy."""
        other = HostPorts.__new__(HostPorts)
        other._version = self._version
        other._taken = self._taken.copy()
        return other

    def to_change(self, templates: Iterable[PodTemplate]) -> HostPorts:
        """What pods of these templates may come to and leave, this one staying as it is; itself if they have
        no ports."""
        return self.copy() if any(t.host_ports for t in templates) else self


NONZERO_CPU = "nonzero cpu"
NONZERO_MEMORY = "nonzero memory"


class Placed(NamedTuple):
    """A pod on a node."""

    template: PodTemplate
    row: int
    terminating: bool


_placed: Callable[[tuple[PodTemplate, int, bool]], Placed] = partial(tuple.__new__, Placed)
"""A `Placed`, made without a step in Python."""


class PodsOnNodes:
    """What the nodes hold. Keys are the caller's (a pod's uid, say).

    `requested[resource]`: int64[N] sums of effective requests, with the pseudo-resources `PODS` (number of
    pods), `NONZERO_CPU`, `NONZERO_MEMORY`, those of `BESIDE`, and what would be taken `otherwise`. `tally`:
    pods by what selects them. `ports`: host ports that are taken. `nominated`: pods that wait for room on a
    node. `doubts`: decisive changes between versions of the scheduler that this one may or may not have, and
    why; `peculiar`: those that matter to a pod which is placed, or was. `lowest_priority`: of all pods that
    are placed, or were. `mark`: where it is what it was before, so is everything else.
    """

    def __init__(self, snapshot: Snapshot, version: ServerVersion) -> None:
        """The snapshot's nodes without any pod."""
        n = len(snapshot.nodes)
        self.version = version
        self.doubts = {change: why for change in DECISIVE if (why := version.doubt(change))}
        self.storage = Storage(snapshot)
        self.pods: dict[Hashable, Placed] = {}
        self.nominated: dict[Hashable, Placed] = {}
        self.requested: Columns[str] = Columns(n)
        self.tally = Tally(n)
        self.ports = HostPorts(n, version)
        self.volumes = VolumeUse(self.storage, n)
        self.terms = TermIndex(snapshot, version)
        self.peculiar: set[Change] = set()
        self.lowest_priority = sys.maxsize
        self.clock = self.mark = 0
        self.stamp: Ints = np.zeros(n, dtype=np.int64)
        self._taken: ByIdentity[Amounts] = ByIdentity()
        self._held: ByIdentity[Amounts] = ByIdentity()

    def copy(self) -> Self:
        """A branch that changes independently; arrays are shared until written."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.pods = dict(self.pods)
        other.nominated = dict(self.nominated)
        other.requested = self.requested.copy()
        other.tally = self.tally.copy()
        other.ports = self.ports.copy()
        other.volumes = self.volumes.copy()
        other.stamp = self.stamp.copy()
        return other

    def add(self, key: Hashable, template: PodTemplate, node_index: int) -> None:
        """Places a pod on a node. Raises KeyError if the key is placed already."""
        if key in self.pods:
            raise KeyError(f"{key!r} is placed already")
        self.pods[key] = placed = Placed(template, node_index, False)
        self._marked(key, placed)
        self.lowest_priority = min(self.lowest_priority, template.priority)
        if template.affinity is not None:
            self.terms.learn(template)
        self.tally.add(template, node_index)
        self._hold(template, node_index, 1)

    def add_all(self, template: PodTemplate, rows: Mapping[Hashable, int]) -> None:
        """`add` of pods of one template, by key. Raises KeyError if one of the keys is placed already."""
        if len(rows) == 1:
            for key, row in rows.items():
                self.add(key, template, row)
            return
        if not self.pods.keys().isdisjoint(rows):
            raise KeyError("one of the pods is placed already")
        every = zip(repeat(template), rows.values(), repeat(False), strict=False)
        self.pods.update(zip(rows, map(_placed, every), strict=True))
        self.lowest_priority = min(self.lowest_priority, template.priority)
        if template.affinity is not None:
            self.terms.learn(template)
        self.tally.add_all(template, rows.values())
        there = np.fromiter(rows.values(), dtype=np.intp, count=len(rows))
        for name, amount in self._takes(template):
            self.requested.add_all(name, there, amount)
        for row in rows.values() if template.host_ports or template.volumes else ():
            self._occupy(template, row, 1)
        self.clock += 1
        self.mark ^= hash((template.namespace, self.clock))
        self.stamp[there] = self.clock

    def remove(self, key: Hashable) -> None:
        """The pod is gone. Raises KeyError if it is not placed."""
        template, row, terminating = placed = self.pods.pop(key)
        self._marked(key, placed)
        self.tally.remove(template, row, terminating)
        self._hold(template, row, -1)

    def terminate(self, key: Hashable) -> None:
        """The pod gets a deletionTimestamp: not counted for spread any more, still holding its room."""
        template, row, terminating = self.pods[key]
        if not terminating:
            self._changed(key, Placed(template, row, True))
            self.tally.terminate(template, row)
            self._touch(row)

    def restore(self, key: Hashable) -> None:
        """Undoes `terminate`."""
        template, row, terminating = self.pods[key]
        if terminating:
            self._changed(key, Placed(template, row, False))
            self.tally.terminate(template, row, -1)
            self._touch(row)

    def nominate(self, key: Hashable, template: PodTemplate, node_index: int) -> None:
        """A waiting pod has a claim on a node's room."""
        self.nominated[key] = placed = Placed(template, node_index, False)
        self._marked("nominated", placed)

    def unnominate(self, key: Hashable) -> None:
        """The claim is gone. Raises KeyError if there is none."""
        self._marked("nominated", self.nominated.pop(key))

    def holds(self, template: PodTemplate) -> Amounts:
        """What a pod takes of its node: see `held_requests`."""
        found = self._held.get(template)
        return found if found is not None else self._held.put(held_requests(template, self.version), template)

    def _takes(self, template: PodTemplate) -> Amounts:
        """What a pod adds to `requested`."""
        taken = self._taken.get(template)
        if taken is None:
            cpu, memory = scored_requests(template, self.version)
            amounts = [*held_requests(template, self.version), (NONZERO_CPU, cpu), (NONZERO_MEMORY, memory)]
            for change in self.doubts.keys() & OF_RESIZES:
                amounts += otherwise_held(template, self.version, change)
            taken = self._taken.put((*amounts, *beside(template)), template)
            self.peculiar |= peculiarities(template)
        return taken

    def _hold(self, template: PodTemplate, row: int, sign: int) -> None:
        add = self.requested.add
        for name, amount in self._takes(template):
            add(name, row, sign * amount)
        self._occupy(template, row, sign)
        self._touch(row)

    def _occupy(self, template: PodTemplate, row: int, sign: int) -> None:
        """Ports and volumes."""
        if template.host_ports:
            self.ports.hold(template, row, held=sign > 0)
            # A port that two pods share is free when the first of them goes: that is not undone.
            self.mark ^= hash((row, self.clock))
        if template.volumes:
            self.volumes.hold(template, row, sign)

    def _changed(self, key: Hashable, placed: Placed) -> None:
        self._marked(key, self.pods[key])
        self._marked(key, placed)
        self.pods[key] = placed

    def _marked(self, key: Hashable, placed: Placed) -> None:
        """A pod comes like this, or goes."""
        self.mark ^= hash((key, id(placed.template), placed.row, placed.terminating))

    def _touch(self, row: int) -> None:
        self.clock += 1
        self.stamp[row] = self.clock
