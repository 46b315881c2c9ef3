"""EvictionRequests that a process which ended has left, and what becomes of them before a cycle begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.coordination.place import Place
from rebalancer.model.reason import ReasonCode
from rebalancer.outcome.eviction import Result
from tests.sandbox.kube.test_evict_by_request import evictor
from tests.support.build import nodes, objects, workload
from tests.support.runs.one_eviction import WEB, victim
from tests.support.sandbox import ApiServer, Cut, Reply
from tests.support.sandbox.custom import served
from tests.support.sandbox.eviction_requests import LIFECYCLE, REQUESTS, EvictionController, left_pending
from tests.support.servers.api import FakeTime, connected, objects_of

FIRST, SECOND = "web-00000", "web-00001"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with served(*LIFECYCLE), ApiServer(objects(*WEB)) as server:
        left_pending(server, FIRST)
        left_pending(server, SECOND)
        yield server


@pytest.fixture
def connection(server: ApiServer) -> Iterator[Connection]:
    with connected(server) as connection:
        yield connection


def wanted(server: ApiServer) -> list[str]:
    """The pods that requests ask for still."""
    found = (r["spec"] for r in server.store.list(REQUESTS))
    return sorted(s["target"]["pod"]["name"] for s in found if s["intent"] == "Eviction")


def test_they_are_withdrawn_and_called_off_before_anything_else_is_done(
    server: ApiServer, connection: Connection
) -> None:
    time, controller = FakeTime(), EvictionController(server, slow=10_000)
    time.during = controller.step
    began = time.at
    made = evictor(connection, time)
    assert server.store.list(REQUESTS) == []
    assert 3.0 <= time.at - began <= 10.0, "the pods are watched for some seconds after"
    assert made.evict(victim(objects_of(connection, time))).result is Result.REQUESTED


def test_a_withdrawal_that_fails_once_is_tried_again(server: ApiServer, connection: Connection) -> None:
    time, controller = FakeTime(), EvictionController(server, slow=10_000)
    time.during = controller.step
    server.faults.add(Reply(500), resource="evictionrequests", verb="patch", times=2)
    server.faults.add(Cut("before"), resource="evictionrequests", verb="list", skip=1, times=2)
    evictor(connection, time)
    assert server.store.list(REQUESTS) == []


def test_one_that_may_not_be_withdrawn_is_said_and_its_pod_left_alone(
    server: ApiServer, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    time, controller = FakeTime(), EvictionController(server, slow=10_000)
    time.during = controller.step
    server.faults.add(Reply(403), resource="evictionrequests", verb="patch", times=1)
    began = time.at
    made, read = evictor(connection, time), objects_of(connection, time)
    [left] = wanted(server)
    [other] = {FIRST, SECOND} - {left}
    assert time.at - began <= 10.0, "who refuses for good is not waited for"
    said = "\n".join(r.getMessage() for r in caplog.records)
    assert "could not be withdrawn" in said
    assert f"left alone: default/{left}" in said
    there = {name: read.pod("default", name) for name in (left, other)}
    stays, goes = there[left], there[other]
    assert stays is not None
    assert goes is not None
    ended = made.evict(stays)
    assert (ended.result, ended.posts) == (Result.HELD, 0)
    assert ended.reason is not None
    assert ended.reason.code is ReasonCode.CHANGED_SINCE_PLAN
    assert made.evict(goes).result is Result.REQUESTED


def _asleep(_: ApiServer, controller: EvictionController) -> None:
    controller.asleep = True


def _evicts(server: ApiServer, _: EvictionController) -> None:
    for name in (FIRST, SECOND):
        if server.store.find("Pod", name, "default") is not None:
            server.store.delete("Pod", name, "default", grace=0)


def _deletes(server: ApiServer, _: EvictionController) -> None:
    for r in server.store.list(REQUESTS):
        server.store.delete(REQUESTS, r["metadata"]["name"], "default")


ENDS = {
    "nobody calls them off": (_asleep, True, 55.0, 70.0),
    "the pods go meanwhile": (_evicts, False, 0.0, 5.0),
    "somebody deletes them": (_deletes, False, 3.0, 10.0),
}


@pytest.mark.parametrize(("does", "stuck", "least", "most"), ENDS.values(), ids=ENDS)
def test_how_they_end(
    does: Callable[[ApiServer, EvictionController], None],
    stuck: bool,
    least: float,
    most: float,
    server: ApiServer,
    connection: Connection,
) -> None:
    time, controller = FakeTime(), EvictionController(server, slow=10_000)

    def during(seconds: float) -> None:
        does(server, controller)
        controller.step(seconds)

    time.during = during
    pod, began = victim(objects_of(connection, time)), time.at
    made = evictor(connection, time)
    assert least <= time.at - began <= most
    assert wanted(server) == []
    assert (made.evict(pod).result is Result.HELD) is stuck


def test_a_stop_ends_the_wait(server: ApiServer, connection: Connection) -> None:
    time = FakeTime()
    time.stop = True
    made = evictor(connection, time)
    assert wanted(server) == []
    assert made.evict(victim(objects_of(connection, time))).result is Result.HELD


def test_an_api_server_that_does_not_serve_them_does_not_say_that_they_are_gone(
    server: ApiServer, connection: Connection
) -> None:
    """It is one of several: the first of them has listed the requests."""
    time = FakeTime()
    server.faults.add(Reply(404, b"404 page not found"), resource="evictionrequests", verb="list", skip=1)
    made = evictor(connection, time)
    assert made.evict(victim(objects_of(connection, time))).result is Result.HELD


def test_one_that_may_not_be_deleted_is_over_all_the_same(server: ApiServer, connection: Connection) -> None:
    time, controller = FakeTime(), EvictionController(server, slow=10_000)
    time.during = controller.step
    server.faults.add(Reply(403), resource="evictionrequests", verb="delete")
    began = time.at
    evictor(connection, time)
    assert time.at - began <= 10.0
    assert wanted(server) == []


def test_each_installation_clears_its_own(server: ApiServer, connection: Connection) -> None:
    """Also where namespace and name together are longer than a label may be."""
    time, controller = FakeTime(), EvictionController(server, slow=10_000)
    time.during = controller.step
    evictor(connection, time)
    one, other = Place("shop", "r" * 100), Place("pay", "r" * 100)
    made, pod = evictor(connection, time, lease=one), victim(objects_of(connection, time))
    assert made.evict(pod).result is Result.REQUESTED
    evictor(connection, time, lease=other)
    assert wanted(server) == [pod.name]
    evictor(connection, time, lease=one)
    assert server.store.list(REQUESTS) == []


ODD: dict[str, Callable[[dict[str, Any]], None]] = {
    "without a target": lambda o: o["spec"].pop("target"),
    "without the name of a pod": lambda o: o["spec"]["target"]["pod"].pop("name"),
    "of a pod that is a path": lambda o: o["spec"]["target"]["pod"].update(name=".."),
    "of another pod": lambda o: o["spec"]["target"]["pod"].update(uid="another"),
    "of somebody else": lambda o: o["spec"].update(requester="tenant.example/me"),
    "that cannot be read": lambda o: o["spec"].update(intent=5),
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_what_only_has_the_labels_is_left_alone(change: Callable[[dict[str, Any]], None]) -> None:
    with served(*LIFECYCLE), ApiServer(objects(*WEB)) as server, connected(server) as connection:
        left_pending(server, FIRST)
        [request] = server.store.list(REQUESTS)
        odd = server.store.modify(REQUESTS, request["metadata"]["name"], "default", change)
        time, before = FakeTime(), len(server.accesses)
        began = time.at
        evictor(connection, time)
        assert time.at == began
        assert [a.verb for a in server.accesses[before:]] == ["list"]
        assert server.store.list(REQUESTS) == [odd]


def test_a_stop_ends_the_withdrawing_of_many_too() -> None:
    web = [*nodes(a=1), workload("web").placed({"a-0": 200})]
    with served(*LIFECYCLE), ApiServer(objects(*web)) as server, connected(server) as connection:
        for n in range(200):
            left_pending(server, f"web-{n:05}")
        time = FakeTime()
        time.stop = True
        before = len(server.accesses)
        evictor(connection, time)
        assert len(server.accesses) - before < 100
        assert len(wanted(server)) > 100
