"""NodeVolumeLimits: how many volumes a CSI driver attaches to a node (CSINode)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from rebalancer.engine.plugins.plugin import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    Filter,
    NodeFilter,
    Plugin,
    StaticFilter,
)
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.state.storage import claim_volumes, not_found, not_owned, owned
from rebalancer.engine.version import ATTACHMENTS, MISSING_DRIVERS, NODE_WITHOUT_LIMITS
from rebalancer.model.node import Node
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints, Rows

NO_LIMIT = (1 << 63) - 1
ANY_NUMBER = 1 << 30
LIMIT_PREFIX = "attachable-volumes-csi-"
LONGEST_RESOURCE_NAME = 63


class NodeVolumeLimits(Plugin):
    """Rule: plugins/nodevolumelimits/csi.go."""

    name = "NodeVolumeLimits"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects nodes whose drivers have no place for the pod's volumes that are not there yet."""
        storage = self.state.storage
        for volume in claim_volumes(template):
            claim = storage.claim_of(template.namespace, volume)
            if storage.known and claim is None:
                where = f"{template.namespace}/{volume.claim}"
                reason = f"looking up PVC {where}: {not_found(volume.claim)}"
                return StaticFilter(self.table.none, UNRESOLVABLE, reason)
            if claim is not None and not owned(claim, volume):
                return StaticFilter(self.table.none, UNRESOLVABLE, not_owned(volume, template.namespace))
        wanted = storage.attachments(template)
        limited = _all_limits(self.state, wanted)
        missing = {}
        if self.state.version.has(MISSING_DRIVERS):
            missing = {driver: self._missing(driver) for driver in wanted if storage.wants_driver(driver)}
        return _Filter(self.state, wanted, limited, missing) if limited or missing else None

    def _missing(self, driver: str) -> Bools:
        """bool[N]: nodes that do not have the driver."""
        has = (self.state.storage.has_driver(n, driver) for n in self.table.names)
        return ~np.fromiter(has, dtype=np.bool_, count=self.table.size)


def _all_limits(state: ClusterState, drivers: Iterable[str]) -> dict[str, Ints]:
    """By driver, int64[N]: its limit on each node; without those that no node limits."""
    return {driver: limit for driver in drivers if ((limit := limits(state, driver)) != NO_LIMIT).any()}


def limits(state: ClusterState, driver: str) -> Ints:
    """int64[N]: how many of a driver's volumes each node takes in all; `NO_LIMIT` where nothing is said."""
    table = state.table
    found: Ints = np.full(table.size, NO_LIMIT, dtype=np.int64)
    if not state.version.has(NODE_WITHOUT_LIMITS):
        found = table.allocatable(limit_resource(driver), absent=NO_LIMIT)
    for name, csi_node in state.storage.csi_nodes.items() if driver in state.storage.limited else ():
        row = table.index.get(name)
        for d in csi_node.spec.drivers:
            if row is not None and d.name == driver and d.limit is not None:
                found[row] = d.limit
    return found


def _left(
    state: ClusterState, driver: str, wanted: Iterable[tuple[str, str]], limit: Ints, rows: Rows
) -> Ints:
    """int64[len(rows)]: places that are left once these volumes of a driver are attached, by pods alone."""
    volumes = state.volumes
    new = np.zeros(len(rows), dtype=np.int64)
    for attachment in wanted:
        held = volumes.holders.get(attachment)
        new += 1 if not held else ~np.isin(rows, list(held))
    return np.where(new == 0, NO_LIMIT, limit[rows] - volumes.attached[driver][rows] - new)


def free_places(state: ClusterState, driver: str, limit: Ints) -> Ints:
    """int64[N]: how many more of a driver's volumes each node takes beside those that are attached to it, at
    most `ANY_NUMBER`. `limit`: see `limits`."""
    volumes = state.volumes
    taken = volumes.attached[driver] + volumes.left_over[driver]
    return np.minimum(limit - taken, ANY_NUMBER)


def hangs_on_detaching(state: ClusterState, template: PodTemplate) -> bool:
    """Whether some node that its volumes reach, and that it may use, takes the pod or not as volumes without
    a pod there are detached, or not yet."""
    wanted = state.storage.attachments(template) if state.volumes.left else {}
    there = {driver: wanted[driver] for driver in wanted if driver in state.volumes.left_over}
    if not there:
        return False
    table = state.table
    open_ = table.admitted(template) & ~table.untolerated(template.tolerations)
    for volume in claim_volumes(template):
        claim = state.storage.claim_of(template.namespace, volume)
        bound = state.storage.volume(claim.spec.volume_name) if claim is not None else None
        if bound is not None and bound.spec.node_affinity and bound.spec.node_affinity.required:
            open_ = open_ & table.selector_mask(bound.spec.node_affinity.required)
    rows = np.flatnonzero(open_)
    for driver, limit in _all_limits(state, there).items():
        left = _left(state, driver, there[driver], limit, rows)
        if ((left >= 0) & (left < state.volumes.left_over[driver][rows])).any():
            return True
    return False


def limit_resource(driver: str) -> str:
    """The resource of a node that limited a driver's volumes; a long name ends in a hash.

    Rule: pkg/volume/util, ``GetCSIAttachLimitKey``.
    """
    name = f"{LIMIT_PREFIX}{driver}"
    if len(name) < LONGEST_RESOURCE_NAME:
        return name
    digest = hashlib.sha1(driver.encode(), usedforsecurity=False).hexdigest()
    return f"{LIMIT_PREFIX}{driver[:23]}{digest[:16]}"


def limits_volumes(node: Node) -> bool:
    """Whether a node limits volumes among its allocatable resources."""
    return any(name.startswith(LIMIT_PREFIX) for name in node.allocatable)


class _Filter(NodeFilter):
    def __init__(
        self,
        state: ClusterState,
        wanted: dict[str, set[tuple[str, str]]],
        limits: dict[str, Ints],
        missing: dict[str, Bools],
    ) -> None:
        self._state = state
        self._wanted = wanted
        self._limits = limits
        self._missing = missing
        super().__init__(state.table.size)

    def fits(self, rows: Rows) -> Bools:
        fits = np.ones(len(rows), dtype=np.bool_)
        for lacking in self._missing.values():
            fits &= ~lacking[rows]
        for driver, limit in self._limits.items():
            left = _left(self._state, driver, self._wanted[driver], limit, rows)
            if self._state.version.has(ATTACHMENTS):
                left -= self._state.volumes.left_over[driver][rows]
            fits &= left >= 0
        return fits

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        driver = next((d for d, lacking in self._missing.items() if lacking[row]), "")
        if driver:
            return UNSCHEDULABLE, (f"{driver} CSI driver is not installed on the node",)
        return UNSCHEDULABLE, ("node(s) exceed max volume count",)
