"""The watch cache under faults: within seconds it shows the truth again, and never a part of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.resources import RESOURCES
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.reflector import WatchOptions
from rebalancer.kube.watch.store import KindStatus
from tests.support.sandbox import ApiServer, Cut, Delay, Garbage, Gone, Reply
from tests.support.sandbox.authority import User
from tests.support.sandbox.custom import ADD_ONS, served
from tests.support.sandbox.faults import Action
from tests.support.servers.api import connected
from tests.support.servers.api_objects import node, pod
from tests.support.servers.watching import (
    BOOKMARK_EVERY,
    QUICK,
    caught_up,
    seen,
    touch,
    truth,
    watching,
)
from tests.support.waiting import until

PODS = 8
ADMIN = ("system:masters",)
OBJECTS = (node("n1"), *(pod(f"p{i}") for i in range(PODS)))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(OBJECTS, bookmark_every=BOOKMARK_EVERY, tokens={"t": User("me", ADMIN)}) as s:
        yield s


@pytest.fixture
def all_kinds() -> Iterator[tuple[ApiServer, Connection]]:
    """A server that has every add-on too."""
    with served(*ADD_ONS), ApiServer(OBJECTS, bookmark_every=BOOKMARK_EVERY) as s, connected(s) as c:
        yield s, c


@pytest.fixture
def connection(server: ApiServer) -> Iterator[Connection]:
    with connected(server, options=ClusterOptions(connect_timeout=1.0, read_timeout=1.0)) as c:
        yield c


def pods(cache: WatchCache) -> KindStatus:
    return next(s for s in cache.status() if s.kind == "Pod")


def stir(server: ApiServer) -> None:
    """Changes of every kind."""
    server.store.create(pod(f"new-{server.store.revision}"))
    touch(server, "p1")
    touch(server, "p2")
    if server.store.find("Pod", "p3", "default"):
        server.store.delete("Pod", "p3", "default", grace=0)


WATCH_FAULTS: dict[str, Action] = {
    "cut between events": Cut(after_events=1),
    "cut within an event": Cut(after_events=1, body_bytes=60),
    "half-open after an event": Delay(math.inf, after_events=1),
    "half-open from the start": Delay(math.inf),
    "410 as an event": Gone(after_events=1),
    "garbage in a line": Garbage(after_events=1),
    "JSON that is no event": Garbage(b'{"hello": "world"}', after_events=1),
    "an event of an unknown type": Garbage(b'{"type":"SHRUG","object":{}}', after_events=1),
    "an event without an object's name": Garbage(b'{"type":"ADDED","object":{}}', after_events=1),
    "an error event of another kind": Garbage(
        b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd: no leader"}}', after_events=1
    ),
    "refused connection": Cut("before"),
    "429 with Retry-After": Reply(429, headers={"Retry-After": "1"}),
    "429": Reply(429),
    "500": Reply(500),
    "503": Reply(503),
    "504": Reply(504),
    "401": Reply(401),
    "403": Reply(403),
    "410 as an answer": Reply(410),
    "a proxy's page": Reply(502, b"<html>Bad Gateway</html>"),
    "nonsense with 200": Reply(200, b"<html>Welcome</html>"),
    "an empty watch": Reply(200, b""),
}


@pytest.mark.parametrize("fault", WATCH_FAULTS.values(), ids=WATCH_FAULTS)
def test_a_watch_that_fails_three_times_is_made_up_for(
    server: ApiServer, connection: Connection, fault: Any
) -> None:
    """The faults strike the first three watches, under changes all the time."""
    options = msgspec.structs.replace(QUICK, timeout=(1, 1), silence=0.5, streaming=False)
    rule = server.faults.add(fault, verb="watch", resource="pods", times=3)
    with watching(connection, options, ready=False, stale_after=5.0) as cache:
        began = time.monotonic()
        while rule.hits < 3:
            stir(server)
            time.sleep(0.05)
            assert time.monotonic() - began < 120
        caught_up(cache, server)
        assert pods(cache).lists <= 5
        # Afterwards it is as good as new.
        stir(server)
        caught_up(cache, server)


LIST_FAULTS: dict[str, Action] = {
    "cut in the middle of a page": Cut("body", body_bytes=300),
    "410 between pages": Gone(),
    "garbage": Garbage(),
    "half-open": Delay(math.inf),
    "500": Reply(500),
    "429": Reply(429, headers={"Retry-After": "1"}),
    "cut": Cut("after"),
}


@pytest.mark.parametrize("fault", LIST_FAULTS.values(), ids=LIST_FAULTS)
def test_a_list_that_fails_on_its_second_page_is_made_up_for(
    server: ApiServer, connection: Connection, fault: Any
) -> None:
    options = msgspec.structs.replace(QUICK, streaming=False)
    server.faults.add(fault, verb="list", resource="pods", skip=1, times=3)
    with watching(connection, options, ready=False) as cache:
        until(lambda: seen(cache) is not None)
        assert seen(cache) == truth(server)


def test_a_streaming_list_that_is_cut_is_begun_again_and_shows_nothing_partial(
    server: ApiServer, connection: Connection
) -> None:
    server.faults.add(Cut(after_events=PODS - 2), verb="watch", resource="pods", times=1)
    with watching(connection, ready=False) as cache:
        until(lambda: seen(cache) is not None)
        assert seen(cache) == truth(server)
        assert pods(cache).lists == 2


def test_a_streaming_list_that_never_begins_is_given_up_soon(
    server: ApiServer, connection: Connection
) -> None:
    """Silence that is nothing strange in a watch is too long for a list."""
    server.faults.add(Delay(math.inf, after_events=0), verb="watch", resource="pods", times=1)
    cache = WatchCache(connection, options=replace(QUICK, silence=600.0, list_silence=0.5))
    cache.start()
    try:
        assert cache.wait_ready(60)
        touch(server, "p0", mark="after")
        until(lambda: seen(cache) == truth(server))
    finally:
        cache.stop()


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_without_streaming_lists_is_read_in_pages(
    server: ApiServer, connection: Connection, code: int
) -> None:
    server.faults.add(Reply(code), verb="watch", resource="pods", times=1)
    with watching(connection) as cache:
        assert seen(cache) == truth(server)
        assert any(a.verb == "list" and a.resource == "pods" for a in server.accesses)


def test_a_storm_of_410_slows_down_and_ends(server: ApiServer, connection: Connection) -> None:
    with watching(connection) as cache:
        storm = server.faults.add(Gone(), verb="watch", resource="pods")
        stir(server)
        time.sleep(4.0)
        calm = storm.hits
        assert calm < 20, "it must not hammer the server"
        server.faults.remove(storm)
        caught_up(cache, server)


def test_history_that_was_compacted_meanwhile_is_listed_anew(
    server: ApiServer, connection: Connection
) -> None:
    with watching(connection) as cache:
        gap = server.faults.add(Reply(503), resource="pods")
        until(lambda: gap.hits)
        stir(server)
        server.store.compact()
        server.faults.clear()
        caught_up(cache, server)
        assert pods(cache).lists == 2


def test_while_it_is_cut_off_it_shows_its_last_state_and_then_refuses(
    server: ApiServer, connection: Connection
) -> None:
    with watching(connection) as cache:
        before = seen(cache)
        server.stop()
        assert seen(cache) == before
        until(lambda: seen(cache) is None)
        server.start()
        touch(server, "p1")
        caught_up(cache, server)


def test_a_server_that_comes_back_with_less_history_is_found_out() -> None:
    """As after etcd was restored from a backup: versions begin again below those that were seen."""
    first = ApiServer([*OBJECTS, *(pod(f"gone-{i}") for i in range(30))], bookmark_every=BOOKMARK_EVERY)
    with first, connected(first) as c, watching(c, stale_after=5.0) as cache:
        port = int(first.url.rsplit(":", 1)[1])
        first.stop()
        with ApiServer(OBJECTS, port=port, authenticate=False, bookmark_every=BOOKMARK_EVERY) as second:
            second.authority.tokens[first.admin_token] = User("a", ADMIN)
            assert second.store.revision < first.store.revision
            caught_up(cache, second)
            stir(second)
            caught_up(cache, second)


def test_a_token_that_expires_is_read_again(server: ApiServer, tmp_path: Path) -> None:
    path = server.kubeconfig(tmp_path / "config", token="t")
    c = Connection(ClusterOptions(kubeconfig=str(path), connect_timeout=1.0, read_timeout=1.0))
    with watching(c, stale_after=5.0) as cache:
        del server.authority.tokens["t"]
        server.authority.tokens["fresh"] = User("me", ADMIN)
        server.faults.add(Reply(401), user="system:anonymous")
        server.kubeconfig(path, token="fresh")
        time.sleep(3.2)  # every watch has ended once
        touch(server, "p1")
        caught_up(cache, server)
        assert {s.lists for s in cache.status()} == {1}
    c.close()


def test_rights_that_are_revoked_in_mid_run_stop_it_and_say_what_to_do(
    server: ApiServer, connection: Connection
) -> None:
    with watching(connection, stale_after=30.0) as cache:
        server.faults.add(Reply(403), resource="pods")
        until(lambda: cache.not_ready() is not None)
        error = cache.not_ready()
        assert error is not None
        assert error.kinds == ("Pod",)
        assert 'rule {apiGroups: [""], resources: ["pods"]' in error.message
        server.faults.clear()
        caught_up(cache, server)


EVERY = frozenset(RESOURCES)
ADD_ON_KINDS = frozenset(kind for kind, resource in RESOURCES.items() if resource.add_on)


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_whatever_kind_is_refused_for_a_moment_at_the_start_is_known_in_the_first_snapshot(
    all_kinds: tuple[ApiServer, Connection], verb: str
) -> None:
    """As by an API server whose authorizer has not read its roles yet."""
    server, connection = all_kinds
    for resource in RESOURCES.values():
        server.faults.add(Reply(403), resource=resource.plural, verb=verb, times=1)
    options = replace(QUICK, streaming=verb == "watch")
    with watching(connection, options, kinds=EVERY, stale_after=30.0) as cache:
        missing = EVERY - cache.snapshot(0.0).kinds
        assert missing <= ADD_ON_KINDS, "no plan waits for these"
        until(lambda: cache.snapshot(0.0).kinds == EVERY)


def test_whatever_kind_is_refused_for_long_is_known_seconds_after_it_is_allowed(
    all_kinds: tuple[ApiServer, Connection],
) -> None:
    server, connection = all_kinds
    for resource in RESOURCES.values():
        server.faults.add(Reply(403), resource=resource.plural)
    with watching(connection, ready=False, kinds=EVERY, stale_after=30.0) as cache:
        until(lambda: all(s.denied for s in cache.status()))
        server.faults.clear()
        until(lambda: all(s.synced and not s.denied for s in cache.status()), 30)
        assert cache.snapshot(0.0).kinds == EVERY
        assert cache.snapshot(0.0).refused == set()


def test_a_refusal_is_asked_again_within_a_minute_however_long_it_lasts() -> None:
    backoff = WatchOptions().backoff
    after = [backoff.delay(n, None, lambda: 1.0) for n in range(1, 2000)]
    assert after[0] <= 1.0
    assert max(after) <= 60.0
    assert backoff.delay(1, 9e9, lambda: 1.0) <= 61.0, "a server, or what answers for it, may ask for years"


def test_a_proxy_that_accepts_watches_and_closes_them_is_not_hammered(
    server: ApiServer, connection: Connection
) -> None:
    with watching(connection, stale_after=5.0) as cache:
        closed = server.faults.add(Reply(200, b""), verb="watch", resource="pods")
        until(lambda: closed.hits)
        before = closed.hits
        time.sleep(2.0)
        assert closed.hits - before <= 10
        assert pods(cache).failures > 2
        server.faults.clear()
        caught_up(cache, server)


def test_everything_at_once_at_random_and_then_the_truth(server: ApiServer, connection: Connection) -> None:
    options = msgspec.structs.replace(QUICK, timeout=(1, 2), silence=0.5)
    with watching(connection, options, stale_after=5.0) as cache:
        for fault in (*WATCH_FAULTS.values(), *LIST_FAULTS.values()):
            server.faults.add(fault, probability=0.02)
        until_then = time.monotonic() + 6.0
        while time.monotonic() < until_then:
            stir(server)
            time.sleep(0.02)
        server.faults.clear()
        caught_up(cache, server)
