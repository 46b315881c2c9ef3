"""The scheduler's view of the cluster, changed pod by pod.

`add`, `terminate`, `remove` and their inverses touch one node's entries; nothing is recomputed for the
cluster. `stamp` says when each node changed last, so that what is remembered per template can be brought
up to date for exactly the nodes that changed.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import NamedTuple

import msgspec
import numpy as np

from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.resource_names import is_counted
from rebalancer.engine.state.host_ports import HostPorts
from rebalancer.engine.state.interpod_terms import TermIndex
from rebalancer.engine.state.storage import Storage
from rebalancer.engine.state.volume_use import VolumeUse
from rebalancer.engine.template_rules import peculiarities, scored_requests
from rebalancer.engine.version import DECISIVE, Change, ServerVersion
from rebalancer.model.amounts.quantity import MOST
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.selectors import Selector
from rebalancer.model.snapshot import Snapshot
from rebalancer.spread.arrays import Bools, Columns, Ints, frozen, int64
from rebalancer.spread.constraint import Constraint, resolve
from rebalancer.spread.defaults import DefaultSelectors
from rebalancer.spread.layout import Layout
from rebalancer.spread.nodes import ByIdentity, NodeTable
from rebalancer.spread.tally import SpreadMeasure, Tally

PODS = "pods"
"""Also the name of the node's limit; a request of this name is not counted."""
NONZERO_CPU = "nonzero cpu"
NONZERO_MEMORY = "nonzero memory"
_FEW = 100
"""Domains whose counts are small enough to be kept for thousands of constraints: zones, not nodes."""


def _held(template: PodTemplate, version: ServerVersion) -> tuple[tuple[str, int], ...]:
    """What a pod adds to `requested`; resources that the scheduler does not know are left out."""
    counted = {name: int64(v) for name, v in template.requests.items() if v and is_counted(name)}
    cpu, memory = scored_requests(template, version)
    return tuple({PODS: 1, **counted, NONZERO_CPU: cpu, NONZERO_MEMORY: memory}.items())


class Placed(NamedTuple):
    """A pod on a node."""

    template: PodTemplate
    row: int
    terminating: bool


