"""Reading a whole cluster over HTTP: pages, faults, rights, and what is said about the rest."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pytest

from rebalancer.kube import lists as bodies
from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import (
    ExpiredError,
    ForbiddenError,
    KubeError,
    ResponseError,
    TooManyRequestsError,
)
from rebalancer.kube.lists import ReadOptions, pages
from rebalancer.kube.reading import read_snapshot, streams_lists
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.snapshot import Snapshot
from tests.support.build import node, objects, pdb, stateful_set, workload
from tests.support.sandbox import ApiServer, Cut, Garbage, Gone, Reply
from tests.support.servers.api import QUICK, FakeTime, connected, objects_of

PODS = 25
CLUSTER = (
    node("a-0").zone("a"),
    node("b-0").zone("b"),
    workload("web").spread("zone", 1).placed({"a-0": PODS - 5, "b-0": 2}),
    stateful_set("db").placed({"a-0": 3}),
    pdb("web", {"app": "web"}, max_unavailable=1),
)
SMALL = ReadOptions(page_size=10, backoff=QUICK)
CACHED = ReadOptions(page_size=10, backoff=QUICK, may_be_old=True)
"""One body a kind, out of the server's cache."""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*CLUSTER)) as s:
        yield s


def read(connection: Connection, options: ReadOptions = SMALL, time: FakeTime | None = None) -> Snapshot:
    t = time or FakeTime()
    return read_snapshot(connection, now=t.now, wait=t.wait, options=options)


def lists(server: ApiServer, resource: str = "pods") -> int:
    return sum(1 for a in server.accesses if a.verb == "list" and a.resource == resource)


def test_all_kinds_come_in_pages_and_with_the_servers_version(server: ApiServer) -> None:
    with connected(server) as c:
        snapshot = read(c)
    assert len(snapshot.nodes) == 2
    assert len(snapshot.pods) == PODS
    assert {w.kind for w in snapshot.workloads} >= {"ReplicaSet", "StatefulSet"}
    assert len(snapshot.budgets) == 1
    assert snapshot.kinds == frozenset(RESOURCES)
    assert snapshot.server_version == "1.36.2"
    assert snapshot.now == 1_000_000.0
    assert "context sandbox" in snapshot.source
    assert snapshot.warnings == ()
    assert lists(server) == 3


def test_the_same_cluster_reads_the_same_whatever_the_pages(server: ApiServer) -> None:
    with connected(server) as c, connected(server, options=ClusterOptions(gzip=True)) as compressed:
        snapshots = [
            *(read(c, options) for options in (SMALL, ReadOptions(page_size=500), CACHED)),
            *(read(compressed, options) for options in (SMALL, CACHED)),
        ]
    names = [[(p.key, p.uid, p.node_name) for p in s.pods] for s in snapshots]
    assert all(n == names[0] for n in names)
    assert all(s.kinds == frozenset(RESOURCES) for s in snapshots)


def test_who_evicts_nothing_reads_one_body_a_kind_from_a_server_that_streams_it(server: ApiServer) -> None:
    with connected(server) as c:
        read(c, CACHED)
    assert lists(server) == 1


@pytest.mark.parametrize(
    ("version", "streams"),
    [
        ("1.32", False),
        ("1.33", True),
        ("1.40", True),
        ("2.0", True),
        ("", False),
        ("v1.36.2+k3s", True),
        ("none", False),
    ],
)
def test_lists_are_streamed_from_1_33_on(version: str, streams: bool) -> None:
    assert streams_lists(version) is streams


def test_one_list_is_asked_for_after_the_other(server: ApiServer) -> None:
    with connected(server) as c:
        read(c)
    order = [a.resource for a in server.accesses if a.verb == "list"]
    assert list(dict.fromkeys(order)) == [r.plural for r in RESOURCES.values()]
    assert all(order.count(r) == 1 for r in order if r != "pods")


