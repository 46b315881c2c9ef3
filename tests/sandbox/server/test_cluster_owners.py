"""Owners of pods on a running cluster: what they make, in which order they delete, what they tell."""

from __future__ import annotations

import pytest

from rebalancer.sandbox.controllers.deployment import victims
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
from tests.support.sandbox import ApiError, Cluster, Event, is_ready
from tests.support.scheduler.plain import Json

QUICK = {"ready_after": 0.02, "grace": 0.02}
NODES = [node("a-0"), node("b-0", "b"), node("c-0", "c")]


def test_a_replica_set_makes_its_pods_and_tells_of_them() -> None:
    with Cluster([*NODES, workload("ReplicaSet", 3)], **QUICK) as cluster:
        cluster.settle()
        found = status(cluster, "ReplicaSet")
        assert (found["replicas"], found["readyReplicas"], found["availableReplicas"]) == (3, 3, 3)
        assert found["observedGeneration"] == cluster.store.get("ReplicaSet", "web", "default")[
            "metadata"
        ].get("generation", 0)
        assert ready(cluster) == 3
        cluster.scale("default", "web", 5)
        cluster.settle()
        assert ready(cluster) == 5
        cluster.scale("default", "web", 1)
        cluster.settle()
        assert ready(cluster) == len(pods(cluster)) == 1
        with pytest.raises(KeyError):
            cluster.scale("default", "other", 1)


def test_a_terminating_pod_is_replaced_at_once() -> None:
    with Cluster([*NODES, workload("ReplicaSet", 1)], ready_after=0.02, grace=30) as cluster:
        cluster.settle()
        (old,) = names(cluster)
        cluster.store.delete("Pod", old, "default", grace=20)
        with pytest.raises(TimeoutError, match="Kubelet"):
            cluster.settle(0.3)
        assert len(names(cluster)) == 2
        assert ready(cluster) == 2
        assert status(cluster, "ReplicaSet")["terminatingReplicas"] == 1


def pod(
    name: str, on: str = "n1", *, phase: str = "Running", since: int = 0, cost: str = "", restarts: int = 0
) -> Json:
    made = f"2026-01-01T0{since}:00:00Z"
    state = [{"type": "Ready", "status": "True", "lastTransitionTime": made}] if phase == "Running" else []
    annotations = {"controller.kubernetes.io/pod-deletion-cost": cost} if cost else {}
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": made, "annotations": annotations},
        "spec": {"nodeName": on} if on else {},
        "status": {
            "phase": phase,
            "conditions": state,
            "containerStatuses": [{"name": "c", "restartCount": restarts}],
        },
    }


NOON = 1767268800.0  # 2026-01-01T12:00:00Z


@pytest.mark.parametrize(
    ("case", "candidates", "first"),
    [
        ("one without a node", [pod("old"), pod("new", on="", phase="Pending")], "new"),
        ("one that is Pending", [pod("x"), pod("y", phase="Pending")], "y"),
        ("one of lower cost", [pod("x", cost="5"), pod("y", cost="-1")], "y"),
        ("cost before crowding", [pod("x", cost="1"), pod("y", cost="1"), pod("z", on="n2")], "z"),
        ("the crowded node", [pod("x"), pod("y"), pod("z", on="n2", since=9)], "x"),
        ("the younger", [pod("x"), pod("y", since=9)], "y"),
        ("a cost that is no number is 0", [pod("x", cost="+9"), pod("y", cost="-1"), pod("z")], "y"),
        ("the one that was restarted", [pod("x"), pod("y", restarts=2)], "y"),
        ("the younger before the restarted", [pod("x", restarts=2), pod("y", since=9)], "y"),
        ("readiness before cost", [pod("x", cost="-9"), pod("y", phase="Unknown")], "y"),
        ("ages of one magnitude are equal: by uid", [pod("y", since=1), pod("x")], "x"),
    ],
)
def test_a_replica_set_deletes_first(case: str, candidates: list[Json], first: str) -> None:
    assert case
    assert victims(candidates, candidates, NOON)[0]["metadata"]["name"] == first


