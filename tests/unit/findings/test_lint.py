"""`rebalancer lint`: findings of manifests with their lines, as CI calls it."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app

SELECTS = """\
          labelSelector:
            matchLabels:
              app: web
"""
WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
        - name: c
          image: registry.example/web:1
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: DoNotSchedule
          matchLabelKeys: [pod-template-hash]
"""
BUDGET = """\
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: web
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      app: web
"""
SOUND = WEB + SELECTS + BUDGET
WRONG = SOUND.replace("              app: web\n", "              app: wep\n", 1)


def lint(*arguments: str | Path, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, ["lint", *map(str, arguments)], input=stdin)


def written(folder: Path, text: str, name: str = "web.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def found(*arguments: str | Path, stdin: str | None = None) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = json.loads(lint(*arguments, "-o", "json", stdin=stdin).stdout)[
        "findings"
    ]
    return findings


def test_nothing_to_say(tmp_path: Path) -> None:
    done = lint(written(tmp_path, SOUND))
    assert (done.exit_code, done.stdout) == (0, "nothing found: 1 workload in 1 file\n")


def test_an_error_on_its_line_and_exit_code_3(tmp_path: Path) -> None:
    path = written(tmp_path, WRONG)
    done = lint(path)
    assert done.exit_code == 3
    line = WRONG[: WRONG.index("labelSelector")].count("\n") + 1
    assert done.stdout.startswith(
        f"{path}:{line}: error selector-misses-own-pods Deployment/default/web: the constraint over"
    )
    assert "    # spec.template.spec.topologySpreadConstraints[0]\n    - maxSkew: 1\n" in done.stdout


WARNS = {
    "no budget": ("", [], 0),
    "no budget, strictly": ("", ["--strict"], 3),
    "no budget, ignored": ("", ["--strict", "--ignore", "no-pdb"], 0),
}


@pytest.mark.parametrize("case", WARNS)
def test_warnings_fail_only_strictly(case: str, tmp_path: Path) -> None:
    budget, flags, code = WARNS[case]
    done = lint(written(tmp_path, WEB + SELECTS + budget), *flags)
    assert done.exit_code == code
    assert ("no-pdb" in done.stdout) == ("--ignore" not in flags)


def test_files_are_taken_together(tmp_path: Path) -> None:
    written(tmp_path, WEB + SELECTS)
    written(tmp_path, BUDGET, "budget.yml")
    assert lint("--strict", tmp_path).stdout == "nothing found: 1 workload in 2 files\n"


def test_a_pod_spec_is_found_wherever_a_kind_has_it() -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "other"}},
    }
    pod = {"metadata": {"labels": {"app": "x"}}, "spec": {"topologySpreadConstraints": [spread]}}
    items: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": {"app": "x"}},
            "spec": pod["spec"],
        },
        *(
            {
                "apiVersion": v,
                "kind": k,
                "metadata": {"name": "w", "namespace": k.lower()},
                "spec": {"template": pod},
            }
            for k, v in (
                ("Deployment", "apps/v1"),
                ("StatefulSet", "apps/v1"),
                ("ReplicaSet", "apps/v1"),
                ("Job", "batch/v1"),
            )
        ),
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "c"},
            "spec": {"jobTemplate": {"spec": {"template": pod}}},
        },
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)
    missed = [f for f in found("-", stdin=text) if f["code"] == "selector-misses-own-pods"]
    assert [f["object"].partition("/")[0] for f in missed] == [i["kind"] for i in items]
    lines = text.split("\n")
    assert all('"labelSelector"' in lines[f["line"] - 1] for f in missed)
    assert {f["field"].partition(".topology")[0] for f in missed} == {
        "spec",
        "spec.template.spec",
        "spec.jobTemplate.spec.template.spec",
    }


BROKEN = {
    "a template that is not rendered": ("kind: Deployment\nname: {{ .Values.x }: {a", 3, "not valid YAML"),
    "a constraint without maxSkew": (
        SOUND.replace("        - maxSkew: 1\n          topologyKey", "        - topologyKey"),
        19,
        "spec.topologySpreadConstraints[0]: object missing required field `maxSkew`",
    ),
    "a number that is none": (
        SOUND.replace("replicas: 3", "replicas: many"),
        6,
        "spec.replicas: expected `int`",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_read_is_an_error_on_its_line(case: str, tmp_path: Path) -> None:
    text, line, says = BROKEN[case]
    path = written(tmp_path, text)
    done = lint(path)
    assert done.exit_code == 3
    [finding] = [f for f in found(path) if f["code"] == "unreadable-manifest"]
    assert says in finding["message"]
    assert finding["file"] == str(path)
    assert finding["line"] == line


def test_a_finding_that_does_not_exist_is_wrong_usage(tmp_path: Path) -> None:
    done = lint("--ignore", "nonsense", tmp_path)
    assert (done.exit_code, "no finding is called nonsense; there are: " in done.stderr) == (2, True)


def test_hostile_names_stay_in_their_line(tmp_path: Path) -> None:
    bad = WRONG.replace("name: web\n", 'name: "w\\n::error::x\\e[31m%0A"\n', 1)
    path = written(tmp_path, bad)
    for form in ("text", "github", "json"):
        shown = lint(path, "-o", form).stdout
        assert "\x1b" not in shown
        assert not [line for line in shown.split("\n") if line.startswith("::error::x")]
    assert "%250A" in lint(path, "-o", "github").stdout


def test_annotations_for_a_pull_request(tmp_path: Path) -> None:
    path = written(tmp_path, WRONG, "a,b.yaml")
    first = lint(path, "-o", "github").stdout.split("\n")[0]
    assert first.startswith(f"::error file={tmp_path}/a%2Cb.yaml,line=")
    assert "title=selector-misses-own-pods::Deployment/default/web: " in first
    assert dedent(first) == first


def test_an_annotation_ends_with_the_last_word_and_begins_with_the_first(tmp_path: Path) -> None:
    path = written(tmp_path, "a: [", "broken.yaml")
    zero = written(tmp_path, WRONG.replace("maxSkew: 1", "maxSkew: 0"), "zero.yaml")
    for line in lint(path, zero, "-o", "github").stdout.split("\n"):
        assert not line.endswith("%0A"), line
        assert ":::" not in line, line
