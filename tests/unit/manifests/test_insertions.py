"""`rebalancer fix` on texts: what is added is added, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from rebalancer.manifests.documents import Text
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
    "Windows": lambda o: yaml.safe_dump(o, sort_keys=False).replace("\n", "\r\n"),
    "a List": lambda o: yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [o]}, sort_keys=False),
    "the second document": lambda o: "# first\n---\n" + yaml.safe_dump(o, sort_keys=False),
    "no end of line at the end": lambda o: yaml.safe_dump(o, sort_keys=False).rstrip("\n"),
}


def said(text: str) -> Json:
    found: Json = [d for d in yaml.safe_load_all(text) if d][-1]
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
