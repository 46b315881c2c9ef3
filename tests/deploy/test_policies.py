"""The admission policies of deploy/prevention, evaluated."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from rebalancer.model.pod import DELETION_COST
from rebalancer.policy.release import Mark
from tests.deploy.manifests import ROOT
from tests.support.cel import mutated, refusals
from tests.support.rollouts import CASES, Case
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


HASH, MARK, BEFORE = "pod-template-hash", "rebalancer.io/released", "rebalancer.io/cost-before-undo"
SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}
TOP = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": False}
SAYS = str(Mark(label=HASH, value="abc", replica_set="rs", pod="u", at=1, by="here"))
OURS = pod(uid="u", labels={"app": "web", HASH: "abc"}, ownerReferences=[SET])
RELEASED = pod(uid="u", labels={"app": "web"}, annotations={MARK: SAYS}, ownerReferences=[SET, TOP])
LET_GO = pod(uid="u", labels={"app": "web"}, annotations={MARK: SAYS}, ownerReferences=[TOP])
ALONE = pod(uid="u", labels={"app": "web"}, annotations={MARK: SAYS}, ownerReferences=[])
OF_SET = {**SET, "controller": False}
RETURNED = pod(uid="u", labels={"app": "web", HASH: "abc"}, ownerReferences=[])


def meta_of(made: Json, **values: Any) -> Json:
    found = copy.deepcopy(made)
    found["metadata"].update(values)
    return found


def with_image(made: Json) -> Json:
    image(found := copy.deepcopy(made))
    return found


COSTLY = {DELETION_COST: "-2147483648", BEFORE: "7"}
ALSO = [
    ("a release", OURS, RELEASED, ""),
    ("given back after it was let go", LET_GO, RETURNED, ""),
    ("given back before", RELEASED, OURS, ""),
    ("a cost for an undo", meta_of(OURS, annotations={COST: "7"}), meta_of(OURS, annotations=COSTLY), ""),
    ("as it was", meta_of(OURS, annotations=COSTLY), meta_of(OURS, annotations={COST: "7"}), ""),
    ("a release and an image", OURS, with_image(RELEASED), "spec"),
    ("another label less", OURS, meta_of(RELEASED, labels={HASH: "abc"}), "labels"),
    ("two labels less", OURS, meta_of(RELEASED, labels={}), "labels"),
    ("a label less without a mark", OURS, meta_of(OURS, labels={"app": "web"}), "labels"),
    ("another label comes back", LET_GO, meta_of(RETURNED, labels={"app": "web", "x": "abc"}), "labels"),
    ("another value", LET_GO, meta_of(RETURNED, labels={"app": "web", HASH: "x"}), "labels"),
    ("a mark of another pod", meta_of(OURS, uid="v"), meta_of(RELEASED, uid="v"), "mark"),
    ("a mark and no label less", OURS, meta_of(RELEASED, labels={"app": "web", HASH: "abc"}), "mark"),
    (
        "a mark of a label that is not there",
        OURS,
        meta_of(OURS, annotations={MARK: SAYS.replace(HASH, "x")}),
        "mark",
    ),
    ("a mark less and no label back", LET_GO, meta_of(LET_GO, annotations={}), "mark"),
    ("a mark changes", LET_GO, meta_of(LET_GO, annotations={MARK: SAYS + " "}), "mark"),
    ("another owner", OURS, meta_of(RELEASED, ownerReferences=[SET, {**TOP, "name": "x"}]), "owners"),
    ("a controller", OURS, meta_of(RELEASED, ownerReferences=[SET, {**TOP, "controller": True}]), "owners"),
    ("its ReplicaSet less", OURS, meta_of(RELEASED, ownerReferences=[TOP]), "owners"),
    ("a reference to its ReplicaSet, which let it go", ALONE, meta_of(ALONE, ownerReferences=[OF_SET]), ""),
    ("given back with that", meta_of(ALONE, ownerReferences=[OF_SET]), RETURNED, ""),
    ("the same as a controller", ALONE, meta_of(ALONE, ownerReferences=[SET]), "owners"),
    ("to another one", ALONE, meta_of(ALONE, ownerReferences=[{**OF_SET, "uid": "x"}]), "owners"),
    ("without a mark", RETURNED, meta_of(RETURNED, ownerReferences=[OF_SET]), "owners"),
]


@pytest.mark.parametrize(("case", "old", "new", "refused"), ALSO, ids=[c[0] for c in ALSO])
def test_a_pod_is_released_and_given_back_and_no_more(case: str, old: Json, new: Json, refused: str) -> None:
    said = refusals(policy("scale-in-policy.yaml"), old, new, US)
    assert bool(said) == bool(refused), (case, said)
    assert any(refused in message for message in said) or not refused


def test_others_are_not_restricted() -> None:
    changed = pod(labels={})
    assert not refusals(policy("scale-in-policy.yaml"), pod(), changed, "system:serviceaccount:shop:default")


ROLLOUTS = ("rollouts-policy.yaml", "rollouts-policy-kyverno.yaml")
CREATED = [c for c in CASES if c.kind == "Deployment"]


@pytest.mark.parametrize("file", ROLLOUTS)
@pytest.mark.parametrize("case", CREATED, ids=lambda c: c.name)
def test_a_deployment_is_created_with_what_tells_its_revisions_apart(case: Case, file: str) -> None:
    made = mutated(policy(file), case.manifest)
    assert made == case.fixed
    assert mutated(policy(file), made) == made, "a second time changes nothing"


@pytest.mark.parametrize("file", ROLLOUTS)
def test_only_deployments_that_are_created_where_somebody_wants_it(file: str) -> None:
    (rule,) = policy(file)["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["deployments"], ["CREATE"])
    objects = list(yaml.safe_load_all((FOLDER / file).read_text()))
    where = objects[-1]["spec"].get("matchResources") or objects[-1]["spec"]["matchConstraints"]
    assert where["namespaceSelector"] == {"matchLabels": {"rebalancer.io/rollouts": "spread"}}


def test_kyverno_has_the_same_expressions() -> None:
    ours, theirs = (policy(file)["spec"] for file in ROLLOUTS)
    for part in ("matchConditions", "variables", "mutations"):
        assert ours[part] == theirs[part]