def test_pods_of_one_template_share_it_across_pages(server: ApiServer) -> None:
    with connected(server) as c:
        snapshot = read(c)
    assert len({id(p.template) for p in snapshot.pods if p.name.startswith("web")}) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Reply(500),
        Reply(503, b"<html>upstream</html>"),
        Reply(429, headers={"Retry-After": "2"}),
        Cut("before"),
        Cut("body", body_bytes=1000),
        Garbage(),
        Garbage(b"<html>hotel wifi</html>"),
        Garbage(b'{"kind":"Pod","metadata":{"name":"x"}}'),
        Garbage(b""),
    ],
    ids=repr,
)
@pytest.mark.parametrize("options", [SMALL, CACHED], ids=["page", "body"])
def test_a_page_or_body_that_fails_is_read_again(server: ApiServer, fault: Any, options: ReadOptions) -> None:
    with connected(server) as c:
        server.faults.add(fault, verb="list", resource="pods", skip=int(options is SMALL), times=2)
        time = FakeTime()
        snapshot = read(c, options, time)
    assert len(snapshot.pods) == PODS
    assert len(time.waits) == 2


def short(token: str, *names: str, left: int | None = None) -> Reply:
    """A page of fewer than were asked for, as the API allows."""
    items = [{"metadata": {"name": n, "namespace": "default", "resourceVersion": "7"}} for n in names]
    meta = {"resourceVersion": "9", "continue": token, "remainingItemCount": left}
    return Reply(200, {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items})


def test_a_page_that_is_not_full_is_the_last_only_if_the_server_says_so(server: ApiServer) -> None:
    for page in (short("one"), short("two", "x"), short("", "y")):
        server.faults.add(page, verb="list", resource="pods", times=1)
    with connected(server) as c:
        assert [o.name for o in objects_of(c, FakeTime()).heads("Pod", "default")] == ["x", "y"]


@pytest.mark.parametrize(
    "tokens", [("one",) * 9, ("one", "two") * 5, ("",)], ids=["the same page", "earlier pages", "no other"]
)
def test_a_page_that_leads_nowhere_is_not_the_end_of_a_list(server: ApiServer, tokens: Sequence[str]) -> None:
    for token in tokens:
        server.faults.add(short(token, "x", left=1), verb="list", resource="pods", times=1)
    with connected(server) as c, pytest.raises(ResponseError, match="list pods: a page leads"):
        list(islice(pages(c, RESOURCES["Pod"], wait=FakeTime().wait), 9))


