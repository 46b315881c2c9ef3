"""Deployments and what `matchLabelKeys` their constraints should have: one table for all forms."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.support.scheduler.plain import Json

HASH = "pod-template-hash"
OWN = {"matchLabels": {"app": "web"}}


def constraint(**more: Any) -> Json:
    """Over zones, of the Deployment's own pods."""
    made = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": OWN,
        **more,
    }
    return {k: deepcopy(v) for k, v in made.items() if v is not None}


@dataclass(frozen=True, slots=True)
class Case:
    """`keys`: constraint → its matchLabelKeys as they should be; those that stay are not named."""

    name: str
    constraints: list[Json] | None
    keys: dict[int, list[str]]
    kind: str = "Deployment"
    strategy: Json | None = None
    labels: dict[str, str] = field(default_factory=lambda: {"app": "web", "release": "7"})
    selector: Json = field(default_factory=lambda: deepcopy(OWN))

    @property
    def manifest(self) -> Json:
        """The workload."""
        spec: Json = {"containers": [{"name": "c", "image": "app:1"}]}
        if self.constraints is not None:
            spec["topologySpreadConstraints"] = deepcopy(self.constraints)
        made: Json = {
            "apiVersion": "apps/v1",
            "kind": self.kind,
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "replicas": 3,
                "selector": deepcopy(self.selector),
                "template": {"metadata": {"labels": dict(self.labels)}, "spec": spec},
            },
        }
        if self.strategy is not None:
            made["spec"]["strategy"] = deepcopy(self.strategy)
        return made

    @property
    def fixed(self) -> Json:
        """The workload as it should be."""
        made = self.manifest
        for index, keys in self.keys.items():
            made["spec"]["template"]["spec"]["topologySpreadConstraints"][index]["matchLabelKeys"] = keys
        return made


def _in(key: str, operator: str, *values: str) -> Json:
    expression: Json = {"key": key, "operator": operator}
    return {**expression, "values": list(values)} if values else expression


CASES = [
    Case("a constraint that counts all revisions", [constraint()], {0: [HASH]}),
    Case("a soft one", [constraint(whenUnsatisfiable="ScheduleAnyway")], {0: [HASH]}),
    Case("none", None, {}),
    Case("an empty list", [], {}),
    Case(
        "two of which one has it",
        [constraint(matchLabelKeys=[HASH]), constraint(topologyKey="kubernetes.io/hostname")],
        {1: [HASH]},
    ),
    Case("another key that differs from revision to revision", [constraint(matchLabelKeys=["release"])], {}),
    Case("a key that never differs", [constraint(matchLabelKeys=["app"])], {0: ["app", HASH]}),
    Case("an empty list of keys", [constraint(matchLabelKeys=[])], {0: [HASH]}),
    Case(
        "a selector with a revision label",
        [constraint(labelSelector={"matchLabels": {"app": "web", "release": "7"}})],
        {},
    ),
    Case(
        "a revision label in an expression",
        [constraint(labelSelector={"matchExpressions": [_in("release", "In", "7")]})],
        {},
    ),
    Case(
        "a revision label by a longer name, in capitals",
        [constraint(labelSelector={"matchLabels": {"app.kubernetes.io/Version": "7"}})],
        {},
        labels={"app.kubernetes.io/Version": "7"},
    ),
    Case(
        "a revision label that the Deployment's own selector fixes",
        [constraint(labelSelector={"matchLabels": {"release": "7"}})],
        {0: [HASH]},
        selector={"matchLabels": {"app": "web", "release": "7"}},
    ),
    Case(
        "the same, fixed by an expression",
        [constraint(labelSelector={"matchLabels": {"release": "7"}})],
        {0: [HASH]},
        selector={"matchExpressions": [_in("release", "In", "7")]},
    ),
    Case(
        "a selector by expressions",
        [constraint(labelSelector={"matchExpressions": [_in("app", "In", "web", "api")]})],
        {0: [HASH]},
    ),
    Case(
        "an expression that its pods do not match",
        [constraint(labelSelector={"matchExpressions": [_in("app", "NotIn", "web")]})],
        {},
    ),
    Case("Exists", [constraint(labelSelector={"matchExpressions": [_in("app", "Exists")]})], {0: [HASH]}),
    Case(
        "DoesNotExist of a label that is there",
        [constraint(labelSelector={"matchExpressions": [_in("app", "DoesNotExist")]})],
        {},
    ),
    Case(
        "DoesNotExist of one that is not",
        [constraint(labelSelector={"matchExpressions": [_in("x", "DoesNotExist")]})],
        {0: [HASH]},
    ),
    Case("a selector of other pods", [constraint(labelSelector={"matchLabels": {"app": "other"}})], {}),
    Case("no selector", [constraint(labelSelector=None)], {}),
    Case("an empty selector", [constraint(labelSelector={})], {}),
    Case("no labels", [constraint()], {}, labels={}),
    Case("Recreate", [constraint()], {}, strategy={"type": "Recreate"}),
    Case("RollingUpdate", [constraint()], {0: [HASH]}, strategy={"type": "RollingUpdate"}),
    Case(
        "a rolling update without a type",
        [constraint()],
        {0: [HASH]},
        strategy={"rollingUpdate": {"maxSurge": 0}},
    ),
    Case(
        "a StatefulSet, whose pods come back into the gaps they leave", [constraint()], {}, kind="StatefulSet"
    ),
]
