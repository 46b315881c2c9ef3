"""The watch cache: what it shows, what it refuses to show, and how it begins and ends."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import pytest

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.reading import read_snapshot
from rebalancer.kube.resources import RESOURCES
from rebalancer.kube.watch import reflector
from rebalancer.kube.watch.reflector import WatchOptions
from rebalancer.model.decode import Decoder
from rebalancer.model.snapshot import Snapshot
from tests.support.build import deployment, objects, pdb, stateful_set
from tests.support.build import node as build_node
from tests.support.sandbox import ApiServer, Delay, Reply
from tests.support.servers.api import connected
from tests.support.servers.api_objects import node, pod
from tests.support.servers.watching import (
    BOOKMARK_EVERY,
    QUICK,
    STALE_AFTER,
    caught_up,
    seen,
    touch,
    watching,
)
from tests.support.waiting import until

NEITHER_STREAMS = msgspec.structs.replace(QUICK, streaming=False)
_LONG = 60.0
"""Seconds: much longer than it takes, and much shorter than what the threads wait for."""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(
        [node("n1"), node("n2"), *(pod(f"p{i}") for i in range(8))], bookmark_every=BOOKMARK_EVERY
    ) as s:
        yield s


@pytest.fixture
def connection(server: ApiServer) -> Iterator[Connection]:
    with connected(server) as c:
        yield c


def plain(snapshot: Snapshot) -> object:
    """Everything of a snapshot but how it was come by."""
    return msgspec.to_builtins(msgspec.structs.replace(snapshot, reads=()))


@pytest.mark.parametrize("options", [QUICK, NEITHER_STREAMS], ids=["streaming list", "paged list"])
def test_a_snapshot_of_the_cache_is_the_one_that_lists_would_give(options: object) -> None:
    cluster = objects(
        build_node("a-0").zone("a"),
        build_node("b-0").zone("b"),
        deployment("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}),
        stateful_set("db").placed({"a-0": 1, "b-0": 1}),
        pdb("web", {"app": "web"}, max_unavailable=1),
    )
    with ApiServer(cluster) as server, connected(server) as c:
        listed = read_snapshot(c, now=lambda: 5.0, wait=threading.Event().wait)
        with watching(c, options, kinds=frozenset(RESOURCES)) as cache:  # type: ignore[arg-type]
            assert plain(cache.snapshot(5.0)) == plain(listed)
            assert cache.snapshot(5.0).kinds == listed.kinds
            assert cache.snapshot(5.0).server_version == listed.server_version


@pytest.mark.parametrize("options", [QUICK, NEITHER_STREAMS], ids=["streaming list", "paged list"])
def test_one_list_goes_on_at_a_time(
    connection: Connection, options: WatchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    going: list[str] = []
    together: list[int] = []

    def alone(list_: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            going.append("")
            together.append(len(going))
            time.sleep(0.02)
            try:
                return list_(*arguments)
            finally:
                going.pop()

        return counted

    for name in ("paged", "streamed"):
        monkeypatch.setattr(reflector, name, alone(getattr(reflector, name)))
    patient = msgspec.structs.replace(options, turn=600.0)
    # Add-ons take no turn, so that nobody waits for one that hangs.
    with watching(connection, patient, kinds=frozenset(k for k, r in RESOURCES.items() if not r.add_on)):
        assert len(together) > 10
    assert set(together) == {1}


def test_changes_show_within_moments(server: ApiServer, connection: Connection) -> None:
    with watching(connection) as cache:
        server.store.create(pod("new"))
        touch(server, "p1", colour="red")
        server.store.delete("Pod", "p2", "default", grace=0)
        caught_up(cache, server)
        found = cache.pod("default", "p1")
        assert found is not None
        assert found.annotations["colour"] == "red"
        assert cache.pod("default", "p2") is None
        names = [p.name for p in cache.snapshot(0.0).pods]
        assert names == sorted(names)
        assert next(s for s in cache.status() if s.kind == "Pod").lists == 1


def test_what_does_not_change_is_the_same_object(server: ApiServer, connection: Connection) -> None:
    with watching(connection) as cache:
        before = {p.name: p for p in cache.snapshot(0.0).pods}
        nodes = cache.nodes()
        touch(server, "p1")
        caught_up(cache, server)
        after = {p.name: p for p in cache.snapshot(0.0).pods}
        assert [n for n in before if before[n] is not after[n]] == ["p1"]
        assert after["p1"].template is after["p0"].template
        assert cache.nodes() is nodes


def test_a_quiet_cluster_stays_fresh_by_bookmarks_and_costs_no_lists(connection: Connection) -> None:
    with watching(connection) as cache:
        time.sleep(2 * STALE_AFTER)
        assert cache.not_ready() is None
        assert {s.lists for s in cache.status()} == {1}


def test_a_server_that_sends_no_bookmarks_is_asked_again_in_time(
    server: ApiServer, connection: Connection
) -> None:
    server.api.bookmark_every = 1e9
    with watching(connection) as cache:
        asked = Counter(a.resource for a in server.accesses if a.verb == "watch")

        def again() -> bool:
            now = Counter(a.resource for a in server.accesses if a.verb == "watch")
            return all(now[resource] >= count + 2 for resource, count in asked.items())

        until(again)
        assert {s.lists for s in cache.status()} == {1}


def test_before_the_first_list_it_names_what_is_missing(server: ApiServer, connection: Connection) -> None:
    server.faults.add(Reply(500), resource="pods")
    with watching(connection, ready=False) as cache:
        until(lambda: {s.kind for s in cache.status() if not s.synced} == {"Pod"})
        with pytest.raises(CacheNotReadyError, match="Pod not listed yet") as caught:
            cache.snapshot(0.0)
        assert caught.value.kinds == ("Pod",)
        for read in (cache.nodes, cache.pods, lambda: cache.budgets("default")):
            with pytest.raises(CacheNotReadyError):
                read()
        server.faults.clear()
        assert cache.wait_ready(60)


def test_a_cache_that_hears_nothing_refuses(server: ApiServer, connection: Connection) -> None:
    with watching(connection) as cache:
        server.faults.add(Delay(math.inf))
        server.api.bookmark_every = 1e9
        server.stop()
        until(lambda: seen(cache) is None)
        time.sleep(1.0)
        error = cache.not_ready()
        assert error is not None
        assert set(error.kinds) == {s.kind for s in cache.status()}
        assert "nothing heard of Node for" in error.message
        assert "connection refused" in error.message


def test_an_optional_kind_that_is_forbidden_is_a_warning(server: ApiServer, connection: Connection) -> None:
    rule = server.faults.add(Reply(403), resource="poddisruptionbudgets")
    with watching(connection) as cache:
        snapshot = cache.snapshot(0.0)
        assert "PodDisruptionBudget" not in snapshot.kinds
        assert snapshot.refused == {"PodDisruptionBudget"}
        (warning,) = snapshot.warnings
        assert "budgets are not planned with" in warning
        assert 'resources: ["poddisruptionbudgets"]' in warning
        assert cache.budgets("default") == ()
        time.sleep(1.0)
        assert rule.hits < 8  # seldom
        server.faults.clear()
        until(lambda: "PodDisruptionBudget" in cache.snapshot(0.0).kinds)
        assert not cache.snapshot(0.0).warnings


def test_an_optional_kind_that_is_refused_for_a_moment_stays_known(
    server: ApiServer, connection: Connection
) -> None:
    """As by an API server that has just been started: budgets must not be forgotten for that."""
    with watching(connection) as cache:
        known = cache.snapshot(0.0).kinds
        assert "PodDisruptionBudget" in known
        rule = server.faults.add(Reply(403), resource="poddisruptionbudgets", times=2)
        end = time.monotonic() + 60
        while rule.hits < 2 or next(s for s in cache.status() if s.kind == "PodDisruptionBudget").failures:
            assert time.monotonic() < end
            assert cache.snapshot(0.0).kinds == known
            time.sleep(0.01)


def test_an_optional_kind_that_is_refused_for_good_is_forgotten(
    server: ApiServer, connection: Connection
) -> None:
    with watching(connection) as cache:
        assert "PodDisruptionBudget" in cache.snapshot(0.0).kinds
        server.faults.add(Reply(403), resource="poddisruptionbudgets")
        until(lambda: "PodDisruptionBudget" not in cache.snapshot(0.0).kinds)
        assert any("budgets are not planned with" in w for w in cache.snapshot(0.0).warnings)


def test_pods_that_are_forbidden_are_an_error_with_its_remedy(
    server: ApiServer, connection: Connection
) -> None:
    server.faults.add(Reply(403), resource="pods")
    with watching(connection, ready=False) as cache:
        until(lambda: any(s.denied for s in cache.status()))
        with pytest.raises(CacheNotReadyError, match=r'resources: \["pods"\]') as caught:
            cache.snapshot(0.0)
        assert "Pod" in caught.value.kinds
        server.faults.clear()
        assert cache.wait_ready(60)


def test_a_malformed_object_is_left_out_and_named_until_it_is_mended(
    server: ApiServer, connection: Connection
) -> None:
    def breaks(obj: dict[str, object]) -> None:
        obj["status"] = {"phase": "Dancing"}

    with watching(connection) as cache:
        server.store.modify("Pod", "p3", "default", breaks, subresource="status")
        until(lambda: cache.pod("default", "p3") is None)
        (warning,) = cache.snapshot(0.0).warnings
        assert warning.startswith("Pod default/p3 is malformed and left out")
        server.store.modify(
            "Pod", "p3", "default", lambda o: o.update(status={"phase": "Running"}), subresource="status"
        )
        caught_up(cache, server)
        assert not cache.snapshot(0.0).warnings


HUGE = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1e999999"}}}]}
"""A quantity beyond every arithmetic."""


@pytest.mark.parametrize("streaming", [False, True])
def test_an_object_that_cannot_be_reckoned_with_keeps_nobody_else_from_being_read(streaming: bool) -> None:
    huge = {**pod("huge"), "spec": HUGE}
    with ApiServer([node("n1"), pod("p1"), huge]) as server, connected(server) as c:
        options = msgspec.structs.replace(QUICK, streaming=streaming)
        with watching(c, options) as cache:
            (warning,) = cache.snapshot(0.0).warnings
            assert warning.startswith("Pod default/huge is malformed and left out")
            server.store.create({**huge, "metadata": {"name": "more", "namespace": "default"}})
            until(lambda: len(cache.snapshot(0.0).warnings) == 2)
            server.store.delete("Pod", "huge", "default", grace=0)
            until(lambda: len(cache.snapshot(0.0).warnings) == 1)
            assert [p.name for p in cache.pods().values()] == ["p1"]


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_it_ends_at_once_although_threads_wait_for_the_server(server: ApiServer, verb: str) -> None:
    server.faults.add(Delay(math.inf), verb=verb)
    slow = msgspec.structs.replace(QUICK, silence=600.0, streaming=False)
    with connected(server) as patient:
        patient.options = msgspec.structs.replace(patient.options, read_timeout=600.0)
        with watching(patient, slow, ready=False) as cache:
            time.sleep(0.5)
            began = time.monotonic()
            cache.stop(timeout=_LONG)
            assert time.monotonic() - began < _LONG, "the threads have ended by themselves"
    assert not [t.name for t in threading.enumerate() if t.name.startswith("watch-")]


@pytest.mark.parametrize("half_open", [False, True], ids=["idle watches", "half-open lists"])
def test_it_ends_at_once_over_https_too(certificate: tuple[str, str], half_open: bool) -> None:
    with ApiServer([node("n1"), pod("p1")], tls=certificate, bookmark_every=1e9) as tls:
        if half_open:
            tls.faults.add(Delay(math.inf), verb="list")
        with connected(tls, options=ClusterOptions(read_timeout=600.0)) as c:
            slow = msgspec.structs.replace(QUICK, silence=600.0, streaming=False, timeout=(600, 600))
            with watching(c, slow, ready=not half_open) as cache:
                time.sleep(0.5)
                began = time.monotonic()
                cache.stop(timeout=_LONG)
                assert time.monotonic() - began < _LONG, "the threads have ended by themselves"


def test_after_a_machine_slept_nothing_is_believed_until_something_is_heard(
    server: ApiServer, connection: Connection
) -> None:
    slept = [0.0]
    with watching(connection, monotonic=lambda: time.monotonic() + slept[0]) as cache:
        server.faults.add(Delay(math.inf))
        slept[0] = 3600.0
        assert seen(cache) is None
        server.faults.clear()
        caught_up(cache, server)


def test_what_came_and_went_is_forgotten_by_the_decoder() -> None:
    decoder = Decoder()

    def made(i: int) -> bytes:
        return msgspec.json.encode(pod(f"p{i}", app=f"app-{i}") | {"status": {"phase": "Running"}})

    live = [decoder.decode("Pod", made(i)) for i in range(3)]
    for i in range(1000):
        decoder.decode("Pod", made(i))
    grown = decoder.entries
    decoder.keep(live)
    assert decoder.entries < 10 < 1000 < grown
    again = decoder.decode("Pod", made(1))
    assert again.template is live[1].template  # type: ignore[union-attr]
