"""Workflows can only be read here: that they are well-formed, ask for little, and name what exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(file: Path) -> dict[str, Any]:
    # YAML 1.1 takes the key `on` for true.
    return {("on" if k is True else k): v for k, v in yaml.safe_load(file.read_text()).items()}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda f: f.stem)
def test_a_workflow_asks_for_little_and_ends(file: Path) -> None:
    workflow = read(file)
    assert workflow["permissions"] == {"contents": "read"}
    assert set(workflow["on"]) <= {"pull_request", "push", "schedule", "workflow_dispatch"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert set(job.get("permissions", {})) <= {"contents", "packages", "id-token"}
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+", step["uses"])
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_pull_requests_get_no_secrets() -> None:
    for file in WORKFLOWS:
        if "pull_request" in read(file)["on"]:
            assert "secrets." not in file.read_text()


def test_what_they_name_exists() -> None:
    text = "\n".join(file.read_text() for file in WORKFLOWS)
    for path in (".ci/run", "tests/e2e/kind.yaml", "Dockerfile", "deploy/helm/rebalancer/values.yaml"):
        assert path in text
        assert (ROOT / path).exists()
    arguments = set(re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^\s+(\w+)=\$\{\{", text, re.MULTILINE)) <= arguments
    values = (ROOT / "deploy/helm/rebalancer/values.yaml").read_text()
    assert len(re.findall(r"^  repository: rebalancer$", values, re.MULTILINE)) == 1
    assert len(re.findall(r'^  digest: ""$', values, re.MULTILINE)) == 1


def test_the_kind_cluster_has_three_zones() -> None:
    cluster = yaml.safe_load((ROOT / "tests/e2e/kind.yaml").read_text())
    zones = [n["labels"]["topology.kubernetes.io/zone"] for n in cluster["nodes"] if n["role"] == "worker"]
    assert sorted(zones) == ["a", "b", "c"]


def test_the_collector_fits_the_schema() -> None:
    for obj in yaml.safe_load_all((ROOT / "tests/e2e/collector.yaml").read_text()):
        kubernetes_validate.validate(obj, "1.36", strict=True)
