"""Volumes in use by placed pods: claims, attachments by node and driver, legacy disks by node."""

from __future__ import annotations

from typing import TypeVar

from rebalancer.engine.state.storage import Storage, claim_volumes
from rebalancer.model.pod import PodTemplate, Volume
from rebalancer.spread.arrays import Columns

K = TypeVar("K")

DISKS = frozenset({"gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"})
"""Legacy volumes that VolumeRestrictions looks at."""


class VolumeUse:
    """`claims`: pods that mount a claim ("namespace/name"), anywhere. `attached[driver]`: int64[N], unique
    volumes of a driver. `holders[(driver, handle)]`: pods that have the volume, by node. `disks[volume]`:
    pods that mount a legacy disk, by node."""

    def __init__(self, storage: Storage, size: int) -> None:
        """No volumes on `size` nodes."""
        self._storage = storage
        self.claims: dict[str, int] = {}
        self.attached: Columns[str] = Columns(size)
        self.holders: dict[tuple[str, str], dict[int, int]] = {}
        self.disks: dict[Volume, dict[int, int]] = {}

    def copy(self) -> VolumeUse:
        """An independent copy."""
        other = VolumeUse.__new__(VolumeUse)
        other._storage = self._storage
        other.claims = dict(self.claims)
        other.attached = self.attached.copy()
        other.holders = {k: dict(v) for k, v in self.holders.items()}
        other.disks = {k: dict(v) for k, v in self.disks.items()}
        return other

    def hold(self, template: PodTemplate, row: int, sign: int) -> None:
        """A pod takes (`sign` 1) or gives up (-1) its volumes on a node."""
        for volume in claim_volumes(template):
            if volume.kind == "persistentVolumeClaim":
                _count(self.claims, f"{template.namespace}/{volume.claim}", sign)
            attachment = self._storage.attachment(template.namespace, volume.claim)
            if attachment is not None:
                rows = self.holders.setdefault(attachment, {})
                before = row in rows
                _count(rows, row, sign)
                if before != (row in rows):
                    self.attached.add(attachment[0], row, sign)
        for volume in template.volumes:
            if volume.kind in DISKS:
                _count(self.disks.setdefault(volume, {}), row, sign)


def _count(counter: dict[K, int], key: K, amount: int) -> None:
    count = counter.get(key, 0) + amount
    if count:
        counter[key] = count
    else:
        del counter[key]
