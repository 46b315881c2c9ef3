"""`rebalancer lint` in a repository: charts, kustomizations, what the API server would refuse, CI formats."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.unit.findings.test_lint import BUDGET, SELECTS, SOUND, WEB, WRONG, found, lint, written

ROOT = Path(__file__).parents[3]


def codes(*arguments: str | Path) -> list[tuple[str, int]]:
    return [(f["code"], f["line"]) for f in found(*arguments)]


INVALID = {
    "a field that does not exist": (
        (
            "whenUnsatisfiable: DoNotSchedule",
            "whenUnsatisfiable: DoNotSchedule\n          nodeTaintPolicy: Honor",
        ),
        "unknown field 'nodeTaintPolicy', nodeTaintsPolicy is meant",
    ),
    "a field of the pod spec": (
        ("      containers:", "      restartPolcy: Always\n      containers:"),
        "spec.template.spec.restartPolcy: unknown field 'restartPolcy', restartPolicy is meant",
    ),
    "maxSkew 0": (("maxSkew: 1", "maxSkew: 0"), "maxSkew 0 has to be at least 1"),
    "a word that is none": (
        ("DoNotSchedule", "Never"),
        "whenUnsatisfiable: 'Never' is not one of DoNotSchedule, ScheduleAnyway",
    ),
    "an operator": (
        (
            "            matchLabels:\n",
            "            matchExpressions: [{key: a, operator: Is}]\n            matchLabels:\n",
        ),
        "operator: 'Is' is not one of In, NotIn, Exists, DoesNotExist",
    ),
    "a selector of other pods": (
        ("    matchLabels:\n      app: web\n  template", "    matchLabels:\n      app: other\n  template"),
        "spec.selector: app: other is not among the template's own labels",
    ),
    "two ways to say how many": (
        ("maxUnavailable: 1", "maxUnavailable: 1\n  minAvailable: 1"),
        "minAvailable and maxUnavailable exclude each other",
    ),
    "a string for a truth": (
        ("      containers:", '      hostPID: "no"\n      containers:'),
        "spec.template.spec.hostPID: true or false is expected, not 'no'",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_what_the_api_server_would_refuse_is_an_error_on_its_line(case: str, tmp_path: Path) -> None:
    (old, new), says = INVALID[case]
    text = SOUND.replace(old, new, 1)
    assert text != SOUND
    path = written(tmp_path, text)
    assert lint(path).exit_code == 3
    assert any(says in f["message"] for f in found(path) if f["code"] == "invalid-manifest")


def test_every_error_of_an_object_is_told_at_once(tmp_path: Path) -> None:
    text = (
        SOUND.replace("maxSkew: 1", "maxSkew: 0")
        .replace("image:", "imagge:")
        .replace("DoNotSchedule", "Never")
    )
    assert [code for code, _ in codes(written(tmp_path, text))].count("invalid-manifest") == 3


def test_a_key_that_is_there_twice_is_an_error_on_the_second(tmp_path: Path) -> None:
    path = written(tmp_path, SOUND.replace("  replicas: 3\n", "  replicas: 3\n  replicas: 4\n"))
    assert ("duplicate-key", 7) in codes(path)


@pytest.mark.parametrize("kind", ["argoproj.io/v1alpha1 Rollout", "apps.kruise.io/v1alpha1 CloneSet"])
def test_whatever_has_a_pod_template_is_judged(kind: str, tmp_path: Path) -> None:
    version, _, name = kind.partition(" ")
    text = WRONG.replace("apps/v1", version).replace("kind: Deployment", f"kind: {name}")
    objects = {f["code"]: f["object"] for f in found(written(tmp_path, text))}
    assert objects["selector-misses-own-pods"] == f"{name}/default/web"


TYPOS = {
    "topology.kubernetes.io/zones": "topology.kubernetes.io/zone",
    "kubernetes.io/hostnme": "kubernetes.io/hostname",
    "zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "rack.acme.example/row": "",
}


@pytest.mark.parametrize("key", TYPOS)
def test_a_topology_key_that_resembles_a_known_one(key: str, tmp_path: Path) -> None:
    path = written(tmp_path, SOUND.replace("topology.kubernetes.io/zone", key))
    told = [f["message"] for f in found(path) if f["code"] == "topology-key-typo"]
    assert bool(told) == bool(TYPOS[key])
    assert all(TYPOS[key] in message for message in told)


def test_replicas_without_a_constraint_are_told_on_request(tmp_path: Path) -> None:
    plain = WEB[: WEB.index("      topologySpread")] + BUDGET
    path = written(tmp_path, plain)
    assert lint("--strict", path).exit_code == 0
    assert lint("--severity", "no-spread=error", path).exit_code == 3
    alone = written(tmp_path, plain.replace("replicas: 3", "replicas: 1"), "alone.yaml")
    assert lint("--severity", "no-spread=error", alone).exit_code == 0


IGNORED = {
    "at the end of the line": (
        "labelSelector:",
        "labelSelector:  # rebalancer: ignore selector-misses-own-pods",
    ),
    "on the line above": (
        "          labelSelector:",
        "          # rebalancer: ignore selector-misses-own-pods, no-pdb\n          labelSelector:",
    ),
    "above the object": ("apiVersion: apps", "# rebalancer: ignore\napiVersion: apps"),
    "anywhere in the file": (
        "  replicas:",
        "  # rebalancer: ignore-file selector-misses-own-pods\n  replicas:",
    ),
}


@pytest.mark.parametrize("case", IGNORED)
def test_a_comment_leaves_a_finding_out(case: str, tmp_path: Path) -> None:
    old, new = IGNORED[case]
    done = lint(written(tmp_path, WRONG.replace(old, new, 1)))
    assert done.exit_code == 0, done.stdout
    assert ", 1 ignored" in done.stdout


def test_a_comment_about_another_finding_leaves_it(tmp_path: Path) -> None:
    text = WRONG.replace("labelSelector:", "labelSelector:  # rebalancer: ignore no-pdb", 1)
    assert lint(written(tmp_path, text)).exit_code == 3


def test_a_chart_is_skipped_with_a_word_where_helm_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = _chart(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = lint(tmp_path)
    assert done.exit_code == 0
    assert f"note: {chart} is not looked at: a Helm chart, and helm is not installed" in done.stderr


def test_a_chart_is_rendered_by_helm_and_found_in_its_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart, tools = _chart(tmp_path), tmp_path / "tools"
    tools.mkdir()
    (tools / "out.yaml").write_text(f"---\n# Source: web/templates/web.yaml\n{WRONG}")
    helm = tools / "helm"
    helm.write_text(f'#!/bin/sh\n[ "$1 $3" = "template {chart}" ] && exec cat {tools}/out.yaml\n')
    helm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    told = {f["code"]: f["file"] for f in found(chart)}
    assert told["selector-misses-own-pods"] == str(chart / "templates" / "web.yaml")
    helm.write_text("#!/bin/sh\necho 'Error: web.host is required' >&2; exit 1\n")
    done = lint(chart)
    assert done.exit_code == 0
    assert "does not render with its own values: helm says: Error: web.host is required" in done.stderr


def _chart(folder: Path) -> Path:
    chart = folder / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: web\nversion: 1.0.0\n")
    (chart / "templates" / "web.yaml").write_text("kind: {{ .Values.kind }}: {\n")
    return chart


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders kustomizations")
def test_a_kustomization_is_rendered_and_found_where_people_wrote_it(tmp_path: Path) -> None:
    base, overlay = tmp_path / "base", tmp_path / "prod"
    base.mkdir()
    overlay.mkdir()
    (base / "kustomization.yaml").write_text("resources: [web.yaml]\n")
    path = written(base, WRONG)
    (overlay / "kustomization.yaml").write_text("resources: [../base]\npatches: [{path: more.yaml}]\n")
    (overlay / "more.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 9}\n"
    )
    [finding] = [f for f in found(tmp_path) if f["code"] == "selector-misses-own-pods"]
    line = WRONG[: WRONG.index("labelSelector")].count("\n") + 1
    assert (finding["file"], finding["line"]) == (str(path), line)
    (overlay / "kustomization.yaml").write_text("resources: [../nowhere]\n")
    assert "kubectl says: " in lint(overlay).stdout


def test_nothing_to_check_is_no_failure(tmp_path: Path) -> None:
    assert lint(written(tmp_path, "a: 1\n")).exit_code == 0
    (tmp_path / "empty").mkdir()
    done = lint(tmp_path / "empty")
    assert (done.exit_code, done.stdout) == (0, "nothing found: 0 workloads in 0 files\n")


def document(form: str, path: Path) -> Any:
    return json.loads(lint(path, "-o", form).stdout)


def test_sarif(tmp_path: Path) -> None:
    path = written(tmp_path, WRONG)
    log = document("sarif", path)
    [run] = log["runs"]
    assert (log["version"], run["tool"]["driver"]["name"]) == ("2.1.0", "rebalancer")
    result = next(r for r in run["results"] if r["ruleId"] == "selector-misses-own-pods")
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert result["level"] == "error"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == str(path)
    assert place["region"]["startLine"] == WRONG[: WRONG.index("labelSelector")].count("\n") + 1


def test_gitlab(tmp_path: Path) -> None:
    issues = document("gitlab", written(tmp_path, WRONG))
    assert len({i["fingerprint"] for i in issues}) == len(issues)
    issue = next(i for i in issues if i["check_name"] == "selector-misses-own-pods")
    assert (issue["severity"], set(issue["location"])) == ("major", {"path", "lines"})
    moved = document("gitlab", written(tmp_path, f"# moved\n{WRONG}"))
    assert {i["fingerprint"] for i in moved} == {i["fingerprint"] for i in issues}


def test_junit(tmp_path: Path) -> None:
    root = ElementTree.fromstring(lint(written(tmp_path, WRONG), "-o", "junit").stdout.encode())
    assert root.get("failures") == str(len(root.findall(".//failure")))
    assert root.find(".//testcase[@name='selector-misses-own-pods Deployment/default/web']") is not None
    sound = ElementTree.fromstring(lint(written(tmp_path, SOUND), "-o", "junit").stdout.encode())
    assert (sound.get("tests"), sound.get("failures")) == ("1", "0")


def test_no_workload_with_hostile_names_breaks_a_format(tmp_path: Path) -> None:
    path = written(tmp_path, (WEB + SELECTS).replace("name: web\n", 'name: "<x>\\e[31m&\\x01"\n', 1))
    ElementTree.fromstring(lint(path, "-o", "junit").stdout.encode())
    for form in ("sarif", "gitlab", "json"):
        assert "\x1b" not in lint(path, "-o", form).stdout
        document(form, path)


def test_the_hook_and_the_action_call_what_there_is() -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["entry"], hook["language"]) == ("rebalancer lint", "python")
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = action["runs"]["steps"]
    assert action["runs"]["using"] == "composite"
    assert "rebalancer lint -o" in steps[-1]["run"]
    # Inputs reach the shell as variables, never as text of the script.
    assert not any("${{" in step.get("run", "") for step in steps)
    assert {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]} == set(steps[-1]["env"].values())
