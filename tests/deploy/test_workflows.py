"""Workflows can only be read here: that they are well-formed, ask for little, and name what exists."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rebalancer import __version__
from rebalancer.engine.version import FIRST, LAST
from tests.deploy.pins import pins

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
                assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", step["uses"])
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_actions_are_pinned_by_commit_each_version_by_one() -> None:
    found = pins()
    assert len(found) == len({p.action for p in found}) == len({p.commit for p in found})


def test_placeholders_are_in_one_file_that_the_release_fills() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    for placeholder in ("OWNER/REPOSITORY", "0" * 64):
        holding = {
            name
            for name in listed.splitlines()
            if not name.startswith(("tests/", ".github/"))
            and (ROOT / name).is_file()
            and placeholder in (ROOT / name).read_text(errors="ignore")
        }
        assert holding == {"deploy/krew/rebalancer.yaml"}, placeholder
    assert "s|OWNER/REPOSITORY|$GITHUB_REPOSITORY|; s|sha256: .*|sha256: $digest|" in release


def test_the_notes_of_a_release_are_its_section_with_the_date_of_its_commit(tmp_path: Path) -> None:
    assert "workflow" not in (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2]
    sections = ("## 1.1.0, unreleased", "No.", "## 1.0.0, unreleased", "### A", "- Yes.", "## 0.9.0", "No.")
    (tmp_path / "CHANGELOG.md").write_text("\n\n".join(("# Changes", *sections)))
    steps = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["release"]["steps"]
    [script] = [s["run"] for s in steps if "notes.md" in s.get("run", "") and "sed" in s["run"]]
    script = script.replace("$(git log -1 --format=%cs)", "2026-01-02")
    where = {**os.environ, "VERSION": "1.0.0", "RUNNER_TEMP": str(tmp_path)}
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=where, check=True)
    assert (tmp_path / "notes.md").read_text().strip() == "## 1.0.0, 2026-01-02\n\n### A\n\n- Yes."
    assert f"\n## {__version__}, unreleased\n" in (ROOT / "CHANGELOG.md").read_text()


def test_every_known_version_of_the_scheduler_is_tried() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "e2e.yml")["jobs"]["kind"]["strategy"]["matrix"]
    assert matrix["kubernetes"] == [f"1.{minor}" for minor in range(FIRST[1], LAST[1] + 1)]


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
    assert len(re.findall(r'^  repository: ""$', values, re.MULTILINE)) == 1
    assert len(re.findall(r'^  digest: ""$', values, re.MULTILINE)) == 1


def test_the_kind_cluster_has_three_zones() -> None:
    cluster = yaml.safe_load((ROOT / "tests/e2e/kind.yaml").read_text())
    zones = [n["labels"]["topology.kubernetes.io/zone"] for n in cluster["nodes"] if n["role"] == "worker"]
    assert sorted(zones) == ["a", "b", "c"]


def test_the_collector_fits_the_schema() -> None:
    for obj in yaml.safe_load_all((ROOT / "tests/e2e/collector.yaml").read_text()):
        kubernetes_validate.validate(obj, "1.36", strict=True)


RELEASE = ROOT / ".github" / "workflows" / "release.yml"
KREW = ROOT / "deploy" / "krew"


def run_of(name: str) -> str:
    """The script of a step."""
    (job,) = read(RELEASE)["jobs"].values()
    return str(next(s["run"] for s in job["steps"] if s.get("name", "").startswith(name)))


def test_whatever_is_released_is_signed() -> None:
    text = RELEASE.read_text()
    for made in ("docker/build-push-action", "helm push", "python -m build", "kubectl-rebalancer.tar.gz"):
        assert made in text
    assert text.count("cosign sign --yes") == len(("image", "chart"))
    signing = text.index("cosign sign-blob")
    assert (
        max(text.index("python -m build"), text.index("sbom-action"), text.index("dist/rebalancer.yaml"))
        < signing
    )
    assert signing < text.index("gh release create")
    assert text.count("sbom") >= len(("image", "package"))
    (job,) = read(RELEASE)["jobs"].values()
    (build,) = [s for s in job["steps"] if s.get("uses", "").startswith("docker/build-push-action")]
    assert (build["with"]["provenance"], build["with"]["sbom"]) == ("mode=max", True)


def test_the_plugin_that_the_workflow_packs_starts_the_package(tmp_path: Path) -> None:
    """The script of the step, run: what it packs, the digest in the manifest, and what the plugin calls."""
    wheel = f"kube_rebalancer-{__version__}-py3-none-any.whl"
    for folder in ("dist", "temp", "bin", "installed"):
        (tmp_path / folder).mkdir()
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "LICENSE").symlink_to(ROOT / "LICENSE")
    (tmp_path / "dist" / wheel).write_bytes(b"a package")
    env = os.environ | {
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "SOURCE_DATE_EPOCH": "0",
        "VERSION": __version__,
        "GITHUB_REPOSITORY": "me/it",
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }
    subprocess.run(
        ["bash", "-ec", run_of("The plugin for krew")], cwd=tmp_path, env=env, check=True, timeout=60
    )
    archive = tmp_path / "dist" / "kubectl-rebalancer.tar.gz"
    (platform,) = (plugin := yaml.safe_load((tmp_path / "dist" / "rebalancer.yaml").read_text()))["spec"][
        "platforms"
    ]
    assert plugin["spec"]["version"] == f"v{__version__}"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"] == f"https://github.com/me/it/releases/download/v{__version__}/{archive.name}"
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "installed", filter="data")
    pipx = tmp_path / "bin" / "pipx"
    pipx.write_text('#!/bin/sh\necho "$@"\n')
    pipx.chmod(0o755)
    script = tmp_path / "installed" / platform["bin"]
    done = subprocess.run(
        [script, "report", "-n", "a b"], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"run --spec {tmp_path}/installed/{wheel} kubectl-rebalancer report -n a b\n"


def test_security_insights_are_about_the_repository_that_releases(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    here = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "me/it"}
    env = os.environ | here | {"GITHUB_REPOSITORY_OWNER": "me", "GITHUB_REF_NAME": f"v{__version__}"}
    script = run_of("Security Insights").replace("$(git log -1 --format=%cs)", "2026-01-02")
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=env, check=True)
    text = (tmp_path / "dist" / "SECURITY-INSIGHTS.yml").read_text()
    made = yaml.safe_load(text)
    assert (made["header"]["schema-version"], made["header"]["last-updated"]) == ("2.0.0", "2026-01-02")
    assert made["repository"]["url"] == "https://github.com/me/it"
    assert {a["name"] for a in made["project"]["administrators"]} == {"me"}
    assert "$" not in text
    named = re.findall(rf"me/it/blob/v{re.escape(__version__)}/([\w./-]+)", text)
    assert set(named) == {"SECURITY.md", "LICENSE", "docs/security.md"}
    assert all((ROOT / name).is_file() for name in named)


def test_the_chart_says_what_artifact_hub_shows() -> None:
    meta = yaml.safe_load((ROOT / "deploy" / "helm" / "rebalancer" / "Chart.yaml").read_text())
    kind, _, picture = meta["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(picture).startswith(b"<svg ")
    said = {key.removeprefix("artifacthub.io/"): value for key, value in meta["annotations"].items()}
    assert said == {"category": "integration-delivery", "license": "Apache-2.0", "prerelease": "false"}


def test_the_krew_manifest_is_of_this_version() -> None:
    assert f"version: v{__version__}" in (KREW / "rebalancer.yaml").read_text()
