"""Which pods may be evicted: every protection, with it and without."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.model.selectors import Selector
from rebalancer.policy.options import PolicyOptions
from tests.support.build import daemon_set, deployment, job, nodes, pdb, pod, stateful_set, workload
from tests.support.build.base import metadata
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import code, judged, patched, web

Case = tuple[str, Any, dict[str, Any], ReasonCode | None]

YOUNG = "2026-05-31T23:50:00Z"
"""Ten minutes before the snapshot."""


def namespace(name: str = "default", annotations: dict[str, str] | None = None, **labels: str) -> Json:
    meta = metadata("Namespace", "", name) | {"labels": labels, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def priority_class(name: str, value: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata("PriorityClass", "", name),
        "value": value,
    }


def volumes(*kinds: str) -> list[Json]:
    """web, with volumes of these kinds in pods and template."""
    source = {
        "emptyDir": {},
        "hostPath": {"path": "/var/data"},
        "configMap": {"name": "c"},
        "persistentVolumeClaim": {"claimName": "data"},
        "ephemeral": {"volumeClaimTemplate": {"spec": {}}},
    }
    spec = {"volumes": [{"name": k.lower(), k: source[k]} for k in kinds]}
    things = patched("ReplicaSet", {"spec": {"template": {"spec": spec}}}, web())
    return patched("Pod", {"spec": spec}, *things)


NATURE: list[Case] = [
    ("a pod of a ReplicaSet", web(), {}, None),
    (
        "a mirror pod",
        patched("Pod", {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, web()),
        {},
        ReasonCode.MIRROR_POD,
    ),
    (
        "a pod from a kubelet's file",
        patched("Pod", {"metadata": {"annotations": {"kubernetes.io/config.source": "file"}}}, web()),
        {},
        ReasonCode.MIRROR_POD,
    ),
    (
        "a pod from the API server, said in so many words",
        patched("Pod", {"metadata": {"annotations": {"kubernetes.io/config.source": "api"}}}, web()),
        {},
        None,
    ),
    (
        "a pod owned by its node",
        pod("web").on("a-0").owned_by("Node", "a-0", "v1"),
        {},
        ReasonCode.MIRROR_POD,
    ),
    ("a pod of a DaemonSet", daemon_set("web").placed({"a-0": 1}), {}, ReasonCode.DAEMONSET_POD),
    ("a bare pod", pod("web").on("a-0"), {}, ReasonCode.BARE_POD),
    ("a pod of a Job", job("web").placed({"a-0": 1}), {}, ReasonCode.JOB_POD),
    (
        "a pod that is being deleted",
        pod("web").on("a-0").owned_by("ReplicaSet", "x").terminating(),
        {},
        ReasonCode.TERMINATING,
    ),
    (
        "a pod on a node that has not started",
        patched("Pod", {"status": {"phase": "Pending"}}, web()),
        {},
        ReasonCode.NOT_RUNNING,
    ),
    ("a pod without a node", workload("web").placed({"": 1}), {}, ReasonCode.NOT_RUNNING),
    ("a failed pod", patched("Pod", {"status": {"phase": "Failed"}}, web()), {}, ReasonCode.NOT_RUNNING),
    ("a pod that runs and is not Ready", web().unready(0), {}, None),
]

_OWN = {"app.kubernetes.io/name": "rebalancer"}

SCOPE: list[Case] = [
    (
        "a pod of the tool itself",
        web().label_map(_OWN),
        {"own_namespace": "default"},
        ReasonCode.OWN_POD,
    ),
    (
        "another pod of the tool's namespace",
        web(),
        {"own_namespace": "default"},
        ReasonCode.EXCLUDED_NAMESPACE,
    ),
    ("the tool's labels in another namespace", web().label_map(_OWN), {"own_namespace": "ops"}, None),
    (
        "kube-system by default",
        workload("web", namespace="kube-system").placed({"a-0": 1}),
        {},
        ReasonCode.EXCLUDED_NAMESPACE,
    ),
    (
        "kube-system where it is not excluded",
        workload("web", namespace="kube-system").placed({"a-0": 1}),
        {"namespaces_exclude": ()},
        None,
    ),
    (
        "an excluded namespace",
        web(),
        {"namespaces_exclude": ("default",)},
        ReasonCode.EXCLUDED_NAMESPACE,
    ),
    (
        "excluded though included",
        web(),
        {"namespaces_include": ("default",), "namespaces_exclude": ("default",)},
        ReasonCode.EXCLUDED_NAMESPACE,
    ),
    ("a namespace that is included", web(), {"namespaces_include": ("default",)}, None),
    (
        "a namespace that is not included",
        web(),
        {"namespaces_include": ("shop",)},
        ReasonCode.EXCLUDED_NAMESPACE,
    ),
    (
        "a namespace whose labels match",
        [web(), namespace(team="a")],
        {"namespace_selector": Selector.equals({"team": "a"})},
        None,
    ),
    (
        "a namespace whose labels do not match",
        [web(), namespace(team="b")],
        {"namespace_selector": Selector.equals({"team": "a"})},
        ReasonCode.EXCLUDED_NAMESPACE,
    ),
    (
        "a namespace whose labels are not known",
        web(),
        {"namespace_selector": Selector.equals({"team": "a"})},
        ReasonCode.EXCLUDED_NAMESPACE,
    ),
    ("a pod whose labels match", web(), {"label_selector": Selector.equals({"app": "web"})}, None),
    (
        "a pod whose labels do not match",
        web(),
        {"label_selector": Selector.equals({"app": "api"})},
        ReasonCode.OUT_OF_SCOPE,
    ),
    (
        "an owner kind that is excluded",
        stateful_set("web").placed({"a-0": 1}),
        {"owner_kinds_exclude": ("StatefulSet",)},
        ReasonCode.OUT_OF_SCOPE,
    ),
    (
        "its owner's owner is of a kind that is excluded",
        deployment("web").placed({"a-0": 2}),
        {"owner_kinds_exclude": ("Deployment",)},
        ReasonCode.OUT_OF_SCOPE,
    ),
    (
        "its Deployment's owner is of a kind that is excluded",
        patched(
            "Deployment",
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "acme.example/v1", "kind": "Shop", "name": "web", "controller": True}
                    ]
                }
            },
            deployment("web").placed({"a-0": 2}),
        ),
        {"owner_kinds_exclude": ("Shop",)},
        ReasonCode.OUT_OF_SCOPE,
    ),
    ("another owner kind is excluded", web(), {"owner_kinds_exclude": ("StatefulSet",)}, None),
]

_CLAIMS = {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}}
_ALLOWED = {"metadata": {"annotations": {"rebalancer.io/evict": "true"}}}


def debugging(runs: bool) -> Json:
    """A pod's status with an ephemeral container (`kubectl debug`)."""
    now = {"running": {"startedAt": YOUNG}} if runs else {"terminated": {"exitCode": 0}}
    return {"status": {"ephemeralContainerStatuses": [{"name": "debugger", "state": now}]}}


