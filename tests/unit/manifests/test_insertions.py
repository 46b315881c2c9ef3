"""`rebalancer fix` on texts: what is added is added, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.manifests.documents import Loader, Text
from rebalancer.runtime.commands.fix import fixed
from tests.support.rollouts import CASES, Case
from tests.support.scheduler.plain import Json

STYLES: dict[str, Callable[[Json], str]] = {
    "block": lambda o: yaml.safe_dump(o, sort_keys=False),
    "sorted block": yaml.safe_dump,
    "flow": lambda o: yaml.safe_dump(o, default_flow_style=True, width=10_000),
    "flow over several lines": lambda o: yaml.safe_dump(o, default_flow_style=True, width=30),
    "JSON": json.dumps,
    "JSON over several lines": lambda o: json.dumps(o, indent=2),
    "JSON with tabs": lambda o: json.dumps(o, indent="\t"),
    "Windows": lambda o: yaml.safe_dump(o, sort_keys=False).replace("\n", "\r\n"),
    "a List": lambda o: yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [o]}, sort_keys=False),
    "the second document": lambda o: "# first\n---\n" + yaml.safe_dump(o, sort_keys=False),
    "no end of line at the end": lambda o: yaml.safe_dump(o, sort_keys=False).rstrip("\n"),
}


def said(text: str) -> Json:
    found: Json = [d for d in yaml.load_all(text, Loader) if d][-1]
    return found["items"][0] if found["kind"] == "List" else found


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_text_in_any_style(case: Case, style: str) -> None:
    text = STYLES[style](case.manifest)
    found = fixed(Text("f", text.encode()))
    assert not found.problems
    assert said(found.after) == case.fixed
    assert bool(found.workloads) == bool(case.keys)
    if not case.keys:
        assert found.after == text
    assert not fixed(Text("f", found.after.encode())).workloads, "a second time changes nothing"


NODES = (
    "{maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, "
    "labelSelector: {matchLabels: {app: web}}"
)
COMMENTED = """\
# The shop
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}   # never changes
  template:
    metadata:
      labels: {app: web}
    spec:
      topologySpreadConstraints:
        # zones first
        - maxSkew: 1      # one more than elsewhere
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: DoNotSchedule
          labelSelector:
            matchLabels:
              app: web    # its own pods

        # then nodes
        - {maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
        - labelSelector: {matchLabels: {app: web}}
          maxSkew: 3
          topologyKey: rack
          whenUnsatisfiable: ScheduleAnyway
          matchLabelKeys:
            - app         # says nothing
      containers:
        - {name: c, image: "app:1"}
"""  # noqa: E501


def test_comments_and_layout_stay() -> None:
    found = fixed(Text("web.yaml", COMMENTED.encode()))
    assert not found.problems
    changed = [line for line in found.diff.splitlines() if line[:1] in "+-"][2:]
    assert changed == [
        "+          matchLabelKeys: [pod-template-hash]",
        f"-        - {NODES}}}",
        f"+        - {NODES}, matchLabelKeys: [pod-template-hash]}}",
        "+            - pod-template-hash",
    ]
    lines = found.after.splitlines()
    assert lines[lines.index("              app: web    # its own pods") + 1] == changed[0][1:]


MERGED = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      <<: &spread
        topologySpreadConstraints:
          - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers: []
"""  # noqa: E501


EMPTY = COMMENTED.replace("{maxSkew: 2,", "{matchLabelKeys: , maxSkew: 2,")
NOT_RENDERED = "kind: Deployment\nmetadata: {{ .Values.x }}\n"


@pytest.mark.parametrize(("text", "problem"), [(EMPTY, "by hand"), (NOT_RENDERED, "f:")])
def test_what_cannot_be_edited_is_said_and_left_alone(text: str, problem: str) -> None:
    found = fixed(Text("f", text.encode()))
    assert found.after == text
    assert problem in found.problems[0]


def test_a_constraint_by_way_of_a_merge_key_is_edited_where_it_stands() -> None:
    found = fixed(Text("f", MERGED.encode()))
    assert (
        found.after.splitlines()[10].strip()
        == MERGED.splitlines()[10].strip()[:-1] + ", matchLabelKeys: [pod-template-hash]}"
    )


ALIASES = """\
x-labels: &own {matchLabels: {app: web}}
x-zone: &zone
  maxSkew: 1
  topologyKey: zone
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: *own
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
        - <<: *zone          # zones
          whenUnsatisfiable: DoNotSchedule
          labelSelector: *own   # its own pods
        - labelSelector:
            matchLabels:
              app: web
          <<: *zone
          whenUnsatisfiable: ScheduleAnyway
        - {<<: *zone, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway, labelSelector: *own}
      containers: []
"""


def test_anchors_and_merge_keys_stay_and_a_line_comes_beside_them() -> None:
    found = fixed(Text("f", ALIASES.encode()))
    assert not found.problems
    changed = [line for line in found.diff.splitlines() if line[:1] in "+-"][2:]
    assert changed == [
        "+          matchLabelKeys: [pod-template-hash]",
        "-        - {<<: *zone, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway, labelSelector: *own}",
        "+          matchLabelKeys: [pod-template-hash]",
        f"+{changed[1][1:-1]}, matchLabelKeys: [pod-template-hash]}}",
    ]
    lines = found.after.splitlines()
    assert lines[lines.index("          labelSelector: *own   # its own pods") + 1] == changed[0][1:]


def test_a_text_with_tabs_gets_tabs() -> None:
    found = fixed(Text("f", json.dumps(CASES[0].manifest, indent="\t").encode()))
    added = [line for line in found.diff.splitlines() if line.startswith("+\t")]
    assert added
    assert not any(line.startswith("+ ") for line in found.diff.splitlines())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_byte_order_mark_stays(encoding: str, tmp_path: Path) -> None:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    file = tmp_path / "web.yaml"
    file.write_bytes(mark + COMMENTED.encode(encoding))
    before = file.read_bytes()
    assert CliRunner().invoke(app, ["fix", "--write", str(file)]).exit_code == 0
    after = file.read_bytes()
    assert after[:2] == before[:2]
    assert after.removeprefix(mark).decode(encoding) == fixed(Text("f", COMMENTED.encode())).after


PATCH = """\
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: zone
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {matchLabels: {app: web}}
"""


def written(folder: Path, **files: str) -> str:
    for name, text in files.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_suffix(".yaml").write_text(text)
    return str(folder)


BASE = yaml.safe_dump(CASES[2].manifest)
OTHER = BASE.replace("app: web", "app: other")


def test_a_patch_is_judged_with_what_it_patches(tmp_path: Path) -> None:
    folder = written(tmp_path, base__web=BASE, prod__spread=PATCH)
    done = CliRunner().invoke(app, ["fix", "--write", folder])
    assert done.exit_code == 0, done.output
    assert "matchLabelKeys: [pod-template-hash]" in (tmp_path / "prod" / "spread.yaml").read_text()
    assert (tmp_path / "base" / "web.yaml").read_text() == BASE


def test_a_patch_that_selects_pods_of_others_stays(tmp_path: Path) -> None:
    folder = written(tmp_path, base__web=OTHER, prod__spread=PATCH)
    assert CliRunner().invoke(app, ["fix", "--write", folder]).exit_code == 0
    assert (tmp_path / "prod" / "spread.yaml").read_text() == PATCH


def test_a_patch_without_what_it_patches_is_left_to_people(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["fix", "--write", written(tmp_path, spread=PATCH)])
    assert done.exit_code == 1
    assert "name its base, too" in done.output
    assert (tmp_path / "spread.yaml").read_text() == PATCH


LISTED = yaml.safe_load(PATCH)["spec"]["template"]["spec"]["topologySpreadConstraints"]
OPERATIONS = json.dumps(
    [{"op": "add", "path": "/spec/template/spec/topologySpreadConstraints", "value": LISTED}]
)


@pytest.mark.parametrize(
    ("case", "patch"),
    [
        ("a text", {"patch": PATCH}),
        ("operations", {"patch": OPERATIONS, "target": {"kind": "Deployment", "name": "web"}}),
        ("operations in a file", {"path": "ops.yaml", "target": {"kind": "Deployment", "name": "web"}}),
    ],
)
def test_a_patch_within_a_kustomization_is_named(case: str, patch: Json, tmp_path: Path) -> None:
    assert case
    text = yaml.safe_dump({"resources": ["base/web.yaml"], "patches": [patch]})
    folder = written(tmp_path, base__web=BASE, kustomization=text, ops=OPERATIONS)
    done = CliRunner().invoke(app, ["fix", folder])
    assert done.exit_code == 1
    assert f"a patch of Deployment web in {folder}/kustomization.yaml lacks pod-template-hash" in done.output
    written(tmp_path, base__web=OTHER)
    assert CliRunner().invoke(app, ["fix", folder]).exit_code == 0


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/spec/template/spec/topologySpreadConstraints/0/maxSkew", "value": 2},
        {"op": "remove", "path": "/spec/template/spec/topologySpreadConstraints"},
        {
            "op": "add",
            "path": "/spec/template/spec/topologySpreadConstraints/0/matchLabelKeys",
            "value": ["pod-template-hash"],
        },
        {"op": "add", "path": "/spec/template/spec/topologySpreadConstraints", "value": [None]},
    ],
    ids=["one field", "remove", "the cure", "null"],
)
def test_an_operation_that_sets_no_constraint_lacks_nothing(operation: Json, tmp_path: Path) -> None:
    patch = {"patch": json.dumps([operation]), "target": {"kind": "Deployment", "name": "web"}}
    text = yaml.safe_dump({"resources": ["base/web.yaml"], "patches": [patch]})
    done = CliRunner().invoke(app, ["fix", written(tmp_path, base__web=BASE, kustomization=text)])
    assert done.exit_code == 0, done.output


def test_a_patch_that_lists_null_lacks_nothing(tmp_path: Path) -> None:
    made = yaml.safe_load(PATCH)
    made["spec"]["template"]["spec"]["topologySpreadConstraints"] = [None]
    folder = written(tmp_path, base__web=BASE, prod__spread=yaml.safe_dump(made))
    done = CliRunner().invoke(app, ["fix", folder])
    assert done.exit_code == 0, done.output


def test_templates_of_a_chart_are_one_line(tmp_path: Path) -> None:
    folder = written(
        tmp_path, web=COMMENTED, shop__Chart="name: shop\nversion: 1.0.0\n",
        shop__templates__a=NOT_RENDERED, shop__templates__b=NOT_RENDERED, shop__templates__c__d=NOT_RENDERED,
    )  # fmt: skip
    done = CliRunner().invoke(app, ["fix", folder])
    assert done.exit_code == 0, done.output
    assert "3 templates of charts left out" in done.stderr
    assert "error" not in done.stderr
    assert "+          matchLabelKeys" in done.stdout
