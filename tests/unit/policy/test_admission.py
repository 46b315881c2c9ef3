"""Every admission plugin of kube-apiserver, and how what it does to new pods is planned with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rebalancer.model.node import ObjectMeta
from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.policy.new_pods import PLUGINS
from rebalancer.runtime.last_look.look import namespace_refuses
from tests.support.build import decoded, deployment, nodes, objects

ROOT = Path(__file__).parents[3]
TABLE = "the table"
NOT_PODS = "no pod, or none that a controller makes, is changed or refused by it"
SHOWN = (
    "whether it is on cannot be seen; that it refuses shows in ReplicaFailure, or in pods that are missing"
)
AGAIN = (
    "what it did to the pod it is taken to do again, but give it labels that something selects by; the first "
    "eviction of an owner shows otherwise"
)
OWNERS = "tests/sandbox/cycle/limits/test_owners.py"
DOUBTS = "tests/unit/engine/test_certainty.py"
ENDS = "tests/unit/policy/test_admission.py::test_a_namespace_that_is_being_deleted"
HERE = "tests/sandbox/cycle/limits/test_admission.py"

COVERED: dict[str, str] = {
    "AlwaysAdmit": NOT_PODS,
    "NamespaceAutoProvision": NOT_PODS,
    "NamespaceLifecycle": ENDS,
    "NamespaceExists": ENDS,
    "LimitPodHardAntiAffinityTopology": SHOWN,
    "LimitRanger": TABLE,
    "ServiceAccount": f"{OWNERS}::test_what_a_template_names_must_exist",
    "NodeRestriction": NOT_PODS,
    "TaintNodesByCondition": NOT_PODS,
    "PodSecurity": f"{OWNERS}::test_a_namespace_that_has_come_to_enforce_what_the_template_does_not_keep",
    "Priority": TABLE,
    "DefaultTolerationSeconds": "tests/unit/policy/test_replacement.py::toleration",
    "PodTolerationRestriction": TABLE,
    "ExtendedResourceToleration": f"{DOUBTS}::test_a_taint_of_the_extended_resource",
    "DefaultStorageClass": NOT_PODS,
    "StorageObjectInUseProtection": NOT_PODS,
    "OwnerReferencesPermissionEnforcement": SHOWN,
    "PersistentVolumeClaimResize": NOT_PODS,
    "RuntimeClass": TABLE,
    "CertificateApproval": NOT_PODS,
    "CertificateSigning": NOT_PODS,
    "ClusterTrustBundleAttest": NOT_PODS,
    "CertificateSubjectRestriction": NOT_PODS,
    "DefaultIngressClass": NOT_PODS,
    "DenyServiceExternalIPs": NOT_PODS,
    "PodTopologyLabels": NOT_PODS,  # it acts when a pod is bound
    "NodeDeclaredFeatureValidator": NOT_PODS,  # it judges resizes
    "AlwaysPullImages": "an image that cannot be pulled: tests/sandbox/cycle/limits/test_late.py",
    "EventRateLimit": NOT_PODS,
    "ImagePolicyWebhook": SHOWN,
    "PodNodeSelector": TABLE,
    "MutatingAdmissionPolicy": AGAIN,
    "MutatingAdmissionWebhook": AGAIN,
    "ValidatingAdmissionPolicy": SHOWN,
    "ValidatingAdmissionWebhook": SHOWN,
    "ResourceQuota": "tests/unit/policy/limits/test_quota.py",
    "AlwaysDeny": SHOWN,
    # Not of kube-apiserver.
    "openshift.io/node-selector": f"{HERE}::test_a_node_selector_of_the_namespace_that_the_pods_lack",
    "VerticalPodAutoscaler": "tests/sandbox/cycle/last_look/test_last_look.py::"
    "test_a_vertical_autoscaler_that_its_hung_watch_does_not_show",
}
"""By upstream's names (pkg/kubeapiserver/options/plugins.go, up to 1.36): where it is tested."""


def test_the_table_has_every_plugin_that_is_judged_by_it() -> None:
    assert set(PLUGINS) == {name for name, how in COVERED.items() if how == TABLE}


@pytest.mark.parametrize("how", sorted({how for how in COVERED.values() if "tests/" in how}))
def test_what_is_named_is_there(how: str) -> None:
    path, _, name = how[how.index("tests/") :].partition("::")
    assert re.search(re.escape(name), (ROOT / path).read_text())


def test_a_namespace_that_is_being_deleted_takes_no_new_pod() -> None:
    ends: dict[str, Any] = {"name": "default", "deletionTimestamp": "2026-05-31T23:59:59Z"}
    there = {"apiVersion": "v1", "kind": "Namespace", "metadata": ends}
    made = objects(nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 4}))
    cluster = decoded([*(o for o in made if o["kind"] != "Namespace"), there])
    assert {b.reason.code for b in plan(cluster).blocked} == {ReasonCode.OWNER_TERMINATING}
    live = cluster.namespaces["default"].metadata
    reason = namespace_refuses("default", ObjectMeta(name="default"), live, 0.0)
    assert reason is not None
    assert reason.code is ReasonCode.OWNER_TERMINATING