_SERVED = {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "web-1-extended-resources-x"}}}
_RESPONDER = {"spec": {"evictionResponders": [{"name": "acme.example/drainer", "priority": 10000}]}}

SETTINGS: list[Case] = [
    (
        "an extended resource that a claim serves",
        patched("Pod", _SERVED, web()),
        {},
        ReasonCode.RESOURCE_CLAIMS,
    ),
    ("a responder of its own", patched("Pod", _RESPONDER, web()), {}, ReasonCode.EVICTION_RESPONDER),
    ("a responder, and its own word", patched("Pod", _ALLOWED, patched("Pod", _RESPONDER, web())), {}, None),
    ("an emptyDir", volumes("emptyDir"), {}, ReasonCode.LOCAL_STORAGE),
    ("a hostPath", volumes("hostPath"), {}, ReasonCode.LOCAL_STORAGE),
    ("a volume that is made and deleted with the pod", volumes("ephemeral"), {}, ReasonCode.LOCAL_STORAGE),
    ("somebody debugs it", patched("Pod", debugging(True), web()), {}, ReasonCode.DEBUGGED),
    (
        "somebody debugs it, and the image is still pulled",
        patched("Pod", {"spec": {"ephemeralContainers": [{"name": "debugger"}]}}, web()),
        {},
        ReasonCode.DEBUGGED,
    ),
    ("somebody has debugged it", patched("Pod", debugging(False), web()), {}, None),
    (
        "no budget, and its own word",
        patched("Pod", _ALLOWED, web()),
        {"protect_pods_without_pdb": True},
        ReasonCode.NO_PDB,
    ),
    ("young, and its own word", patched("Pod", _ALLOWED, web()), {"min_pod_age": 1e9}, ReasonCode.MIN_AGE),
    (
        "too few pods of a kind that is allowed",
        pod("web-0").owned_by("CloneSet", "web", "apps.kruise.io/v1alpha1").on("a-0"),
        {"owner_kinds_allow": ("CloneSet",), "min_replicas": 2},
        ReasonCode.MIN_REPLICAS,
    ),
    (
        "debugged, and its own word",
        patched("Pod", _ALLOWED, patched("Pod", debugging(True), web())),
        {},
        None,
    ),
    ("a ConfigMap is not storage", volumes("configMap"), {}, None),
    ("an emptyDir, by setting", volumes("emptyDir"), {"evict_local_storage_pods": True}, None),
    ("an emptyDir, the pod asks for it", patched("Pod", _ALLOWED, volumes("emptyDir")), {}, None),
    (
        "an emptyDir, another tool may evict it",
        patched(
            "Pod",
            {"metadata": {"annotations": {"descheduler.alpha.kubernetes.io/evict": "true"}}},
            volumes("emptyDir"),
        ),
        {},
        ReasonCode.LOCAL_STORAGE,
    ),
    ("a system-critical priority", web().priority(2_000_000_000), {}, ReasonCode.SYSTEM_CRITICAL),
    ("a priority just below", web().priority(1_999_999_999), {}, None),
    (
        "a system-critical class",
        patched("Pod", {"spec": {"priorityClassName": "system-node-critical"}}, web()),
        {},
        ReasonCode.SYSTEM_CRITICAL,
    ),
    (
        "a system-critical priority, by setting",
        web().priority(2_000_000_000),
        {"evict_system_critical_pods": True},
        None,
    ),
    (
        "a priority at the threshold",
        web().priority(100),
        {"priority_threshold": 100},
        ReasonCode.PRIORITY,
    ),
    ("a priority below the threshold", web().priority(99), {"priority_threshold": 100}, None),
    ("a threshold of 0", web(), {"priority_threshold": 0}, ReasonCode.PRIORITY),
    (
        "a priority at the threshold's class",
        [web().priority(500), priority_class("gold", 500)],
        {"priority_threshold_class": "gold"},
        ReasonCode.PRIORITY,
    ),
    (
        "a priority below the threshold's class",
        [web().priority(499), priority_class("gold", 500)],
        {"priority_threshold_class": "gold"},
        None,
    ),
    ("a claim, by default", volumes("persistentVolumeClaim"), {}, None),
    (
        "a claim, protected",
        volumes("persistentVolumeClaim"),
        {"protect_pvc_pods": True},
        ReasonCode.PVC_POD,
    ),
    ("no claim, claims protected", volumes("configMap"), {"protect_pvc_pods": True}, None),
    ("a resource claim", patched("Pod", _CLAIMS, web()), {}, ReasonCode.RESOURCE_CLAIMS),
    (
        "a resource claim, by setting",
        patched("Pod", _CLAIMS, web()),
        {"protect_resource_claim_pods": False},
        None,
    ),
    ("no budget, by default", web(), {}, None),
    ("no budget, one is asked for", web(), {"protect_pods_without_pdb": True}, ReasonCode.NO_PDB),
    (
        "a budget is asked for and there",
        [web(), pdb("web", {"app": "web"}, max_unavailable=1)],
        {"protect_pods_without_pdb": True},
        None,
    ),
    (
        "a pod younger than minPodAge",
        patched("Pod", {"metadata": {"creationTimestamp": YOUNG}}, web()),
        {"min_pod_age": 601.0},
        ReasonCode.MIN_AGE,
    ),
    (
        "a pod as old as minPodAge",
        patched("Pod", {"metadata": {"creationTimestamp": YOUNG}}, web()),
        {"min_pod_age": 600.0},
        None,
    ),
    (
        "a pod of unknown age",
        patched("Pod", {"metadata": {"creationTimestamp": None}}, web()),
        {"min_pod_age": 600.0},
        None,
    ),
    ("fewer replicas than minReplicas", web(), {"min_replicas": 4}, ReasonCode.MIN_REPLICAS),
    ("as many replicas as minReplicas", web(), {"min_replicas": 3}, None),
]

