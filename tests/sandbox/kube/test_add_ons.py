"""Kinds that a cluster need not have: where they are not there, or cannot be read, nothing waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.read.snapshot import read_snapshot
from rebalancer.kube.read.transfer import ReadOptions
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.node import NODEPOOL
from rebalancer.model.snapshot import Snapshot
from tests.support.build import node, node_claim, objects, workload
from tests.support.sandbox import ApiServer, Garbage, Reply
from tests.support.sandbox.custom import NODE_CLAIMS, served
from tests.support.servers.api import QUICK, connected
from tests.support.servers.watching import watching
from tests.support.waiting import until

ALL = frozenset(RESOURCES)
PLAIN = (node("a-0").zone("a"), workload("web").placed({"a-0": 1}))
KARPENTER = (node("a-0").zone("a").label(NODEPOOL, "default"), workload("web").placed({"a-0": 1}))
FAULTS = {
    "may not be read": Reply(403),
    "its conversion webhook is down": Reply(500),
    "nonsense": Garbage(b"<html>"),
}


def listed(c: Connection) -> Snapshot:
    return read_snapshot(c, now=lambda: 0.0, wait=threading.Event().wait, options=ReadOptions(backoff=QUICK))


def watched(c: Connection) -> Snapshot:
    with watching(c, kinds=ALL, stale_after=60.0) as cache:
        return cache.snapshot(0.0)


BOTH = pytest.mark.parametrize("read", [listed, watched])


@pytest.fixture
def claims() -> Iterator[None]:
    with served(NODE_CLAIMS):
        yield


@BOTH
@pytest.mark.parametrize("cluster", [PLAIN, KARPENTER], ids=["plain", "of an earlier Karpenter"])
def test_where_they_are_not_served_there_are_none(cluster: Any, read: Any) -> None:
    with ApiServer(objects(*cluster)) as server, connected(server) as c:
        snapshot = read(c)
    assert "NodeClaim" in snapshot.kinds
    assert (snapshot.node_claims, snapshot.refused, snapshot.warnings) == ((), frozenset(), ())


@BOTH
@pytest.mark.usefixtures("claims")
def test_where_they_are_they_are_read(read: Any) -> None:
    claim = node_claim("pool-x", "a-0", Consolidatable="True")
    with ApiServer(objects(*KARPENTER, claim)) as server, connected(server) as c:
        snapshot = read(c)
    assert [(c.status.node_name, c.consolidatable) for c in snapshot.node_claims] == [("a-0", True)]


@BOTH
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.usefixtures("claims")
def test_where_they_cannot_be_read_the_snapshot_says_so_if_karpenter_is_there(fault: Any, read: Any) -> None:
    for cluster, says in ((PLAIN, 0), (KARPENTER, 1)):
        with ApiServer(objects(*cluster)) as server, connected(server) as c:
            server.faults.add(fault, resource="nodeclaims")
            snapshot = read(c)
        assert snapshot.refused == {"NodeClaim"}
        assert len(snapshot.warnings) == says
        assert all(
            w.startswith("nodeclaims.karpenter.sh cannot be listed: which nodes Karpenter may remove is not")
            for w in snapshot.warnings
        )


@pytest.mark.usefixtures("claims")
def test_a_cache_goes_on_with_what_it_has_of_them_and_forgets_them_with_the_right() -> None:
    claim = node_claim("pool-x", "a-0", Consolidatable="True")
    with (
        ApiServer(objects(*KARPENTER, claim)) as server,
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
