"""JSON of a pod's volume → `Volume`."""

from __future__ import annotations

from rebalancer.model.decode.pod_json import VolumeJson, absent
from rebalancer.model.pod import Volume


def decode_volume(wire: VolumeJson, pod_name: str, pod_uid: str) -> Volume | None:
    """The volume, if it matters to the scheduler or to policy; None for secrets and the like.

    `pod_name`, `pod_uid`: of the pod that it is in, "" for a pod that does not exist yet.
    """
    if (claim := wire.persistent_volume_claim) is not None:
        return Volume(
            wire.name,
            "persistentVolumeClaim",
            claim=str(claim.get("claimName", "")),
            read_only=bool(claim.get("readOnly")),
        )
    if not absent(wire.ephemeral):
        claim_name = f"{pod_name}-{wire.name}" if pod_name else ""
        return Volume(wire.name, "ephemeral", claim=claim_name, owner=pod_uid)
    if not absent(wire.host_path):
        return Volume(wire.name, "hostPath")
    if not absent(wire.empty_dir):
        return Volume(wire.name, "emptyDir")
    if (csi := wire.csi) is not None:
        return Volume(
            wire.name, "csi", driver=str(csi.get("driver", "")), read_only=bool(csi.get("readOnly"))
        )
    if (image := wire.image) is not None:
        return Volume(wire.name, "image", image=str(image.get("reference", "")))
    for kind, source, fields in (
        ("gcePersistentDisk", wire.gce_persistent_disk, ("pdName",)),
        ("awsElasticBlockStore", wire.aws_elastic_block_store, ("volumeID",)),
        ("azureDisk", wire.azure_disk, ("diskName",)),
        ("iscsi", wire.iscsi, ("iqn",)),
        ("rbd", wire.rbd, ("pool", "image")),
    ):
        if source is not None:
            device: tuple[str, ...] = (kind, *(str(source.get(f, "")) for f in fields))
            if kind == "rbd":
                monitors = source.get("monitors")
                device += tuple(map(str, monitors)) if isinstance(monitors, list) else ()
            return Volume(wire.name, kind, device=device, read_only=bool(source.get("readOnly")))
    return None
