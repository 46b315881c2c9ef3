"""The scheduler's view of the cluster: its nodes with their pods, and the constraints of a pod over them.

Other rooms import from here what they need of the state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import msgspec
import numpy as np

from rebalancer.engine.config import DEFAULT_CONFIG, NO_WITNESS, SchedulerConfig, Witness
from rebalancer.engine.state.pods_on_nodes import NONZERO_CPU, NONZERO_MEMORY, Placed, PodsOnNodes
from rebalancer.engine.template_rules import PODS, Amounts, asked_requests
from rebalancer.engine.version import EMPTY_SELECTORS, GATED_NOMINATIONS, ServerVersion
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.quantity import MOST
from rebalancer.model.selectors import Selector
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.storage import VolumeAttachment
from rebalancer.spread.arrays import Bools, Ints, Layout, frozen
from rebalancer.spread.constraint import Constraint, DefaultSelectors, resolve
from rebalancer.spread.nodes import ByIdentity, NodeTable
from rebalancer.spread.tally import SpreadMeasure

# Pods that are there, or away, for a while: as long as a question is asked of the nodes.
#
# Each way undoes itself: afterwards all is as it was before, host ports that two pods share included.


class PodsForAWhile(PodsOnNodes):
    """Pods on nodes, with the ways to ask what would be if some came, or were gone."""

    guests: tuple[int, tuple[PodTemplate, ...]] | None = None
    """A node, and the pods that are `assumed` there."""

    @contextmanager
    def unhindered(self, *keys: Hashable) -> Iterator[None]:
        """While it lasts, these pods are not in their own way: what they are nominated for is free."""
        placed = {key: self.nominated.pop(key) for key in keys if key in self.nominated}
        try:
            yield
        finally:
            self.nominated.update(placed)

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
        ports, self.ports = self.ports, self.ports.to_change(template for _, template, _ in pods)
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
        ports, self.ports = self.ports, self.ports.to_change(placed.template for _, placed in gone)
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


__all__ = ["NONZERO_CPU", "NONZERO_MEMORY", "PODS", "ClusterState", "Placed"]

_FEW = 100
"""Domains whose counts are small enough to be kept for thousands of constraints: zones, not nodes."""


class ClusterState(PodsForAWhile):
    """Pods on nodes as the scheduler's cache holds them, under a scheduler's configuration.

    `witness`: what its own decisions have put in doubt.
    """

    witness: Witness = NO_WITNESS

    def __init__(
        self,
        snapshot: Snapshot,
        config: SchedulerConfig = DEFAULT_CONFIG,
        table: NodeTable | None = None,
    ) -> None:
        """The snapshot's nodes without any pod. `table`: the nodes, where another state has them already."""
        super().__init__(snapshot, ServerVersion.parse(snapshot.server_version))
        self.snapshot = snapshot
        self.config = config
        self.table = NodeTable.of(snapshot) if table is None else table
        self._allocatable: dict[str, Ints] = {}
        self._asked: ByIdentity[Amounts] = ByIdentity()
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
        state.attach(snapshot.attachments)
        return state

    def attach(self, attachments: Iterable[VolumeAttachment]) -> None:
        """All volumes that are attached to nodes now. One whose pod is there goes with the pod.

        Rule: nodevolumelimits/csi.go, ``getNodeVolumeAttachmentInfo``.
        """
        found: list[tuple[tuple[str, str], int]] = []
        for spec in (a.spec for a in attachments if a.spec.attacher in self.storage.limited):
            volume = self.storage.volume(spec.source.persistent_volume_name)
            if spec.node_name in self.table.index and volume is not None and volume.spec.csi is not None:
                attached = spec.attacher, volume.spec.csi.volume_handle
                found.append((attached, self.table.index[spec.node_name]))
        for row in self.volumes.attach(found):
            self._touch(row)
            self.mark ^= hash((row, self.clock))

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
            if pod.template.scheduling_gates:
                self.peculiar.add(GATED_NOMINATIONS)
                if not self.version.has(GATED_NOMINATIONS):
                    return
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

    def copy(self) -> Self:
        """A branch that changes independently; arrays are shared until written."""
        other = super().copy()
        other._by_domain = {}
        return other

    def over(self, table: NodeTable) -> Self:
        """A branch over the same nodes with other taints or labels, in the same order."""
        other = self.copy()
        other.table = table
        other._eligible = ByIdentity()
        return other

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
        """The pod's hard or soft constraints, in order; the profile's defaults if it has none at all. None
        are hard where the profile does not filter by them."""
        found = self._constraints.get(template)
        if found is None:
            every = self._resolve(template)
            kept = self.config.profile(template.scheduler_name).keeps_spread
            found = self._constraints.put(
                (tuple(c for c in every if not c.hard), tuple(c for c in every if c.hard and kept)), template
            )
        return found[hard]

    def _resolve(self, template: PodTemplate) -> tuple[Constraint, ...]:
        if template.spread:
            found = tuple(resolve(c, template) for c in template.spread)
            return tuple(map(_counting_all, found)) if self.version.has(EMPTY_SELECTORS) else found
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

    def asks(self, template: PodTemplate) -> Amounts:
        """What a node must have left for the pod, by the profile that places it: see `asked_requests`."""
        found = self._asked.get(template)
        if found is None:
            profile = self.config.profile(template.scheduler_name)
            found = self._asked.put(asked_requests(template, profile), template)
        return found

    def allocatable(self, resource: str) -> Ints:
        """int64[N]: what pods may request of a resource in all (`PODS`: how many pods).

        Less than `MOST`, so that a pod that asks for that or more fits nowhere.
        """
        found = self._allocatable.get(resource)
        if found is None:
            found = self._allocatable[resource] = np.minimum(self.table.allocatable(resource), MOST - 1)
        return found

    def left(self, resource: str) -> Ints:
        """int64[N]: what pods have not requested of it; less than nothing where they have more."""
        found: Ints = self.allocatable(resource) - self.requested[resource]
        return found


def _counting_all(constraint: Constraint) -> Constraint:
    """The constraint, with an empty selector as one that selects every pod."""
    if constraint.selector is None or not constraint.selector.empty:
        return constraint
    return msgspec.structs.replace(constraint, selector=Selector(everything=True))