def test_a_deployment_rolls_without_losing_what_it_promises() -> None:
    with Cluster([*NODES, workload("Deployment", 4), budget(maxUnavailable=1)], **QUICK) as cluster:
        cluster.settle()
        (old,) = cluster.store.list("ReplicaSet")
        assert old["metadata"]["name"] == f"web-{old['metadata']['labels']['pod-template-hash']}"
        least = 4

        def watch(event: Event) -> None:
            nonlocal least
            if event.resource.kind == "Pod":
                live = [p for p in pods(cluster) if "deletionTimestamp" not in p["metadata"]]
                least = min(least, sum(map(is_ready, live)))

        cluster.store.subscribe(watch)

        def change(obj: Json) -> None:
            obj["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"

        cluster.store.modify("Deployment", "web", "default", change)
        cluster.settle()
        assert {p["spec"]["containers"][0]["image"] for p in pods(cluster)} == {"app:2"}
        assert least == 3, "maxUnavailable 25 %"
        found = status(cluster, "Deployment")
        assert (found["updatedReplicas"], found["availableReplicas"], found["replicas"]) == (4, 4, 4)
        reasons = {c["type"]: c["reason"] for c in found["conditions"]}
        assert reasons == {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}
        cluster.scale("default", "web", 2)
        cluster.settle()
        assert len(pods(cluster)) == 2
        cluster.store.delete("Deployment", "web", "default")
        cluster.settle()
        assert pods(cluster) == cluster.store.list("ReplicaSet") == []


def test_recreate_makes_the_next_replica_set_once_the_old_pods_are_gone() -> None:
    most, beside = 0, list[int]()
    deployment = workload("Deployment", 2, strategy={"type": "Recreate"})
    with Cluster([*NODES, deployment], **QUICK) as cluster:
        cluster.settle()

        def watch(event: Event) -> None:
            nonlocal most
            most = max(most, len(pods(cluster)) if event.resource.kind == "Pod" else 0)
            if event.resource.kind == "ReplicaSet" and event.type == "ADDED":
                beside.append(len(pods(cluster)))

        cluster.store.subscribe(watch)

        def change(obj: Json) -> None:
            obj["spec"]["template"]["metadata"]["labels"]["v"] = "2"

        cluster.store.modify("Deployment", "web", "default", change)
        cluster.settle()
        assert [p["metadata"]["labels"]["v"] for p in pods(cluster)] == ["2", "2"]
        assert (most, beside) == (2, [0])


def test_a_stateful_set_starts_in_order_and_keeps_names_and_claims() -> None:
    wanted: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "zonal"}
    wanted["resources"] = {"requests": {"storage": "1Gi"}}
    claim = {"metadata": {"name": "data"}, "spec": wanted}
    zonal = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "zonal"},
        "provisioner": "csi.example",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
              "labelSelector": {"matchLabels": {"app": "web"}}}  # fmt: skip
    made = template(topologySpreadConstraints=[spread])
    order: list[str] = []
    with Cluster([*NODES, zonal], **QUICK) as cluster:

        def watch(event: Event) -> None:
            if event.resource.kind == "Pod" and event.type == "ADDED":
                order.append(event.obj["metadata"]["name"])
                assert all(is_ready(p) for p in pods(cluster) if p["metadata"]["name"] != order[-1])

        cluster.store.subscribe(watch)
        cluster.store.create(workload("StatefulSet", 3, template=made, volumeClaimTemplates=[claim]))
        cluster.settle()
        assert order == ["web-0", "web-1", "web-2"]
        assert places(cluster) == ["a-0", "b-0", "c-0"]
        home = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods(cluster)}
        bound = cluster.store.list("PersistentVolumeClaim")
        assert [c["metadata"]["name"] for c in bound] == ["data-web-0", "data-web-1", "data-web-2"]
        assert {c["status"]["phase"] for c in bound} == {"Bound"}
        uid = pods(cluster)[1]["metadata"]["uid"]
        cluster.store.delete("Pod", "web-1", "default")
        cluster.settle()
        assert pods(cluster)[1]["metadata"]["uid"] != uid
        assert pods(cluster)[1]["spec"]["nodeName"] == home["web-1"], "its volume is there"
        cluster.scale("default", "web", 1)
        cluster.settle()
        assert names(cluster) == ["web-0"]
        assert len(cluster.store.list("PersistentVolumeClaim")) == 3


