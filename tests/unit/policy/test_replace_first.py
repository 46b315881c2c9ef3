"""Which pods their ReplicaSet can let go of first, by which label, and why not the others."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import LabelUser, LabelUsers, PolicyOptions
from rebalancer.policy.release import MARK, Mark
from rebalancer.policy.replace_first import Release, adopter, without_label
from tests.support.build import (
    claim,
    deployment,
    nodes,
    objects,
    pdb,
    replica_set,
    stateful_set,
    volume,
    workload,
)
from tests.support.build.base import metadata
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import cluster, patched, pods

HASH = "pod-template-hash"
FIRST = PolicyOptions(method="replaceFirst")
AUTO = PolicyOptions(method="auto")
EVICT = PolicyOptions()
FULL = pdb("web", {"app": "web"}, min_available=3)
ROOMY = pdb("web", {"app": "web"}, min_available=2)
CORDONED = patched("Node", {"spec": {"unschedulable": True}}, nodes(a=1, b=1), name="a-0")
SAYS_YES = {"metadata": {"annotations": {"rebalancer.io/method": "replaceFirst"}}}


def web() -> Any:
    return deployment("web").labels(app="web").placed({"a-0": 2, "b-0": 1})


def of(*things: Any, options: PolicyOptions = AUTO, refused: tuple[str, ...] = ()) -> Any:
    """What is said of the first pod of web: its label, the reason, or None."""
    snapshot = replace(cluster(*things), refused=frozenset(refused))
    found = Evictable(snapshot, options).replace_first.of(pods(snapshot, "web")[0])
    return found.label if isinstance(found, Release) else found.message if found is not None else None


def strategy(kind: str = "RollingUpdate", **rolling: Any) -> list[Json]:
    spec = {"strategy": {"type": kind, **({"rollingUpdate": rolling} if rolling else {})}}
    return patched("Deployment", {"spec": spec}, web(), FULL)


def service(selector: dict[str, str], namespace: str = "default") -> Json:
    meta = metadata("Service", namespace, "web")
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": selector}}


def other(**selector: str) -> list[Json]:
    """A second ReplicaSet, without pods, that selects these labels."""
    return patched("ReplicaSet", {"spec": {"selector": {"matchLabels": {"owner": None, **selector}}}},
                   replica_set("other"))  # fmt: skip


def hashed() -> str:
    return str(next(p for p in cluster(web()).pods).template.labels[HASH])


def bare() -> list[Json]:
    return [*replica_set("web").labels(app="web").placed({"a-0": 2, "b-0": 1}).build()]


WANTED: dict[str, tuple[Any, PolicyOptions, Any]] = {
    "nobody asks for it": ([web(), FULL], EVICT, None),
    "auto, and the budget is exhausted": ([web(), FULL], AUTO, HASH),
    "auto, and the budget lets one go": ([web(), ROOMY], AUTO, None),
    "auto without a budget": ([web()], AUTO, None),
    "always": ([web()], FIRST, HASH),
    "two budgets: the API would never evict it": (
        [web(), FULL, pdb("too", {"app": "web"}, max_unavailable=1)], FIRST, None),
    "a budget that its controller has not seen": (
        patched("PodDisruptionBudget", {"metadata": {"generation": 2}}, web(), FULL), FIRST, None),
    "the Deployment asks for it": (patched("Deployment", SAYS_YES, web(), FULL), EVICT, HASH),
    "the Deployment says auto": (
        patched("Deployment", {"metadata": {"annotations": {"rebalancer.io/method": "Auto"}}}, web(), FULL),
        EVICT, HASH),
    "the Deployment says no": (
        patched("Deployment", {"metadata": {"annotations": {"rebalancer.io/method": "evict"}}}, web(), FULL),
        FIRST, None),
    "a word that nobody knows, with which the pods stay": (
        patched("Deployment", {"metadata": {"annotations": {"rebalancer.io/method": "surge"}}}, web(), FULL),
        FIRST, None),
}  # fmt: skip


@pytest.mark.parametrize(("things", "options", "expected"), WANTED.values(), ids=WANTED)
def test_whether_it_is_wanted(things: Any, options: PolicyOptions, expected: Any) -> None:
    assert of(things, options=options) == expected


BEARS_IT: dict[str, tuple[Any, str]] = {
    "no strategy is 25 % of them, rounded up": ([web(), FULL], HASH),
    "one pod": (strategy(maxSurge=1), HASH),
    "a share that is one pod": (strategy(maxSurge="1%"), HASH),
    "no pod": (strategy(maxSurge=0), "allows no pod too many"),
    "no share": (strategy(maxSurge="0%"), "allows no pod too many"),
    "Recreate": (strategy("Recreate"), "recreates its pods"),
    "a single replica": ([deployment("web").labels(app="web").placed({"a-0": 1}),
                          pdb("web", {"app": "web"}, min_available=1)], "single replica"),
    "a bare ReplicaSet": ([bare(), FULL], "has no Deployment"),
    "a StatefulSet": ([stateful_set("web").labels(app="web").placed({"a-0": 2, "b-0": 1}), FULL],
                      "does not let go of pods"),
    "a Rollout's ReplicaSet": (
        patched("ReplicaSet", {"metadata": {"ownerReferences": [
            {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "r",
             "controller": True}]}}, bare(), FULL), "belongs to Rollout web"),
}  # fmt: skip


@pytest.mark.parametrize(("things", "expected"), BEARS_IT.values(), ids=BEARS_IT)
def test_whether_the_owner_bears_a_pod_too_many(things: Any, expected: str) -> None:
    assert expected in of(things)


@pytest.mark.parametrize("case", ["no pod", "Recreate", "a single replica"])
def test_its_own_annotation_says_that_it_does(case: str) -> None:
    assert of(patched("Deployment", SAYS_YES, BEARS_IT[case][0])) == HASH


def test_a_bare_replica_set_may_say_what_it_wants() -> None:
    assert of(patched("ReplicaSet", SAYS_YES, bare(), FULL)) == "owner"


def test_a_rollout_that_says_so_stays_for_its_services_ask_for_its_hash() -> None:
    things = patched("ReplicaSet", SAYS_YES, BEARS_IT["a Rollout's ReplicaSet"][0])
    assert "belongs to Rollout" in of(things)


def test_the_label_of_argo_rollouts_is_one_that_its_services_ask_for() -> None:
    """Also where nobody owns the ReplicaSet by now: active, stable and canary Services select by it."""
    key, value = "rollouts-pod-template-hash", {"rollouts-pod-template-hash": "x"}
    labels = {"spec": {"selector": {"matchLabels": {"owner": None, **value}}}, **SAYS_YES}
    made = [*replica_set("web").labels(app="web", **value).placed({"a-0": 2, "b-0": 1}).build()]
    said = of(patched("ReplicaSet", labels, made), FULL, service({"app": "web", **value}))
    assert f"Service web asks for {key}" in said


def affinity(part: str = "podAntiAffinity", *, namespaces: Any = None, **labels: str) -> list[Json]:
    """Another workload whose pods mind these labels."""
    term: Json = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    if namespaces is not None:
        term["namespaceSelector"] = namespaces
    spec = {"affinity": {part: {"preferredDuringSchedulingIgnoredDuringExecution":
                                [{"weight": 1, "podAffinityTerm": term}]}}}  # fmt: skip
    return patched("Pod", {"spec": spec}, workload("db").placed({"a-0": 1}))


def spread(**labels: str) -> list[Json]:
    written = [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels}}]  # fmt: skip
    return patched("Pod", {"spec": {"topologySpreadConstraints": written}},
                   workload("db").placed({"a-0": 1}))  # fmt: skip


def policy(spec: str, namespace: str = "default", kind: str = "NetworkPolicy") -> PolicyOptions:
    return replace(AUTO, label_users=LabelUsers((LabelUser(kind, namespace, "p", spec),)))


def label_cases() -> dict[str, tuple[Any, PolicyOptions, str]]:
    mine = {HASH: hashed()}
    old = {HASH: "old"}
    return {
        "a Service by app": ([service({"app": "web"})], AUTO, HASH),
        "a Service by hash": ([service({"app": "web", **mine})], AUTO, "Service web asks for"),
        "a Service by another hash, which may be switched":
            ([service({"app": "web", **old})], AUTO, "Service web asks for"),
        "a Service of other pods by hash": ([service({"app": "db", **old})], AUTO, HASH),
        "a Service of another namespace": ([service(mine, "x")], AUTO, HASH),
        "a budget by hash":
            ([pdb("b", {"app": "db", **old}, max_unavailable=1)], AUTO, HASH),
        "an older revision's ReplicaSet": ([other(owner="web", **old)], AUTO, HASH),
        "a ReplicaSet that would adopt it": ([other(app="web")], AUTO, "ReplicaSet other would adopt"),
        "a DaemonSet that would adopt it": (
            patched("DaemonSet", {"spec": {"selector": {"matchLabels": {"owner": None, "app": "web"}}}},
                    workload("d", "DaemonSet").placed({"a-0": 1})), AUTO, "DaemonSet d would adopt"),
        "a Deployment by hash": (
            patched("Deployment", {"spec": {"selector": {"matchLabels": {"owner": "web", **mine}}}},
                    deployment("x").placed({"a-0": 1}), name="x"), AUTO, "Deployment x asks for"),
        "anti-affinity by app": (affinity(app="web"), AUTO, HASH),
        "anti-affinity by hash": (affinity(**mine), AUTO, "an affinity of pods asks for"),
        "affinity by hash from any namespace":
            (affinity("podAffinity", namespaces={}, **mine), AUTO, "an affinity of pods asks for"),
        "spread of others by hash": (spread(**mine), AUTO, "a spread constraint of other pods"),
        "spread of others by their own hash": (spread(**old), AUTO, HASH),
        "a NetworkPolicy by app": ([], policy('{"podSelector":{"matchLabels":{"app":"web"}}}'), HASH),
        "a NetworkPolicy by hash":
            ([], policy('{"podSelector":{"matchExpressions":[{"key":"pod-template-hash"}]}}'),
             "NetworkPolicy p names"),
        "a policy of another namespace": ([], policy('"pod-template-hash"', "x"), "NetworkPolicy p names"),
        "a policy of the whole cluster": (
            [], policy('"k8s:pod-template-hash"', "", "CiliumClusterwideNetworkPolicy"),
            "CiliumClusterwideNetworkPolicy p names"),
        "a kind that may not be read": (
            [], replace(AUTO, label_users=LabelUsers(unread=("destinationrules.networking.istio.io",))),
            "destinationrules.networking.istio.io may not be read"),
        "the method is off": (
            [], replace(AUTO, no_release=Reason(ReasonCode.NOT_REPLACED_FIRST, "an undo took a Ready pod")),
            "an undo took a Ready pod"),
    }  # fmt: skip


CASES = label_cases()


@pytest.mark.parametrize(("things", "options", "expected"), CASES.values(), ids=CASES)
def test_the_label_is_one_that_nothing_else_asks_for(
    things: Any, options: PolicyOptions, expected: str
) -> None:
    found = of(web(), pdb("web", {"owner": "web"}, min_available=3), things, options=options)
    assert expected in found
    assert (found == HASH) == (expected == HASH)


def test_its_own_revision_key_is_no_hindrance() -> None:
    written = [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "matchLabelKeys": [HASH],
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}}}]  # fmt: skip
    assert of(patched("Pod", {"spec": {"topologySpreadConstraints": written}}, web(), FULL)) == HASH


@pytest.mark.parametrize(("by", "no"), [("its own", ""), ("another", "a spread constraint of other pods")])
def test_nor_is_it_once_its_replica_set_has_let_it_go(by: str, no: str) -> None:
    """The API server has added the key to the selector, in each pod."""
    found = objects(web(), FULL)
    every = [o for o in found if o["kind"] == "Pod"]
    meta, [owner] = every[0]["metadata"], every[0]["metadata"].pop("ownerReferences")
    asks = {"key": HASH, "operator": "In", "values": [meta["labels"][HASH]]}
    for o in every:
        o["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "matchLabelKeys": [HASH],
                "labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": [asks]},
            }
        ]
    mark = Mark(HASH, meta["labels"][HASH], owner["uid"] if by == "its own" else "x", meta["uid"], 1)
    meta.setdefault("annotations", {})[MARK] = str(mark)
    s = cluster(found)
    pod = next(p for p in s.pods if p.uid == meta["uid"])
    reason = Evictable(s, FIRST).replace_first.asked_for(pod, HASH)
    said = reason.message if reason is not None else ""
    assert bool(said) == bool(no), said
    assert no in said


def test_kinds_that_may_not_be_read_could_ask_for_the_label() -> None:
    assert "Service may not be read" in of(web(), FULL, refused=("Service", "ResourceQuota"))


@pytest.mark.parametrize(("refused", "waits"), [(("Deployment",), True), ((), False)])
def test_a_deployment_that_may_not_be_read_could_bear_a_pod_too_many(
    refused: tuple[str, ...], waits: bool
) -> None:
    every = cluster(web())
    sets = tuple(w for w in every.workloads if w.kind != "Deployment")
    snapshot = replace(every, workloads=sets, refused=frozenset(refused))
    reason = Evictable(snapshot, FIRST).replace_first.waits(pods(snapshot, "web")[0])
    assert (reason is not None and "Deployment may not be read" in reason.message) == waits


def test_the_pod_and_its_node_have_to_be_well() -> None:
    assert "cordoned" in of(CORDONED, web(), FULL)
    tainted = patched("Node", {"spec": {"taints": [
        {"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}]}},
        nodes(a=1, b=1), name="a-0")  # fmt: skip
    assert "may be removed" in of(tainted, web(), FULL)
    assert "not Ready" in of(web().unready(0), FULL)
    assert "needs more healthy pods" in of(web().unready(1), FULL)


@pytest.mark.parametrize(
    ("mode", "expected"), [("ReadWriteOnce", "attached to one node"), ("ReadWriteMany", HASH)]
)
def test_two_pods_need_their_volume_at_once(mode: str, expected: str) -> None:
    modes = {"spec": {"accessModes": [mode]}}
    mounted = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    things = patched("Pod", {"spec": {"volumes": mounted}}, web(), FULL)
    bound = patched("PersistentVolume", modes, patched("PersistentVolumeClaim", modes,
                                                       claim("c", "pv"), volume("pv", "c")))  # fmt: skip
    assert expected in of(things, bound)


def test_what_its_budget_keeps_may_go_if_it_can_be_replaced_first_and_else_says_why() -> None:
    def why_not(*things: Any, options: PolicyOptions = AUTO) -> Reason | None:
        snapshot = cluster(*things)
        return Evictable(snapshot, options).why_not(pods(snapshot, "web")[0])

    assert why_not(web(), FULL) is None
    kept = why_not(web(), FULL, options=EVICT)
    assert kept is not None
    assert kept.code is ReasonCode.PDB_EXHAUSTED
    kept = why_not(strategy(maxSurge=0))
    assert kept is not None
    assert kept.code is ReasonCode.NOT_REPLACED_FIRST
    assert "allows no disruption" in kept.message
    assert "maxSurge" in kept.message
    assert 'rebalancer.io/method: "replaceFirst"' in kept.remedy


@pytest.mark.parametrize(
    ("things", "options", "no"),
    [
        ([FULL], AUTO, ""),
        ([], AUTO, ""),
        ([FULL], EVICT, "any more"),
        ([FULL, other(app="web")], AUTO, "would adopt"),
        ([FULL, service({HASH: hashed()})], AUTO, "asks for"),
        (CORDONED, AUTO, "is cordoned"),
        ([], replace(AUTO, label_users=LabelUsers(unread=("networkpolicies",))), "may not be read"),
    ],
    ids=[
        "as planned",
        "its budget has room by now",
        "not any more",
        "adopted",
        "asked for",
        "its budget has room by now, and its node goes",
        "its budget has room by now, and users are not read",
    ],
)
def test_a_release_that_was_planned_is_judged_again_by_its_own_label(
    things: list[Any], options: PolicyOptions, no: str
) -> None:
    snapshot = cluster(web(), *things)
    reason = Evictable(snapshot, options).replace_first.why_not(pods(snapshot, "web")[0], HASH)
    said = reason.message if reason is not None else ""
    assert bool(said) == bool(no), said
    assert no in said


def test_who_would_adopt_a_pod_is_asked_of_any_list_of_workloads() -> None:
    snapshot = cluster(web(), other(app="web"))
    released = without_label(pods(snapshot, "web")[0].template, HASH).labels
    found = adopter(snapshot.workloads, "default", released)
    assert found is not None
    assert found.name == "other"
    assert adopter(snapshot.workloads, "x", released) is None
    assert adopter(cluster(web()).workloads, "default", released) is None


OFF = Reason(ReasonCode.RELEASE_OFF, "an undo took a Ready pod")
FOR_NOW: dict[str, tuple[Any, PolicyOptions, str]] = {
    "a kind cannot be read": (
        [web()], replace(FIRST, label_users=LabelUsers((), ("networkpolicies",))), "may not be read"),
    "an undo turned the method off": ([web()], replace(FIRST, no_release=OFF), "an undo took"),
    "its node is cordoned": ([CORDONED, web()], FIRST, "cordoned"),
    "the Deployment asks for it, and an undo turned the method off": (
        patched("Deployment", SAYS_YES, web()), replace(EVICT, no_release=OFF), "an undo took"),
    "nothing speaks against it": ([web()], FIRST, ""),
    "the workload never bears it": (strategy("Recreate")[:-1], replace(FIRST, no_release=OFF), ""),
    "it does not serve": ([web().unready(0)], replace(FIRST, no_release=OFF), ""),
    "auto, where nothing asks for it": ([web()], replace(AUTO, no_release=OFF), ""),
}  # fmt: skip


@pytest.mark.parametrize(("things", "options", "expected"), FOR_NOW.values(), ids=FOR_NOW)
def test_a_pod_that_is_to_be_replaced_first_is_not_evicted_at_once_because_that_cannot_be_now(
    things: Any, options: PolicyOptions, expected: str
) -> None:
    snapshot = cluster(*things)
    why = Evictable(snapshot, options).why_not(pods(snapshot, "web")[0])
    if expected:
        assert why is not None
        assert expected in why.message
    else:
        assert why is None
