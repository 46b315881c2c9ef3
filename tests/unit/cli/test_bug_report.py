"""`rebalancer bug-report`: one file with all that is needed, and no name of the cluster in it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from rebalancer import __version__
from rebalancer.settings import load_settings
from tests.support.clusters.long_names import objects, written
from tests.unit.cli.test_cli import run

SETTINGS = """
scope: {namespaces: {include: [shop], exclude: [payments-prod]}}
evictions: {maxTotal: 5%, coolDown: 7m}
planner: {certainty: likely}
notifications: {webhook: {urlFile: /etc/hidden/url}}
"""


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    file, cluster = tmp_path / "bug.tar.gz", written("eks", tmp_path)
    done = run("bug-report", "-o", file, "--snapshot", cluster, "--config", tmp_path / "settings.yaml")
    assert done.exit_code == 0, done.output
    with tarfile.open(file) as archive:
        return {m.name: archive.extractfile(m).read().decode() for m in archive}  # type: ignore[union-attr]


def test_it_has_the_cluster_its_plan_the_settings_and_versions(parts: dict[str, str]) -> None:
    assert set(parts) == {"cluster.json", "plan.json", "settings.yaml", "versions.json"}
    plan = json.loads(parts["plan.json"])
    assert plan["kind"] == "Report"
    assert plan["summary"]["evictions"] > 0
    said = json.loads(parts["versions.json"])
    assert said["version"] == __version__
    assert {"numpy", "kubernetes", "highspy"} <= set(said["packages"])
    assert json.loads(run("version", "-o", "json").stdout) == said


def test_no_name_is_in_it(parts: dict[str, str]) -> None:
    whole = "".join(parts.values())
    names = {o["metadata"]["name"] for o in objects("eks") if o["kind"] in ("Node", "Pod", "Deployment")}
    hidden = {"payments-prod", "/etc/hidden/url", "eu-central-1a", "compute.internal", *names}
    assert not [name for name in hidden if f'"{name}"' in whole or f"/{name}" in whole]


def test_settings_that_are_no_names_stay(parts: dict[str, str], tmp_path: Path) -> None:
    assert yaml.safe_load(parts["settings.yaml"]) == {
        "evictions": {"maxTotal": "5%", "coolDown": "7m"},
        "planner": {"certainty": "likely"},
    }
    (tmp_path / "again.yaml").write_text(parts["settings.yaml"])
    assert load_settings(tmp_path / "again.yaml", env={}).planner.certainty == "likely"
