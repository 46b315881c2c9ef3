"""The admission policies of deploy/prevention, evaluated."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import ROOT
from tests.support.cel import refusals
from tests.support.scheduler.plain import Json

FOLDER = ROOT / "deploy" / "prevention"
COST = "controller.kubernetes.io/pod-deletion-cost"
US = "system:serviceaccount:rebalancer:rebalancer"


def policy(file: str) -> Json:
    found: Json = next(yaml.safe_load_all((FOLDER / file).read_text()))
    return found


def pod(**metadata: Any) -> Json:
    labels = {"app": "web"}
    owners = [{"kind": "ReplicaSet", "name": "web", "uid": "u"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-1", "labels": labels, "ownerReferences": owners, **metadata},
        "spec": {"containers": [{"name": "c", "image": "app:1"}]},
    }


def image(changed: Json) -> None:
    changed["spec"]["containers"][0]["image"] = "other"


def meta(**values: Any) -> Any:
    return lambda changed: changed["metadata"].update(values)


CHANGES = [
    ("a first cost", {}, meta(annotations={COST: "-1"}), ""),
    ("another cost", {COST: "-1", "a": "b"}, meta(annotations={COST: "-2", "a": "b"}), ""),
    ("no cost any more", {COST: "-1"}, meta(annotations={}), ""),
    ("a cost that is no number", {}, meta(annotations={COST: "x"}), "whole number"),
    ("another annotation", {}, meta(annotations={"a": "b"}), "deletion cost only"),
    ("an annotation less", {"a": "b"}, meta(annotations={}), "deletion cost only"),
    ("an annotation changed", {"a": "b"}, meta(annotations={"a": "c", COST: "1"}), "deletion cost only"),
    ("a label", {}, meta(labels={"app": "other"}), "labels"),
    ("no labels", {}, lambda o: o["metadata"].pop("labels"), "labels"),
    ("an image", {}, image, "spec"),
    ("no owner", {}, meta(ownerReferences=[]), "owners"),
    ("a finalizer", {}, meta(finalizers=["a.b/c"]), "finalizers"),
]


@pytest.mark.parametrize(("case", "annotations", "change", "refused"), CHANGES, ids=[c[0] for c in CHANGES])
def test_of_a_pod_we_may_change_its_deletion_cost_only(
    case: str, annotations: dict[str, str], change: Any, refused: str
) -> None:
    assert case
    old = pod(annotations=annotations) if annotations else pod()
    new = copy.deepcopy(old)
    change(new)
    said = refusals(policy("scale-in-policy.yaml"), old, new, US)
    assert len(said) == bool(refused)
    assert all(refused in message for message in said)


def test_others_are_not_restricted() -> None:
    changed = pod(labels={})
    assert not refusals(policy("scale-in-policy.yaml"), pod(), changed, "system:serviceaccount:shop:default")
