"""The store as controllers use it: versions, admission, ends of life, owners, waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rebalancer.sandbox.registry import bind, evict
from tests.support.sandbox import ApiError, Event, Store
from tests.support.sandbox.patch_verb import patched
from tests.support.servers.api_objects import budget, deployment, eviction, node, pod

Object = dict[str, Any]


def fresh(**spec: Any) -> Object:
    """A pod as a controller would create it."""
    spec.setdefault("containers", [{"name": "c", "image": "app:1"}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"}, "spec": spec}


def unchanged(obj: Object) -> None:
    del obj


def refused(code: int, call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def test_loading_keeps_names_uids_versions_and_goes_on_above_them() -> None:
    old = pod("p") | {"metadata": {"name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "900"}}
    store = Store([{"apiVersion": "v1", "kind": "List", "items": [old, {"apiVersion": "x/v1", "kind": "Y"}]}])
    assert store.skipped == ["x/v1/Y"]
    assert store.get("Pod", "p", "shop")["metadata"] == old["metadata"] | {
        "creationTimestamp": store.get("Pod", "p", "shop")["metadata"]["creationTimestamp"],
    }
    assert [space["metadata"]["name"] for space in store.list("Namespace")] == [
        "default", "kube-node-lease", "kube-public", "kube-system", "shop"]  # fmt: skip
    made = store.create(fresh())
    assert int(made["metadata"]["resourceVersion"]) > 900


def test_the_same_seed_gives_the_same_names_and_uids() -> None:
    one, two = (Store(seed=4, clock=lambda: 0.0).create(fresh()) for _ in range(2))
    assert one == two


def test_a_pod_is_admitted() -> None:
    classes = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
               "value": 1000, "preemptionPolicy": "Never"}  # fmt: skip
    store = Store([classes, node("n1", "a")])
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["rev", "absent"],
    }
    new = fresh(priorityClassName="high", topologySpreadConstraints=[spread], nodeName="n1")
    new["metadata"]["labels"] = {"app": "web", "rev": "7"}
    made = store.create(new)
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "Never")
    assert made["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == [
        {"key": "rev", "operator": "In", "values": ["7"]}
    ]
    assert [t["tolerationSeconds"] for t in made["spec"]["tolerations"]] == [300, 300]
    assert made["metadata"]["labels"]["topology.kubernetes.io/zone"] == "a"
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert store.create(fresh(priorityClassName="system-node-critical"))["spec"]["priority"] == 2_000_001_000
    assert refused(403, lambda: store.create(fresh(priorityClassName="none"))).reason == "Forbidden"
    refused(404, lambda: store.create(fresh(), namespace="nowhere"))


def test_limits_become_requests_of_pods_and_not_of_templates() -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    store, pod = Store(), fresh(containers=[{"name": "c", "image": "i", "resources": resources}])
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod["spec"]}
    made = store.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
        }
    )
    (stored,) = made["spec"]["template"]["spec"]["containers"]
    assert stored["resources"] == resources
    (container,) = store.create(pod)["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_a_bound_pod_keeps_until_its_kubelet_ends_it() -> None:
    store = Store([node("n1")], clock=lambda: 1000.0)
    name = store.create(fresh())["metadata"]["name"]
    bind(store, "default", name, "n1")
    refused(409, lambda: bind(store, "default", name, "n1"))
    first, gone = store.delete("Pod", name, "default")
    assert not gone
    assert first["metadata"]["deletionTimestamp"] == "1970-01-01T00:17:10Z"
    assert first["metadata"]["deletionGracePeriodSeconds"] == 30
    longer, _ = store.delete("Pod", name, "default", grace=60)
    assert longer == first
    shorter, _ = store.delete("Pod", name, "default", grace=5)
    assert shorter["metadata"]["deletionTimestamp"] == "1970-01-01T00:16:45Z"
    _, gone = store.delete("Pod", name, "default", grace=0)
    assert gone
    assert store.find("Pod", name, "default") is None


def test_a_pod_without_a_node_goes_at_once() -> None:
    store = Store()
    name = store.create(fresh())["metadata"]["name"]
    assert store.delete("Pod", name, "default")[1]


def test_preconditions_and_dry_run_of_a_deletion() -> None:
    store = Store([pod("p")])
    refused(409, lambda: store.delete("Pod", "p", "default", uid="other"))
    refused(409, lambda: store.delete("Pod", "p", "default", resource_version="1000000"))
    before = store.revision
    store.delete("Pod", "p", "default", grace=0, dry_run=True)
    assert store.revision == before


def test_finalizers_hold_an_object() -> None:
    held = pod("p", on="")
    held["metadata"]["finalizers"] = ["test/hold"]
    store = Store([held])
    assert not store.delete("Pod", "p", "default")[1]
    store.modify("Pod", "p", "default", lambda p: p["metadata"].pop("finalizers"))
    assert store.find("Pod", "p", "default") is None


def family(store: Store) -> None:
    owner = store.create(deployment())
    child = deployment("web-1") | {"kind": "ReplicaSet"}
    for parent, obj in ((owner, child), (None, fresh())):
        parent = parent or store.get("ReplicaSet", "web-1", "default")
        ref = {"apiVersion": "apps/v1", "kind": parent["kind"], "name": parent["metadata"]["name"],
               "uid": parent["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}  # fmt: skip
        obj["metadata"]["ownerReferences"] = [ref]
        store.create(obj)


def test_owners_take_their_dependents_along_unless_orphaned() -> None:
    store = Store()
    family(store)
    store.delete("Deployment", "web", "default", propagation="Background")
    assert store.list("ReplicaSet") == store.list("Pod") == []

    family(store)
    store.delete("Deployment", "web", "default", propagation="Orphan")
    assert "ownerReferences" not in store.get("ReplicaSet", "web-1", "default")["metadata"]
    assert len(store.list("Pod")) == 1


def test_foreground_deletion_waits_for_the_last_pod() -> None:
    store = Store([node("n1")])
    family(store)
    name = store.list("Pod")[0]["metadata"]["name"]
    bind(store, "default", name, "n1")
    assert not store.delete("Deployment", "web", "default", propagation="Foreground")[1]
    assert store.get("Deployment", "web", "default")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in store.get("Pod", name, "default")["metadata"]
    store.delete("Pod", name, "default", grace=0)
    assert store.list("Deployment") == store.list("ReplicaSet") == []


def test_a_namespace_ends_after_its_last_pod() -> None:
    store = Store([pod("p") | {"metadata": {"name": "p", "namespace": "shop"}}])
    store.delete("Namespace", "shop")
    assert store.get("Namespace", "shop")["status"]["phase"] == "Terminating"
    refused(403, lambda: store.create(fresh(), namespace="shop"))
    store.delete("Pod", "p", "shop", grace=0)
    assert store.find("Namespace", "shop") is None


def test_generation_counts_changes_of_the_spec_only() -> None:
    store = Store()
    store.create(deployment())
    store.modify("Deployment", "web", "default", lambda d: d["metadata"].update(labels={"a": "b"}))
    store.modify(
        "Deployment", "web", "default", lambda d: d["status"].update(replicas=1), subresource="status"
    )
    assert store.get("Deployment", "web", "default")["metadata"]["generation"] == 1
    store.modify("Deployment", "web", "default", lambda d: d["spec"].update(replicas=4))
    assert store.get("Deployment", "web", "default")["metadata"]["generation"] == 2


def test_an_update_that_changes_nothing_is_no_event() -> None:
    store = Store([node("n1")])
    before = store.revision
    store.modify("Node", "n1", None, unchanged)
    assert store.revision == before


def test_a_pod_keeps_its_spec_for_life() -> None:
    store = Store([pod("p")])
    refused(422, lambda: store.modify("Pod", "p", "default", lambda p: p["spec"].update(nodeName="n2")))


def test_subscribing_and_compacting() -> None:
    store = Store([node("n1")])
    start, seen = store.revision, list[Event]()
    end = store.subscribe(seen.append)
    store.create(fresh())
    end()
    store.create(fresh())
    assert [event.type for event in seen] == ["ADDED"]
    assert [event.rv for event in store.collection("Pod").since(start)] == [start + 1, start + 2]
    store.compact()
    assert store.collection("Pod").floor == start + 2


def relabelled(obj: dict[str, Any], labels: dict[str, str]) -> None:
    obj["metadata"]["labels"] = labels


def test_history_is_a_ring() -> None:
    store = Store([node("n1")], history=3)
    start = store.revision
    labels = [{"i": str(i)} for i in range(5)]
    for change in labels:
        store.modify("Node", "n1", None, partial(relabelled, labels=change))
    assert store.collection("Node").floor == start + 2
    assert len(store.collection("Node").since(start + 2)) == 3


def test_what_was_handed_out_never_changes() -> None:
    store = Store([node("n1")])
    before = store.get("Node", "n1")
    text = repr(before)
    store.modify("Node", "n1", None, lambda n: n["spec"].update(unschedulable=True))
    patch = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    patched(store, "Node", "n1", None, patch, "application/strategic-merge-patch+json")
    assert repr(before) == text


def test_writers_of_many_threads_lose_nothing() -> None:
    store = Store([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"n": "0"}}])

    def count() -> None:
        for _ in range(100):
            store.modify(
                "ConfigMap", "c", "default", lambda c: c["data"].update(n=str(int(c["data"]["n"]) + 1))
            )

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("ConfigMap", "c", "default")["data"]["n"] == "400"


def stale(b: Object) -> Object:
    b["metadata"]["generation"] = 2
    return b


def always(b: Object) -> Object:
    b["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    return b


def unhealthy(b: Object) -> Object:
    b["status"]["currentHealthy"] = 1
    return b


READY, UNREADY = pod("p", app="web"), pod("p", ready=False, app="web")


@pytest.mark.parametrize(
    ("case", "the_pod", "budgets", "code", "allowed"),
    [
        ("a ready pod charges", READY, [budget("b", 1, app="web")], 201, 0),
        ("nothing left", READY, [budget("b", 0, app="web")], 429, 0),
        ("the budget of others", pod("p", app="db"), [budget("b", 0, app="web")], 201, 0),
        ("an empty selector selects all", pod("p", app="db"), [budget("b", 0)], 429, 0),
        ("status behind the spec", READY, [stale(budget("b", 1, app="web"))], 429, 1),
        ("two budgets", READY, [budget("a", 1, app="web"), budget("b", 1, app="web")], 500, 1),
        ("unready, all others healthy", UNREADY, [budget("b", 0, app="web")], 201, 0),
        ("unready, others too", UNREADY, [unhealthy(budget("b", 0, app="web"))], 429, 0),
        ("unready, always allowed", UNREADY, [always(unhealthy(budget("b", 0, app="web")))], 201, 0),
        ("ready, always allowed is not for it", READY, [always(budget("b", 0, app="web"))], 429, 0),
        ("pending", pod("p", phase="Pending", app="web"), [budget("b", 0, app="web")], 201, 0),
        ("succeeded", pod("p", phase="Succeeded", app="web"), [budget("b", 0, app="web")], 201, 0),
        ("failed", pod("p", phase="Failed", app="web"), [budget("b", 0, app="web")], 201, 0),
    ],
)
def test_eviction_and_budgets(
    case: str, the_pod: Object, budgets: list[Object], code: int, allowed: int
) -> None:
    store = Store([the_pod, *budgets])
    if code == 201:
        # A dry run says the same and changes nothing.
        before = store.revision
        assert evict(store, "default", "p", eviction("p"), dry_run=True)["code"] == 201
        assert store.revision == before
        assert evict(store, "default", "p", eviction("p"))["code"] == 201
    else:
        error = refused(code, lambda: evict(store, "default", "p", eviction("p")))
        assert error.retry_after == (10 if "behind" in case else 0)
        assert store.find("Pod", "p", "default") is not None
    assert store.get("PodDisruptionBudget", "b", "default")["status"]["disruptionsAllowed"] == allowed


def test_a_null_selector_guards_nobody() -> None:
    none = budget("b", 0)
    none["spec"]["selector"] = None
    store = Store([pod("p"), none])
    assert evict(store, "default", "p", eviction("p"))["code"] == 201


def test_a_wrong_uid_evicts_nobody() -> None:
    store = Store([pod("p")])
    refused(409, lambda: evict(store, "default", "p", eviction("p", preconditions={"uid": "x"})))
    assert "deletionTimestamp" not in store.get("Pod", "p", "default")["metadata"]
    evict(store, "default", "p", eviction("p", preconditions={"uid": "uid-p"}))


def test_defaults_that_a_loaded_object_lacks_are_no_change_of_it() -> None:
    store = Store([deployment()])
    store.modify("Deployment", "web", "default", unchanged)
    assert "strategy" not in store.get("Deployment", "web", "default")["spec"]
    store.modify("Deployment", "web", "default", lambda d: d["metadata"].update(labels={"a": "b"}))
    assert "generation" not in store.get("Deployment", "web", "default")["metadata"]
