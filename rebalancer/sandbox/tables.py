"""The columns that `kubectl get` shows: printers of the server, for the kinds that people look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rebalancer.sandbox.objects import Object, seconds_of
from rebalancer.sandbox.resources import Resource

Cell = Callable[[Object, float], Any]


def age(seconds: float) -> str:
    """As apimachinery's HumanDuration: two units while the first is small."""
    total = int(seconds)
    if total < 0:
        return "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y{days % 365}d"


def _since(text: str | None, now: float) -> str:
    return age(now - seconds_of(text)) if text else "<unknown>"


def _at(*path: str, default: Any = "<none>") -> Cell:
    def cell(obj: Object, now: float) -> Any:
        del now
        found: Any = obj
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        return default if found is None or found == "" else found

    return cell


def _name(obj: Object, now: float) -> str:
    del now
    return str(obj["metadata"]["name"])


def _age(obj: Object, now: float) -> str:
    return _since(obj["metadata"].get("creationTimestamp"), now)


def _statuses(pod: Object) -> list[dict[str, Any]]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def _pod_ready(pod: Object, now: float) -> str:
    del now
    ready = sum(bool(status.get("ready")) for status in _statuses(pod))
    return f"{ready}/{len((pod.get('spec') or {}).get('containers') or ())}"


def _pod_status(pod: Object, now: float) -> str:
    del now
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    if any(c.get("reason") == "SchedulingGated" for c in status.get("conditions") or ()):
        reason = "SchedulingGated"
    for container in reversed(_statuses(pod)):
        state = container.get("state") or {}
        for which in ("waiting", "terminated"):
            if (state.get(which) or {}).get("reason"):
                reason = state[which]["reason"]
    return "Terminating" if "deletionTimestamp" in pod["metadata"] else str(reason)


def _pod_restarts(pod: Object, now: float) -> str:
    del now
    return str(sum(int(status.get("restartCount", 0)) for status in _statuses(pod)))


def _pod_gates(pod: Object, now: float) -> str:
    del now
    gates = (pod.get("spec") or {}).get("readinessGates")
    if not gates:
        return "<none>"
    true = {c["type"] for c in (pod.get("status") or {}).get("conditions") or () if c.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in true for gate in gates)}/{len(gates)}"


def _node_status(node: Object, now: float) -> str:
    del now
    ready = [c for c in (node.get("status") or {}).get("conditions") or () if c.get("type") == "Ready"]
    words = ["Unknown" if not ready else "Ready" if ready[0].get("status") == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Object, now: float) -> str:
    del now
    prefix = "node-role.kubernetes.io/"
    roles = sorted(
        k.removeprefix(prefix) for k in node["metadata"].get("labels") or {} if k.startswith(prefix)
    )
    return ",".join(roles) or "<none>"


def _node_address(kind: str) -> Cell:
    def cell(node: Object, now: float) -> str:
        del now
        found = (
            a["address"] for a in (node.get("status") or {}).get("addresses") or () if a.get("type") == kind
        )
        return next(found, "<none>")

    return cell


def _fraction(above: Sequence[str], below: Sequence[str]) -> Cell:
    top, bottom = _at(*above, default=0), _at(*below, default=0)
    return lambda obj, now: f"{top(obj, now)}/{bottom(obj, now)}"


def _selector(obj: Object, now: float) -> str:
    del now
    selector = (obj.get("spec") or {}).get("selector") or {}
    labels = selector.get("matchLabels", selector)
    return ",".join(f"{k}={v}" for k, v in sorted(labels.items()) if isinstance(v, str)) or "<none>"


def _template(field: str) -> Cell:
    def cell(obj: Object, now: float) -> str:
        del now
        template = (obj.get("spec") or {}).get("template") or {}
        containers = (template.get("spec") or {}).get("containers") or ()
        return ",".join(str(container.get(field, "")) for container in containers)

    return cell


def _job_status(job: Object, now: float) -> str:
    del now
    for found in (job.get("status") or {}).get("conditions") or ():
        if found.get("status") == "True" and found.get("type") in ("Complete", "Failed"):
            return str(found["type"])
    return "Running"


def _ports(service: Object, now: float) -> str:
    del now
    ports = (service.get("spec") or {}).get("ports") or ()
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def _event_object(event: Object, now: float) -> str:
    del now
    involved = event.get("involvedObject") or {}
    return f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"


