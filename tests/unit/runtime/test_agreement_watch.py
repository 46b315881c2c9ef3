"""What is compared while nodes change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.kube.watch.store import Feed
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.runtime.live.agreement import AgreementWatch
from tests.support.build import node, pod, snapshot


class Cache:
    """One that is told by hand."""

    server_version = "v1.36.2"

    def __init__(self, cluster: Snapshot) -> None:
        self.cluster = cluster
        self.feeds = {kind: Feed(threading.Lock()) for kind in ("Pod", "Node")}

    def follow(self, kind: str) -> Feed:
        return self.feeds[kind]

    def not_ready(self) -> None:
        return None

    def generation(self, _: str) -> int:
        return 0

    def attachments(self) -> tuple[()]:
        return ()

    def nodes(self) -> Any:
        return self.cluster.nodes

    def snapshot(self, _: float) -> Snapshot:
        return self.cluster

    def see(self, pod: Pod) -> None:
        others = (p for p in self.cluster.pods if p.key != pod.key)
        self.cluster = replace(self.cluster, pods=(*others, pod))
        self.feeds["Pod"].add([(("default", pod.name), pod, "")])

    def change(self, nodes: Sequence[Node]) -> None:
        self.cluster = replace(self.cluster, nodes=tuple(nodes))
        self.feeds["Node"].add([(("", n.name), n, "") for n in nodes])


def test_a_node_that_changed_and_changed_back_makes_what_was_decided_unclear() -> None:
    def cluster(a: bool, z: bool) -> Snapshot:
        nodes = (node(n).cordoned() if out else node(n) for n, out in (("a", a), ("z", z)))
        return snapshot(*nodes, pod("new"), pod("first"))

    new, first = (next(p for p in cluster(False, False).pods if p.name == n) for n in ("new", "first"))
    cache: Any = Cache(replace(cluster(False, False), pods=()))
    now, told = 0.0, list[Comparison]()
    watch = AgreementWatch(cache, lambda: None, told.append, now=lambda: now, monotonic=lambda: now)
    refused = "0/2 nodes are available: 2 node(s) were unschedulable. preemption: not helpful."
    events: dict[float, Callable[[], None]] = {
        0.0: lambda: cache.see(first),
        0.5: lambda: cache.see(replace(first, node_name="a")),
        12.0: lambda: cordon(False, True),
        14.0: lambda: cordon(True, True),
        14.5: lambda: cache.see(new),
        15.0: lambda: cache.see(replace(new, unschedulable=refused)),
        17.0: lambda: cordon(False, True),
        17.5: lambda: cache.see(replace(new, node_name="a")),
    }

    def cordon(a: bool, z: bool) -> None:
        cache.change(cluster(a, z).nodes)

    while now < 40:
        if now in events:
            events[now]()
        watch.look()
        now += 0.5
    assert [c.result for c in told if c.pod == "first"] == [Result.AGREES]
    assert {c.result for c in told if c.pod == "new"} <= {Result.AGREES, Result.UNCLEAR}
    assert not any(c.branches for c in told if c.pod == "new")


@pytest.mark.parametrize(("hides", "result"), [(True, Result.UNCLEAR), (False, Result.DISAGREES)])
def test_a_change_of_nodes_and_its_reversal_are_seen_although_both_come_at_one_look(
    hides: bool, result: Result
) -> None:
    """The watches had stalled. What the scheduler refused meanwhile is unclear; heartbeats are no news."""
    free = snapshot(node("a"), pod("new"), pod("first"))
    pods = {p.name: p for p in free.pods}
    cache: Any = Cache(replace(free, pods=()))
    now, told = 0.0, list[Comparison]()
    watch = AgreementWatch(cache, lambda: None, told.append, now=lambda: now, monotonic=lambda: now)
    while now < 60:
        if now == 0.0:
            cache.see(pods["first"])
        if now == 0.5:
            cache.see(replace(pods["first"], node_name="a"))
        if now == 20.0:
            cache.change(snapshot(node("a").cordoned() if hides else node("a")).nodes)
            cache.change(free.nodes)
            cache.see(pods["new"])
            cache.see(
                replace(pods["new"], unschedulable="0/1 nodes are available: 1 node(s) were unschedulable.")
            )
        watch.look()
        now += 0.5
    assert [c.result for c in told if c.pod == "first"] == [Result.AGREES]
    assert {c.result for c in told if c.pod == "new"} == {result}


@pytest.mark.parametrize("opened", [0.5, 1.0])
def test_a_state_that_is_built_as_nodes_open_says_nothing_of_what_was_decided_before(opened: float) -> None:
    """The nodes of a zone come up: the first pods that wait were refused before their taints went."""
    with_pod = snapshot(node("a").cordoned(), node("z").cordoned(), pod("new"))
    new = with_pod.pods[0]
    cache: Any = Cache(replace(with_pod, pods=()))
    now, told = 0.0, list[Comparison]()
    watch = AgreementWatch(cache, lambda: None, told.append, now=lambda: now, monotonic=lambda: now)
    while now < 40:
        if now == opened:
            cache.change(snapshot(node("a"), node("z")).nodes)
        if now == 1.0:
            cache.see(new)
            cache.see(replace(new, unschedulable="0/2 nodes are available: 2 node(s) were unschedulable."))
        if now == 2.0:
            cache.see(replace(new, node_name="a"))
        watch.look()
        now += 0.5
    assert told
    assert {c.result for c in told} <= {Result.AGREES, Result.UNCLEAR}


@pytest.mark.parametrize(("ends", "results"), [(5.0, []), (5.5, [Result.AGREES])])
def test_a_rollouts_old_pod_that_ends_within_the_first_look_after_quiet_is_no_disagreement(
    ends: float, results: list[Result]
) -> None:
    """Two pods were in each zone when the new one was placed, of which one in zone a ends a moment later."""
    places = [pod(f"web-{i}").on(f"{z}1").labels(app="web").spread("zone", 1) for i, z in enumerate("aabbcc")]
    machines = [node(f"{z}1").zone(z) for z in "abc"]
    every = snapshot(*machines, *places, pod("new").labels(app="web").spread("zone", 1))
    pods = {p.name: p for p in every.pods}
    cache: Any = Cache(replace(every, pods=tuple(p for p in every.pods if p.name != "new")))
    now, told = 0.0, list[Comparison]()
    watch = AgreementWatch(cache, lambda: None, told.append, now=lambda: now, monotonic=lambda: now)
    while now < 30:
        if now == 5.0:
            cache.see(pods["new"])
            cache.see(replace(pods["new"], node_name="c1"))
        if now == ends:
            cache.see(replace(pods["web-0"], deleted=5.0))
        watch.look()
        now += 0.5
    assert [c.result for c in told] == results
