"""`rebalancer lint` in a repository: charts, kustomizations, what the API server would refuse, CI formats."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from rebalancer.runtime.commands.lint import lint as check
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
        ("      containers:", '      shareProcessNamespace: "no"\n      containers:'),
        "spec.template.spec.shareProcessNamespace: true or false is expected, not 'no'",
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


def test_charts_and_kustomizations_are_named_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, ran = tmp_path / ".tools", tmp_path / ".ran"
    tools.mkdir()
    for tool in ("helm", "kubectl", "kustomize", "git", "curl"):
        (tools / tool).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (tools / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    chart = tmp_path / "the chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: web\nversion: 1.0.0\n")
    (chart / "templates" / "web.yaml").write_text("kind: {{ .Values.kind }}: {\n")
    base, overlay = tmp_path / "base", tmp_path / "prod"
    base.mkdir()
    overlay.mkdir()
    (base / "kustomization.yaml").write_text("resources: [web.yaml]\n")
    written(base, WRONG)
    (overlay / "kustomization.yaml").write_text(
        "resources: [../base, 'https://example.com/x', 'git@example.com:x/y']\npatches: [{path: more.yaml}]\n"
    )
    (overlay / "more.yaml").write_text("kind: Deployment\nmetadata: {name: web}\nspec: {replicas: 9}\n")
    written(tmp_path, SOUND)
    done = lint(tmp_path)
    assert (done.exit_code, done.stdout) == (0, "nothing found: 1 workload in 1 file\n")
    assert done.stderr.splitlines() == [
        f"note: not rendered: chart {chart}; run: helm template '{chart}' | rebalancer lint -",
        f"note: not rendered: kustomization {overlay}; run: kustomize build {overlay} | rebalancer lint -",
    ]
    assert not ran.exists()


def test_what_helm_prints_is_found_in_its_template() -> None:
    printed = f"---\n# Source: web/templates/web.yaml\n{WRONG}\n---\n# Source: web/templates/b.yaml\n{BUDGET}"
    told = {
        (f["code"], f["file"]) for f in json.loads(lint("-", "-o", "json", stdin=printed).stdout)["findings"]
    }
    assert ("selector-misses-own-pods", "web/templates/web.yaml") in told
    assert {file for _, file in told} <= {"web/templates/web.yaml", "web/templates/b.yaml"}


def test_what_kustomize_prints_is_found_on_its_line() -> None:
    line = WRONG[: WRONG.index("labelSelector")].count("\n") + 1
    for before in ("", "# Source: a/b.yaml\nkind: ConfigMap\nmetadata: {name: x}\n---\n"):
        told = json.loads(lint("-", "-o", "json", stdin=before + WRONG).stdout)["findings"]
        [finding] = [f for f in told if f["code"] == "selector-misses-own-pods"]
        assert (finding["file"], finding["line"]) == ("stdin", line + before.count("\n"))


@pytest.mark.parametrize(
    "wrong", ["5", "[5, null, {a: b}, [x]]", "{a: b}", "text", "true", "null", '["\\0"]']
)
@pytest.mark.parametrize("key", ["resources", "bases", "components", "kind", "patches"])
def test_a_kustomization_of_the_wrong_kind_is_named_like_others(key: str, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(f"{key}: {wrong}\n")
    assert f"not rendered: kustomization {tmp_path}; " in lint(tmp_path).stderr


@pytest.mark.parametrize("whole", ["5", "[]", "a: b: c", "\0", ""])
def test_one_that_is_no_mapping_is_named_too(whole: str, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(whole)
    done = lint(tmp_path)
    assert done.exit_code == 0
    assert "not rendered: " in done.stderr


WRONG_VALUES: tuple[Any, ...] = (5, "\x00", True, None, [], [None], {}, {"a": {}}, [{}], [{"key": 5}])
MORE = """
apiVersion: v1
kind: Namespace
metadata: {name: default, labels: {team: a}, annotations: {rebalancer.io/evict: "true"}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, annotations: {karpenter.sh/do-not-disrupt: "true"}}
spec:
  replicas: 3
  serviceName: db
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}
  selector: {matchExpressions: [{key: app, operator: In, values: [db]}]}
  template:
    metadata: {labels: {app: db}, annotations: {a: b}}
    spec:
      nodeSelector: {disk: ssd}
      tolerations: [{key: a, operator: Equal, value: b, effect: NoSchedule, tolerationSeconds: 5}]
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 1
            podAffinityTerm: {topologyKey: a, labelSelector: {matchLabels: {b: c}}, namespaceSelector: {}}
      topologySpreadConstraints:
      - maxSkew: 1
        minDomains: 2
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        matchLabelKeys: [apps.kubernetes.io/pod-index]
        labelSelector: {matchExpressions: [{key: app, operator: In, values: [db]}]}
      containers:
      - name: db
        image: db
        ports: [{containerPort: 80, hostPort: 80}]
        resources: {requests: {cpu: "1"}, limits: {memory: 1Gi}}
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: job}
spec:
  schedule: "* * * * *"
  jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {kind: Deployment, name: web}, maxReplicas: 5}
