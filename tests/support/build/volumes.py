"""Builders of bound claims and their volumes, and of what says how many a node takes and has."""

from __future__ import annotations

from tests.support.build.base import KEYS, Builder


def volume(name: str, claimed_by: str, *, zone: str = "", namespace: str = "default") -> Builder:
    """A bound CSI volume, reachable from one zone, or from everywhere."""
    built = Builder("v1", "PersistentVolume", name, namespace="")
    built.object["spec"] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "zonal",
        "claimRef": {"namespace": namespace, "name": claimed_by},
        "csi": {"driver": "csi.example", "volumeHandle": name},
    }
    if zone:
        term = {"matchExpressions": [{"key": KEYS["zone"], "operator": "In", "values": [zone]}]}
        built.object["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    built.object["status"] = {"phase": "Bound"}
    return built


def claim(name: str, volume_name: str, *, namespace: str = "default") -> Builder:
    """A claim bound to a volume."""
    built = Builder("v1", "PersistentVolumeClaim", name, namespace=namespace)
    built.object["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    built.object["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "zonal",
        "volumeName": volume_name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    built.object["status"] = {"phase": "Bound"}
    return built


def csi_node(name: str, count: int | None = None, *, driver: str = "csi.example") -> Builder:
    """A driver on a node, that may limit how many of its volumes the node takes."""
    built = Builder("storage.k8s.io/v1", "CSINode", name, namespace="")
    limit = {} if count is None else {"allocatable": {"count": count}}
    built.object["spec"] = {"drivers": [{"name": driver, "nodeID": name, **limit}]}
    return built


def attachment(volume_name: str, node_name: str, *, driver: str = "csi.example") -> Builder:
    """A volume that is attached to a node, or on its way from or to it."""
    built = Builder("storage.k8s.io/v1", "VolumeAttachment", f"csi-{volume_name}-{node_name}", namespace="")
    source = {"persistentVolumeName": volume_name}
    built.object["spec"] = {"attacher": driver, "nodeName": node_name, "source": source}
    return built