def test_a_long_body_that_ends_under_way_is_asked_for_in_pages(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that takes more than a minute for it cuts it each time."""
    monkeypatch.setattr(bodies, "_BLOCK", 2000)
    with connected(server) as c:
        server.faults.add(Cut("body", body_bytes=16_000), verb="list", resource="pods")
        snapshot = read(c, CACHED)
    assert len(snapshot.pods) == PODS
    assert [a.limit for a in server.accesses if a.resource == "pods"][:2] == [0, 10]


@pytest.mark.parametrize("options", [SMALL, CACHED], ids=["page", "body"])
def test_a_server_that_stays_busy_ends_the_reading(server: ApiServer, options: ReadOptions) -> None:
    with connected(server) as c:
        server.faults.add(Reply(429), verb="list", resource="pods")
        with pytest.raises(TooManyRequestsError, match="list pods"):
            read(c, options)
    assert lists(server) == QUICK.tries


def test_garbage_without_end_names_the_list_and_quotes_it(server: ApiServer) -> None:
    with connected(server) as c:
        server.faults.add(Garbage(b"<html>hotel wifi</html>"), verb="list", resource="nodes")
        with pytest.raises(ResponseError, match=r"list nodes: .*hotel wifi.*really an API server"):
            read(c)


def test_an_expired_token_starts_that_list_again_without_its_first_half(server: ApiServer) -> None:
    with connected(server) as c:
        server.faults.add(Gone(), verb="list", resource="pods", skip=1, times=1)
        snapshot = read(c)
    assert len(snapshot.pods) == PODS
    assert lists(server) == 2 + 3


def test_tokens_that_always_expire_end_the_reading(server: ApiServer) -> None:
    with connected(server) as c:
        server.faults.add(Gone(), verb="list", resource="pods")
        with pytest.raises(ExpiredError):
            read(c)


def test_a_kind_that_may_not_be_read_is_unknown_not_empty(server: ApiServer) -> None:
    with connected(server) as c:
        server.faults.add(Reply(403), verb="list", resource="poddisruptionbudgets")
        snapshot = read(c)
    assert "PodDisruptionBudget" not in snapshot.kinds
    assert snapshot.refused == {"PodDisruptionBudget"}
    (warning,) = snapshot.warnings
    assert warning.startswith("poddisruptionbudgets.policy cannot be listed: budgets are not planned with")
    assert '{apiGroups: ["policy"], resources: ["poddisruptionbudgets"], verbs: ["list"]}' in warning


def test_a_kind_that_is_not_served_is_unknown(server: ApiServer) -> None:
    with connected(server) as c:
        server.faults.add(
            Reply(404, b"404 page not found\n"), verb="list", resource="horizontalpodautoscalers"
        )
        snapshot = read(c)
    assert "HorizontalPodAutoscaler" not in snapshot.kinds
    assert "autoscaling/v2 is not served" in snapshot.warnings[0]


@pytest.mark.parametrize("resource", ["nodes", "pods"])
def test_without_nodes_or_pods_there_is_no_snapshot(server: ApiServer, resource: str) -> None:
    with connected(server) as c:
        server.faults.add(Reply(403), verb="list", resource=resource)
        with pytest.raises(ForbiddenError, match=rf'resources: \["{resource}"\], verbs: \["list"\]'):
            read(c)


def test_a_malformed_object_is_named_and_left_out(server: ApiServer) -> None:
    body = (
        b'{"kind":"ServiceList","metadata":{},"items":['
        b'{"metadata":{"name":"good","namespace":"x"}},'
        b'{"metadata":{"name":"bad","namespace":"x"},"spec":{"selector":[1]}}]}'
    )
    with connected(server) as c:
        server.faults.add(Reply(200, body), verb="list", resource="services")
        snapshot = read(c)
    assert [s.metadata.name for s in snapshot.services] == ["good"]
    (warning,) = snapshot.warnings
    assert warning.startswith("Service x/bad is malformed and left out: ")
    assert "$.spec.selector" in warning


def test_an_object_that_cannot_be_reckoned_with_is_malformed(server: ApiServer) -> None:
    body = (
        b'{"kind":"PodList","metadata":{},"items":['
        b'{"metadata":{"name":"good","namespace":"x"}},'
        b'{"metadata":{"name":"bad","namespace":"x"},"spec":{"containers":'
        b'[{"name":"c","resources":{"requests":{"cpu":"1e999999"}}}]}}]}'
    )
    with connected(server) as c:
        server.faults.add(Reply(200, body), verb="list", resource="pods")
        snapshot = read(c)
    assert [p.name for p in snapshot.pods] == ["good"]
    (warning,) = snapshot.warnings
    assert warning == (
        "Pod x/bad is malformed and left out: '1e999999' is more than there can be of anything "
        "- at `$.spec.containers[].resources.requests.cpu`"
    )


def test_a_list_of_another_kind_is_no_answer(server: ApiServer) -> None:
    """An empty one would say that there are no budgets."""
    with connected(server) as c:
        body = b'{"kind":"ServiceList","metadata":{},"items":[]}'
        server.faults.add(Reply(200, body), verb="list", resource="poddisruptionbudgets")
        with pytest.raises(ResponseError, match="ServiceList"):
            read(c)


def test_an_empty_list_may_be_null(server: ApiServer) -> None:
    with connected(server) as c:
        server.faults.add(
            Reply(200, b'{"kind":"ServiceList","metadata":{},"items":null}'), verb="list", resource="services"
        )
        snapshot = read(c)
    assert snapshot.services == ()
    assert "Service" in snapshot.kinds


def test_namespaces_restrict_what_is_namespaced(server: ApiServer) -> None:
    with connected(server) as c:
        snapshot = read(c, ReadOptions(namespaces=("elsewhere",)))
    assert (len(snapshot.nodes), len(snapshot.pods)) == (2, 0)
    assert any("/namespaces/elsewhere/pods" in a.path for a in server.accesses)


def test_only_metadata_is_asked_for_where_only_metadata_is_read(server: ApiServer) -> None:
    assert {k for k, r in RESOURCES.items() if r.metadata_only} == {"Namespace", "ControllerRevision"}
    with connected(server) as c:
        assert "default" in read(c).namespaces


def test_a_request_to_stop_ends_the_reading(server: ApiServer) -> None:
    stop = threading.Event()
    stop.set()
    with connected(server) as c:
        server.faults.add(Reply(500), verb="list", resource="pods")
        with pytest.raises(KubeError):
            read_snapshot(c, now=lambda: 0.0, wait=stop.wait, options=SMALL)
