"""deploy/ applied as docs/install.md says; on a real cluster with the image $E2E_IMAGE it has to balance.

The embedded cluster runs no containers: there, the API server takes everything, and everything goes again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kubectl import QUICK, Kubectl

OVERLAYS = Path(__file__).parents[2] / "deploy" / "kustomize" / "overlays"
COMPONENTS = OVERLAYS.parent / "components"
NAMESPACE = "rebalancer"


@contextmanager
def applied(kubectl: Kubectl, folder: Path) -> Iterator[None]:
    kubectl("apply", "-k", str(folder))
    try:
        yield
    finally:
        kubectl("delete", "-k", str(folder), "--ignore-not-found", "--timeout=60s")


@pytest.mark.parametrize("overlay", ["report", "cronjob", "daemon", "cronjob-evicting", "daemon-evicting"])
def test_what_is_applied_is_there_and_what_is_deleted_is_gone(kubectl: Kubectl, overlay: str) -> None:
    if kubectl.real:
        pytest.skip("the tests below install on a real cluster")
    with applied(kubectl, OVERLAYS / overlay):
        there = kubectl("get", "deploy,cronjob,job,cm,sa,role", "-n", NAMESPACE, "-o", "name")
        kind = {"report": "job", "cronjob": "cronjob", "daemon": "deployment"}[overlay.partition("-")[0]]
        assert f"{kind}." in there
    left = f"namespace/{NAMESPACE}"
    kubectl.until(lambda: left not in kubectl("get", "ns", "-o", "name").split(), "it is gone")
    assert "rebalancer-" not in kubectl(
        "get", "clusterroles,clusterrolebindings,priorityclasses", "-o", "name"
    )


def kustomization(folder: Path, overlay: str, image: str, settings: dict[str, Any], *components: str) -> Path:
    """An overlay of a user's own: another image, other settings."""
    name, _, tag = image.rpartition(":")
    (folder / "rebalancer.yaml").write_text(yaml.safe_dump(settings))
    made = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(OVERLAYS / overlay, folder.resolve())],
        "components": [os.path.relpath(COMPONENTS / c, folder.resolve()) for c in components],
        "images": [{"name": "rebalancer", "newName": name, "newTag": tag}],
        "configMapGenerator": [
            {
                "name": "rebalancer-config",
                "namespace": NAMESPACE,
                "behavior": "merge",
                "files": ["rebalancer.yaml"],
            }
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(made))
    return folder


@pytest.fixture
def image(kubectl: Kubectl) -> str:
    found = os.environ.get("E2E_IMAGE", "")
    if not kubectl.real or not found:
        pytest.skip("needs a real cluster and $E2E_IMAGE, an image that its nodes can run")
    return found


def test_the_cron_job_balances(kubectl: Kubectl, image: str, tmp_path: Path) -> None:
    kubectl.skewed("shop")
    with applied(kubectl, kustomization(tmp_path, "cronjob-evicting", image, QUICK)):
        kubectl("create", "job", "now", "--from=cronjob/rebalancer", "-n", NAMESPACE)
        kubectl.until(lambda: kubectl.spread("shop") == [1, 1, 1], "the CronJob's pod balances")
        kubectl("wait", "job/now", "-n", NAMESPACE, "--for=condition=complete", "--timeout=180s")


def test_the_daemon_balances_and_its_trace_arrives(kubectl: Kubectl, image: str, tmp_path: Path) -> None:
    collector = yaml.safe_load_all((Path(__file__).parent / "collector.yaml").read_text())
    kubectl.apply(*collector)
    kubectl("rollout", "status", "deployment/collector", "--timeout=180s")
    kubectl.skewed("shop")
    endpoint = f"http://collector.{kubectl.namespace}:4318"
    settings = {**QUICK, "telemetry": {"otlp": {"endpoint": endpoint}}}
    with applied(kubectl, kustomization(tmp_path, "daemon-evicting", image, settings, "monitoring")):
        kubectl("rollout", "status", "deployment/rebalancer", "-n", NAMESPACE, "--timeout=180s")
        kubectl.until(lambda: kubectl.spread("shop") == [1, 1, 1], "the daemon balances")
        pods = json.loads(kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
        assert len({p["spec"]["nodeName"] for p in pods}) == 2, "its replicas are apart"
        kubectl.until(
            lambda: "service.name: Str(rebalancer)" in kubectl("logs", "deployment/collector", "--tail=-1"),
            "the trace arrives",
        )
