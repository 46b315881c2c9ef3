"""Claims, volumes and classes of one cluster, looked up as the volume plugins do.

Rules: k8s.io/component-helpers/storage/volume (pv_helpers.go, helpers.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from rebalancer.model.node import ObjectMeta
from rebalancer.model.pod import PodTemplate, Volume
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.storage import PersistentVolume, PersistentVolumeClaim
from rebalancer.spread.arrays import Columns

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
WAIT = "WaitForFirstConsumer"
NO_PROVISIONER = frozenset({"", "kubernetes.io/no-provisioner"})

IN_TREE = {
    "awsElasticBlockStore": "kubernetes.io/aws-ebs",
    "gcePersistentDisk": "kubernetes.io/gce-pd",
    "azureDisk": "kubernetes.io/azure-disk",
    "cinder": "kubernetes.io/cinder",
    "portworxVolume": "kubernetes.io/portworx-volume",
}
"""The plugins of disks that are written into pods and PersistentVolumes. Every supported kubelet has them
migrated (GA by 1.25), but for Portworx by 1.31: that its disks are counted before keeps a pod away at worst.

Rule: nodevolumelimits/utils.go, ``isCSIMigrationOn``.
"""
IN_TREE_DRIVERS = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""The CSI drivers that took over in-tree plugins (CSI migration)."""


