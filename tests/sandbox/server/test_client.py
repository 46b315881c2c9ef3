"""The official Python client against the sandbox, over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from tests.support.sandbox import ApiServer
from tests.support.sandbox.patch_verb import patched
from tests.support.servers.api_objects import budget, connect, deployment, eviction, node, pod


@pytest.fixture
def server() -> Iterator[ApiServer]:
    objects = [node("n1"), node("n2", "b"), *(pod(f"p{i}", app="web") for i in range(7)), deployment()]
    with ApiServer(objects=objects, seed=1, fresh_timeout=0.05) as running:
        yield running


@pytest.fixture
def api(server: ApiServer) -> Iterator[client.ApiClient]:
    with connect(server) as connected:
        yield connected


def test_pages_show_one_version_although_pods_come_and_go(server: ApiServer, api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    first = core.list_namespaced_pod("default", limit=3)
    assert first.metadata.remaining_item_count == 4
    server.store.delete("Pod", "p5", "default", grace=0)
    server.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p55"},
                         "spec": {"containers": [{"name": "c", "image": "x"}]}})  # fmt: skip
    second = core.list_namespaced_pod("default", limit=3, _continue=first.metadata._continue)
    third = core.list_namespaced_pod("default", limit=3, _continue=second.metadata._continue)
    names = [p.metadata.name for page in (first, second, third) for p in page.items]
    assert names == [f"p{i}" for i in range(7)]
    assert {page.metadata.resource_version for page in (first, second, third)} == {
        first.metadata.resource_version
    }
    assert "p55" in [p.metadata.name for p in core.list_namespaced_pod("default").items]


def test_a_page_after_compaction_is_410_and_its_token_goes_on(
    server: ApiServer, api: client.ApiClient
) -> None:
    core = client.CoreV1Api(api)
    first = core.list_pod_for_all_namespaces(limit=5)
    server.store.delete("Pod", "p6", "default", grace=0)
    server.store.compact()
    with pytest.raises(ApiException) as caught:
        core.list_pod_for_all_namespaces(limit=5, _continue=first.metadata._continue)
    assert caught.value.status == 410
    token = json.loads(caught.value.body)["metadata"]["continue"]
    rest = core.list_pod_for_all_namespaces(limit=5, _continue=token)
    assert [p.metadata.name for p in rest.items] == ["p5"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", ["x", "y"]),
        ("app!=web", ["z", "bare"]),
        ("app in (web, db),tier", ["y"]),
        ("app notin (web)", ["z", "bare"]),
        ("!app", ["bare"]),
        ("app,tier!=front", ["x", "z"]),
        ("app==db", ["z"]),
        ("rank>3", ["z"]),
        ("", ["x", "y", "z", "bare"]),
    ],
)
def test_label_selectors(selector: str, names: list[str]) -> None:
    objects = [
        pod("x", app="web"),
        pod("y", app="web", tier="front"),
        pod("z", app="db", rank="4"),
        pod("bare"),
    ]
    with ApiServer(objects=objects) as server, connect(server) as api:
        found = client.CoreV1Api(api).list_namespaced_pod("default", label_selector=selector)
        assert sorted(p.metadata.name for p in found.items) == sorted(names)


def test_field_selectors_choose_by_node_and_phase(server: ApiServer, api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    server.store.create(pod("other", on="n2"))
    found = core.list_namespaced_pod("default", field_selector="spec.nodeName=n2")
    assert [p.metadata.name for p in found.items] == ["other"]
    running = core.list_pod_for_all_namespaces(field_selector="status.phase=Running,metadata.name!=p0")
    assert len(running.items) == 6
    with pytest.raises(ApiException) as caught:
        core.list_node(field_selector="spec.nothing=1")
    assert caught.value.status == 400


def test_a_watch_tells_changes_and_selection(server: ApiServer, api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    version = core.list_namespaced_pod("default").metadata.resource_version

    def change() -> None:
        time.sleep(0.1)
        server.store.modify("Pod", "p1", "default", lambda p: p["metadata"]["labels"].update(app="db"))
        server.store.modify("Pod", "p2", "default", lambda p: p["metadata"]["labels"].update(tier="x"))
        server.store.modify("Pod", "p1", "default", lambda p: p["metadata"]["labels"].update(app="web"))
        server.store.delete("Pod", "p3", "default", grace=0)

    thread = threading.Thread(target=change)
    thread.start()
    seen = [
        (event["type"], event["object"].metadata.name)
        for event in watch.Watch().stream(
            core.list_namespaced_pod,
            "default",
            label_selector="app=web",
            resource_version=version,
            timeout_seconds=1,
        )
    ]
    thread.join()
    assert seen == [
        ("DELETED", "p1"),
        ("MODIFIED", "p2"),
        ("ADDED", "p1"),
        ("MODIFIED", "p3"),
        ("DELETED", "p3"),
    ]


def test_a_watch_from_a_forgotten_version_is_410(server: ApiServer, api: client.ApiClient) -> None:
    version = str(server.store.revision)
    server.store.delete("Pod", "p0", "default", grace=0)
    server.store.compact()
    with pytest.raises(ApiException) as caught:
        list(watch.Watch().stream(client.CoreV1Api(api).list_namespaced_pod, "default",
                                  resource_version=version, timeout_seconds=1))  # fmt: skip
    assert caught.value.status == 410


def test_bookmarks_come_in_between(api: client.ApiClient, server: ApiServer) -> None:
    server.api.bookmark_every, server.api.progress_notify = 0.1, False
    core = client.CoreV1Api(api)

    def seen(version: str) -> list[str]:
        options = {"resource_version": version, "allow_watch_bookmarks": True, "timeout_seconds": 1}
        return [event["type"] for event in watch.Watch().stream(core.list_node, **options)]

    before = core.list_node().metadata.resource_version
    assert seen(before) == [], "there is none that is newer"
    server.store.modify("Node", "n1", None, lambda o: o["spec"].update(unschedulable=True))
    kinds = seen(before)
    assert kinds[0] == "MODIFIED"
    assert kinds.count("BOOKMARK") >= 3


def test_an_update_on_an_old_version_conflicts(api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    one, two = core.read_node("n1"), core.read_node("n1")
    one.spec.unschedulable = True
    core.replace_node("n1", one)
    two.metadata.labels["x"] = "y"
    with pytest.raises(ApiException) as caught:
        core.replace_node("n1", two)
    assert (caught.value.status, json.loads(caught.value.body)["reason"]) == (409, "Conflict")
    assert core.read_node("n1").spec.unschedulable
    assert "x" not in core.read_node("n1").metadata.labels


def test_patches_of_three_kinds(server: ApiServer) -> None:
    store = server.store

    def containers() -> dict[str, Any]:
        spec = store.get("Deployment", "web", "default")["spec"]["template"]["spec"]
        return {container["name"]: container for container in spec["containers"]}

    strategic = {"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "app:2", "env": [{"name": "B", "value": "2"}]},
        {"name": "side", "$patch": "delete"},
    ]}}}}  # fmt: skip
    patched(store, "Deployment", "web", "default", strategic, "application/strategic-merge-patch+json")
    assert list(containers()) == ["c"]
    assert containers()["c"]["image"] == "app:2"
    assert [entry["name"] for entry in containers()["c"]["env"]] == ["A", "B"]
    assert store.get("Deployment", "web", "default")["metadata"]["generation"] == 1  # loaded without one

    operations = [{"op": "test", "path": "/spec/replicas", "value": 2},
                  {"op": "replace", "path": "/spec/replicas", "value": 5},
                  {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}},
                  {"op": "remove", "path": "/metadata/annotations/a~1b"}]  # fmt: skip
    after = patched(store, "Deployment", "web", "default", operations, "application/json-patch+json")
    assert after["spec"]["replicas"] == 5
    assert after["metadata"]["annotations"] == {}

    merged = patched(store, "Deployment", "web", "default", {"metadata": {"annotations": None}},
                         "application/merge-patch+json")  # fmt: skip
    assert "annotations" not in merged["metadata"]
    assert merged["metadata"]["generation"] == 2


def test_the_client_patches(api: client.ApiClient, server: ApiServer) -> None:
    apps = client.AppsV1Api(api)
    apps.patch_namespaced_deployment("web", "default", {"metadata": {"labels": {"a": "b"}}})
    assert apps.read_namespaced_deployment("web", "default").metadata.labels == {"a": "b"}
    apps.patch_namespaced_deployment("web", "default", {"spec": {"replicas": 8}})
    assert server.store.get("Deployment", "web", "default")["spec"]["replicas"] == 8


def test_status_and_spec_are_written_apart(api: client.ApiClient, server: ApiServer) -> None:
    apps = client.AppsV1Api(api)
    read = apps.read_namespaced_deployment("web", "default")
    read.spec.replicas, read.status.ready_replicas = 9, 1
    apps.replace_namespaced_deployment_status("web", "default", read)
    stored = server.store.get("Deployment", "web", "default")
    assert (stored["spec"]["replicas"], stored["status"]["readyReplicas"]) == (2, 1)
    apps.patch_namespaced_deployment("web", "default", {"status": {"readyReplicas": 5}})
    assert server.store.get("Deployment", "web", "default")["status"]["readyReplicas"] == 1


def test_an_eviction_charges_the_budget_and_the_pod_keeps_its_grace(
    api: client.ApiClient, server: ApiServer
) -> None:
    server.store.load([budget("b", 1, app="web")])
    core = client.CoreV1Api(api)
    core.create_namespaced_pod_eviction("p0", "default", eviction("p0"))
    gone = core.read_namespaced_pod("p0", "default")
    assert gone.metadata.deletion_timestamp is not None
    assert gone.metadata.deletion_grace_period_seconds == 30
    assert "DisruptionTarget" in [c.type for c in gone.status.conditions]
    status = server.store.get("PodDisruptionBudget", "b", "default")["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p0"])
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_pod_eviction("p1", "default", eviction("p1"))
    assert caught.value.status == 429
    assert "Retry-After" not in caught.value.headers
    # Once more for the one that is going already: fine, and free.
    core.create_namespaced_pod_eviction("p0", "default", eviction("p0"))
    core.delete_namespaced_pod("p0", "default", grace_period_seconds=0)
    with pytest.raises(ApiException) as missing:
        core.create_namespaced_pod_eviction("p0", "default", eviction("p0"))
    assert missing.value.status == 404


def test_metadata_only_and_gzip(server: ApiServer) -> None:
    import gzip
    import urllib.request

    server.store.load([pod(f"many-{i:04d}", app="web") for i in range(1500)])
    ask = {
        "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "Accept-Encoding": "gzip",
    }
    request = urllib.request.Request(f"{server.url}/api/v1/pods", headers=ask)
    with urllib.request.urlopen(request, timeout=5) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        body = json.loads(gzip.decompress(response.read()))
    assert body["kind"] == "PartialObjectMetadataList"
    assert set(body["items"][0]) == {"kind", "apiVersion", "metadata"}


def test_both_shapes_of_an_event_are_one_object(api: client.ApiClient) -> None:
    core, new = client.CoreV1Api(api), client.EventsV1Api(api)
    core.create_namespaced_event("default", {
        "metadata": {"name": "e1"}, "involvedObject": {"kind": "Pod", "name": "p0", "namespace": "default"},
        "reason": "Told", "message": "so", "type": "Normal", "count": 2, "source": {"component": "test"},
    })  # fmt: skip
    seen = new.read_namespaced_event("e1", "default", _preload_content=False)
    body = json.loads(seen.data)
    assert (body["apiVersion"], body["note"], body["deprecatedCount"]) == ("events.k8s.io/v1", "so", 2)
    assert body["regarding"]["name"] == "p0"
    found = core.list_event_for_all_namespaces(field_selector="involvedObject.name=p0")
    assert [event.reason for event in found.items] == ["Told"]
