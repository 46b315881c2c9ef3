"""What is violated now is known without a cycle, as the watches tell of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rebalancer.engine.config import parse_config
from rebalancer.kube.resources import RESOURCES
from rebalancer.runtime.daemon.early import Spread, SpreadNow
from tests.support.build import node, nodes, objects, pod, workload
from tests.support.processes.daemon_process import BRISK, daemon, get
from tests.support.sandbox import ApiServer
from tests.support.servers.api import connected
from tests.support.servers.watching import FEW, in_step, touch, watching
from tests.support.waiting import until

TAINT = {"key": "x", "effect": "NoSchedule"}
WEB = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 3}))


class Followed:
    """A server, and what is said of it once the watches have caught up."""

    def __init__(self, server: ApiServer, cache: Any, rules: Spread) -> None:
        self.server, self.cache, self.at = server, cache, 0.0
        self.spread = SpreadNow(cache, lambda: rules, monotonic=lambda: self.at)

    def onsets(self) -> list[tuple[float, bool]]:
        assert in_step(self.cache, self.server, 120)
        return [(o.ago, o.by_nodes) for o in self.spread.followed().onsets.values()]

    def excess(self, namespace: str = "default") -> int | None:
        assert in_step(self.cache, self.server, 120)
        self.spread.look()
        return (self.spread.excess(lambda _: True) or {}).get(namespace)


@contextmanager
def followed(*things: Any, rules: Spread | None = None, kinds: frozenset[str] = FEW) -> Iterator[Followed]:
    with (
        ApiServer(objects(*things)) as server,
        connected(server) as c,
        watching(c, kinds=kinds | {"StatefulSet"}, stale_after=60.0) as cache,
    ):
        yield Followed(server, cache, rules or Spread())


def new(thing: Any) -> Any:
    made = objects(thing)[0]
    del made["metadata"]["resourceVersion"]
    return made


def test_pods_that_go_and_a_zone_that_comes_show_at_once() -> None:
    with followed(*WEB) as f:
        assert f.excess() == 0
        f.server.store.delete("Pod", "web-00003", "default")
        f.server.store.delete("Pod", "web-00004", "default")
        assert f.excess() == 1, "3 and 1"
        f.server.store.create(new(node("c-0").zone("c")))
        assert f.excess() == 2, "3, 1 and none"
        f.server.store.delete("Node", "c-0")
        assert f.excess() == 1


def test_what_is_about_something_else_changes_nothing() -> None:
    with followed(*WEB, workload("other").placed({"a-0": 2})) as f:
        assert f.excess() == 0
        before = f.spread.excess(lambda _: True)
        touch(f.server, "other-00000")
        f.server.store.modify(
            "Node", "a-0", "", lambda n: n["metadata"].setdefault("annotations", {"x": "y"})
        )
        assert f.excess() == 0
        assert f.spread.excess(lambda _: True) == before


def test_defaults_of_the_scheduler_count_when_they_are_hard() -> None:
    arguments = {
        "defaultingType": "List",
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    }
    profile = {"pluginConfig": [{"name": "PodTopologySpread", "args": arguments}]}
    config = parse_config(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
    )
    bare = (*nodes(a=1, b=1), workload("web", "Bare").placed({"a-0": 4}))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}},
    }
    with followed(*bare, rules=Spread(config), kinds=frozenset(RESOURCES)) as f:
        assert f.excess() is None, "nothing selects them, so they have no constraint"
        f.server.store.create(service)
        until(lambda: f.excess() == 3)


def test_how_a_violation_began_is_known_to_the_moment() -> None:
    with followed(*WEB) as f:
        assert f.excess() == 0
        assert f.onsets() == []
        f.server.store.create(new(node("c-0").zone("c")))
        assert f.onsets() == [(0.0, True)], "nodes made it"
        f.at += 50
        touch(f.server, "web-00000")
        assert f.onsets() == [(50.0, True)]
        for name in ("one", "two"):
            f.server.store.create(new(pod(name).labels(app="web").on("c-0")))
        f.server.store.delete("Pod", "two", "default")
        assert f.onsets() == [(0.0, False)], "3, 3 and 1: pods have made it anew between two looks"
        f.at += 20
        f.server.store.modify("Node", "a-0", "", lambda n: n["spec"].update(taints=[TAINT]))
        assert f.onsets() == [(20.0, False)], "nodes that change end nothing by that"
        assert f.spread.followed().unbroken == 70
        f.spread.forget()
        f.at += 5
        assert f.onsets() == [(25.0, False)], "it is no older for what was missed"
        f.at += 1
        assert f.spread.followed().unbroken == 1


def test_a_violation_that_began_while_something_was_missed_is_new() -> None:
    with followed(*WEB) as f:
        f.server.store.delete("Pod", "web-00003", "default")
        f.server.store.delete("Pod", "web-00004", "default")
        assert f.excess() == 1
        assert f.onsets() == [], "it was there before anybody looked"
        f.spread.forget()
        assert f.onsets() == [], "and may have been all the time"
        f.server.store.create(new(pod("one").labels(app="web").on("b-0")))
        assert f.onsets() == []
        f.at += 9
        f.server.store.delete("Pod", "one", "default")
        f.spread.forget()
        assert f.onsets() == [(0.0, False)]


def test_nodes_that_hide_a_violation_for_a_moment_have_not_made_it() -> None:
    """The domain without a pod counts only while the pods tolerate what its nodes are tainted with."""
    web = workload("web").spread("zone", 1, taints_policy="Honor")
    with followed(*nodes(a=1, b=1, c=1), web.placed({"a-0": 3, "b-0": 3, "c-0": 3})) as f:

        def taints(*taints: Any) -> None:
            f.server.store.modify("Node", "c-0", "", lambda n: n["spec"].update(taints=taints))

        assert f.excess() == 0
        taints(TAINT)
        assert f.onsets() == []
        for name in ("web-00006", "web-00007", "web-00008"):
            f.server.store.delete("Pod", name, "default")
        taints()
        assert f.onsets() == [(0.0, True)], "it was kept before: the zone came back"
        f.at += 5
        taints(TAINT)
        assert f.onsets() == []
        taints()
        assert f.onsets() == [(0.0, True)]
        f.server.store.create(new(pod("more").labels(app="web").on("a-0")))
        f.server.store.create(new(pod("one").labels(app="web").on("c-0")))
        f.server.store.create(new(pod("two").labels(app="web").on("c-0")))
        f.server.store.create(new(pod("three").labels(app="web").on("c-0")))
        assert f.onsets() == []
        for name in ("one", "two", "three"):
            f.server.store.delete("Pod", name, "default")
        assert f.onsets() == [(0.0, False)]
        taints(TAINT)
        assert f.onsets() == []
        taints()
        assert f.onsets() == [(0.0, False)], "pods had made it"


def test_nothing_is_said_while_the_watches_are_not_current() -> None:
    with followed(*WEB) as f:
        assert f.excess() == 0
        f.server.stop()
        f.cache._stale_after = -1.0
        f.spread.look()
        assert f.spread.excess(lambda _: True) is None


def test_the_metric_is_true_between_two_cycles(tmp_path: Path) -> None:
    seldom = BRISK.replace("interval: 1s", "interval: 1h, react: off")
    with ApiServer(objects(*WEB)) as server, daemon(server, tmp_path / "d", seldom) as d:
        until(lambda: "rebalancer_excess_pods 0.0" in get(d.port, "/metrics")[1])
        server.store.delete("Pod", "web-00003", "default")
        server.store.delete("Pod", "web-00004", "default")
        until(lambda: "rebalancer_excess_pods 1.0" in get(d.port, "/metrics")[1])
        page = get(d.port, "/metrics")[1]
    assert 'rebalancer_namespace_excess_pods{namespace="default"} 1.0' in page
    assert "rebalancer_cycle_duration_seconds_count 1.0" in page
