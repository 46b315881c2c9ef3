"""kubectl on a running cluster: what is applied runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters.cluster_objects import budget, node, pods, ready, workload
from tests.support.sandbox import Cluster
from tests.support.servers.kubectl import Kubectl, kubectl_with, needs_kubectl

pytestmark = needs_kubectl


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster([node("a-0"), node("b-0", "b")], ready_after=0.1, grace=0.1) as running:
        yield running


@pytest.fixture
def kubectl(cluster: Cluster, tmp_path: Path) -> Kubectl:
    return kubectl_with(cluster.kubeconfig(tmp_path / "config"))


def test_a_deployment_that_is_applied_runs(cluster: Cluster, kubectl: Kubectl) -> None:
    manifest = json.dumps(workload("Deployment", 3))
    kubectl("apply", "-f", "-", stdin=manifest)
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    assert ready(cluster) == 3
    shown = kubectl("get", "pods", "--no-headers", "-o", "custom-columns=P:.status.phase")
    assert shown.split() == ["Running"] * 3
    kubectl("patch", "deployment/web", "-p", '{"spec": {"replicas": 5}}')
    kubectl("wait", "deployment/web", "--for=jsonpath={.status.readyReplicas}=5", "--timeout=20s")
    kubectl("set", "image", "deployment/web", "c=app:2")
    kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    assert {
        p["spec"]["containers"][0]["image"] for p in pods(cluster) if "deletionTimestamp" not in p["metadata"]
    } == {"app:2"}
    kubectl("delete", "deployment", "web", "--timeout=20s")
    cluster.settle()
    assert pods(cluster) == []


def test_a_node_is_drained_within_the_budget(cluster: Cluster, kubectl: Kubectl) -> None:
    for obj in (workload("Deployment", 4), budget(maxUnavailable=1)):
        kubectl("apply", "-f", "-", stdin=json.dumps(obj))
    kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    kubectl("drain", "a-0", "--timeout=20s")
    cluster.settle()
    assert {p["spec"]["nodeName"] for p in pods(cluster)} == {"b-0"}
    assert ready(cluster) == 4
