"""What makes a prediction uncertain is said, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from rebalancer.admission import ENFORCE
from rebalancer.engine.certainty import uncertainties
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.planner import PlanOptions, plan
from rebalancer.policy.options import PolicyOptions
from tests.support.build import (
    claim,
    decoded,
    deployment,
    node,
    nodes,
    objects,
    pod,
    snapshot,
    volume,
    workload,
)
from tests.unit.engine.judge import Asked


def test_an_ordinary_pod_is_certain() -> None:
    assert Asked(nodes(a=1), pod("new").spread("zone", 1)).doubts == ""


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("schedulerName", "other", "another scheduler, 'other'"),
        ("schedulingGates", [{"name": "wait"}], "scheduling gates: wait"),
        ("resourceClaims", [{"name": "gpu"}], "resource claims"),
        ("tolerations", [{"key": "k", "operator": "Gt", "value": "3"}], "feature gate"),
        ("schedulingGroup", {"podGroupName": "ring"}, "in group ring, which the scheduler places as a whole"),
    ],
)
def test_what_is_not_modelled_is_named(field: str, value: object, text: str) -> None:
    new = pod("new")
    new._spec[field] = value
    assert text in Asked(nodes(a=1), new).doubts


SAFE = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "seccompProfile": {"type": "RuntimeDefault"},
    "capabilities": {"drop": ["ALL"]},
}
MESH: Mapping[str, Any] = {"name": "mesh", "image": "mesh"}
NET_ADMIN = {"capabilities": {"add": ["NET_ADMIN"]}}
HOST_PROBE = {"livenessProbe": {"tcpSocket": {"host": "192.0.2.1", "port": 1}}}


@pytest.mark.parametrize(
    ("level", "added", "doubt"),
    [
        ("", {"containers": [{**MESH, "securityContext": NET_ADMIN}]}, ""),
        ("baseline", {"initContainers": [MESH]}, ""),
        ("baseline", {"containers": [MESH]}, ""),
        ("baseline", {"initContainers": [{**MESH, "securityContext": NET_ADMIN}]}, "capabilities"),
        ("baseline", {"containers": [{**MESH, "ports": [{"containerPort": 1, "hostPort": 1}]}]}, "hostPorts"),
        ("baseline", {"containers": [{**MESH, **HOST_PROBE}]}, "hostProbesAndHostLifecycle"),
        ("baseline", {"volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}]}, "hostPathVolumes"),
        ("restricted", {"containers": [MESH]}, "allowPrivilegeEscalation"),
        ("restricted", {"containers": [{**MESH, "securityContext": SAFE}]}, ""),
    ],
    ids=str,
)
def test_what_admission_adds_to_a_pod_is_judged_by_pod_security(
    level: str, added: Mapping[str, list[Any]], doubt: str
) -> None:
    labels = {ENFORCE: level} if level else {}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    web._spec["containers"][0]["securityContext"] = SAFE
    things = objects(nodes(a=1, b=1), web, space)
    for one in things:
        if one["kind"] == "Pod":
            for field, more in added.items():
                one["spec"][field] = [*one["spec"].get(field, ()), *more]
    allowing = PlanOptions(policy=PolicyOptions(evict_local_storage_pods=True))
    made = plan(decoded(things), allowing)
    assert bool(made.moves) is not bool(doubt)
    assert all(doubt in b.reason.message for b in made.blocked)


@pytest.mark.parametrize(
    "where",
    [
        {"containers": [{"name": "c", "image": "app:dev", "imagePullPolicy": "Never"}]},
        {"initContainers": [{"name": "i", "image": "app:dev", "imagePullPolicy": "Never"}]},
        {"volumes": [{"name": "v", "image": {"reference": "data:1", "pullPolicy": "Never"}}]},
    ],
)
@pytest.mark.parametrize("policy", ["Never", "IfNotPresent"])
def test_an_image_that_is_never_pulled_may_be_missing_on_a_node(
    where: dict[str, list[Any]], policy: str
) -> None:
    new = pod("new")
    new._spec.update(json.loads(json.dumps(where).replace("Never", policy)))
    assert bool(Asked(nodes(a=1), new).doubts) is (policy == "Never")


LOCAL = {"type": "Localhost", "localhostProfile": "p"}


@pytest.mark.parametrize(
    ("context", "certain"),
    [
        ({"seccompProfile": LOCAL}, False),
        ({"appArmorProfile": LOCAL}, False),
        ({"seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "Unconfined"}}, True),
    ],
)
@pytest.mark.parametrize("of", ["pod", "containers", "initContainers"])
def test_a_profile_of_the_node_may_be_missing_on_another(of: str, context: Any, certain: bool) -> None:
    new = pod("new")
    one = {"securityContext": context}
    new._spec.update(one if of == "pod" else {of: [{"name": "c", "image": "app", **one}]})
    assert bool(Asked(nodes(a=1), new).doubts) is not certain


@pytest.mark.parametrize(
    ("value", "certain"), [("localhost/p", False), ("runtime/default", True), ("unconfined", True)]
)
def test_so_may_one_that_an_annotation_names(value: str, certain: bool) -> None:
    """Up to 1.29 nothing else names profiles of AppArmor."""
    new = pod("new").annotated({"container.apparmor.security.beta.kubernetes.io/c": value})
    assert bool(Asked(nodes(a=1), new).doubts) is not certain


@pytest.mark.parametrize(
    ("sysctl", "version", "certain"),
    [
        ("kernel.shm_rmid_forced", "v1.29.0", True),
        ("kernel.msgmax", "v1.36.0", False),
        ("net.ipv4.tcp_rmem", "v1.32.0", False),
        ("net.ipv4.tcp_rmem", "v1.35.0", True),
    ],
)
def test_a_sysctl_that_not_every_kubelet_allows_is_a_doubt(sysctl: str, version: str, certain: bool) -> None:
    """A kubelet may be three releases older than the API server."""
    new = pod("new")
    new._spec["securityContext"] = {"sysctls": [{"name": sysctl, "value": "1"}]}
    doubts = Asked(nodes(a=1), new, version=version).doubts
    assert (sysctl in doubts) is not certain


@pytest.mark.parametrize(("taken", "certain"), [("1", True), ("1750m", False), ("1850m", True)])
def test_a_pod_that_may_come_back_smaller_is_certain_where_that_opens_no_node(
    taken: str, certain: bool
) -> None:
    """Its template states 200m, and it takes 300m now."""
    web = deployment("web").requests(cpu="200m").spread("zone", 1).placed({"a-0": 4})
    busy = pod("busy").on("c-0").requests(cpu=taken)
    things = objects(nodes(a=1, b=1), node("c-0").zone("c").cpu("2"), web, busy)
    for one in things:
        if one["kind"] == "Pod" and one["metadata"]["name"] != "busy":
            one["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "300m"
    made = plan(decoded(things))
    assert bool(made.moves) is certain


def test_features_that_a_node_must_declare_are_named() -> None:
    new = pod("new")
    new._spec.update(hostNetwork=True, hostUsers=False)
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
    new._spec["containers"][0]["restartPolicyRules"] = [rule]
    assert (
        "features that nodes declare: UserNamespacesHostNetworkSupport, RestartAllContainersOnContainerExits"
        in Asked(nodes(a=1), new).doubts
    )
    new._spec.update(hostUsers=True)
    rule["action"] = "Restart"
    assert Asked(nodes(a=1), new).doubts == ""


@pytest.mark.parametrize(
    ("version", "prevents", "certain"),
    [("v1.36.2", True, False), ("v1.36.2", False, True), ("v1.37.0", True, False), ("v1.37.0", False, True)],
)
def test_a_driver_that_keeps_pods_off_nodes_without_it(version: str, prevents: bool, certain: bool) -> None:
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "ebs.example"},
              "spec": {"preventPodSchedulingIfMissing": prevents}}  # fmt: skip
    stored = volume("pv", "data").build()[0]
    stored["spec"]["csi"] = {"driver": "ebs.example", "volumeHandle": "x"}
    asked = Asked(nodes(a=1), stored, driver, claim("data", "pv"), pod("new").mounts("data"), version=version)
    assert (asked.doubts == "") is certain, asked.doubts
    assert asked.fits == ([] if prevents and version == "v1.37.0" else ["a-0"])


@pytest.mark.parametrize(
    ("version", "certain"),
    [("v1.28.9", False), ("v1.29.0", True), ("v1.37.0", True), ("v1.38.0", True), ("", True)],
)
def test_versions_before_the_contract_are_uncertain_and_newer_ones_an_assumption(
    version: str, certain: bool
) -> None:
    assert (Asked(nodes(a=1), pod("new"), version=version).doubts == "") is certain


def test_an_unknown_version_is_an_assumption() -> None:
    asked = Asked(nodes(a=1), pod("new"), version="")
    assert "server version unknown: rules of kube-scheduler 1.37" in asked.framework.assumptions()


def test_kinds_that_were_not_read_do_not_crash_and_are_named() -> None:
    asked = Asked(nodes(a=1), volume("pv", "data"), claim("data", "pv"), pod("new").mounts("data"))
    hidden = asked.snapshot.kinds - {"PersistentVolume", "CSINode"}
    state = ClusterState.of(msgspec.structs.replace(asked.snapshot, kinds=hidden, volumes={}))
    framework = asked.framework.__class__(state)
    assert framework.feasible(asked.template).all()
    (doubt,) = uncertainties(state, framework.profile, asked.template)
    assert "PersistentVolume, CSINode" in doubt


@pytest.mark.parametrize(
    ("waits", "reports", "certain"), [(False, True, True), (True, False, True), (True, True, False)]
)
def test_a_driver_s_room_matters_only_to_claims_that_it_still_has_to_serve(
    waits: bool, reports: bool, certain: bool
) -> None:
    """kubectl lists no kind of which there is no object."""
    api = {"apiVersion": "storage.k8s.io/v1"}
    driver = {
        **api,
        "kind": "CSIDriver",
        "metadata": {"name": "csi.example"},
        "spec": {"storageCapacity": reports},
    }
    kind = {**api, "kind": "StorageClass", "metadata": {"name": "zonal"}, "provisioner": "csi.example",
            "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    mounted = claim("data", "pv").build()[0]
    if waits:
        mounted["metadata"]["annotations"], mounted["status"] = {}, {"phase": "Pending"}
        del mounted["spec"]["volumeName"]
    asked = Asked(nodes(a=1), volume("pv", "data"), kind, driver, mounted, pod("new").mounts("data"))
    read = msgspec.structs.replace(asked.snapshot, kinds=asked.snapshot.kinds - {"CSIStorageCapacity"})
    doubts = uncertainties(ClusterState.of(read), asked.framework.profile, asked.template)
    assert doubts == (
        () if certain else ("the pod mounts claims, and these kinds were not read: CSIStorageCapacity",)
    )


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TEAM = {"matchLabels": {"team": "x"}}


def particular(who: Any, kind: str, **term: Any) -> Any:
    """The pod, or owner, with a required term over nodes that selects every pod unless told otherwise."""
    whole = {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname", **term}
    who._spec["affinity"] = {kind: {REQUIRED: [whole]}}
    return who


def guard() -> Any:
    return pod("guard", "other").on("a-0")


TERMS: list[tuple[str, Any, bool]] = [
    (
        "an existing pod keeps a team's namespaces away",
        [particular(guard(), "podAntiAffinity", namespaceSelector=TEAM), pod("new")],
        False,
    ),
    (
        "it keeps pods of other labels away",
        [
            particular(
                guard(),
                "podAntiAffinity",
                namespaceSelector=TEAM,
                labelSelector={"matchLabels": {"app": "x"}},
            ),
            pod("new"),
        ],
        True,
    ),
    (
        "it names the namespace beside the labels",
        [particular(guard(), "podAntiAffinity", namespaceSelector=TEAM, namespaces=["default"]), pod("new")],
        True,
    ),
    (
        "it keeps all namespaces away",
        [particular(guard(), "podAntiAffinity", namespaceSelector={}), pod("new")],
        True,
    ),
    ("it keeps its own namespace away", [particular(guard(), "podAntiAffinity"), pod("new")], True),
    (
        "it likes a team's namespaces, which binds nobody else",
        [particular(guard(), "podAffinity", namespaceSelector=TEAM), pod("new")],
        True,
    ),
    (
        "the pod itself keeps away from a team's pods",
        [particular(pod("new"), "podAntiAffinity", namespaceSelector=TEAM)],
        False,
    ),
    (
        "the pod itself needs a team's pods",
        [particular(pod("new"), "podAffinity", namespaceSelector=TEAM)],
        False,
    ),
    (
        "the pod itself keeps away from everybody",
        [particular(pod("new"), "podAntiAffinity", namespaceSelector={})],
        True,
    ),
]


@pytest.mark.parametrize(("sentence", "things", "certain"), TERMS, ids=[c[0] for c in TERMS])
def test_labels_of_namespaces_that_were_not_read_are_a_doubt(
    sentence: str, things: Any, certain: bool
) -> None:
    del sentence
    asked = Asked(nodes(a=2), things)
    assert asked.doubts == ""
    state = ClusterState.of(without(asked.snapshot, "Namespace"))
    doubts = uncertainties(state, asked.framework.profile, asked.template)
    assert (not doubts) is certain


def without(read: Any, *kinds: str, refused: bool = False) -> Any:
    """The snapshot, these kinds not having been read, or having been refused."""
    return msgspec.structs.replace(
        read, kinds=read.kinds - set(kinds), refused=frozenset(kinds if refused else ())
    )


def uneven(*more: Any) -> Any:
    return snapshot(nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}), *more)


def test_a_pod_that_may_be_kept_out_by_a_hidden_namespace_is_not_moved_and_the_plan_says_so() -> None:
    there = particular(pod("guard", "other").on("b-0"), "podAntiAffinity", namespaceSelector=TEAM)
    made = plan(without(uneven(there), "Namespace"))
    assert made.moves == ()
    assert {b.reason.code.value for b in made.blocked} == {"not-certain"}
    assert made.assumptions[-1].startswith("Namespaces were not read: ")
    assert not any("Namespace" in a for a in plan(without(uneven(), "Namespace")).assumptions)


@pytest.mark.parametrize(
    ("kind", "consequence"),
    [
        ("ResourceQuota", "a quota that would stop a replacement is not seen"),
        ("PodDisruptionBudget", "budgets are not planned with"),
        ("Deployment", "rollouts and pauses"),
    ],
)
def test_a_plan_names_the_decisive_kinds_that_were_not_read(kind: str, consequence: str) -> None:
    made = plan(without(uneven(), kind))
    assert [m.certain for m in made.moves] == [True]
    assert made.assumptions[-1].startswith(f"{kind}s were not read: {consequence}")
    assert not any(kind in a for a in plan(uneven()).assumptions)


def test_where_quotas_may_not_be_seen_no_replacement_is_certain() -> None:
    """Refused is more than absent: a file of a cluster without quotas has none either."""
    blind = without(uneven(), "ResourceQuota", refused=True)
    assert plan(blind).moves == ()
    assert [m.certain for m in plan(blind, PlanOptions(certainty="likely")).moves] == [False]


def device_class(name: str, resource: str = "") -> Any:
    spec = {"extendedResourceName": resource} if resource else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("resource", "classes", "certain"),
    [
        ("acme.example/gpu", [], True),
        ("acme.example/gpu", [device_class("big", "acme.example/gpu")], False),
        ("acme.example/gpu", [device_class("big", "acme.example/other")], True),
        ("acme.example/gpu", [device_class("big")], True),
        ("deviceclass.resource.kubernetes.io/big", [device_class("big")], False),
        ("cpu", [device_class("big", "acme.example/gpu")], True),
    ],
)
def test_an_extended_resource_that_claims_may_serve_is_a_doubt(
    resource: str, classes: list[Any], certain: bool
) -> None:
    """Nodes whose driver has such a device take the pod, although they do not list the resource."""
    room = node("a-0").zone("a").allocatable({resource: 4})
    asked = Asked([room], classes, pod("new").asks({resource: 1}))
    assert (asked.doubts == "") is certain, asked.doubts


@pytest.mark.parametrize(("tainted", "certain"), [("acme.example/gpu", False), ("acme.example/other", True)])
def test_a_taint_of_the_extended_resource_may_be_tolerated_by_new_pods(tainted: str, certain: bool) -> None:
    """The plugin ExtendedResourceToleration, which may be on; a pod that tolerates it already shows it."""
    room = [node(n).zone("a").allocatable({"acme.example/gpu": 4}) for n in ("a-0", "a-1")]
    room[1].taint(tainted)
    asks = pod("new").asks({"acme.example/gpu": 1})
    assert (Asked(room, asks).doubts == "") is certain
    assert Asked(room, asks.tolerates("acme.example/gpu")).doubts == ""


def test_where_device_classes_may_not_be_read_every_extended_resource_is_one() -> None:
    room = node("a-0").zone("a").allocatable({"acme.example/gpu": 4})
    for resource, certain in (("acme.example/gpu", False), ("cpu", True)):
        asked = Asked([room], pod("new").asks({resource: 1}))
        state = ClusterState.of(without(asked.snapshot, "DeviceClass", refused=True))
        assert (not uncertainties(state, asked.framework.profile, asked.template)) is certain


ISTIO, REVISION, OPT = "istio-injection", "istio.io/rev", "sidecar.istio.io/inject"
LINKERD, KUMA = "linkerd.io/inject", "kuma.io/sidecar-injection"


@pytest.mark.parametrize(
    ("namespace", "labels", "annotations", "has", "doubt"),
    [
        ({}, {}, {}, "", ""),
        ({ISTIO: "enabled"}, {}, {}, "", "istio-proxy"),
        ({ISTIO: "enabled"}, {}, {}, "istio-proxy", ""),
        ({ISTIO: "enabled"}, {}, {}, "vault-agent", "istio-proxy"),
        ({ISTIO: "enabled"}, {OPT: "false"}, {}, "", ""),
        ({ISTIO: "enabled"}, {}, {OPT: "false"}, "", ""),
        ({ISTIO: "disabled", REVISION: "blue"}, {}, {}, "", ""),
        ({REVISION: "blue"}, {}, {}, "", "istio-proxy"),
        ({}, {OPT: "true"}, {}, "", "istio-proxy"),
        ({LINKERD: "enabled"}, {}, {}, "", "linkerd-proxy"),
        ({LINKERD: "enabled"}, {}, {LINKERD: "disabled"}, "", ""),
        ({}, {}, {LINKERD: "ingress"}, "", "linkerd-proxy"),
        ({KUMA: "enabled"}, {}, {}, "", "kuma-sidecar"),
    ],
    ids=str,
)
def test_who_asks_for_a_proxy_and_has_none_may_come_back_with_one(
    namespace: dict[str, str], labels: dict[str, str], annotations: dict[str, str], has: str, doubt: str
) -> None:
    meta = {"name": "default", "labels": namespace, "annotations": namespace}
    web = deployment("web").spread("zone", 1).label_map(labels).placed({"a-0": 4})
    things = objects(nodes(a=1, b=1), web, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    for one in things:
        if one["kind"] == "Pod" and has:
            one["spec"]["initContainers"] = [{"name": has, "restartPolicy": "Always"}]
        if one["kind"] == "ReplicaSet":
            one["spec"]["template"]["metadata"]["annotations"] = annotations
    made = plan(decoded(things))
    assert bool(made.moves) is not bool(doubt)
    assert all(doubt in b.reason.message for b in made.blocked)
    likely = plan(decoded(things), PlanOptions(certainty="likely")).moves
    assert likely
    assert all(m.certain is not bool(doubt) for m in likely)


@pytest.mark.parametrize(
    ("namespace", "in_template", "certain"),
    [
        ({ISTIO: "enabled"}, False, True),
        ({ISTIO: "disabled"}, False, False),
        ({}, False, False),
        ({}, True, True),
    ],
)
def test_a_proxy_that_nobody_asks_for_any_more_is_a_doubt_where_more_nodes_have_room_without_it(
    namespace: dict[str, str], in_template: bool, certain: bool
) -> None:
    meta = {"name": "default", "labels": namespace}
    web = deployment("web").requests(cpu="200m").spread("zone", 1).placed({"a-0": 4})
    there = (*nodes(a=1, b=1), node("c-0").zone("c").cpu("250m"), web)
    things = objects(*there, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    proxy = {"name": "istio-proxy", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    for one in things:
        if one["kind"] == "Pod":
            one["spec"]["containers"].append(proxy)
        elif one["kind"] == "ReplicaSet" and in_template:
            one["spec"]["template"]["spec"]["containers"].append(proxy)
    assert bool(plan(decoded(things)).moves) is certain