def _new_image(obj: Json) -> None:
    obj["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"


@pytest.mark.parametrize(
    ("strategy", "images"),
    [
        ({"type": "RollingUpdate"}, "222"),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}, "112"),
        ({"type": "OnDelete"}, "111"),
    ],
)
@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_stateful_set_updates_as_its_strategy_says(strategy: Json, images: str, policy: str) -> None:
    stateful = workload("StatefulSet", 3, updateStrategy=strategy, podManagementPolicy=policy)
    with Cluster([*NODES, stateful], **QUICK) as cluster:
        cluster.settle()
        first = status(cluster, "StatefulSet")["currentRevision"]
        cluster.store.modify("StatefulSet", "web", "default", _new_image)
        cluster.settle()

        def seen() -> str:
            return "".join(p["spec"]["containers"][0]["image"][-1] for p in pods(cluster))

        assert seen() == images
        found = status(cluster, "StatefulSet")
        assert found["updateRevision"] != first
        assert (found["currentRevision"] == first) == (images != "222")
        assert found.get("updatedReplicas", 0) == images.count("2")
        cluster.store.delete("Pod", "web-0", "default")
        cluster.settle()
        on_delete = strategy["type"] == "OnDelete"
        assert seen()[0] == ("2" if on_delete else images[0]), "OnDelete comes back as the newer revision"
        assert ready(cluster) == 3


def test_a_daemon_set_has_a_pod_on_each_node_that_it_tolerates() -> None:
    tainted = node("gpu", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    with Cluster([*NODES, tainted, workload("DaemonSet", 0)], **QUICK) as cluster:
        cluster.settle()
        assert places(cluster) == ["a-0", "b-0", "c-0"]
        (added,) = cluster.add_nodes(1, like="c-0")
        cluster.settle()
        assert places(cluster) == ["a-0", "b-0", "c-0", added]
        assert status(cluster, "DaemonSet")["numberReady"] == 4
        cluster.remove_node(added)
        cluster.settle()
        assert places(cluster) == ["a-0", "b-0", "c-0"]


def test_a_pod_of_a_daemon_set_stays_on_a_node_that_falls_silent() -> None:
    with Cluster([*NODES, workload("DaemonSet", 0)], **QUICK) as cluster:
        cluster.settle()
        before = {p["metadata"]["uid"] for p in cluster.store.list("Pod")}
        cluster.fail_domain("kubernetes.io/hostname", "c-0")
        cluster.settle()
        after = cluster.store.list("Pod")
        assert {p["metadata"]["uid"] for p in after} == before
        assert not any("deletionTimestamp" in p["metadata"] for p in after)


def test_a_pod_of_a_job_does_not_come_back() -> None:
    metadata = {"name": "j", "namespace": "default", "uid": "j"}
    spec = {"template": template("j")}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    made = {"apiVersion": "v1", "kind": "Pod", **template("j")}
    made["metadata"] = {**made["metadata"], "name": "j-1", "namespace": "default", "ownerReferences": [owner]}
    with Cluster([*NODES, job, made], **QUICK) as cluster:
        cluster.settle()
        assert ready(cluster, "j") == 1
        cluster.store.delete("Pod", "j-1", "default")
        cluster.settle()
        assert names(cluster, "j") == []


def test_a_template_that_is_not_valid_does_not_keep_the_others_waiting() -> None:
    broken = workload("ReplicaSet", 1, "bad", template={"metadata": {"labels": {"app": "bad"}}, "spec": {}})
    with Cluster([*NODES, broken, workload("ReplicaSet", 2)], **QUICK) as cluster:
        cluster.settle()
        assert (ready(cluster), names(cluster, "bad")) == (2, [])


def test_a_controller_may_be_left_out() -> None:
    with Cluster([*NODES, workload("ReplicaSet", 1)], without=["ReplicaSet"]) as cluster:
        cluster.settle()
        assert names(cluster) == []
    with pytest.raises(ValueError, match="CronJob"):
        Cluster(without=["CronJob"])
    with pytest.raises(ApiError):
        Cluster(NODES).remove_node("z")