CASES = [*NATURE, *SCOPE, *SETTINGS]


@pytest.mark.parametrize(("things", "options", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_pod_is_let_go_or_protected(
    things: Any, options: dict[str, Any], expected: ReasonCode | None
) -> None:
    assert code(things, options=PolicyOptions(**options)) == expected


@pytest.mark.parametrize("value", [None, 10])
def test_an_unknown_threshold_class_lets_nobody_go(value: int | None) -> None:
    options = PolicyOptions(priority_threshold=value, priority_threshold_class="none")
    reason = judged(web().priority(-5), options=options)
    assert reason is not None
    assert reason.code is ReasonCode.PRIORITY
    assert "none" in reason.message


@pytest.mark.parametrize(("value", "of_class"), [(10, 20), (20, 10)])
def test_of_two_thresholds_the_lower_counts(value: int, of_class: int) -> None:
    options = PolicyOptions(priority_threshold=value, priority_threshold_class="gold")
    gold = priority_class("gold", of_class)
    assert code(web().priority(10), gold, options=options) is ReasonCode.PRIORITY
    assert code(web().priority(9), gold, options=options) is None


def test_a_reason_names_its_figures() -> None:
    reason = judged(web().priority(7), options=PolicyOptions(priority_threshold=5))
    assert reason is not None
    assert reason.numbers == {"priority": 7, "threshold": 5}


def test_nothing_is_said_to_be_lost_with_a_pod_that_reads_a_file_of_its_node() -> None:
    reason = judged(volumes("hostPath"))
    assert reason is not None
    assert "lost" not in reason.message
    assert "stays on its node" in reason.message


def test_the_pods_own_word_does_not_open_budgets_or_kinds() -> None:
    yes = {"rebalancer.io/evict": "true"}
    budget = pdb("web", {"app": "web"}, max_unavailable=0)
    assert code(patched("Pod", _ALLOWED, web(), budget)) is ReasonCode.PDB_EXHAUSTED
    assert code(pod("web").on("a-0").annotated(yes)) is ReasonCode.BARE_POD
    assert code(patched("Pod", _ALLOWED, job("web").placed({"a-0": 1}))) is ReasonCode.JOB_POD


UNOPENED: list[tuple[str, Any, ReasonCode]] = [
    *(
        (name, things, no)
        for name, things, options, no in (*NATURE, *SCOPE)
        if no is not None and not options
    ),
    (
        "a paused Deployment",
        patched("Deployment", {"spec": {"paused": True}}, deployment("web").placed({"a-0": 2})),
        ReasonCode.PAUSED,
    ),
    ("a queue", web().label_map({"kueue.x-k8s.io/queue-name": "team"}), ReasonCode.ADMISSION_QUEUE),
    ("a group", web().label_map({"ray.io/cluster": "ring"}), ReasonCode.GANG),
    ("the others are not Ready", web().unready(1, 2), ReasonCode.OWNER_DEGRADED),
    (
        "a no of its owner",
        patched("ReplicaSet", {"metadata": {"annotations": {"rebalancer.io/evict": "false"}}}, web()),
        ReasonCode.ANNOTATION,
    ),
]


@pytest.mark.parametrize(("things", "no"), [c[1:] for c in UNOPENED], ids=[c[0] for c in UNOPENED])
def test_the_pods_own_word_opens_nothing_but_settings(things: Any, no: ReasonCode) -> None:
    assert code(patched("Pod", _ALLOWED, things)) is no


def test_an_owners_word_does_not_open_settings() -> None:
    things = patched("ReplicaSet", _ALLOWED, volumes("emptyDir"))
    assert code(things) is ReasonCode.LOCAL_STORAGE


def test_a_whole_deployment_may_be_evicted() -> None:
    assert code(nodes(a=1), deployment("web").placed({"a-0": 2})) is None


PROXY: Json = {"spec": {"volumes": [{"name": n, "emptyDir": {}} for n in ("data", "istio-envoy")]}}
CACHE: Json = {"spec": {"volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}]}}
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
INJECTED: list[tuple[str, Json, str, bool]] = [
    ("the template has none", {}, "", True),
    ("one is the app's own", CACHE, "", False),
    ("the app's own may be lost", CACHE, "tmp,data", True),
    ("the proxy's may be lost", CACHE, "istio-envoy", False),
]


@pytest.mark.parametrize(
    ("sentence", "app", "safe", "goes"), INJECTED, ids=[sentence for sentence, *_ in INJECTED]
)
def test_volumes_that_admission_added_hold_no_data(sentence: str, app: Json, safe: str, goes: bool) -> None:
    del sentence
    made = deployment("web").placed({"a-0": 2, "b-0": 1})
    things = patched("ReplicaSet", {"spec": {"template": app}}, made)
    things = patched("Pod", {**PROXY, "metadata": {"annotations": {SAFE: safe}}}, *things)
    assert (code(*things) is None) is goes
    others = PolicyOptions(foreign_annotations=("karpenter",))
    assert (code(*things, options=others) is None) is (not app)


def test_what_a_bare_replica_sets_template_does_not_have_may_have_been_in_it() -> None:
    assert code(*patched("Pod", PROXY, web())) is ReasonCode.LOCAL_STORAGE
