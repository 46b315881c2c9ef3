"""Kinds that a cluster need not have: where they are not there, or cannot be read, nothing waits for them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.lists import ReadOptions
from rebalancer.kube.reading import read_snapshot
from rebalancer.kube.resources import RESOURCES
from rebalancer.kube.watch.reflector import WatchOptions
from rebalancer.model.snapshot import Snapshot
from tests.support.build import NOW, node, node_claim, objects, workload
from tests.support.sandbox import ApiServer, Garbage, Reply
from tests.support.sandbox.custom import ADD_ONS, served
from tests.support.sandbox.faults import Delay
from tests.support.servers.api import QUICK, connected
from tests.support.servers.watching import watching
from tests.support.waiting import until
from tests.unit.policy.test_vertical_autoscalers import vpa

ALL = frozenset(RESOURCES)
CLUSTER = (node("a-0").zone("a"), workload("web").placed({"a-0": 1}))
CLAIM = node_claim("pool-x", "a-0", drifted=60)
FAULTS = {
    "may not be read": Reply(403),
    "its conversion webhook is down": Reply(500),
    "nonsense": Garbage(b"<html>"),
}
SAYS = {
    "nodeclaims": "nodeclaims.karpenter.sh cannot be listed: which nodes Karpenter is about to replace",
    "deviceclasses": "deviceclasses.resource.k8s.io cannot be listed: which extended resources claims may",
    "verticalpodautoscalers": "verticalpodautoscalers.autoscaling.k8s.io cannot be listed: requests that one",
}


def listed(c: Connection) -> Snapshot:
    return read_snapshot(c, now=lambda: 0.0, wait=threading.Event().wait, options=ReadOptions(backoff=QUICK))


def watched(c: Connection) -> Snapshot:
    with watching(c, kinds=ALL, stale_after=60.0) as cache:
        return cache.snapshot(0.0)


BOTH = pytest.mark.parametrize("read", [listed, watched])


@pytest.fixture
def add_ons() -> Iterator[None]:
    with served(*ADD_ONS):
        yield


@BOTH
@pytest.mark.parametrize("may", [True, False], ids=["may be read", "would be forbidden"])
def test_where_they_are_not_served_there_are_none(may: bool, read: Any) -> None:
    with ApiServer(objects(*CLUSTER)) as server, connected(server) as c:
        for resource in SAYS if not may else ():
            server.faults.add(Reply(403), path=f"/{resource}")
        # The one kind among them that is of Kubernetes, as a release before 1.34 has it: not at all.
        server.faults.add(Reply(404), path="/apis/resource.k8s.io/")
        snapshot = read(c)
    assert snapshot.kinds == ALL
    assert (snapshot.node_claims, snapshot.refused, snapshot.warnings) == ((), frozenset(), ())


@BOTH
@pytest.mark.usefixtures("add_ons")
def test_where_they_are_they_are_read(read: Any) -> None:
    with ApiServer(objects(*CLUSTER, CLAIM)) as server, connected(server) as c:
        snapshot = read(c)
    assert [(c.status.node_name, c.drifted) for c in snapshot.node_claims] == [("a-0", NOW - 60)]


@BOTH
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("resource", SAYS)
@pytest.mark.usefixtures("add_ons")
def test_where_they_cannot_be_read_the_snapshot_says_so(resource: str, fault: Any, read: Any) -> None:
    with ApiServer(objects(*CLUSTER)) as server, connected(server) as c:
        server.faults.add(fault, resource=resource)
        snapshot = read(c)
    assert len(snapshot.refused) == 1
    (warning,) = snapshot.warnings
    assert warning.startswith(SAYS[resource])


@BOTH
@pytest.mark.usefixtures("add_ons")
def test_if_one_of_them_is_malformed_they_count_as_refused(read: Any) -> None:
    """What it would size, and how, is not known."""
    with ApiServer(objects(*CLUSTER, vpa("ReplicaSet", cpu="lots"), CLAIM)) as server, connected(server) as c:
        snapshot = read(c)
    assert snapshot.refused == {"VerticalPodAutoscaler"}
    assert len(snapshot.node_claims) == 1
    (warning,) = snapshot.warnings
    assert "malformed" in warning


@pytest.mark.parametrize("may_be_old", [False, True], ids=["pages", "whole"])
@pytest.mark.usefixtures("add_ons")
def test_one_that_hangs_is_not_asked_again(may_be_old: bool) -> None:
    patient = ClusterOptions(connect_timeout=30.0, read_timeout=60.0)
    with ApiServer(objects(*CLUSTER)) as server, connected(server, options=patient) as c:
        hanging = server.faults.add(Delay(math.inf), resource="nodeclaims")
        options = ReadOptions(may_be_old=may_be_old, add_on_patience=0.5)
        snapshot = read_snapshot(c, now=lambda: 0.0, wait=threading.Event().wait, options=options)
    assert hanging.hits == 1
    assert "NodeClaim" in snapshot.refused
    assert len(snapshot.pods) == 1


HANGS = {
    "its lists": ("/nodeclaims",),
    "the lists of two": ("/nodeclaims", "/verticalpodautoscalers"),
    "what says whether it is served": ("/apis/karpenter.sh/v1$",),
}


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "pages"])
@pytest.mark.parametrize("paths", HANGS.values(), ids=HANGS)
@pytest.mark.usefixtures("add_ons")
def test_a_cache_that_begins_waits_for_one_that_hangs_as_long_as_a_list_does(
    paths: tuple[str, ...], streaming: bool
) -> None:
    """And for no turn of theirs: neither those behind it in the line nor the plan."""
    patient = ClusterOptions(connect_timeout=30.0, read_timeout=120.0)
    options = WatchOptions(streaming=streaming, add_on_patience=0.5, list_silence=120.0, turn=120.0)
    with ApiServer(objects(*CLUSTER)) as server, connected(server, options=patient) as c:
        for path in paths:
            server.faults.add(Delay(math.inf), path=path)
        if "/nodeclaims" not in paths:
            server.faults.add(Reply(403), resource="nodeclaims")
        with watching(c, options, ready=False, kinds=ALL, stale_after=600.0) as cache:
            assert cache.wait_ready(60)
            snapshot = cache.snapshot(0.0)
    assert "NodeClaim" in snapshot.refused
    assert any(w.startswith(SAYS["nodeclaims"]) and "(None)" not in w for w in snapshot.warnings)
    assert len(snapshot.pods) == 1


def test_as_long_as_they_are_not_served_nothing_changes() -> None:
    """A plan is kept for as long as the objects are the same; they are looked for again now and then."""
    with (
        ApiServer(objects(*CLUSTER)) as server,
        connected(server) as c,
        watching(c, kinds=ALL, stale_after=60.0) as cache,
    ):
        before = cache.snapshot(0.0)
        asked = sum("/nodeclaims" in a.path for a in server.accesses)
        until(lambda: sum("/nodeclaims" in a.path for a in server.accesses) > asked + 1)
        assert cache.snapshot(0.0).nodes is before.nodes


@pytest.mark.usefixtures("add_ons")
def test_a_cache_goes_on_with_what_it_has_of_them_and_forgets_them_with_the_right() -> None:
    with (
        ApiServer(objects(*CLUSTER, CLAIM)) as server,
        connected(server) as c,
        watching(c, kinds=ALL, stale_after=60.0) as cache,
    ):
        server.faults.add(Reply(500), resource="nodeclaims")
        status = {s.kind: s for s in cache.status()}["NodeClaim"]
        assert status.why_not(stale_after=-1.0) == ""
        assert len(cache.snapshot(0.0).node_claims) == 1
        server.faults.clear()
        server.faults.add(Reply(403), resource="nodeclaims")
        until(lambda: cache.snapshot(0.0).refused == {"NodeClaim"})
        assert cache.snapshot(0.0).node_claims == ()
        assert cache.not_ready() is None
        server.faults.clear()
        until(lambda: len(cache.snapshot(0.0).node_claims) == 1)
