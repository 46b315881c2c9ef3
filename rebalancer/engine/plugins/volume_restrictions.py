"""VolumeRestrictions: ReadWriteOncePod claims in use, and legacy disks mounted twice on a node."""

from __future__ import annotations

from rebalancer.engine.plugins.plugin import UNRESOLVABLE, UNSCHEDULABLE, Filter, Plugin, Rejection
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.state.storage import DISKS, not_found
from rebalancer.engine.version import CLAIM_IN_USE_REASON
from rebalancer.model.pod import PodTemplate, Volume
from rebalancer.spread.arrays import Bools

DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
    "another pod"
)
IN_USE_BEFORE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


class VolumeRestrictions(Plugin):
    """Rule: plugins/volumerestrictions/volume_restrictions.go."""

    name = "VolumeRestrictions"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects where a volume of the pod is taken."""
        return _Filter(self.state, template) if template.volumes else None


def conflict(a: Volume, b: Volume) -> bool:
    """Whether two legacy volumes are one disk that they may not share: only readers share, EBS never."""
    if a.kind != b.kind or not (a.device and b.device):
        return False
    if a.kind == "rbd":
        # ("rbd", pool, image, *monitors): one common monitor is enough.
        same = a.device[:3] == b.device[:3] and not set(a.device[3:]).isdisjoint(b.device[3:])
    else:
        same = a.device == b.device
    return same and (a.kind == "awsElasticBlockStore" or not (a.read_only and b.read_only))


class _Filter(Filter):
    rowwise = False

    def __init__(self, state: ClusterState, template: PodTemplate) -> None:
        self._state = state
        self._disks = tuple(v for v in template.volumes if v.kind in DISKS)
        self._exclusive: list[str] = []
        for volume in template.volumes:
            if volume.kind != "persistentVolumeClaim" or not state.storage.known:
                continue
            claim = state.storage.claim(template.namespace, volume.claim)
            if claim is None:
                self.blocked = Rejection("VolumeRestrictions", UNRESOLVABLE, (not_found(volume.claim),))
                return
            if "ReadWriteOncePod" in claim.spec.access_modes:
                self._exclusive.append(f"{template.namespace}/{volume.claim}")

    @property
    def skipped(self) -> bool:  # type: ignore[override]
        """No legacy disk, and no exclusive claim in use."""
        return not self._disks and not self._in_use()

    def _in_use(self) -> bool:
        return any(c in self._state.volumes.claims for c in self._exclusive)

    def _free(self) -> Bools:
        """bool[N]: nodes without a conflicting disk."""
        free = self._state.table.every.copy()
        for held, rows in self._state.volumes.disks.items():
            if any(conflict(wanted, held) for wanted in self._disks):
                free[list(rows)] = False
        return free

    def mask(self) -> Bools:
        return self._state.table.none if self._in_use() else self._free()

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        in_use = IN_USE if self._state.version.has(CLAIM_IN_USE_REASON) else IN_USE_BEFORE
        return UNSCHEDULABLE, (in_use if self._free()[row] else DISK,)
