"""A cycle that starts because something has happened, not because its time has come."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from rebalancer.kube.config_maps import Ledgers, Place
from rebalancer.policy.history.ledger import Entry, Fate, Ledger
from tests.support.build import node, nodes, objects, pod, workload
from tests.support.processes.daemon_process import BRISK, daemon, evictions, get
from tests.support.sandbox import ApiServer, Reply
from tests.support.servers.api import connected
from tests.support.waiting import until

SELDOM = BRISK.replace("interval: 1s", "interval: 1h, react: 1s, nodeSettle: 2s").replace(
    "canary: 0, stabilization: 0s", "canary: 0, stabilization: 10m, enabled: true"
)


def test_a_zone_that_comes_back_is_used_without_waiting_for_the_interval(tmp_path: Path) -> None:
    things = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 3}))
    with ApiServer(objects(*things)) as server, daemon(server, tmp_path / "d", SELDOM) as d:
        until(lambda: 'rebalancer_cycles_total{end="complete"} 1.0' in get(d.port, "/metrics")[1])
        for i in range(20):
            late = objects(node(f"c-{i}").zone("c"))[0]
            del late["metadata"]["resourceVersion"]
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            late["status"]["conditions"][0]["lastTransitionTime"] = now
            server.store.create(late)
            time.sleep(0.02)
        assert until(lambda: evictions(server) > 0) < 20
        assert get(d.port, "/metrics")[1].count('rebalancer_cycles_total{end="complete"} 1.0') == 1


def test_a_scale_down_that_breaks_the_spread_is_mended_when_it_has_ended(tmp_path: Path) -> None:
    """Pods of others that come and go start no cycle, however many."""
    settings = SELDOM.replace("stabilization: 10m", "stabilization: 0s")
    things = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 3}))
    with ApiServer(objects(*things)) as server, daemon(server, tmp_path / "d", settings) as d:
        until(lambda: 'rebalancer_cycles_total{end="complete"} 1.0' in get(d.port, "/metrics")[1])
        for i in range(30):
            batch = objects(pod(f"batch-{i}").on("a-0"))[0]
            del batch["metadata"]["resourceVersion"]
            server.store.create(batch)
            server.store.delete("Pod", f"batch-{i}", "default")
        server.store.modify("ReplicaSet", "web", "default", lambda r: r["spec"].update(replicas=4))
        server.store.delete("Pod", "web-00003", "default")
        server.store.delete("Pod", "web-00004", "default")
        server.store.modify(
            "ReplicaSet",
            "web",
            "default",
            lambda r: r["status"].update(observedGeneration=r["metadata"]["generation"], replicas=4),
            subresource="status",
        )
        until(lambda: evictions(server) > 0)
    assert "ReplicaSet/default/web violates its spread, and policy allows evictions" in d.said()
    assert d.said().count("a cycle starts before the interval is over") == 1


SKEWED = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))


def test_a_kind_that_can_be_read_again_starts_a_cycle(tmp_path: Path) -> None:
    settings = SELDOM.replace("stabilization: 10m", "stabilization: 0s")
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(403), resource="replicasets", verb="list")
        server.faults.add(Reply(403), resource="replicasets", verb="watch")
        with daemon(server, tmp_path / "d", settings) as d:
            until(lambda: 'rebalancer_cycles_total{end="unknown"} 1.0' in get(d.port, "/metrics")[1])
            server.faults.clear()
            until(lambda: evictions(server) > 0)
    assert "ReplicaSet objects can be read now: a cycle starts" in d.said()


def test_the_end_of_late_replacements_starts_a_cycle(tmp_path: Path) -> None:
    """An earlier process evicted three pods, and no registry gives the image of their replacements."""
    settings = SELDOM.replace("stabilization: 10m", "stabilization: 0s")
    waiting = [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    now = datetime.now(UTC)
    evicted = [
        Entry(
            at=now.timestamp() - 60,
            cycle="earlier",
            namespace="default",
            pod=f"old-{i}",
            uid=f"old-{i}",
            owner="ReplicaSet/default/late",
            node="a-0",
            predicted="b-0",
            fate=Fate.FAILED,
        )
        for i in range(3)
    ]
    things = objects(*SKEWED, workload("late").placed({"b-0": 3}).unready(0, 1, 2))
    for o in things:
        if o["kind"] == "Pod" and o["metadata"]["name"].startswith("late"):
            o["metadata"]["creationTimestamp"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
            o["status"].update(phase="Pending", containerStatuses=waiting)
    with ApiServer(things) as server:
        with connected(server) as c:
            store = Ledgers(c, Place("default", "rebalancer-ledger"), writer="earlier", wait=lambda _: False)
            store.save(Ledger(entries=tuple(evicted)))
        with daemon(server, tmp_path / "d", settings) as d:
            until(lambda: "replacements do not start in time" in d.said())
            until(lambda: 'rebalancer_cycles_total{end="held"} 1.0' in get(d.port, "/metrics")[1])
            assert evictions(server) == 0
            for pod in server.store.list("Pod"):
                if pod["metadata"]["name"].startswith("late"):
                    server.store.delete("Pod", pod["metadata"]["name"], "default")
            until(lambda: evictions(server) > 0)
    assert "the cluster is well enough again: a cycle starts" in d.said()
