"""Volumes, claims, storage classes, and what CSI drivers say about nodes and capacity."""

from __future__ import annotations

from msgspec import Struct, field

from rebalancer.model.node import ObjectMeta
from rebalancer.model.selectors import LabelSelector, NodeSelector


class ObjectReference(Struct, frozen=True, rename="camel", eq=False):
    """A reference to an object, here to a claim."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class VolumeNodeAffinity(Struct, frozen=True, rename="camel", eq=False):
    """Which nodes reach the volume."""

    required: NodeSelector | None = None


class CSIVolumeSource(Struct, frozen=True, rename="camel", eq=False):
    """A CSI volume."""

    driver: str = ""
    volume_handle: str = ""


class HostPathSource(Struct, frozen=True, rename="camel", eq=False):
    """A directory of the node; "" = of any type."""

    type: str = ""


class PersistentVolumeSpec(Struct, frozen=True, rename="camel", eq=False):
    """Volume spec; quantities as written. The sources of legacy in-tree disks are kept as written."""

    capacity: dict[str, str | int | float] = {}
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None
    host_path: HostPathSource | None = None
    gce_persistent_disk: dict[str, object] | None = field(name="gcePersistentDisk", default=None)
    aws_elastic_block_store: dict[str, object] | None = field(name="awsElasticBlockStore", default=None)
    azure_disk: dict[str, object] | None = field(name="azureDisk", default=None)
    cinder: dict[str, object] | None = None
    portworx_volume: dict[str, object] | None = field(name="portworxVolume", default=None)

    @property
    def in_tree(self) -> str:
        """The field that names a disk of an in-tree plugin, "" where none does."""
        disks = {
            "gcePersistentDisk": self.gce_persistent_disk,
            "awsElasticBlockStore": self.aws_elastic_block_store,
            "azureDisk": self.azure_disk,
            "cinder": self.cinder,
            "portworxVolume": self.portworx_volume,
        }
        return next((name for name, source in disks.items() if source is not None), "")


class PhaseStatus(Struct, frozen=True, rename="camel", eq=False):
    """A status of which only the phase matters."""

    phase: str = ""


class PersistentVolume(Struct, frozen=True, rename="camel", eq=False):
    """v1 PersistentVolume."""

    metadata: ObjectMeta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PhaseStatus = PhaseStatus()


class VolumeResources(Struct, frozen=True, rename="camel", eq=False):
    """What a claim asks for; quantities as written."""

    requests: dict[str, str | int | float] = {}


class PersistentVolumeClaimSpec(Struct, frozen=True, rename="camel", eq=False):
    """Claim spec; `storage_class_name` None = the default class, "" = none."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    resources: VolumeResources = VolumeResources()
    selector: LabelSelector | None = None


class PersistentVolumeClaim(Struct, frozen=True, rename="camel", eq=False):
    """v1 PersistentVolumeClaim."""

    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PhaseStatus = PhaseStatus()


class TopologySelectorRequirement(Struct, frozen=True, rename="camel", eq=False):
    """A label and its admitted values."""

    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Struct, frozen=True, rename="camel", eq=False):
    """Requirements that must all hold."""

    match_label_expressions: tuple[TopologySelectorRequirement, ...] = ()


class StorageClass(Struct, frozen=True, rename="camel", eq=False):
    """storage.k8s.io/v1 StorageClass."""

    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(Struct, frozen=True, rename="camel", eq=False):
    """How many volumes a driver attaches to a node; None = no limit."""

    count: int | None = None


class CSINodeDriver(Struct, frozen=True, rename="camel", eq=False):
    """A driver on a node."""

    name: str
    allocatable: VolumeNodeResources | None = None

    @property
    def limit(self) -> int | None:
        """How many of its volumes the node takes; None = no limit."""
        return self.allocatable.count if self.allocatable is not None else None


class CSINodeSpec(Struct, frozen=True, rename="camel", eq=False):
    """CSINode spec."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Struct, frozen=True, rename="camel", eq=False):
    """storage.k8s.io/v1 CSINode; its name is the node's."""

    metadata: ObjectMeta
    spec: CSINodeSpec = CSINodeSpec()


class VolumeAttachmentSource(Struct, frozen=True, rename="camel", eq=False):
    """What is attached; "" for a volume that is written into a pod."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Struct, frozen=True, rename="camel", eq=False):
    """VolumeAttachment spec; `attacher` is the driver."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachmentStatus(Struct, frozen=True, eq=False):
    """VolumeAttachment status; `attached` is required."""

    attached: bool = True


class VolumeAttachment(Struct, frozen=True, rename="camel", eq=False):
    """storage.k8s.io/v1 VolumeAttachment: there until the volume is detached from the node."""

    metadata: ObjectMeta
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


class CSIDriverSpec(Struct, frozen=True, rename="camel", eq=False):
    """CSIDriver spec."""

    storage_capacity: bool = False
    attach_required: bool = True
    prevent_pod_scheduling_if_missing: bool = False


class CSIDriver(Struct, frozen=True, rename="camel", eq=False):
    """storage.k8s.io/v1 CSIDriver."""

    metadata: ObjectMeta
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Struct, frozen=True, rename="camel", eq=False):
    """storage.k8s.io/v1 CSIStorageCapacity; quantities as written."""

    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None