---
apiVersion: v1
kind: List
items: [{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}}}]
"""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything within a value."""
    if path:
        yield path
    inside: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in inside:
        yield from places(inner, (*path, key))


def test_no_value_of_the_wrong_type_anywhere_is_a_crash() -> None:
    crashes = []
    for document in yaml.safe_load_all(f"{SOUND}---{MORE}"):
        for path in places(document):
            for wrong in WRONG_VALUES:
                changed = deepcopy(document)
                parent: Any = changed
                for key in path[:-1]:
                    parent = parent[key]
                parent[path[-1]] = wrong
                stdin = BytesIO(json.dumps(changed).encode())
                try:
                    check(["-"], stdin, nodes="a=1,b=1")
                except Exception as e:
                    crashes.append((path, wrong, repr(e)))
    assert not crashes


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
    install = next(step["run"] for step in steps if "pip install" in step.get("run", ""))
    assert '--constraint "$GITHUB_ACTION_PATH/constraints.txt"' in install
    assert (ROOT / "constraints.txt").exists()


ACTIONS: list[tuple[str, dict[str, str], list[str]]] = [
    ("paths alone", {"PATHS": "a b"}, ["--", "a", "b"]),
    ("a path that looks like an option", {"PATHS": "-o --debug"}, ["--", "-o", "--debug"]),
    (
        "a path that looks like a command",
        {"PATHS": "$(touch x) `touch x` ;touch x *"},
        ["--", "$(touch", "x)"],
    ),
    (
        "options",
        {"PATHS": ".", "ARGS": "--ignore no-pdb", "STRICT": "true"},
        ["--ignore", "no-pdb", "--strict"],
    ),
    ("a command beside paths", {"PATHS": "a", "COMMAND": "printf 'made: %s' it | cat"}, ["--", "a", "-"]),
    ("a command alone", {"PATHS": "", "COMMAND": "printf 'made: %s' it"}, ["--", "-"]),
]


@pytest.mark.parametrize(("variables", "expected"), [a[1:] for a in ACTIONS], ids=[a[0] for a in ACTIONS])
def test_the_action_hands_its_inputs_on_as_they_are(
    variables: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    stub = tmp_path / "rebalancer"
    stub.write_text(
        f'#!/bin/sh\nfor a in "$@"; do echo "$a"; done > {tmp_path}/got\ncat > {tmp_path}/read\necho told\n'
    )
    stub.chmod(0o755)
    script = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][-1]["run"]
    empty = dict.fromkeys(("PATHS", "COMMAND", "OUTPUT_FILE", "STRICT", "ARGS"), "")
    env = {**os.environ, **empty, "FORMAT": "github", **variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env["OUTPUT_FILE"] = "-a out"
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]

    def ends(script: str) -> int:
        return subprocess.run(
            [*shell, script], env=env, cwd=tmp_path, check=False, stdin=subprocess.DEVNULL
        ).returncode

    assert ends(script) == 0
    got = (tmp_path / "got").read_text().splitlines()
    assert got[:3] == ["lint", "-o", "github"]
    assert "\n".join(expected) in "\n".join(got)
    assert (tmp_path / "read").read_text() == ("made: it" if "COMMAND" in variables else "")
    assert (tmp_path / "-a out").read_text() == "told\n"
    assert not (tmp_path / "x").exists()
    if "COMMAND" in variables:
        env["COMMAND"] = "false | cat"
        assert ends(script) != 0
