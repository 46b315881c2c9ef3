"""Workloads for tests of a whole cluster: small, and quick."""

from __future__ import annotations

from typing import Any

from tests.support.sandbox import Cluster, is_ready
from tests.support.scheduler.plain import Json

ZONE = "topology.kubernetes.io/zone"


def node(name: str, zone: str = "a", cpu: str = "4", **spec: Any) -> Json:
    size = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, ZONE: zone}},
        "spec": spec,
        "status": {
            "capacity": size,
            "allocatable": size,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def template(app: str = "web", cpu: str = "100m", **spec: Any) -> Json:
    containers = [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers, **spec}}


def workload(kind: str, replicas: int, name: str = "web", *, cpu: str = "100m", **spec: Any) -> Json:
    made = spec.pop("template", None) or template(name, cpu)
    wanted = {"selector": {"matchLabels": {"app": name}}, "template": made, **spec}
    if kind != "DaemonSet":
        wanted["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": wanted,
    }


def budget(name: str = "web", **spec: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, **spec},
    }


def pods(cluster: Cluster, app: str = "web") -> list[Json]:
    return cluster.store.list("Pod", "default", where=lambda p: p["metadata"]["labels"].get("app") == app)


def names(cluster: Cluster, app: str = "web") -> list[str]:
    return [p["metadata"]["name"] for p in pods(cluster, app)]


def ready(cluster: Cluster, app: str = "web") -> int:
    return sum(is_ready(p) for p in pods(cluster, app))


def status(cluster: Cluster, kind: str, name: str = "web") -> Json:
    found: Json = cluster.store.get(kind, name, "default")["status"]
    return found


def places(cluster: Cluster, app: str = "web") -> list[str]:
    return sorted(p["spec"].get("nodeName", "") for p in pods(cluster, app))
