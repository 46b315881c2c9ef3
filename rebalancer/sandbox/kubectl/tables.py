"""The columns that `kubectl get` shows: printers of the server, for the kinds that people look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rebalancer.sandbox.api.objects import Object
from rebalancer.sandbox.api.resources import Resource
from rebalancer.sandbox.kubectl import cells
from rebalancer.sandbox.kubectl.cells import Cell


@dataclass(frozen=True, slots=True)
class Column:
    """`wide` columns show with -o wide only (priority 1)."""

    name: str
    cell: Cell
    type: str = "string"
    wide: bool = False


class Layout:
    """The columns of one kind."""

    def __init__(self, *columns: Column) -> None:
        self.columns = (Column("Name", cells.name), *columns)

    def definitions(self) -> list[dict[str, Any]]:
        """Without the server's descriptions, which repeat the API reference."""
        return [
            {
                "name": column.name,
                "type": column.type,
                "format": "name" if column.name == "Name" else "",
                "description": "",
                "priority": int(column.wide),
            }
            for column in self.columns
        ]

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [column.cell(obj, now) for column in self.columns]


_AGE = Column("Age", cells.age)
_IMAGES = (
    Column("Containers", cells.template("name"), wide=True),
    Column("Images", cells.template("image"), wide=True),
)
_SELECTOR = Column("Selector", cells.selector, wide=True)
_INFO = ("status", "nodeInfo")


def _status(field: str) -> Cell:
    return cells.at("status", field, default=0)


_LAYOUTS: dict[str, Layout] = {
    "pods": Layout(
        Column("Ready", cells.pod_ready),
        Column("Status", cells.pod_status),
        Column("Restarts", cells.pod_restarts),
        _AGE,
        Column("IP", cells.at("status", "podIP"), wide=True),
        Column("Node", cells.at("spec", "nodeName"), wide=True),
        Column("Nominated Node", cells.at("status", "nominatedNodeName"), wide=True),
        Column("Readiness Gates", cells.pod_gates, wide=True),
    ),
    "nodes": Layout(
        Column("Status", cells.node_status),
        Column("Roles", cells.node_roles),
        _AGE,
        Column("Version", cells.at(*_INFO, "kubeletVersion", default="")),
        Column("Internal-IP", cells.node_address("InternalIP"), wide=True),
        Column("External-IP", cells.node_address("ExternalIP"), wide=True),
        Column("OS-Image", cells.at(*_INFO, "osImage", default="<unknown>"), wide=True),
        Column("Kernel-Version", cells.at(*_INFO, "kernelVersion", default="<unknown>"), wide=True),
        Column(
            "Container-Runtime", cells.at(*_INFO, "containerRuntimeVersion", default="<unknown>"), wide=True
        ),
    ),
    "namespaces": Layout(Column("Status", cells.at("status", "phase")), _AGE),
    "services": Layout(
        Column("Type", cells.at("spec", "type")),
        Column("Cluster-IP", cells.at("spec", "clusterIP")),
        Column("External-IP", cells.at("spec", "externalName")),
        Column("Port(s)", cells.ports),
        _AGE,
        _SELECTOR,
    ),
    "configmaps": Layout(Column("Data", cells.count("data")), _AGE),
    "events": Layout(
        Column("Last Seen", cells.event_seen),
        Column("Type", cells.at("type", default="")),
        Column("Reason", cells.at("reason", default="")),
        Column("Object", cells.event_object),
        Column("Source", cells.at("reportingComponent", default=""), wide=True),
        Column("Message", cells.at("message", default="")),
    ),
    "persistentvolumes": Layout(
        Column("Capacity", cells.at("spec", "capacity", "storage", default="")),
        Column("Access Modes", cells.access),
        Column("Reclaim Policy", cells.at("spec", "persistentVolumeReclaimPolicy", default="")),
        Column("Status", cells.at("status", "phase", default="")),
        Column("Claim", cells.claim),
        Column("StorageClass", cells.at("spec", "storageClassName", default="")),
        _AGE,
    ),
    "persistentvolumeclaims": Layout(
        Column("Status", cells.at("status", "phase", default="")),
        Column("Volume", cells.at("spec", "volumeName", default="")),
        Column("Capacity", cells.at("status", "capacity", "storage", default="")),
        Column("Access Modes", cells.access),
        Column("StorageClass", cells.at("spec", "storageClassName", default="")),
        _AGE,
    ),
    "deployments.apps": Layout(
        Column("Ready", cells.fraction(("status", "readyReplicas"), ("spec", "replicas"))),
        Column("Up-to-date", _status("updatedReplicas"), "integer"),
        Column("Available", _status("availableReplicas"), "integer"),
        _AGE,
        *_IMAGES,
        _SELECTOR,
    ),
    "replicasets.apps": Layout(
        Column("Desired", cells.at("spec", "replicas", default=0), "integer"),
        Column("Current", _status("replicas"), "integer"),
        Column("Ready", _status("readyReplicas"), "integer"),
        _AGE,
        *_IMAGES,
        _SELECTOR,
    ),
    "statefulsets.apps": Layout(
        Column("Ready", cells.fraction(("status", "readyReplicas"), ("spec", "replicas"))), _AGE, *_IMAGES
    ),
    "daemonsets.apps": Layout(
        Column("Desired", _status("desiredNumberScheduled"), "integer"),
        Column("Current", _status("currentNumberScheduled"), "integer"),
        Column("Ready", _status("numberReady"), "integer"),
        _AGE,
        *_IMAGES,
        _SELECTOR,
    ),
    "jobs.batch": Layout(
        Column("Status", cells.job_status),
        Column("Completions", cells.fraction(("status", "succeeded"), ("spec", "completions"))),
        _AGE,
        *_IMAGES,
    ),
    "poddisruptionbudgets.policy": Layout(
        Column("Min Available", cells.at("spec", "minAvailable", default="N/A")),
        Column("Max Unavailable", cells.at("spec", "maxUnavailable", default="N/A")),
        Column("Allowed Disruptions", _status("disruptionsAllowed"), "integer"),
        _AGE,
    ),
    "priorityclasses.scheduling.k8s.io": Layout(
        Column("Value", cells.at("value", default=0), "integer"),
        Column("Global-Default", cells.at("globalDefault", default=False), "boolean"),
        _AGE,
        Column("PreemptionPolicy", cells.at("preemptionPolicy", default="")),
    ),
    "storageclasses.storage.k8s.io": Layout(
        Column("Provisioner", cells.at("provisioner", default="")),
        Column("ReclaimPolicy", cells.at("reclaimPolicy", default="Delete")),
        Column("VolumeBindingMode", cells.at("volumeBindingMode", default="Immediate")),
        _AGE,
    ),
    "leases.coordination.k8s.io": Layout(
        Column("Holder", cells.at("spec", "holderIdentity", default="")), _AGE
    ),
}
_PLAIN = Layout(_AGE)


def layout(resource: Resource) -> Layout:
    return _LAYOUTS.get(resource.storage, _PLAIN)
