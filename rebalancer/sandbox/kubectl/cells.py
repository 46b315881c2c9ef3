"""Cells of `kubectl get`: each takes an object and the time, and says one thing about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rebalancer.sandbox.api.objects import Object, seconds_of

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
