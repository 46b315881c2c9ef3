"""One EvictionRequest: what becomes of it, whoever has a hand in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.coordination.place import Place
from rebalancer.kube.evict.eviction import Forbidden
from rebalancer.kube.evict.eviction_requests import EvictionRequests
from rebalancer.kube.evict.requesting import RequestingEvictor
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome.eviction import Eviction, Result
from tests.support.build import objects
from tests.support.runs.one_eviction import WEB, posts, victim
from tests.support.sandbox import ApiServer, Cut, Reply
from tests.support.sandbox.custom import served
from tests.support.sandbox.eviction_requests import LIFECYCLE, REQUESTS, EvictionController
from tests.support.servers.api import QUICK, FakeTime, connected, evictor_of, objects_of
from tests.unit.policy.judged import patched

NO = Reason(ReasonCode.CHANGED_SINCE_PLAN, "it has changed")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with served(*LIFECYCLE), ApiServer(objects(*WEB)) as server:
        yield server


@pytest.fixture
def connection(server: ApiServer) -> Iterator[Connection]:
    with connected(server) as connection:
        yield connection


def evictor(connection: Connection, time: FakeTime, *, lease: Place | None = None) -> RequestingEvictor:
    made = RequestingEvictor(
        EvictionRequests(connection, wait=time.wait, backoff=QUICK, lease=lease),
        evictor_of(connection, time),
        objects_of(connection, time).pod,
        wait=time.wait,
        monotonic=time.monotonic,
        backoff=QUICK,
    )
    made.begin()
    return made


def followed(
    made: RequestingEvictor,
    pod: Pod,
    time: FakeTime,
    may_not: Callable[[], Reason | None] = lambda: None,
    *,
    every: float = 1.0,
) -> Eviction:
    """Looked at again and again until it has ended; no test needs more looks than these."""
    for _ in range(500):
        time.linger(every)
        ended = made.follow(pod, may_not)
        if ended is not None:
            return ended
    raise AssertionError("still pending")


def asked(connection: Connection, time: FakeTime) -> tuple[RequestingEvictor, Pod]:
    made, pod = evictor(connection, time), victim(objects_of(connection, time))
    assert made.evict(pod, "why").result is Result.REQUESTED
    return made, pod


def test_the_request_says_who_asks_and_goes_with_its_pod(server: ApiServer, connection: Connection) -> None:
    _, pod = asked(connection, FakeTime())
    [request] = server.store.list(REQUESTS)
    assert request["spec"] == {
        "target": {"pod": {"name": pod.name, "uid": pod.uid}},
        "requester": "rebalancer.io/rebalancer",
        "intent": "Eviction",
    }
    assert request["metadata"]["annotations"] == {"rebalancer.io/reason": "why"}
    server.store.delete("Pod", pod.name, pod.namespace, grace=0)
    assert server.store.list(REQUESTS) == []


def test_what_is_pending_for_20_minutes_is_withdrawn(server: ApiServer, connection: Connection) -> None:
    time, controller = FakeTime(), EvictionController(server, slow=10_000)
    time.during = controller.step
    made, pod = asked(connection, time)
    began = time.at
    ended = followed(made, pod, time, every=10.0)
    assert ended.result is Result.REFUSED
    assert "20 minutes" in ended.message
    assert 1200 <= time.at - began <= 1300
    assert server.store.list(REQUESTS) == []


def _deleted(server: ApiServer) -> None:
    for r in server.store.list(REQUESTS):
        server.store.delete(REQUESTS, r["metadata"]["name"], r["metadata"]["namespace"])


def _withdrawn(server: ApiServer) -> None:
    for r in server.store.list(REQUESTS):
        metadata = r["metadata"]
        server.store.modify(
            REQUESTS, metadata["name"], metadata["namespace"], lambda o: o["spec"].update(intent="Withdrawn")
        )


def _gone(server: ApiServer) -> None:
    server.store.delete("Pod", "web-00000", "default", grace=0)


OTHERS = {
    "somebody deletes the request": (_deleted, Result.REFUSED, "the request is gone"),
    "somebody withdraws it": (_withdrawn, Result.REFUSED, "withdrawn by somebody else"),
    "the pod ends": (_gone, Result.EVICTED, "as was requested"),
}


@pytest.mark.parametrize(("does", "result", "says"), OTHERS.values(), ids=OTHERS)
def test_what_others_do_ends_it(
    does: Callable[[ApiServer], None], result: Result, says: str, server: ApiServer, connection: Connection
) -> None:
    time, controller = FakeTime(), EvictionController(server, slow=10_000)
    time.during = controller.step
    made, pod = asked(connection, time)
    assert made.follow(pod, lambda: None) is None
    does(server)
    ended = followed(made, pod, time)
    assert ended.result is result
    assert says in ended.message


def test_a_refused_request_is_withdrawn_and_not_evicted(server: ApiServer, connection: Connection) -> None:
    time, controller = FakeTime(), EvictionController(server, slow=10_000)
    time.during = controller.step
    made, pod = asked(connection, time)
    ended = followed(made, pod, time, lambda: NO)
    assert (ended.result, ended.reason) == (Result.HELD, NO)
    # The same pod may be asked for again.
    assert made.evict(pod).result is Result.REQUESTED


def test_a_request_that_was_withdrawn_is_wanted_again(server: ApiServer, connection: Connection) -> None:
    made, pod = asked(connection, FakeTime())
    _withdrawn(server)
    assert made.evict(pod).result is Result.REQUESTED
    assert [r["spec"]["intent"] for r in server.store.list(REQUESTS)] == ["Eviction"]


def test_many_are_recalled_without_a_look_at_any(server: ApiServer, connection: Connection) -> None:
    time, controller = FakeTime(), EvictionController(server, slow=10_000)
    time.during = controller.step
    made, objects = evictor(connection, time), objects_of(connection, time)
    pods = [p for n in range(4) if (p := objects.pod("default", f"web-{n:05}")) is not None]
    assert all(made.evict(p).result is Result.REQUESTED for p in pods)
    server.faults.add(Reply(500), resource="evictionrequests", verb="patch", times=1)
    before = len(server.accesses)
    made.recall(pods, Forbidden(Result.HELD, "paused", reason=NO))
    assert [a.verb for a in server.accesses[before:]] == ["patch"] * len(pods)
    # The one that failed is withdrawn when it is looked at.
    assert all(followed(made, p, time).result is Result.HELD for p in pods)
    assert server.store.list(REQUESTS) == []


NULLS = {
    "conditions": {"spec": {"intent": "Eviction"}, "status": {"conditions": None}},
    "status": {"spec": {"intent": "Eviction"}, "status": None},
    "a reason": {
        "spec": {"intent": "Eviction"},
        "status": {"conditions": [{"type": "Failed", "status": "False", "reason": None, "message": None}]},
    },
    "a condition": {"spec": {"intent": "Eviction"}, "status": {"conditions": [None]}},
}


@pytest.mark.parametrize("says", NULLS.values(), ids=NULLS)
def test_null_is_absent(says: dict[str, object], server: ApiServer, connection: Connection) -> None:
    made, pod = asked(connection, FakeTime())
    body = msgspec.json.encode({"metadata": {"name": "r", "namespace": "default"}, **says})
    server.faults.add(Reply(200, body), resource="evictionrequests", verb="get")
    assert made.follow(pod, lambda: None) is None
    assert server.store.list(REQUESTS)[0]["spec"]["intent"] == "Eviction"


def test_an_api_server_that_is_gone_leaves_it_unknown(server: ApiServer, connection: Connection) -> None:
    time = FakeTime()
    made, pod = asked(connection, time)
    server.faults.add(action=Cut("before"))
    ended = followed(made, pod, time, every=30.0)
    assert ended.result is Result.UNKNOWN
    assert "not known" in ended.message


def test_an_api_server_that_does_not_serve_requests_leaves_it_unknown(
    server: ApiServer, connection: Connection
) -> None:
    """It is one of several, and the request stands with the others."""
    time = FakeTime()
    made, pod = asked(connection, time)
    for verb in ("get", "patch", "delete"):
        server.faults.add(Reply(404, b"404 page not found"), resource="evictionrequests", verb=verb)
    assert followed(made, pod, time, every=30.0).result is Result.UNKNOWN
    assert len(server.store.list(REQUESTS)) == 1


def test_an_answer_that_is_lost_makes_no_second_request(server: ApiServer, connection: Connection) -> None:
    server.faults.add(action=Cut("after"), resource="evictionrequests", verb="create", times=1)
    asked(connection, FakeTime())
    assert len(server.store.list(REQUESTS)) == 1


@pytest.mark.parametrize(
    ("code", "result"),
    [(403, Result.FORBIDDEN), (422, Result.REFUSED), (429, Result.THROTTLED)],
)
def test_what_the_api_server_refuses(
    code: int, result: Result, server: ApiServer, connection: Connection
) -> None:
    time = FakeTime()
    made, pod = evictor(connection, time), victim(objects_of(connection, time))
    server.faults.add(action=Reply(code), resource="evictionrequests", verb="create")
    assert made.evict(pod).result is result
    assert server.store.list(REQUESTS) == []


def test_the_last_look_forbids_the_first_request_too(server: ApiServer, connection: Connection) -> None:
    time = FakeTime()
    made, pod = evictor(connection, time), victim(objects_of(connection, time))
    ended = made.evict(pod, may_not=lambda: NO)
    assert (ended.result, ended.reason, ended.posts) == (Result.HELD, NO, 0)
    assert server.store.list(REQUESTS) == []


BEYOND = {
    "a pod in a PodGroup": {"spec": {"schedulingGroup": {"podGroupName": "ring"}}},
    "KubeVirt's": {
        "metadata": {
            "ownerReferences": [
                {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "v",
                 "controller": True}
            ]
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", BEYOND.values(), ids=BEYOND)
def test_what_a_request_cannot_do_is_evicted_by_the_eviction_api(changes: dict[str, object]) -> None:
    time = FakeTime()
    with (
        served(*LIFECYCLE),
        ApiServer(patched("Pod", changes, *WEB)) as server,
        connected(server) as connection,
    ):
        made, pod = evictor(connection, time), victim(objects_of(connection, time))
        assert made.evict(pod).result is Result.EVICTED
        assert posts(server) == 1
        assert server.store.list(REQUESTS) == []
