"""Objects for the tests of the API server, and a client for it."""

from __future__ import annotations

from typing import Any

from kubernetes import client

from tests.support.sandbox import ApiServer

Object = dict[str, Any]


def node(name: str, zone: str = "a") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "spec": {},
        "status": {"capacity": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, on: str = "n1", *, ready: bool = True, phase: str = "Running", **labels: str) -> Object:
    spec: Object = {"containers": [{"name": "c", "image": "app:1"}], "terminationGracePeriodSeconds": 30}
    if on:
        spec["nodeName"] = on
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels},
        "spec": spec,
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def budget(name: str, allowed: int, **labels: str) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": 2,
            "desiredHealthy": 2,
            "expectedPods": 2,
        },
    }


def deployment(name: str = "web", replicas: int = 2) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [
                        {"name": "c", "image": "app:1", "env": [{"name": "A", "value": "1"}]},
                        {"name": "side", "image": "side:1"},
                    ]
                },
            },
        },
        "status": {"replicas": 0},
    }


def connect(server: ApiServer, token: str = "") -> client.ApiClient:
    config = client.Configuration()
    config.host = server.url
    config.api_key = {"authorization": f"Bearer {token or server.admin_token}"}
    return client.ApiClient(config)


def eviction(name: str, **options: Any) -> Object:
    body: Object = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
    }
    return {**body, "deleteOptions": options} if options else body