class Storage:
    """The storage objects of a snapshot. `known`: claims were read at all."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Kinds that were not read are unknown, not absent."""
        self._snapshot = snapshot
        self.known = reads(snapshot, "PersistentVolumeClaim")
        self.volumes_known = reads(snapshot, "PersistentVolume")
        self.classes = snapshot.storage_classes
        self.drivers = snapshot.csi_drivers
        self.capacities = snapshot.csi_capacities
        self.csi_nodes = snapshot.csi_nodes
        drivers = (d for n in self.csi_nodes.values() for d in n.spec.drivers)
        self.limited = frozenset(d.name for d in drivers if d.limit is not None)
        self.by_class: dict[str, list[PersistentVolume]] = {}
        for volume in snapshot.volumes.values():
            self.by_class.setdefault(volume_class(volume), []).append(volume)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """The claim, if it exists."""
        return self._snapshot.claims.get(f"{namespace}/{name}")

    def claim_of(self, namespace: str, volume: Volume) -> PersistentVolumeClaim | None:
        """The claim that a volume stands for; one that is made anew has no volume, and none waits for it."""
        found = self.claim(namespace, volume.claim)
        if found is None or not volume.anew:
            return found
        kept = {k: v for k, v in found.metadata.annotations.items() if k == BETA_CLASS}
        metadata = ObjectMeta(name="", namespace=namespace, annotations=kept)
        return PersistentVolumeClaim(metadata, replace(found.spec, volume_name=""))

    def volume(self, name: str) -> PersistentVolume | None:
        """The volume, if it exists."""
        return self._snapshot.volumes.get(name)

    def waits(self, claim: PersistentVolumeClaim) -> bool:
        """Whether the claim is bound only when a pod needs it."""
        found = self.classes.get(claim_class(claim))
        return found is not None and found.volume_binding_mode == WAIT

    def takes_room(self, claim: PersistentVolumeClaim) -> bool:
        """Whether its driver makes a volume for it only where a CSIStorageCapacity says that there is room.

        Rule: volumebinding/binder.go, ``hasEnoughCapacity``.
        """
        found = self.classes.get(claim_class(claim))
        driver = self.drivers.get(found.provisioner) if found is not None else None
        reports = driver is not None and driver.spec.storage_capacity
        return reports and "storage" in claim.spec.resources.requests

    def scarce(self, claim: PersistentVolumeClaim) -> bool:
        """Whether what would serve the claim may serve no other one: what a plan takes is not counted."""
        found = self.classes.get(claim_class(claim))
        return found is None or found.provisioner in NO_PROVISIONER or self.takes_room(claim)

    def attachments(self, template: PodTemplate) -> dict[str, set[tuple[str, str]]]:
        """Driver → what of it the pod's volumes attach to its node: see `attachment`."""
        found: dict[str, set[tuple[str, str]]] = {}
        for attachment in self.attaching(template):
            found.setdefault(attachment[0], set()).add(attachment)
        return found

    def attaching(self, template: PodTemplate) -> Iterator[tuple[str, str]]:
        """The same, volume by volume. Rule: nodevolumelimits/csi.go, ``filterAttachableVolumes``."""
        for volume in claim_volumes(template):
            attachment = self._attachment(template.namespace, volume)
            if attachment is not None:
                yield attachment
        for volume in template.volumes:
            if volume.kind in IN_TREE:
                yield IN_TREE_DRIVERS[IN_TREE[volume.kind]], "/".join(volume.device)

    def has_driver(self, node: str, driver: str) -> bool:
        """Whether a node has a driver: a kubelet makes a CSINode before its node is Ready."""
        found = self.csi_nodes.get(node)
        return found is not None and any(d.name == driver for d in found.spec.drivers)

    def wants_driver(self, driver: str) -> bool:
        """Whether pods with volumes of a driver shall not go to nodes that do not have it."""
        found = self.drivers.get(driver)
        return found is not None and bool(found.spec.prevent_pod_scheduling_if_missing)

    def _attachment(self, namespace: str, mounted: Volume) -> tuple[str, str] | None:
        """(driver, handle) of what attaching the claim takes on a node; None where nothing is counted."""
        claim = self.claim_of(namespace, mounted)
        if claim is None:
            return None
        volume = self.volume(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is None:
            found = self.classes.get(claim_class(claim))
            if found is None or not found.provisioner:
                return None
            driver = IN_TREE_DRIVERS.get(found.provisioner, found.provisioner)
            return driver, f"{namespace}/{mounted.claim}"
        spec = volume.spec
        if spec.csi is not None:
            return (spec.csi.driver, spec.csi.volume_handle) if spec.csi.volume_handle else None
        return (IN_TREE_DRIVERS[IN_TREE[spec.in_tree]], volume.metadata.name) if spec.in_tree else None


def reads(snapshot: Snapshot, kind: str) -> bool:
    """Whether the snapshot's source was asked for a kind; a snapshot that names no kinds is complete."""
    return not snapshot.kinds or kind in snapshot.kinds


def claim_class(claim: PersistentVolumeClaim) -> str:
    """The claim's class, "" where it has none."""
    return claim.metadata.annotations.get(BETA_CLASS, claim.spec.storage_class_name or "")


def volume_class(volume: PersistentVolume) -> str:
    """The volume's class, "" where it has none."""
    return volume.metadata.annotations.get(BETA_CLASS, volume.spec.storage_class_name)


def fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Bound, and the controller has said so."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def claim_volumes(template: PodTemplate) -> Iterator[Volume]:
    """The pod's volumes that stand for claims; its ephemeral ones, once it has a name to name them by."""
    return (
        v
        for v in template.volumes
        if v.kind == "persistentVolumeClaim" or (v.kind == "ephemeral" and v.claim)
    )


def owned(claim: PersistentVolumeClaim, volume: Volume) -> bool:
    """Whether an ephemeral volume's claim was made for its pod, and not for another or by hand.

    Rule: k8s.io/component-helpers/storage/ephemeral, ``VolumeIsForPod``.
    """
    if volume.kind != "ephemeral" or not volume.owner:
        return True
    controller = claim.metadata.controller
    return controller is not None and controller.uid == volume.owner


def not_owned(volume: Volume, namespace: str) -> str:
    """What the scheduler says of an ephemeral volume's claim that is not its pod's."""
    pod = volume.claim.removesuffix(f"-{volume.name}")
    return f"PVC {namespace}/{volume.claim} was not created for pod {namespace}/{pod} (pod is not owner)"


def not_found(name: str) -> str:
    """What the API says of a claim that does not exist."""
    return f'persistentvolumeclaim "{name}" not found'


# Volumes in use by placed pods: claims, attachments by node and driver, legacy disks by node.

K = TypeVar("K")

DISKS = frozenset({"gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"})
"""Legacy volumes that VolumeRestrictions looks at."""


class VolumeUse:
    """`claims`: pods that mount a claim ("namespace/name"), anywhere. `attached[driver]`: int64[N], unique
    volumes of a driver. `holders[(driver, handle)]`: pods that have the volume, by node. `disks[volume]`:
    pods that mount a legacy disk, by node. `left`: volumes that are attached to a node (row) without a pod
    there, and their number, `left_over[driver]`: int64[N]."""

    def __init__(self, storage: Storage, size: int) -> None:
        """No volumes on `size` nodes."""
        self._storage = storage
        self.claims: dict[str, int] = {}
        self.attached: Columns[str] = Columns(size)
        self.holders: dict[tuple[str, str], dict[int, int]] = {}
        self.disks: dict[Volume, dict[int, int]] = {}
        self.left: frozenset[tuple[tuple[str, str], int]] = frozenset()
        self.left_over: Columns[str] = Columns(size)

    def copy(self) -> VolumeUse:
        """An independent copy."""
        other = VolumeUse.__new__(VolumeUse)
        other._storage = self._storage
        other.claims = dict(self.claims)
        other.attached = self.attached.copy()
        other.holders = {k: dict(v) for k, v in self.holders.items()}
        other.disks = {k: dict(v) for k, v in self.disks.items()}
        other.left = self.left
        other.left_over = self.left_over.copy()
        return other

    def hold(self, template: PodTemplate, row: int, sign: int) -> None:
        """A pod takes (`sign` 1) or gives up (-1) its volumes on a node."""
        for volume in claim_volumes(template):
            if volume.kind == "persistentVolumeClaim":
                _count(self.claims, f"{template.namespace}/{volume.claim}", sign)
        for attachment in self._storage.attaching(template):
            rows = self.holders.setdefault(attachment, {})
            before = row in rows
            _count(rows, row, sign)
            if before != (row in rows):
                self.attached.add(attachment[0], row, sign)
                if (attachment, row) in self.left:
                    self.left_over.add(attachment[0], row, -sign)
        for volume in template.volumes:
            if volume.kind in DISKS:
                _count(self.disks.setdefault(volume, {}), row, sign)

    def attach(self, every: Iterable[tuple[tuple[str, str], int]]) -> set[int]:
        """These are attached now, each to a node (row); the nodes on which others are left than before."""
        left = frozenset((a, row) for a, row in every if row not in self.holders.get(a, ()))
        changed = {row for _, row in left ^ self.left}
        self.left, self.left_over = left, Columns(self.left_over.size)
        for (driver, _), row in left:
            self.left_over.add(driver, row, 1)
        return changed


def _count(counter: dict[K, int], key: K, amount: int) -> None:
    count = counter.get(key, 0) + amount
    if count:
        counter[key] = count
    else:
        del counter[key]
