"""NodeVolumeLimits: how many volumes a CSI driver attaches to a node (CSINode)."""

from __future__ import annotations

import hashlib

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
from rebalancer.engine.version import MISSING_DRIVERS, NODE_WITHOUT_LIMITS
from rebalancer.model.node import Node
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints, Rows

NO_LIMIT = (1 << 63) - 1
LIMIT_PREFIX = "attachable-volumes-csi-"
LONGEST_RESOURCE_NAME = 63


class NodeVolumeLimits(Plugin):
    """Rule: plugins/nodevolumelimits/csi.go. VolumeAttachments without a pod are not read."""

    name = "NodeVolumeLimits"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects nodes whose drivers have no place for the pod's volumes that are not there yet."""
        storage = self.state.storage
        for volume in claim_volumes(template):
            claim = storage.claim(template.namespace, volume.claim)
            if storage.known and claim is None:
                where = f"{template.namespace}/{volume.claim}"
                reason = f"looking up PVC {where}: {not_found(volume.claim)}"
                return StaticFilter(self.table.none, UNRESOLVABLE, reason)
            if claim is not None and not owned(claim, volume):
                return StaticFilter(self.table.none, UNRESOLVABLE, not_owned(volume, template.namespace))
        wanted = storage.attachments(template)
        limits = {driver: limit for driver in wanted if (limit := self._limits(driver)) is not None}
        missing = {}
        if self.state.version.has(MISSING_DRIVERS):
            missing = {driver: self._missing(driver) for driver in wanted if storage.wants_driver(driver)}
        return _Filter(self.state, wanted, limits, missing) if limits or missing else None

    def _missing(self, driver: str) -> Bools:
        """bool[N]: nodes that do not have the driver."""
        there = self.state.storage.csi_nodes
        has = (n in there and any(d.name == driver for d in there[n].spec.drivers) for n in self.table.names)
        return ~np.fromiter(has, dtype=np.bool_, count=self.table.size)

    def _limits(self, driver: str) -> Ints | None:
        """int64[N]: the driver's limit on each node; None where no node has one."""
        limits: Ints = np.full(self.table.size, NO_LIMIT, dtype=np.int64)
        if not self.state.version.has(NODE_WITHOUT_LIMITS):
            limits = self.table.allocatable(limit_resource(driver), absent=NO_LIMIT)
        for name, csi_node in self.state.storage.csi_nodes.items():
            row = self.table.index.get(name)
            for d in csi_node.spec.drivers:
                if row is not None and d.name == driver and d.allocatable and d.allocatable.count is not None:
                    limits[row] = d.allocatable.count
        return limits if (limits != NO_LIMIT).any() else None


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
        volumes = self._state.volumes
        for lacking in self._missing.values():
            fits &= ~lacking[rows]
        for driver, limit in self._limits.items():
            new = np.zeros(len(rows), dtype=np.int64)
            for attachment in self._wanted[driver]:
                held = volumes.holders.get(attachment)
                new += 1 if not held else ~np.isin(rows, list(held))
            fits &= (new == 0) | (volumes.attached[driver][rows] + new <= limit[rows])
        return fits

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        driver = next((d for d, lacking in self._missing.items() if lacking[row]), "")
        if driver:
            return UNSCHEDULABLE, (f"{driver} CSI driver is not installed on the node",)
        return UNSCHEDULABLE, ("node(s) exceed max volume count",)