def _event_seen(event: Object, now: float) -> str:
    return _since(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp"), now)


def _count(field: str) -> Cell:
    return lambda obj, now: str(len(obj.get(field) or ()))  # noqa: ARG005


def _access(obj: Object, now: float) -> str:
    del now
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return ",".join(short.get(mode, mode) for mode in (obj.get("spec") or {}).get("accessModes") or ())


def _claim(volume: Object, now: float) -> str:
    del now
    claim = (volume.get("spec") or {}).get("claimRef") or {}
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


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
        self.columns = (Column("Name", _name), *columns)

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


_AGE = Column("Age", _age)
_IMAGES = (
    Column("Containers", _template("name"), wide=True),
    Column("Images", _template("image"), wide=True),
)
_SELECTOR = Column("Selector", _selector, wide=True)
_INFO = ("status", "nodeInfo")


def _status(field: str) -> Cell:
    return _at("status", field, default=0)


_LAYOUTS: dict[str, Layout] = {
    "pods": Layout(
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        _AGE,
        Column("IP", _at("status", "podIP"), wide=True),
        Column("Node", _at("spec", "nodeName"), wide=True),
        Column("Nominated Node", _at("status", "nominatedNodeName"), wide=True),
        Column("Readiness Gates", _pod_gates, wide=True),
    ),
    "nodes": Layout(
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _at(*_INFO, "kubeletVersion", default="")),
        Column("Internal-IP", _node_address("InternalIP"), wide=True),
        Column("External-IP", _node_address("ExternalIP"), wide=True),
        Column("OS-Image", _at(*_INFO, "osImage", default="<unknown>"), wide=True),
        Column("Kernel-Version", _at(*_INFO, "kernelVersion", default="<unknown>"), wide=True),
        Column("Container-Runtime", _at(*_INFO, "containerRuntimeVersion", default="<unknown>"), wide=True),
    ),
    "namespaces": Layout(Column("Status", _at("status", "phase")), _AGE),
    "services": Layout(
        Column("Type", _at("spec", "type")),
        Column("Cluster-IP", _at("spec", "clusterIP")),
        Column("External-IP", _at("spec", "externalName")),
        Column("Port(s)", _ports),
        _AGE,
        _SELECTOR,
    ),
    "configmaps": Layout(Column("Data", _count("data")), _AGE),
    "events": Layout(
        Column("Last Seen", _event_seen),
        Column("Type", _at("type", default="")),
        Column("Reason", _at("reason", default="")),
        Column("Object", _event_object),
        Column("Source", _at("reportingComponent", default=""), wide=True),
        Column("Message", _at("message", default="")),
    ),
    "persistentvolumes": Layout(
        Column("Capacity", _at("spec", "capacity", "storage", default="")),
        Column("Access Modes", _access),
        Column("Reclaim Policy", _at("spec", "persistentVolumeReclaimPolicy", default="")),
        Column("Status", _at("status", "phase", default="")),
        Column("Claim", _claim),
        Column("StorageClass", _at("spec", "storageClassName", default="")),
        _AGE,
    ),
    "persistentvolumeclaims": Layout(
        Column("Status", _at("status", "phase", default="")),
        Column("Volume", _at("spec", "volumeName", default="")),
        Column("Capacity", _at("status", "capacity", "storage", default="")),
        Column("Access Modes", _access),
        Column("StorageClass", _at("spec", "storageClassName", default="")),
        _AGE,
    ),
    "deployments.apps": Layout(
        Column("Ready", _fraction(("status", "readyReplicas"), ("spec", "replicas"))),
        Column("Up-to-date", _status("updatedReplicas"), "integer"),
        Column("Available", _status("availableReplicas"), "integer"),
        _AGE,
        *_IMAGES,
        _SELECTOR,
    ),
    "replicasets.apps": Layout(
        Column("Desired", _at("spec", "replicas", default=0), "integer"),
        Column("Current", _status("replicas"), "integer"),
        Column("Ready", _status("readyReplicas"), "integer"),
        _AGE,
        *_IMAGES,
        _SELECTOR,
    ),
    "statefulsets.apps": Layout(
        Column("Ready", _fraction(("status", "readyReplicas"), ("spec", "replicas"))), _AGE, *_IMAGES
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
        Column("Status", _job_status),
        Column("Completions", _fraction(("status", "succeeded"), ("spec", "completions"))),
        _AGE,
        *_IMAGES,
    ),
    "poddisruptionbudgets.policy": Layout(
        Column("Min Available", _at("spec", "minAvailable", default="N/A")),
        Column("Max Unavailable", _at("spec", "maxUnavailable", default="N/A")),
        Column("Allowed Disruptions", _status("disruptionsAllowed"), "integer"),
        _AGE,
    ),
    "priorityclasses.scheduling.k8s.io": Layout(
        Column("Value", _at("value", default=0), "integer"),
        Column("Global-Default", _at("globalDefault", default=False), "boolean"),
        _AGE,
        Column("PreemptionPolicy", _at("preemptionPolicy", default="")),
    ),
    "storageclasses.storage.k8s.io": Layout(
        Column("Provisioner", _at("provisioner", default="")),
        Column("ReclaimPolicy", _at("reclaimPolicy", default="Delete")),
        Column("VolumeBindingMode", _at("volumeBindingMode", default="Immediate")),
        _AGE,
    ),
    "leases.coordination.k8s.io": Layout(Column("Holder", _at("spec", "holderIdentity", default="")), _AGE),
}
_PLAIN = Layout(_AGE)


def layout(resource: Resource) -> Layout:
    return _LAYOUTS.get(resource.storage, _PLAIN)
