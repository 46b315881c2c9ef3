"""Faults on order, as a client meets them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

from tests.support.sandbox import ApiServer, Cut, Delay, Garbage, Gone, Reply
from tests.support.servers.api_objects import eviction, pod


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects=[pod(f"p{i}") for i in range(5)]) as running:
        yield running


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False, timeout=2) as pool:
        yield pool


def ask(http: urllib3.PoolManager, server: ApiServer, path: str = "/api/v1/pods") -> urllib3.BaseHTTPResponse:
    return http.request("GET", server.url + path)


def evict(http: urllib3.PoolManager, server: ApiServer, name: str) -> urllib3.BaseHTTPResponse:
    url = f"{server.url}/api/v1/namespaces/default/pods/{name}/eviction"
    return http.request("POST", url, json=eviction(name))


def terminating(server: ApiServer, name: str) -> bool:
    return "deletionTimestamp" in server.store.get("Pod", name, "default")["metadata"]


def test_an_answer_a_number_of_times(server: ApiServer, http: urllib3.PoolManager) -> None:
    fault = server.faults.add(
        Reply(429, headers={"Retry-After": "1"}), subresource="eviction", times=2, skip=1
    )
    codes = [evict(http, server, f"p{i}").status for i in range(5)]
    assert codes == [201, 429, 429, 201, 201]
    assert fault.hits == 2
    assert not terminating(server, "p1")
    server.faults.add(Reply(503), path="^/api/v1/nodes")
    answer = ask(http, server, "/api/v1/nodes")
    assert (answer.status, json.loads(answer.data)["reason"]) == (503, "ServiceUnavailable")
    server.faults.clear()
    assert ask(http, server, "/api/v1/nodes").status == 200


def test_chance_is_repeatable() -> None:
    def hits() -> list[int]:
        with ApiServer(objects=[pod("p")], seed=3) as server, urllib3.PoolManager() as http:
            server.faults.add(Reply(500), probability=0.5)
            return [ask(http, server).status for _ in range(12)]

    first = hits()
    assert set(first) == {200, 500}
    assert hits() == first


def test_a_delay(server: ApiServer, http: urllib3.PoolManager) -> None:
    server.faults.add(Delay(0.2), times=1)
    start = time.monotonic()
    assert ask(http, server).status == 200
    assert time.monotonic() - start >= 0.2


def test_half_open_never_answers(server: ApiServer) -> None:
    server.faults.add(Delay(math.inf))
    with urllib3.PoolManager(retries=False, timeout=0.2) as http, pytest.raises(ReadTimeoutError):
        ask(http, server)


def test_cut_before_and_after_the_deed(server: ApiServer, http: urllib3.PoolManager) -> None:
    server.faults.add(Cut("before"), name="p0")
    server.faults.add(Cut("after"), name="p1")
    for name in ("p0", "p1"):
        with pytest.raises(HTTPError):
            evict(http, server, name)
    assert not terminating(server, "p0")
    assert terminating(server, "p1")
    assert [access.code for access in server.accesses] == [0, 201]


def test_cut_in_the_middle_of_a_body(server: ApiServer, http: urllib3.PoolManager) -> None:
    server.faults.add(Cut("body", body_bytes=100), verb="list", times=1)
    with pytest.raises(ProtocolError):
        ask(http, server)
    assert ask(http, server).status == 200


def test_garbage(server: ApiServer, http: urllib3.PoolManager) -> None:
    server.faults.add(Garbage(), verb="list")
    answer = ask(http, server)
    assert answer.status == 200
    with pytest.raises(ValueError, match=r"."):
        json.loads(answer.data)


def test_a_list_that_is_gone(server: ApiServer, http: urllib3.PoolManager) -> None:
    server.faults.add(Gone(), verb="list", times=1)
    assert ask(http, server).status == 410


def watched(http: urllib3.PoolManager, server: ApiServer) -> Iterator[dict[str, Any]]:
    url = f"{server.url}/api/v1/pods?watch=1&timeoutSeconds=1"
    response = http.request("GET", url, preload_content=False)
    rest = b""
    for piece in response.stream(65536):
        *lines, rest = (rest + piece).split(b"\n")
        yield from (json.loads(line) for line in lines)
    if rest:
        json.loads(rest)


def test_a_watch_cut_between_and_within_events(server: ApiServer, http: urllib3.PoolManager) -> None:
    for fault in (Cut(after_events=2), Cut(after_events=2, body_bytes=30)):
        server.faults.clear()
        server.faults.add(fault, verb="watch")
        seen: list[dict[str, Any]] = []
        with pytest.raises((ProtocolError, ValueError)):
            seen.extend(iter_into(seen, watched(http, server)))
        assert [event["object"]["metadata"]["name"] for event in seen] == ["p0", "p1"]


def iter_into(seen: list[dict[str, Any]], events: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    for event in events:
        seen.append(event)  # noqa: PERF402 - what came before the cut must stay
    return []


def test_a_watch_that_says_gone_or_nonsense(server: ApiServer, http: urllib3.PoolManager) -> None:
    server.faults.add(Gone(after_events=1), verb="watch", times=1)
    events = list(watched(http, server))
    assert [event["type"] for event in events] == ["ADDED", "ERROR"]
    assert events[1]["object"]["code"] == 410
    server.faults.add(Garbage(after_events=1), verb="watch", times=1)
    with pytest.raises(ValueError, match=r"."):
        list(watched(http, server))


def test_a_watch_that_falls_silent(server: ApiServer) -> None:
    server.faults.add(Delay(math.inf, after_events=2), verb="watch")
    # Far longer than the watch would last, and than a busy machine takes for the first two.
    with urllib3.PoolManager(retries=False, timeout=5) as http:
        seen: list[dict[str, Any]] = []
        with pytest.raises(ReadTimeoutError):
            iter_into(seen, watched(http, server))
    assert len(seen) == 2
