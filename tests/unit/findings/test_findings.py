"""Each finding where it belongs and where it does not, and the remedy that mends it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.findings import FindingCode, plan_with_findings
from rebalancer.model.reason import Severity
from rebalancer.model.selectors import Requirement, Selector
from rebalancer.month import RestartCode
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.release import MARK, Mark
from rebalancer.runtime.commands.lint import LintCode
from rebalancer.runtime.observers.neighbours import NeighbourCode
from tests.support.build import (
    claim,
    daemon_set,
    deployment,
    node,
    objects,
    pod,
    replica_set,
    snapshot,
    stateful_set,
    volume,
    workload,
)
from tests.support.build.base import uid_of
from tests.support.scheduler.plain import ZONE
from tests.unit.findings.found import THREE, budget, found, named, sound, zones

HASH = ("pod-template-hash",)


def rs(**placed: int) -> Any:
    """A ReplicaSet of six pods with a zone constraint."""
    there = {f"{z}-0": n for z, n in (placed or {"a": 2, "b": 2, "c": 2}).items()}
    return replica_set("web").spread("zone", 1).placed(there)


def together(required: list[Any]) -> dict[str, Any]:
    """A Deployment whose pods must be where one another are."""
    [parent, *rest] = sound().build()
    for o in (parent, *rest):
        spec = o["spec"]["template"]["spec"] if "template" in o["spec"] else o["spec"]
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return [parent, *rest]  # type: ignore[return-value]


def overlooked(**spec: Any) -> dict[str, Any]:
    """A pod of which no scheduler has said anything."""
    [made] = pod("x").build()
    return made | {"spec": made["spec"] | spec, "status": {"phase": "Pending"}}


def apart_from(*expressions: dict[str, Any]) -> Any:
    """A pod that keeps away from pods of the namespaces that these expressions select."""
    made = pod("web").on("a-0")
    term = {
        "topologyKey": ZONE,
        "labelSelector": {"matchLabels": {"app": "web"}},
        "namespaceSelector": {"matchExpressions": list(expressions)},
    }
    weighted = {"weight": 1, "podAffinityTerm": term}
    made._spec["affinity"] = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}
    }
    return made


def class_of(mode: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "zonal"},
        "provisioner": "csi.example",
        "volumeBindingMode": mode,
    }


def autoscaler(most: int) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": most},
    }


def own(key: str = "zone", skew: int = 1, **more: Any) -> Any:
    """The sound Deployment with another constraint in place of its own."""
    made = deployment("web").placed(THREE)
    return made.spread(key, skew, **{"match_label_keys": HASH, **more})


ZONE_OF = {f"{z}-{i}": z for z in "abc" for i in range(2)}


def released(of: str, label: str = "owner") -> Any:
    """A pod with the mark of one that was released."""
    owner, uid = uid_of("ReplicaSet", "default", "set"), uid_of("Pod", "default", of)
    mark = Mark(label=label, value="set", replica_set=owner, pod=uid, at=1, by="a ledger")
    return pod("x").on("a-0").annotated({MARK: str(mark)})


POSITIVE: dict[str, tuple[str, str, list[Any], str]] = {
    "a selector for another app": (
        "selector-misses-own-pods",
        "error",
        [zones(), own(selector={"app": "other"})],
        "selects app=other",
    ),
    "no selector at all": (
        "selector-counts-nothing",
        "warning",
        [zones(), own(selector=None, match_label_keys=())],
        "has no labelSelector",
    ),
    "an empty selector": (
        "selector-counts-nothing",
        "warning",
        [zones(), own(selector={}, match_label_keys=())],
        "has an empty labelSelector",
    ),
    "a Deployment without matchLabelKeys": (
        "no-revision-label",
        "warning",
        [zones(), own(match_label_keys=())],
        "counts the pods of all revisions",
    ),
    "a key that the Deployment selects by tells no revisions apart": (
        "no-revision-label",
        "warning",
        [zones(), own(match_label_keys=("owner",))],
        "counts the pods of all revisions",
    ),
    "two ReplicaSets' worth of rules in one": (
        "mixed-constraints",
        "warning",
        [
            zones(),
            replica_set("web").spread("zone", 1).placed({"a-0": 2}),
            [pod(f"web-x{i}").owned_by("ReplicaSet", "web").labels(app="web").on("b-0") for i in range(3)],
        ],
        "2 different sets of spread constraints (3 and 2 pods)",
    ),
    "maxSkew as high as the replicas": ("no-effect", "warning", [zones(), own(skew=3)], "maxSkew 3 over"),
    "only nodes apart": (
        "hostname-only",
        "warning",
        [zones(), own("hostname")],
        "one zone can hold all of its 3 pods",
    ),
    "only preferred": ("only-soft", "info", [zones(), own(soft=True)], "is only preferred"),
    "minDomains on a preferred constraint": (
        "min-domains-soft",
        "error",
        [zones(), own(soft=True, min_domains=2)],
        "the API server refuses it",
    ),
    "a key that no node has": (
        "topology-key-missing",
        "error",
        [zones(), own("rack")],
        "no node that its pods may use has the label topology.example/rack",
    ),
    "a key that one node lacks": (
        "topology-key-partial",
        "warning",
        [zones(), node("d-0"), own()],
        "1 of the 7 nodes that its pods may use lack the label topology.kubernetes.io/zone",
    ),
    "a zone in two spellings": (
        "inconsistent-node-labels",
        "warning",
        [zones(), node("x").zone("A"), own()],
        "is spelled 'A' and 'a'",
    ),
    "two nodes of one hostname": (
        "inconsistent-node-labels",
        "warning",
        [zones(), node("x").zone("a").label("hostname", "a-0"), own(), own("hostname")],
        "2 nodes have the kubernetes.io/hostname 'a-0'",
    ),
    "a zone in two regions": (
        "inconsistent-node-labels",
        "warning",
        [zones(), [node(f"r{i}").zone("r").label("region", str(i)) for i in range(2)], own()],
        "zone 'r' is in 2 regions",
    ),
    "former and present label disagree": (
        "inconsistent-node-labels",
        "warning",
        [zones(), node("x").zone("a").label("failure-domain.beta.kubernetes.io/zone", "b"), own()],
        "one of the two is wrong",
    ),
    "more minDomains than zones, and too many pods for it": (
        "min-domains-unreachable",
        "error",
        [zones(), own(min_domains=4).placed(THREE)],
        "there are 3 domains: the minimum counts as 0, so that no domain takes more than 1; 6 pods",
    ),
    "more minDomains than zones, and few pods": (
        "min-domains-unreachable",
        "warning",
        [zones(), own(min_domains=4)],
        "there are 3 domains",
    ),
    "a cordoned zone is empty and the others are at the limit": (
        "domain-unavailable",
        "warning",
        [zones(a=2, b=2), node("c-0").zone("c").cordoned(), rs(a=1, b=1)],
        "c (0 pods) is cordoned and tainted and counted all the same",
    ),
    "the emptier zone has no room": (
        "cannot-be-replaced",
        "error",
        [node("a-0").zone("a"), node("b-0").zone("b").pods(1), rs(a=3, b=1)],
        "no present node would take the replacement of 3 of its 4 pods",
    ),
    "a NotReady zone": (
        "domain-unavailable",
        "warning",
        [zones(a=2, b=2), node("c-0").zone("c").not_ready(), rs(a=1, b=1)],
        "c (0 pods) is NotReady and tainted and counted all the same",
    ),
    "a full zone": (
        "domain-full",
        "warning",
        [zones(a=2, b=2), node("c-0").zone("c").pods(0), rs(a=1, b=1)],
        "c (0 pods) is full",
    ),
    "hostname and zone with zones of different size": (
        "contradicting-constraints",
        "error",
        [
            zones(a=4, b=4, c=1),
            replica_set("web").spread("zone").spread("hostname").placed({"a-0": 9, "b-0": 9}),
        ],
        "no placement of 18 pods satisfies both",
    ),
    "pods wanted together and apart": (
        "affinity-contradicts-spread",
        "error",
        [zones(), together([{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}])],
        "after 1 of 3 no further pod can be placed",
    ),
    "a zone asked for by nodeSelector": (
        "affinity-contradicts-spread",
        "warning",
        [zones(), own().selects(zone="a")],
        "admits one domain",
    ),
    "a zone asked for, the others counted": (
        "affinity-contradicts-spread",
        "error",
        [zones(), own(affinity_policy="Ignore").needs("zone", "In", "a", "b")],
        "Ignore counts the others as empty: no more than 2 of 3 pods can be placed",
    ),
    "volumes in the pods' zones, skewed": (
        "pinned-by-zonal-volumes",
        "warning",
        [zones(), stateful_set("db").spread("zone").placed({"a-0": 3, "b-0": 1}).zonal_volumes(ZONE_OF)],
        "4 of its 4 pods mount volumes that only some domains of topology.kubernetes.io/zone reach",
    ),
    "volumes in the pods' zones, level": (
        "pinned-by-zonal-volumes",
        "info",
        [zones(), stateful_set("db").spread("zone").placed(THREE).zonal_volumes(ZONE_OF)],
        "3 of its 3 pods",
    ),
    "a term that only excludes namespaces": (
        "namespace-selector-ignored",
        "warning",
        [zones(), apart_from({"key": "team", "operator": "NotIn", "values": ["a"]})],
        "(team notin (a))",
    ),
    "no budget": ("no-pdb", "warning", [zones(), sound()], "no PodDisruptionBudget covers its pods"),
    "two budgets": (
        "multiple-pdbs",
        "error",
        [zones(), sound(), budget("web"), budget("also", {"owner": "web"})],
        "2 PodDisruptionBudgets cover its pods (also, web)",
    ),
    "maxUnavailable 0": (
        "pdb-never-allows",
        "warning",
        [zones(), sound(), budget(max_unavailable=0)],
        "maxUnavailable 0 with 3 pods never allows an eviction",
    ),
    "minAvailable of all": (
        "pdb-never-allows",
        "warning",
        [zones(), sound(), budget(min_available=3)],
        "minAvailable 3 with 3 pods",
    ),
    "minAvailable rounded up to all": (
        "pdb-never-allows",
        "warning",
        [zones(), sound(), budget(min_available="67%")],
        "minAvailable 67% with 3 pods",
    ),
    "a pod that nobody has looked at": (
        "scheduler-silent",
        "error",
        [zones(), overlooked()],
        "a pod waits for scheduler default-scheduler, which has not looked at default/x for 30 s or more",
    ),
    "a mark of its own": (
        "released-pod",
        "warning",
        [zones(), replica_set("set").placed({"a-0": 1}), released("x")],
        "by a ledger, and runs beside",
    ),
    "a mark that nothing bears out": (
        "released-pod",
        "warning",
        [zones(), replica_set("set").placed({"a-0": 1}), released("x", "h").labels(owner="set")],
        "by a ledger; no ReplicaSet would take it back",
    ),
}


@pytest.mark.parametrize("case", POSITIVE)
def test_it_is_found(case: str) -> None:
    code, severity, things, says = POSITIVE[case]
    hits = named(code, *things)
    assert hits, found(*things)
    assert any(says in f.message for f in hits), [f.message for f in hits]
    assert any(f.severity is Severity(severity) for f in hits)
    assert all(f.remedy for f in hits)


NEGATIVE: dict[str, tuple[str, list[Any]]] = {
    "its own app": ("selector-misses-own-pods", [zones(), own()]),
    "an empty selector that matchLabelKeys fills": (
        "selector-counts-nothing",
        [zones(), own(selector={}, match_label_keys=("app",))],
    ),
    "matchLabelKeys": ("no-revision-label", [zones(), own()]),
    "a version in the selector": (
        "no-revision-label",
        [zones(), own(selector={"app": "web", "version": "2"}, match_label_keys=()).labels(version="2")],
    ),
    "a StatefulSet replaces one pod at a time": (
        "no-revision-label",
        [zones(), stateful_set("web").spread("zone").placed(THREE)],
    ),
    "the same rules in two spellings": (
        "mixed-constraints",
        [
            zones(),
            replica_set("web").spread("zone", 1).placed({"a-0": 2}),
            pod("web-x")
            .labels(app="web")
            .owned_by("ReplicaSet", "web")
            .on("b-0")
            .spread(
                "zone", selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
            ),
        ],
    ),
    "one pod needs no spread": ("no-effect", [zones(), own().placed({})]),
    "an autoscaler may make more pods than maxSkew": (
        "no-effect",
        [zones(), own(skew=3), autoscaler(9)],
    ),
    "a preferred constraint has an effect whatever its maxSkew": (
        "no-effect",
        [zones(), own(skew=3, soft=True)],
    ),
    "nodes and zones": ("hostname-only", [zones(), own("hostname").spread("zone")]),
    "all nodes in one zone": ("hostname-only", [zones(a=3), own("hostname")]),
    "a hard constraint": ("only-soft", [zones(), own()]),
    "minDomains on a hard constraint": ("min-domains-soft", [zones(), own(min_domains=2)]),
    "every node has the key": ("topology-key-missing", [zones(), own()]),
    "the node without the key is tainted": (
        "topology-key-partial",
        [zones(), node("control").taint("node-role.kubernetes.io/control-plane"), own()],
    ),
    "the node without the key is not selected": (
        "topology-key-partial",
        [[n.label("disk", "ssd") for n in zones()], node("old"), own().selects(disk="ssd")],
    ),
    "labels that agree": (
        "inconsistent-node-labels",
        [zones(), node("x").zone("a").label("failure-domain.beta.kubernetes.io/zone", "a"), own()],
    ),
    "as many zones as minDomains": ("min-domains-unreachable", [zones(), own(min_domains=3)]),
    "Honor leaves the cordoned zone out": (
        "domain-unavailable",
        [
            zones(a=2, b=2),
            node("c-0").zone("c").cordoned(),
            replica_set("web").spread("zone", taints_policy="Honor").placed({"a-0": 1, "b-0": 1}),
        ],
    ),
    "the cordoned zone is not the lowest": (
        "domain-unavailable",
        [zones(a=2, b=2), node("c-0").zone("c").cordoned(), rs(a=1, b=1, c=2)],
    ),
    "one node of the zone is open": (
        "domain-unavailable",
        [zones(), node("c-9").zone("c").cordoned(), rs(a=1, b=1)],
    ),
    "the full zone is not the lowest": (
        "domain-full",
        [zones(a=2, b=2), node("c-0").zone("c").pods(2), rs(a=2, b=1, c=2)],
    ),
    "others have room below the limit": (
        "domain-full",
        [zones(a=2, b=2), node("c-0").zone("c").pods(1), rs(a=2, b=1, c=1)],
    ),
    "hostname and zone with equal zones": (
        "contradicting-constraints",
        [zones(), replica_set("web").spread("zone").spread("hostname").placed({"a-0": 9})],
    ),
    "hostname wide enough": (
        "contradicting-constraints",
        [
            zones(a=4, b=4, c=1),
            replica_set("web").spread("zone").spread("hostname", 6).placed({"a-0": 9, "b-0": 9}),
        ],
    ),
    "pods wanted near others": (
        "affinity-contradicts-spread",
        [zones(), together([{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "cache"}}}])],
    ),
    "two of three zones": ("affinity-contradicts-spread", [zones(), own().needs("zone", "In", "a", "b")]),
    "volumes that every zone reaches": (
        "pinned-by-zonal-volumes",
        [
            zones(),
            rs(),
            claim("d", "pv"),
            volume("pv", "d"),
            pod("p").labels(app="web").mounts("d").on("a-0"),
        ],
    ),
    "a term that also asks for a label": (
        "namespace-selector-ignored",
        [
            zones(),
            apart_from(
                {"key": "team", "operator": "NotIn", "values": ["a"]}, {"key": "team", "operator": "Exists"}
            ),
        ],
    ),
    "a zone that can take one more": ("cannot-be-replaced", [zones(), rs(a=3, b=2, c=1)]),
    "a budget": ("no-pdb", [zones(), sound(), budget()]),
    "nothing is spread": ("no-pdb", [zones(), deployment("web").placed(THREE)]),
    "one budget": ("multiple-pdbs", [zones(), sound(), budget()]),
    "another app's budget": ("multiple-pdbs", [zones(), sound(), budget(), budget("other")]),
    "maxUnavailable 1": ("pdb-never-allows", [zones(), sound(), budget()]),
    "minAvailable of most": ("pdb-never-allows", [zones(), sound(), budget(min_available="66%")]),
    "one percent, rounded up": ("pdb-never-allows", [zones(), sound(), budget(max_unavailable="1%")]),
    "a pod that found no node": ("scheduler-silent", [zones(), pod("x")]),
    "a mark that was copied": ("released-pod", [zones(), released("other")]),
    "a pod with a gate": ("scheduler-silent", [zones(), overlooked(schedulingGates=[{"name": "quota"}])]),
    "a pod of a gang": (
        "scheduler-silent",
        [zones(), overlooked(schedulingGroup={"podGroupName": "g"})],
    ),
}


@pytest.mark.parametrize("case", NEGATIVE)
def test_it_is_not_found(case: str) -> None:
    code, things = NEGATIVE[case]
    assert not named(code, *things), named(code, *things)


ELSEWHERE = {"newer-version", "unclear-annotation", "matches-nothing"}
"""Whose cases are versions of the server (tests/unit/planner/test_newer_versions.py), annotations
(tests/unit/policy/test_annotations.py) or settings (below)."""


def test_every_code_has_both_kinds_of_cases() -> None:
    assert {c for c, *_ in POSITIVE.values()} == {c.value for c in FindingCode} - ELSEWHERE
    assert {c for c, _ in NEGATIVE.values()} == {c.value for c in FindingCode} - ELSEWHERE


def test_a_sound_workload_has_no_finding() -> None:
    assert found(zones(), sound(), budget()) == ()


MENDED_BY_PASTING = [
    "a selector for another app",
    "no selector at all",
    "a Deployment without matchLabelKeys",
    "maxSkew as high as the replicas",
    "only preferred",
    "hostname and zone with zones of different size",
    "a zone asked for, the others counted",
]


@pytest.mark.parametrize("case", MENDED_BY_PASTING)
def test_pasting_the_remedy_mends_it(case: str) -> None:
    code, _, things, _ = POSITIVE[case]
    [finding, *_] = named(code, *things)
    [constraint] = yaml.safe_load(finding.remedy)
    mended = objects(*things)
    for o in mended:
        spec = o.get("spec", {}).get("template", {}).get("spec") or o.get("spec", {})
        if constraints := spec.get("topologySpreadConstraints"):
            index = int(finding.field.partition("[")[2].partition("]")[0])
            constraints[index] = constraint
    assert not named(code, mended)


def test_the_budget_to_paste_covers_the_workload() -> None:
    [finding] = named("no-pdb", zones(), sound())
    pasted = yaml.safe_load(finding.remedy)
    assert pasted["metadata"] == {"name": "web", "namespace": "default"}
    assert found(zones(), sound(), pasted) == ()


def test_the_namespace_selector_to_paste_is_not_ignored_and_selects_the_same() -> None:
    excluding = {"key": "team", "operator": "NotIn", "values": ["a"]}
    [finding] = named("namespace-selector-ignored", zones(), apart_from(excluding))
    assert finding.field == (
        "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm"
        ".namespaceSelector"
    )
    pasted = yaml.safe_load(finding.remedy)["namespaceSelector"]["matchExpressions"]
    assert pasted == [excluding, {"key": "kubernetes.io/metadata.name", "operator": "Exists"}]
    assert not named("namespace-selector-ignored", zones(), apart_from(*pasted))


@pytest.mark.parametrize(
    ("version", "told"), [("v1.33.13", False), ("v1.34.0", True), ("v1.36.6", True), ("", True)]
)
def test_the_scheduler_that_ignores_namespace_selectors_is_told_by_its_version(
    version: str, told: bool
) -> None:
    excluding = {"key": "team", "operator": "DoesNotExist"}
    cluster = snapshot(zones(), apart_from(excluding), server_version=version)
    codes = [f.code for f in plan_with_findings(cluster).findings]
    assert ("namespace-selector-ignored" in codes) is told


def test_the_class_to_paste_waits_for_the_pod() -> None:
    db = stateful_set("db").spread("zone").placed(THREE).zonal_volumes(ZONE_OF)
    [finding] = named("pinned-by-zonal-volumes", zones(), db, class_of("Immediate"))
    assert yaml.safe_load(finding.remedy)["volumeBindingMode"] == "WaitForFirstConsumer"
    [finding] = named("pinned-by-zonal-volumes", zones(), db, class_of("WaitForFirstConsumer"))
    assert finding.remedy.startswith("# move the data")


def test_names_that_yaml_would_read_otherwise_are_quoted() -> None:
    odd = {"app": "yes", "n": "1", "x": "a: b\n- c", "Y": "null"}
    [finding] = named("selector-misses-own-pods", zones(), own(selector={"app": "other"}).label_map(odd))
    pasted = yaml.safe_load(finding.remedy)[0]["labelSelector"]["matchLabels"]
    assert pasted == {"owner": "web"}
    bare = pod("p").label_map(odd).on("a-0").spread("zone", selector={"app": "other"})
    [finding] = named("selector-misses-own-pods", zones(), bare)
    assert yaml.safe_load(finding.remedy)[0]["labelSelector"]["matchLabels"] == odd
    assert finding.field == "spec.topologySpreadConstraints[0].labelSelector"


def test_errors_come_first_and_the_order_is_stable() -> None:
    things = [zones(), own(selector={"app": "x"}), replica_set("b").spread("rack").placed(THREE), sound("c")]
    told, turned = ([(f.code, f.object) for f in found(*t)] for t in (things, reversed(things)))
    assert told == turned
    ranks = [["error", "warning", "info"].index(f.severity) for f in found(*things)]
    assert ranks == sorted(ranks)


def test_only_namespaces_in_scope_are_judged() -> None:
    system = workload("dns", "ReplicaSet", "kube-system").spread("rack").placed(THREE)
    assert found(zones(), system) == ()
    assert found(zones(), system, policy=PolicyOptions(namespaces_exclude=()))
    elsewhere = found(zones(), rs(), policy=PolicyOptions(namespaces_include=("other",)))
    assert [f.code for f in elsewhere] == ["matches-nothing"]


SPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "payments", "labels": {"tier": "prod"}},
}
NOT_PROD = Selector.of(Requirement("tier", "NotIn", ("prod",)))
NAMED: dict[str, tuple[dict[str, Any], tuple[str, str] | None]] = {
    "an excluded namespace": ({"namespaces_exclude": ("payments", "kube-system")}, None),
    "one without an object, but with pods": ({"namespaces_exclude": ("default",)}, None),
    "an excluded namespace with a letter too few": (
        {"namespaces_exclude": ("payment",)},
        (
            "namespaces.exclude",
            "payment is no namespace in this cluster: it protects nobody; did you mean pay",
        ),
    ),
    "an included namespace that is not there": (
        {"namespaces_include": ("default", "shop")},
        ("namespaces.include", "shop is no namespace in this cluster: it chooses nobody"),
    ),
    "an own namespace that is not there": ({"own_namespace": "own"}, ("ownNamespace", "own is no namespace")),
    "an excluded kind that is built in": ({"owner_kinds_exclude": ("StatefulSet",)}, None),
    "an excluded kind of others that is not there": (
        {"owner_kinds_exclude": ("StatefullSet",)},
        ("ownerKindsExclude", "did you mean StatefulSet?"),
    ),
    "a kind that would be opened": ({"owner_kinds_allow": ("Whatever",), "gangs_allow": ("x",)}, None),
    "a selector of namespaces": ({"namespace_selector": NOT_PROD}, None),
    "a selector by a label that no namespace has": (
        {"namespace_selector": Selector.of(Requirement("teir", "NotIn", ("prod",)))},
        ("namespaceSelector", "no namespace has the label teir"),
    ),
    "a selector by a value that no pod has": (
        {"label_selector": Selector.of(Requirement("app", "NotIn", ("web", "db")))},
        ("labelSelector", "no pod has the label app=db"),
    ),
    "a selector by a label of pods": ({"label_selector": Selector.of(Requirement("app", "Exists"))}, None),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_setting_that_nothing_in_the_cluster_matches(case: str) -> None:
    options, expected = NAMED[case]
    things = (zones(), sound(), budget(), SPACE)
    told = [f for f in found(*things, policy=PolicyOptions(**options)) if f.code == "matches-nothing"]
    assert len(told) == (1 if expected else 0), told
    if expected:
        assert told[0].object == f"Setting/scope.{expected[0]}"
        assert expected[1] in told[0].message


def test_what_is_said_of_scale_ins_may_be_unclear_too() -> None:
    assert named("unclear-annotation", zones(), sound().annotated({"rebalancer.io/scale-in": "no"}))
    assert not named("unclear-annotation", zones(), sound().annotated({"rebalancer.io/scale-in": "Off"}))
    assert named("unclear-annotation", zones(), sound().annotated({"rebalancer.io/method": "surge"}))
    assert not named(
        "unclear-annotation", zones(), sound().annotated({"rebalancer.io/method": "replaceFirst"})
    )


def test_a_daemon_set_is_not_spread() -> None:
    assert found(zones(), daemon_set("agent").spread("rack").placed(THREE)) == ()


def test_without_nodes_only_what_does_not_depend_on_them() -> None:
    codes = {
        f.code for f in found(own(selector={"app": "x"}), deployment("two").spread("hostname").replicas(2))
    }
    assert codes == {"selector-misses-own-pods", "hostname-only", "no-revision-label", "no-pdb"}
    pinned = own().selects(zone="a")
    assert named("affinity-contradicts-spread", pinned)


def test_the_plan_carries_the_findings() -> None:
    cluster = snapshot(zones(), own("rack"))
    assert "topology-key-missing" in {f.code for f in plan_with_findings(cluster).findings}


def test_the_documentation_lists_every_finding() -> None:
    text = (Path(__file__).parents[3] / "docs" / "findings.md").read_text()
    codes = {c.value for codes in (FindingCode, NeighbourCode, RestartCode, LintCode) for c in codes}
    assert set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)) == codes
