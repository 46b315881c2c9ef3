"""The columns that `kubectl get` shows: printers of the server, for the kinds that people look at."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from rebalancer.sandbox.objects import Object, seconds_of
from rebalancer.sandbox.resources import GROUPS, RESOURCES, Resource, Subresource, unknown_path

# Cells of `kubectl get`: each takes an object and the time, and says one thing about it.

Cell = Callable[[Object, float], Any]


def duration(seconds: float) -> str:
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


def since(text: str | None, now: float) -> str:
    return duration(now - seconds_of(text)) if text else "<unknown>"


def at(*path: str, default: Any = "<none>") -> Cell:
    def cell(obj: Object, now: float) -> Any:
        del now
        found: Any = obj
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        return default if found is None or found == "" else found

    return cell


def name(obj: Object, now: float) -> str:
    del now
    return str(obj["metadata"]["name"])


def age(obj: Object, now: float) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


def statuses(pod: Object) -> list[dict[str, Any]]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def pod_ready(pod: Object, now: float) -> str:
    del now
    ready = sum(bool(status.get("ready")) for status in statuses(pod))
    return f"{ready}/{len((pod.get('spec') or {}).get('containers') or ())}"


def pod_status(pod: Object, now: float) -> str:
    del now
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    if any(c.get("reason") == "SchedulingGated" for c in status.get("conditions") or ()):
        reason = "SchedulingGated"
    for container in reversed(statuses(pod)):
        state = container.get("state") or {}
        for which in ("waiting", "terminated"):
            if (state.get(which) or {}).get("reason"):
                reason = state[which]["reason"]
    return "Terminating" if "deletionTimestamp" in pod["metadata"] else str(reason)


def pod_restarts(pod: Object, now: float) -> str:
    del now
    return str(sum(int(status.get("restartCount", 0)) for status in statuses(pod)))


def pod_gates(pod: Object, now: float) -> str:
    del now
    gates = (pod.get("spec") or {}).get("readinessGates")
    if not gates:
        return "<none>"
    true = {c["type"] for c in (pod.get("status") or {}).get("conditions") or () if c.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in true for gate in gates)}/{len(gates)}"


def node_status(node: Object, now: float) -> str:
    del now
    ready = [c for c in (node.get("status") or {}).get("conditions") or () if c.get("type") == "Ready"]
    words = ["Unknown" if not ready else "Ready" if ready[0].get("status") == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def node_roles(node: Object, now: float) -> str:
    del now
    prefix = "node-role.kubernetes.io/"
    roles = sorted(
        k.removeprefix(prefix) for k in node["metadata"].get("labels") or {} if k.startswith(prefix)
    )
    return ",".join(roles) or "<none>"


def node_address(kind: str) -> Cell:
    def cell(node: Object, now: float) -> str:
        del now
        found = (
            a["address"] for a in (node.get("status") or {}).get("addresses") or () if a.get("type") == kind
        )
        return next(found, "<none>")

    return cell


def fraction(above: Sequence[str], below: Sequence[str]) -> Cell:
    top, bottom = at(*above, default=0), at(*below, default=0)
    return lambda obj, now: f"{top(obj, now)}/{bottom(obj, now)}"


def selector(obj: Object, now: float) -> str:
    del now
    selector = (obj.get("spec") or {}).get("selector") or {}
    labels = selector.get("matchLabels", selector)
    return ",".join(f"{k}={v}" for k, v in sorted(labels.items()) if isinstance(v, str)) or "<none>"


def template(field: str) -> Cell:
    def cell(obj: Object, now: float) -> str:
        del now
        template = (obj.get("spec") or {}).get("template") or {}
        containers = (template.get("spec") or {}).get("containers") or ()
        return ",".join(str(container.get(field, "")) for container in containers)

    return cell


def job_status(job: Object, now: float) -> str:
    del now
    for found in (job.get("status") or {}).get("conditions") or ():
        if found.get("status") == "True" and found.get("type") in ("Complete", "Failed"):
            return str(found["type"])
    return "Running"


def ports(service: Object, now: float) -> str:
    del now
    ports = (service.get("spec") or {}).get("ports") or ()
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def event_object(event: Object, now: float) -> str:
    del now
    involved = event.get("involvedObject") or {}
    return f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"


def event_seen(event: Object, now: float) -> str:
    return since(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp"), now)


def count(field: str) -> Cell:
    return lambda obj, now: str(len(obj.get(field) or ()))  # noqa: ARG005


def access(obj: Object, now: float) -> str:
    del now
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return ",".join(short.get(mode, mode) for mode in (obj.get("spec") or {}).get("accessModes") or ())


def claim(volume: Object, now: float) -> str:
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
        self.columns = (Column("Name", name), *columns)

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


_AGE = Column("Age", age)
_IMAGES = (
    Column("Containers", template("name"), wide=True),
    Column("Images", template("image"), wide=True),
)
_SELECTOR = Column("Selector", selector, wide=True)
_INFO = ("status", "nodeInfo")


def _status(field: str) -> Cell:
    return at("status", field, default=0)


_LAYOUTS: dict[str, Layout] = {
    "pods": Layout(
        Column("Ready", pod_ready),
        Column("Status", pod_status),
        Column("Restarts", pod_restarts),
        _AGE,
        Column("IP", at("status", "podIP"), wide=True),
        Column("Node", at("spec", "nodeName"), wide=True),
        Column("Nominated Node", at("status", "nominatedNodeName"), wide=True),
        Column("Readiness Gates", pod_gates, wide=True),
    ),
    "nodes": Layout(
        Column("Status", node_status),
        Column("Roles", node_roles),
        _AGE,
        Column("Version", at(*_INFO, "kubeletVersion", default="")),
        Column("Internal-IP", node_address("InternalIP"), wide=True),
        Column("External-IP", node_address("ExternalIP"), wide=True),
        Column("OS-Image", at(*_INFO, "osImage", default="<unknown>"), wide=True),
        Column("Kernel-Version", at(*_INFO, "kernelVersion", default="<unknown>"), wide=True),
        Column("Container-Runtime", at(*_INFO, "containerRuntimeVersion", default="<unknown>"), wide=True),
    ),
    "namespaces": Layout(Column("Status", at("status", "phase")), _AGE),
    "services": Layout(
        Column("Type", at("spec", "type")),
        Column("Cluster-IP", at("spec", "clusterIP")),
        Column("External-IP", at("spec", "externalName")),
        Column("Port(s)", ports),
        _AGE,
        _SELECTOR,
    ),
    "configmaps": Layout(Column("Data", count("data")), _AGE),
    "events": Layout(
        Column("Last Seen", event_seen),
        Column("Type", at("type", default="")),
        Column("Reason", at("reason", default="")),
        Column("Object", event_object),
        Column("Source", at("reportingComponent", default=""), wide=True),
        Column("Message", at("message", default="")),
    ),
    "persistentvolumes": Layout(
        Column("Capacity", at("spec", "capacity", "storage", default="")),
        Column("Access Modes", access),
        Column("Reclaim Policy", at("spec", "persistentVolumeReclaimPolicy", default="")),
        Column("Status", at("status", "phase", default="")),
        Column("Claim", claim),
        Column("StorageClass", at("spec", "storageClassName", default="")),
        _AGE,
    ),
    "persistentvolumeclaims": Layout(
        Column("Status", at("status", "phase", default="")),
        Column("Volume", at("spec", "volumeName", default="")),
        Column("Capacity", at("status", "capacity", "storage", default="")),
        Column("Access Modes", access),
        Column("StorageClass", at("spec", "storageClassName", default="")),
        _AGE,
    ),
    "deployments.apps": Layout(
        Column("Ready", fraction(("status", "readyReplicas"), ("spec", "replicas"))),
        Column("Up-to-date", _status("updatedReplicas"), "integer"),
        Column("Available", _status("availableReplicas"), "integer"),
        _AGE,
        *_IMAGES,
        _SELECTOR,
    ),
    "replicasets.apps": Layout(
        Column("Desired", at("spec", "replicas", default=0), "integer"),
        Column("Current", _status("replicas"), "integer"),
        Column("Ready", _status("readyReplicas"), "integer"),
        _AGE,
        *_IMAGES,
        _SELECTOR,
    ),
    "statefulsets.apps": Layout(
        Column("Ready", fraction(("status", "readyReplicas"), ("spec", "replicas"))), _AGE, *_IMAGES
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
        Column("Status", job_status),
        Column("Completions", fraction(("status", "succeeded"), ("spec", "completions"))),
        _AGE,
        *_IMAGES,
    ),
    "poddisruptionbudgets.policy": Layout(
        Column("Min Available", at("spec", "minAvailable", default="N/A")),
        Column("Max Unavailable", at("spec", "maxUnavailable", default="N/A")),
        Column("Allowed Disruptions", _status("disruptionsAllowed"), "integer"),
        _AGE,
    ),
    "priorityclasses.scheduling.k8s.io": Layout(
        Column("Value", at("value", default=0), "integer"),
        Column("Global-Default", at("globalDefault", default=False), "boolean"),
        _AGE,
        Column("PreemptionPolicy", at("preemptionPolicy", default="")),
    ),
    "storageclasses.storage.k8s.io": Layout(
        Column("Provisioner", at("provisioner", default="")),
        Column("ReclaimPolicy", at("reclaimPolicy", default="Delete")),
        Column("VolumeBindingMode", at("volumeBindingMode", default="Immediate")),
        _AGE,
    ),
    "leases.coordination.k8s.io": Layout(Column("Holder", at("spec", "holderIdentity", default="")), _AGE),
}
_PLAIN = Layout(_AGE)


def layout(resource: Resource) -> Layout:
    return _LAYOUTS.get(resource.storage, _PLAIN)


# What clients ask before anything else: groups, resources and the version.

AGGREGATED = "apidiscovery.k8s.io"


def _versions(group: str) -> list[str]:
    return list(dict.fromkeys(r.version for r in RESOURCES if r.group == group))


def api_versions(address: str) -> dict[str, Any]:
    """/api"""
    servers = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": servers}


def _group(name: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{name}/{v}", "version": v} for v in _versions(name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def api_groups() -> dict[str, Any]:
    """/apis"""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in GROUPS]}


def api_group(name: str) -> dict[str, Any]:
    """/apis/NAME; ApiError 404."""
    if name not in GROUPS:
        raise unknown_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def _storage_hash(resource: Resource) -> str:
    digest = hashlib.sha256(f"{resource.api_version}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _verbs(of: Resource | Subresource, answered: Collection[str]) -> list[str]:
    return [verb for verb in of.verbs if verb in answered]


def resource_list(group: str, version: str, answered: Collection[str]) -> dict[str, Any]:
    """/api/v1 or /apis/GROUP/VERSION; ApiError 404. `answered`: the verbs that this server has."""
    found: list[dict[str, Any]] = []
    for resource in RESOURCES:
        if (resource.group, resource.version) != (group, version):
            continue
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            **_offers(resource, answered),
        }
        if "list" in resource.verbs:
            entry["storageVersionHash"] = _storage_hash(resource)
        found.append(entry)
        for sub in resource.subresources:
            entry = {
                "name": f"{resource.plural}/{sub.name}",
                "singularName": "",
                "namespaced": resource.namespaced,
            }
            if sub.group:
                entry |= {"group": sub.group, "version": sub.version}
            found.append({**entry, "kind": sub.kind, "verbs": _verbs(sub, answered)})
    if not found:
        raise unknown_path()
    result: dict[str, Any] = {"kind": "APIResourceList"}
    if group:
        result["apiVersion"] = "v1"  # the core list comes without it
    word = f"{group}/{version}" if group else version
    return {**result, "groupVersion": word, "resources": sorted(found, key=lambda entry: str(entry["name"]))}


def aggregated(*, core: bool, version: str, answered: Collection[str]) -> dict[str, Any]:
    """/api or /apis for clients that take all resources in one answer (apidiscovery.k8s.io)."""
    items = []
    for group in ("",) if core else GROUPS:
        versions = [
            {
                "version": v,
                "resources": [_aggregated(r, answered) for r in sorted(RESOURCES, key=lambda r: r.plural)
                              if (r.group, r.version) == (group, v)],
                "freshness": "Current",
            }
            for v in _versions(group)
        ]  # fmt: skip
        items.append({"metadata": {"name": group} if group else {}, "versions": versions})
    kind = {"kind": "APIGroupDiscoveryList", "apiVersion": f"{AGGREGATED}/{version}"}
    return {**kind, "metadata": {}, "items": items}


def _offers(resource: Resource, answered: Collection[str]) -> dict[str, Any]:
    """What may be done with the resource, and by which other names it goes."""
    others = {"shortNames": list(resource.short), "categories": list(resource.categories)}
    return {"verbs": _verbs(resource, answered), **{name: given for name, given in others.items() if given}}


def _aggregated(resource: Resource, answered: Collection[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        **_offers(resource, answered),
    }
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": _verbs(sub, answered),
            }
            for sub in resource.subresources
        ]
    return entry


def version_info(version: str) -> dict[str, Any]:
    """/version for a version like "1.36.2"."""
    major, minor, *_ = version.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{version}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }
