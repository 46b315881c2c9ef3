"""Defaults that the API server writes into a pod's spec."""

from __future__ import annotations

from typing import Any


def pod_defaults(spec: dict[str, Any]) -> None:
    """Defaults of a pod's spec, in place; also for templates, as the server does for workloads."""
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        image = container.get("image", "")
        latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")
        resources = container["resources"]
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **resources.get("requests", {})}
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")


def qos_class(spec: dict[str, Any]) -> str:
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    named = [(c.get("resources") or {}) for c in containers]
    if not any(r.get("requests") or r.get("limits") for r in named):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(r.get("limits") or ()) and (r.get("requests") or r["limits"]) == r["limits"]
        for r in named
    )
    return "Guaranteed" if guaranteed else "Burstable"