class ClusterState:
    """Pods on nodes as the scheduler's cache holds them. Keys are the caller's (a pod's uid, say).

    `requested[resource]`: int64[N] sums of effective requests, with the pseudo-resources `PODS` (number of
    pods), `NONZERO_CPU` and `NONZERO_MEMORY`. `tally`: pods by what selects them. `ports`: host ports that
    are taken. `nominated`: pods that wait for room on a node. `doubts`: decisive changes between versions of
    the scheduler that this one may or may not have, and why; `peculiar`: those of them that matter to a pod
    which is placed, or was. `lowest_priority`: of all pods that are placed, or were.
    """

    def __init__(self, snapshot: Snapshot, config: SchedulerConfig = DEFAULT_CONFIG) -> None:
        """The snapshot's nodes without any pod."""
        self.snapshot = snapshot
        self.config = config
        self.table = NodeTable.of(snapshot)
        self.version = ServerVersion.parse(snapshot.server_version)
        self.doubts = {change: why for change in DECISIVE if (why := self.version.doubt(change))}
        self.storage = Storage(snapshot)
        n = self.table.size
        self.pods: dict[Hashable, Placed] = {}
        self.nominated: dict[Hashable, Placed] = {}
        self.guests: tuple[int, tuple[PodTemplate, ...]] | None = None
        self.requested: Columns[str] = Columns(n)
        self.tally = Tally(n)
        self.ports = HostPorts(n, self.version)
        self.volumes = VolumeUse(self.storage, n)
        self.terms = TermIndex(snapshot, self.version)
        self.peculiar: set[Change] = set()
        self.lowest_priority = sys.maxsize
        self.clock = 0
        self.stamp: Ints = np.zeros(n, dtype=np.int64)
        self._held: ByIdentity[tuple[tuple[str, int], ...]] = ByIdentity()
        self._allocatable: dict[str, Ints] = {}
        self._selectors = DefaultSelectors(snapshot)
        self._constraints: ByIdentity[tuple[tuple[Constraint, ...], tuple[Constraint, ...]]] = ByIdentity()
        self._eligible: ByIdentity[Bools] = ByIdentity()
        self._by_domain: dict[tuple[SpreadMeasure, int], tuple[Layout, Ints]] = {}
        self._by_domain_at = 0

    @staticmethod
    def of(snapshot: Snapshot, config: SchedulerConfig | None = None) -> ClusterState:
        """The snapshot's nodes with its pods: assigned and not finished; waiting ones as nominated."""
        state = ClusterState(snapshot, config or DEFAULT_CONFIG)
        index = state.table.index
        for group in snapshot.live:
            rows: dict[Hashable, int] = {
                p.uid or p.key: index[p.node_name] for p in group.pods if p.node_name in index
            }
            if rows:
                state.add_all(group.template, rows)
            for pod in group.pods if len(rows) < len(group.pods) else ():
                if pod.node_name not in index:
                    state.put(pod)
        for pod in snapshot.over:
            state.put(pod)
        return state

    def put(self, pod: Pod, key: Hashable | None = None) -> None:
        """A pod as the API server has it: where it is, unless it is finished; or what it is nominated for.

        `key`: by default its uid, or its name where it has none. A nomination counts in the scheduler's queue
        only: not for a pod that none of its profiles places.
        """
        index = self.table.index
        if pod.finished:
            return
        key = pod.uid or pod.key if key is None else key
        if pod.node_name in index:
            self.add(key, pod.template, index[pod.node_name])
            if pod.terminating:
                self.terminate(key)
        elif (
            not pod.node_name
            and pod.nominated_node_name in index
            and self.config.places(pod.template.scheduler_name)
        ):
            self.nominate(key, pod.template, index[pod.nominated_node_name])

    def take(self, pod: Pod) -> None:
        """Undoes `put`."""
        self.drop(pod.uid or pod.key)

    def drop(self, key: Hashable) -> None:
        """Takes away what `put` placed or nominated under this key, if anything."""
        if key in self.pods:
            self.remove(key)
        elif key in self.nominated:
            self.unnominate(key)

    def copy(self) -> ClusterState:
        """A branch that changes independently; arrays are shared until written."""
        other = ClusterState.__new__(ClusterState)
        other.__dict__.update(self.__dict__)
        other.pods = dict(self.pods)
        other.nominated = dict(self.nominated)
        other.requested = self.requested.copy()
        other.tally = self.tally.copy()
        other.ports = self.ports.copy()
        other.volumes = self.volumes.copy()
        other.stamp = self.stamp.copy()
        other._by_domain = {}
        return other

    def over(self, table: NodeTable) -> ClusterState:
        """A branch over the same nodes with other taints or labels, in the same order."""
        other = self.copy()
        other.table = table
        other._eligible = ByIdentity()
        return other

    def add(self, key: Hashable, template: PodTemplate, node_index: int) -> None:
        """Places a pod on a node. Raises KeyError if the key is placed already."""
        if key in self.pods:
            raise KeyError(f"{key!r} is placed already")
        self.pods[key] = Placed(template, node_index, False)
        self.lowest_priority = min(self.lowest_priority, template.priority)
        if template.affinity is not None:
            self.terms.learn(template)
        self.tally.add(template, node_index)
        self._hold(template, node_index, 1)

    def add_all(self, template: PodTemplate, rows: Mapping[Hashable, int]) -> None:
        """`add` of pods of one template, by key. Raises KeyError if one of the keys is placed already."""
        if not self.pods.keys().isdisjoint(rows):
            raise KeyError("one of the pods is placed already")
        self.pods.update(zip(rows, map(Placed, repeat(template), rows.values(), repeat(False)), strict=False))
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
        self.stamp[there] = self.clock

    def remove(self, key: Hashable) -> None:
        """The pod is gone. Raises KeyError if it is not placed."""
        template, row, terminating = self.pods.pop(key)
        self.tally.remove(template, row, terminating)
        self._hold(template, row, -1)

    def terminate(self, key: Hashable) -> None:
        """The pod gets a deletionTimestamp: not counted for spread any more, still holding its room."""
        template, row, terminating = self.pods[key]
        if not terminating:
            self.pods[key] = Placed(template, row, True)
            self.tally.terminate(template, row)
            self._touch(row)

    def restore(self, key: Hashable) -> None:
        """Undoes `terminate`."""
        template, row, terminating = self.pods[key]
        if terminating:
            self.pods[key] = Placed(template, row, False)
            self.tally.terminate(template, row, -1)
            self._touch(row)

    def nominate(self, key: Hashable, template: PodTemplate, node_index: int) -> None:
        """A waiting pod has a claim on a node's room."""
        self.nominated[key] = Placed(template, node_index, False)

    def unnominate(self, key: Hashable) -> None:
        """The claim is gone. Raises KeyError if there is none."""
        del self.nominated[key]

    @contextmanager
    def unhindered(self, key: Hashable) -> Iterator[None]:
        """While it lasts, this pod is not in its own way: what it is nominated for is free to it."""
        placed = self.nominated.pop(key, None)
        try:
            yield
        finally:
            if placed is not None:
                self.nominated[key] = placed

    @contextmanager
    def assumed(self, row: int, pods: Iterable[tuple[Hashable, PodTemplate]]) -> Iterator[None]:
        """While it lasts, these waiting pods run on the node: they are its `guests`."""
        added = [(("nominated", key), template, row) for key, template in pods]
        self.guests = row, tuple(template for _, template, _ in added)
        try:
            with self.also(added):
                yield
        finally:
            self.guests = None

    @contextmanager
    def also(self, pods: Sequence[tuple[Hashable, PodTemplate, int]]) -> Iterator[None]:
        """While it lasts, these pods, by their keys, are on these nodes (rows) too."""
        ports = self.ports.before(template for _, template, _ in pods)
        for key, template, row in pods:
            self.add(key, template, row)
        try:
            yield
        finally:
            for key, _, _ in pods:
                self.remove(key)
            self.ports = ports

    @contextmanager
    def removed(self, keys: Iterable[Hashable]) -> Iterator[None]:
        """While it lasts, these pods are gone."""
        gone = [(key, self.pods[key]) for key in keys]
        ports = self.ports.before(placed.template for _, placed in gone)
        for key, _ in gone:
            self.remove(key)
        try:
            yield
        finally:
            for key, placed in gone:
                self.add(key, placed.template, placed.row)
                if placed.terminating:
                    self.terminate(key)
            self.ports = ports

    def counts(self, namespace: str, selector: Selector | None) -> Ints:
        """int64[N]: pods that a spread constraint counts on each node. Read-only, before the next change."""
        return self.tally.column(SpreadMeasure(namespace, selector))

    def counts_once(self, namespace: str, selector: Selector | None) -> Ints:
        """`counts`, without keeping them up to date from then on."""
        return self.tally.once(SpreadMeasure(namespace, selector))

    def by_domain_once(self, namespace: str, selector: Selector | None, layout: Layout) -> Ints:
        """int64[D]: `counts_once` by domain. Callers must not change it.

        That of few domains is remembered until the next change: the plan and each check ask for the same."""
        measure = SpreadMeasure(namespace, selector)
        if layout.size > _FEW:
            return self.tally.by_domain_once(measure, layout)
        if self._by_domain_at != self.clock:
            self._by_domain, self._by_domain_at = {}, self.clock
        found = self._by_domain.get((measure, id(layout)))
        if found is None:
            counts = self.tally.by_domain_once(measure, layout)
            frozen(counts)
            found = self._by_domain[measure, id(layout)] = layout, counts
        return found[1]

    def constraints(self, template: PodTemplate, hard: bool) -> tuple[Constraint, ...]:
        """The pod's hard or soft constraints, in order; the profile's defaults if it has none at all."""
        found = self._constraints.get(template)
        if found is None:
            every = self._resolve(template)
            found = self._constraints.put(
                (tuple(c for c in every if not c.hard), tuple(c for c in every if c.hard)), template
            )
        return found[hard]

    def _resolve(self, template: PodTemplate) -> tuple[Constraint, ...]:
        if template.spread:
            return tuple(resolve(c, template) for c in template.spread)
        defaults = self.config.profile(template.scheduler_name).default_constraints
        selector = self._selectors.of(template) if defaults else Selector()
        if selector.empty:
            return ()
        # The joined selector takes the place of the constraint's own; all else is as configured.
        return tuple(msgspec.structs.replace(resolve(c, template), selector=selector) for c in defaults)

    def requires_all_keys(self, template: PodTemplate, hard: bool) -> bool:
        """Whether a node needs every topology key: not in the score under system defaults."""
        return (
            hard or bool(template.spread) or not self.config.profile(template.scheduler_name).system_defaulted
        )

    def eligible(self, template: PodTemplate, constraint: Constraint) -> Bools:
        """bool[N]: nodes whose pods and domains take part: all keys there, inclusion policies met."""
        table, hard = self.table, constraint.hard
        keys: tuple[str, ...] = ()
        if self.requires_all_keys(template, hard):
            keys = tuple(c.topology_key for c in self.constraints(template, hard))
        keyed = table.having(keys)
        admitted = table.admitted(template) if constraint.node_affinity_policy == "Honor" else table.every
        refused = (
            table.untolerated(template.tolerations)
            if constraint.node_taints_policy == "Honor"
            else table.none
        )
        # Few combinations of these shared arrays occur, however many templates there are.
        found = self._eligible.get(keyed, admitted, refused)
        if found is None:
            found = keyed & admitted & ~refused
            frozen(found)
            self._eligible.put(found, keyed, admitted, refused)
        return found

    def eligibility(self, template: PodTemplate, constraint: Constraint) -> Hashable:
        """What `eligible` goes by: where it is equal, so are the eligible nodes, whatever nodes there are."""
        keys: frozenset[str] = frozenset()
        if self.requires_all_keys(template, constraint.hard):
            keys = frozenset(c.topology_key for c in self.constraints(template, constraint.hard))
        affinity = template.affinity.node_affinity if template.affinity is not None else None
        honored = constraint.node_affinity_policy == "Honor"
        return (
            keys,
            frozenset(template.node_selector.items()) if honored else None,
            affinity.required if honored and affinity is not None else None,
            template.tolerations if constraint.node_taints_policy == "Honor" else None,
        )

    def allocatable(self, resource: str) -> Ints:
        """int64[N]: what pods may request of a resource in all (`PODS`: how many pods).

        Less than `MOST`, so that a pod that asks for that or more fits nowhere.
        """
        found = self._allocatable.get(resource)
        if found is None:
            found = np.fromiter(
                (min(n.allocatable.get(resource, 0), MOST - 1) for n in self.table.nodes), dtype=np.int64
            )
            self._allocatable[resource] = found
        return found

    def _takes(self, template: PodTemplate) -> tuple[tuple[str, int], ...]:
        """What a pod adds to `requested`."""
        held = self._held.get(template)
        if held is None:
            held = self._held.put(_held(template, self.version), template)
            self.peculiar |= peculiarities(template)
        return held

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
        if template.volumes:
            self.volumes.hold(template, row, sign)

    def _touch(self, row: int) -> None:
        self.clock += 1
        self.stamp[row] = self.clock
