"""Scheduler, kubelets, nodes and budgets of a running cluster."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.clusters.cluster_objects import (
    ZONE,
    budget,
    names,
    node,
    places,
    pods,
    ready,
    status,
    template,
    workload,
)
from tests.support.sandbox import Cluster
from tests.support.scheduler.plain import Json

QUICK = {"ready_after": 0.02, "grace": 0.02}


def spread(app: str = "web", skew: int = 1) -> Json:
    constraint = {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
                  "labelSelector": {"matchLabels": {"app": app}}}  # fmt: skip
    return template(app, topologySpreadConstraints=[constraint])


def condition(pod: Json, kind: str) -> Json:
    found: Json = next(c for c in pod["status"]["conditions"] if c["type"] == kind)
    return found


def test_pods_spread_as_their_constraint_says() -> None:
    nodes = [node(f"{z}-{i}", z) for z in "abc" for i in range(2)]
    with Cluster([*nodes, workload("ReplicaSet", 7, template=spread())], **QUICK) as cluster:
        cluster.settle()
        assert sorted(Counter(p[0] for p in places(cluster)).values()) == [2, 2, 3]


def test_ties_follow_the_seed() -> None:
    nodes = [node(f"n{i}") for i in range(8)]

    def chosen(seed: int) -> list[str]:
        with Cluster([*nodes, workload("ReplicaSet", 4)], seed=seed, **QUICK) as cluster:
            cluster.settle()
            return places(cluster)

    assert chosen(1) == chosen(1)
    assert len({tuple(chosen(seed)) for seed in range(6)}) > 1


def test_what_a_waiting_pod_is_nominated_for_is_kept_for_it() -> None:
    meta = {"name": "first", "namespace": "default", "labels": {"app": "first"}}
    first = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": template("first", cpu="1500m")["spec"],
    }
    first["spec"]["schedulingGates"] = [{"name": "quota"}]
    first["status"] = {"nominatedNodeName": "a-0"}
    with Cluster([node("a-0", cpu="2"), first], version="1.37.0", **QUICK) as cluster:
        cluster.store.create(workload("ReplicaSet", 1, cpu="1"))
        cluster.settle()
        assert ready(cluster) == 0
        cluster.store.delete("Pod", "first", "default")
        cluster.settle()
        assert places(cluster) == ["a-0"]


def test_what_finds_no_node_says_why_and_is_tried_again() -> None:
    nodes = [node("a-0", cpu="1"), node("b-0", "b", taints=[{"key": "x", "effect": "NoSchedule"}])]
    with Cluster([*nodes, workload("ReplicaSet", 2, cpu="800m")], **QUICK) as cluster:
        cluster.settle()
        assert ready(cluster) == 1
        (waiting,) = [p for p in pods(cluster) if not p["spec"].get("nodeName")]
        told = condition(waiting, "PodScheduled")
        assert (told["status"], told["reason"]) == ("False", "Unschedulable")
        assert told["message"] == (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). preemption: "
            "0/2 nodes are available: 1 No preemption victims found for incoming pod, "
            "1 Preemption is not helpful for scheduling."
        )
        (added,) = cluster.add_nodes(1, like="a-0")
        cluster.settle()
        assert places(cluster) == ["a-0", added]
        (landed,) = [p for p in pods(cluster) if p["metadata"]["uid"] == waiting["metadata"]["uid"]]
        assert condition(landed, "PodScheduled")["status"] == "True"


def test_a_terminating_pod_holds_its_room() -> None:
    with Cluster([node("a-0", cpu="1"), workload("ReplicaSet", 1, cpu="800m")], grace=1.5) as cluster:
        cluster.settle()
        (old,) = names(cluster)
        cluster.store.delete("Pod", old, "default")
        with pytest.raises(TimeoutError):
            cluster.settle(0.5)
        assert places(cluster) == ["", "a-0"], "the replacement waits for the room"
        cluster.settle()
        assert places(cluster) == ["a-0"]
        assert names(cluster) != [old]


def test_higher_priority_goes_first() -> None:
    kinds = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 9,
        }
    ]
    high = template("high", "800m", priorityClassName="high")
    with Cluster([node("a-0", cpu="1", unschedulable=True), *kinds], **QUICK) as cluster:
        cluster.store.create(workload("ReplicaSet", 2, "low", cpu="800m"))
        cluster.store.create(workload("ReplicaSet", 1, "high", template=high))
        cluster.settle()
        cluster.cordon("a-0", on=False)
        cluster.settle()
        assert (ready(cluster, "high"), ready(cluster, "low")) == (1, 0)


@pytest.mark.parametrize(
    ("spec", "expected", "desired"),
    [
        ({"maxUnavailable": 1}, 5, 4),
        ({"maxUnavailable": "30%"}, 5, 3),
        ({"minAvailable": 2}, 5, 2),
        ({"minAvailable": "50%"}, 5, 3),
        ({"maxUnavailable": "0%"}, 5, 5),
    ],
)
def test_budgets_round_as_upstream_does(spec: Json, expected: int, desired: int) -> None:
    with Cluster([node("a-0"), workload("Deployment", 5), budget(**spec)], **QUICK) as cluster:
        cluster.settle()
        found = status(cluster, "PodDisruptionBudget")
        assert (found["expectedPods"], found["desiredHealthy"], found["currentHealthy"]) == (
            expected,
            desired,
            5,
        )
        assert found["disruptionsAllowed"] == 5 - desired
        assert found["observedGeneration"] >= 0


def test_draining_keeps_the_budget_and_empties_the_node() -> None:
    nodes = [node("a-0"), node("a-1")]
    with Cluster([*nodes, workload("ReplicaSet", 4), budget(minAvailable=3)], **QUICK) as cluster:
        cluster.settle()
        cluster.drain("a-0")
        cluster.settle()
        assert places(cluster) == ["a-1"] * 4
        keys = {t["key"] for t in cluster.store.get("Node", "a-0")["spec"]["taints"]}
        assert keys == {"node.kubernetes.io/unschedulable"}
        with pytest.raises(TimeoutError, match="a-1 still has web-"):
            cluster.drain("a-1", timeout=0.3)
        cluster.cordon("a-0", on=False)
        cluster.drain("a-1")
        cluster.settle()
        assert places(cluster) == ["a-0"] * 4


def test_a_zone_fails_and_comes_back() -> None:
    nodes = [node(f"{z}-0", z) for z in "abc"]
    honest = spread()
    honest["spec"]["topologySpreadConstraints"][0]["nodeTaintsPolicy"] = "Honor"
    with Cluster([*nodes, workload("ReplicaSet", 6, template=honest)], patience=0.1, **QUICK) as cluster:
        cluster.settle()
        assert Counter(places(cluster)) == {"a-0": 2, "b-0": 2, "c-0": 2}
        assert cluster.fail_domain(ZONE, "c") == ["c-0"]
        cluster.settle()
        lost = [p for p in pods(cluster) if p["spec"]["nodeName"] == "c-0"]
        assert len(lost) == 2
        assert all("deletionTimestamp" in p["metadata"] for p in lost), "nobody is there to end them"
        assert Counter(places(cluster)) == {"a-0": 3, "b-0": 3, "c-0": 2}
        assert ready(cluster) == 6
        cluster.restore_domain(ZONE, "c")
        cluster.settle()
        assert Counter(places(cluster)) == {"a-0": 3, "b-0": 3}
        assert "taints" not in cluster.store.get("Node", "c-0")["spec"]


def test_a_short_outage_costs_no_pod() -> None:
    nodes = [node("a-0"), node("b-0", "b")]
    with Cluster([*nodes, workload("ReplicaSet", 2, template=spread())], patience=30, **QUICK) as cluster:
        cluster.settle()
        before = names(cluster)
        cluster.fail_domain(ZONE, "b")
        with pytest.raises(TimeoutError, match="Nodes b-0"):
            cluster.settle(0.5)
        assert ready(cluster) == 1
        cluster.restore_domain(ZONE, "b")
        with pytest.raises(TimeoutError):
            cluster.settle(0.5)
        assert (ready(cluster), names(cluster)) == (2, before)


def test_pods_of_a_removed_node_are_made_elsewhere() -> None:
    with Cluster([node("a-0"), node("a-1"), workload("ReplicaSet", 4)], **QUICK) as cluster:
        cluster.settle()
        cluster.remove_node("a-0")
        cluster.settle()
        assert places(cluster) == ["a-1"] * 4
        assert ready(cluster) == 4


def test_some_pods_never_become_ready() -> None:
    def late(pod: Json) -> float | None:
        return None if pod["metadata"]["name"].endswith("-0") else 0.02

    with Cluster([node("a-0"), workload("StatefulSet", 3)], ready_after=late) as cluster:
        cluster.settle()
        assert (names(cluster), ready(cluster)) == (["web-0"], 0), "OrderedReady stops there"
    parallel = workload("StatefulSet", 3, podManagementPolicy="Parallel")
    with Cluster([node("a-0"), parallel], ready_after=late) as cluster:
        cluster.settle()
        assert (len(names(cluster)), ready(cluster)) == (3, 2)
