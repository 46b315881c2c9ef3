"""Plain kubectl against the sandbox, where it is installed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox import ApiServer
from tests.support.servers.api_objects import deployment, node, pod
from tests.support.servers.kubectl import Kubectl, kubectl_with, needs_kubectl

pytestmark = needs_kubectl


@pytest.fixture
def server() -> Iterator[ApiServer]:
    objects = [node("n1"), node("n2", "b"), *(pod(f"p{i}", app="web") for i in range(3))]
    with ApiServer(objects=objects) as running:
        yield running


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Kubectl:
    return kubectl_with(server.kubeconfig(tmp_path / "config"))


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_get_nodes_and_pods(kubectl: Kubectl) -> None:
    nodes = table(kubectl("get", "nodes"))
    assert [row[0] for row in nodes] == ["NAME", "n1", "n2"]
    columns = "custom-columns=POD:.metadata.name,NODE:.spec.nodeName"
    assert table(kubectl("get", "pods", "-o", columns))[1:] == [[f"p{i}", "n1"] for i in range(3)]
    chosen = kubectl(
        "get", "pods", "-A", "-l", "app in (web)", "--field-selector", "spec.nodeName=n1", "-o", "name"
    )
    assert chosen.split() == ["pod/p0", "pod/p1", "pod/p2"]
    assert json.loads(kubectl("get", "po", "p0", "-o", "json"))["spec"]["nodeName"] == "n1"
    assert "p0" in kubectl("get", "all")


def test_apply_change_patch_and_delete_a_deployment(kubectl: Kubectl, server: ApiServer) -> None:
    manifest: dict[str, Any] = deployment("hello", 2)
    manifest.pop("status")
    assert kubectl("apply", "-f", "-", stdin=json.dumps(manifest)).strip() == "deployment.apps/hello created"
    assert (
        kubectl("apply", "-f", "-", stdin=json.dumps(manifest)).strip() == "deployment.apps/hello unchanged"
    )
    template = manifest["spec"]["template"]["spec"]
    template["containers"][0]["image"] = "app:2"
    del template["containers"][1]
    assert (
        kubectl("apply", "-f", "-", stdin=json.dumps(manifest)).strip() == "deployment.apps/hello configured"
    )
    stored = server.store.get("Deployment", "hello", "default")
    containers = stored["spec"]["template"]["spec"]["containers"]
    assert [(c["name"], c["image"]) for c in containers] == [("c", "app:2")]
    assert containers[0]["imagePullPolicy"] == "IfNotPresent"
    assert stored["metadata"]["generation"] == 2
    kubectl("patch", "deployment/hello", "-p", '{"spec": {"replicas": 5}}')
    assert server.store.get("Deployment", "hello", "default")["spec"]["replicas"] == 5
    assert "deleted" in kubectl("delete", "deployment", "hello", "--timeout=5s")
    assert server.store.list("Deployment") == []


def test_server_side_apply_and_dry_run(kubectl: Kubectl, server: ApiServer) -> None:
    space = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    kubectl("apply", "--dry-run=server", "-f", "-", stdin=space)
    assert server.store.find("Namespace", "shop") is None
    kubectl("apply", "--server-side", "-f", "-", stdin=space)
    assert server.store.get("Namespace", "shop")["status"]["phase"] == "Active"
    kubectl("delete", "ns", "shop", "--timeout=5s")
    assert server.store.find("Namespace", "shop") is None


def test_label_annotate_cordon(kubectl: Kubectl, server: ApiServer) -> None:
    kubectl("label", "pod", "p0", "tier=front")
    kubectl("label", "pod", "p0", "app-")
    kubectl("annotate", "pod", "p0", "note=x")
    kubectl("cordon", "n1")
    kubectl("taint", "node", "n2", "a=b:NoSchedule")
    metadata = server.store.get("Pod", "p0", "default")["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"tier": "front"}, {"note": "x"})
    assert server.store.get("Node", "n1")["spec"]["unschedulable"]
    assert server.store.get("Node", "n2")["spec"]["taints"] == [
        {"key": "a", "value": "b", "effect": "NoSchedule"}
    ]
    kubectl("taint", "node", "n2", "a-")
    assert not server.store.get("Node", "n2")["spec"].get("taints")


def test_delete_waits_for_the_kubelet(kubectl: Kubectl, server: ApiServer) -> None:
    def end() -> None:
        while "deletionTimestamp" not in server.store.get("Pod", "p0", "default")["metadata"]:
            time.sleep(0.01)
        time.sleep(0.2)
        server.store.delete("Pod", "p0", "default", grace=0)

    kubelet = threading.Thread(target=end, daemon=True)
    kubelet.start()
    kubectl("delete", "pod", "p0", "--timeout=10s")
    kubelet.join(5)
    assert server.store.find("Pod", "p0", "default") is None


def test_drain_evicts(kubectl: Kubectl, server: ApiServer) -> None:
    def end() -> None:
        until = time.monotonic() + 10
        while server.store.list("Pod") and time.monotonic() < until:
            for found in server.store.list("Pod", where=lambda p: "deletionTimestamp" in p["metadata"]):
                server.store.delete("Pod", found["metadata"]["name"], "default", grace=0)
            time.sleep(0.02)

    kubelet = threading.Thread(target=end, daemon=True)
    kubelet.start()
    kubectl("drain", "n1", "--force", "--timeout=10s")
    kubelet.join(10)
    evictions = [access for access in server.accesses if access.subresource == "eviction"]
    assert sorted(access.name for access in evictions) == ["p0", "p1", "p2"]


def test_watch_prints_changes(kubectl: Kubectl, server: ApiServer) -> None:
    def change() -> None:
        time.sleep(0.7)
        server.store.delete("Pod", "p2", "default")

    thread = threading.Thread(target=change)
    thread.start()
    columns = "custom-columns=P:.metadata.name,D:.metadata.deletionTimestamp"
    shown = kubectl("get", "pods", "-w", "--request-timeout=2s", "-o", columns)
    thread.join()
    assert [row[1] == "<none>" for row in table(shown) if row[0] == "p2"] == [True, False]
