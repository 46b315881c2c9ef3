"""The policies of deploy/prevention on a real API server, by server-side dry run: the tables of tests/deploy.

They need Kubernetes 1.36 or later, and rights over admission policies. What is created is removed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import pytest
import yaml

from tests.deploy.test_policies import CHANGES, FOLDER, US, pod
from tests.e2e.kubectl import Kubectl, Object
from tests.support.rollouts import CASES, OWN

SELECTS = ("topologyKey", "labelSelector", "matchLabelKeys")


@pytest.fixture
def admitting(real: Kubectl) -> Iterator[Kubectl]:
    """A cluster with both policies; its namespace asks for the one about rollouts."""
    try:
        real("get", "mutatingadmissionpolicies.v1.admissionregistration.k8s.io")
    except AssertionError as e:
        pytest.skip(f"no MutatingAdmissionPolicy v1 here: {e}")
    files = [str(FOLDER / f) for f in ("rollouts-policy.yaml", "scale-in-policy.yaml")]
    made = [kind for f in files for kind in real("create", "-f", f, "-o", "name").split()]
    try:
        real("label", "namespace", real.namespace, "rebalancer.io/rollouts=spread")
        yield real
    finally:
        real("delete", "--wait=false", *made)


def refusal(kubectl: Kubectl, *arguments: str, of: Object) -> str:
    """What the API server has against an object; "" if it takes it."""
    try:
        kubectl(*arguments, "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(of))
    except AssertionError as e:
        return str(e)
    return ""


def created(kubectl: Kubectl, workload: Object) -> Object:
    """What the API server would make of it."""
    done = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=yaml.safe_dump(workload))
    found: Object = json.loads(done)
    return found


def constraints(workload: Object) -> list[Object]:
    """What of the constraints the rule reads or writes; an empty list is none."""
    found = workload["spec"]["template"]["spec"].get("topologySpreadConstraints") or []
    return [{k: c[k] for k in SELECTS if c.get(k)} for c in found]


def test_deployments_are_created_as_the_shared_table_has_them(admitting: Kubectl) -> None:
    first = next(c for c in CASES if c.keys and c.kind == "Deployment" and c.selector == OWN)

    def here(workload: Object) -> Object:
        workload["metadata"]["namespace"] = admitting.namespace
        return workload

    admitting.until(
        lambda: constraints(created(admitting, here(first.manifest))) == constraints(first.fixed),
        "the policy is in force",
    )
    refused = []
    for case in (c for c in CASES if c.kind == "Deployment"):
        if refusal(admitting, "create", of=here(case.manifest)):
            refused.append(case.name)
        else:
            assert constraints(created(admitting, here(case.manifest))) == constraints(case.fixed), case.name
    assert len(refused) <= 2, f"no API server takes these manifests, be it without the policy: {refused}"


def test_of_a_pod_we_may_change_its_deletion_cost_only(admitting: Kubectl) -> None:
    rights = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "update", "patch"]}
    kind, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    admitting.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}},
        {"apiVersion": kind, "kind": "Role", "metadata": {"name": "us"}, "rules": [rights]},
        {
            "apiVersion": kind,
            "kind": "RoleBinding",
            "metadata": {"name": "us"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "us"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": US}],
        },
    )
    owner = json.loads(admitting("get", "configmap", "owner", "-o", "json"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    olds = []
    for i, (_, before, _, _) in enumerate(CHANGES):
        made = pod(annotations=before, ownerReferences=[reference])
        made["metadata"]["name"] = f"web-{i}"
        # Nobody places it.
        made["spec"]["schedulerName"] = "none"
        admitting("create", "-f", "-", stdin=yaml.safe_dump(made))
        olds.append(json.loads(admitting("get", "pod", f"web-{i}", "-o", "json")))

    def said(i: int, *who: str) -> str:
        new = copy.deepcopy(olds[i])
        del new["metadata"]["resourceVersion"]
        CHANGES[i][2](new)
        return refusal(admitting, *who, "replace", of=new)

    label = next(i for i, c in enumerate(CHANGES) if c[0] == "a label")
    admitting.until(lambda: "rebalancer may" in said(label, "--as", US), "the policy is in force")
    for i, (name, _, _, why) in enumerate(CHANGES):
        found = said(i, "--as", US)
        assert bool(found) == bool(why), f"{name}: {found}"
        # That a cost is a whole number the API server asks itself, before any policy.
        assert why in found or "whole number" in why, f"{name}: {found}"
        assert "rebalancer may" not in said(i), f"{name}: others are not restricted"
