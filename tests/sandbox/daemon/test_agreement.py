"""The scheduler's decisions beside the engine's answers: they agree, or it shows."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.engine.branches import Touched
from rebalancer.engine.config import Witness, parse_config
from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.version import (
    ATTACHMENTS,
    EMPTY_SELECTORS,
    GATED_NOMINATIONS,
    MISSING_DRIVERS,
    NEGATED_NAMESPACES,
    NODE_WITHOUT_LIMITS,
    POD_LEVEL_RESOURCES,
    RESIZES,
    RESIZES_OF_PODS,
    SIDECAR_PORTS,
    SUMS_OF_RESIZES,
    Change,
)
from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.leases import LeaseClient
from rebalancer.kube.resources import RESOURCES
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.reflector import WatchOptions
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.outcome import Observers
from rebalancer.policy.history import ledger
from rebalancer.runtime.cycle import scheduler_decisions
from rebalancer.runtime.daemon.service import Reloader, Service, serve
from rebalancer.runtime.last_look.health import SCHEDULER_LEASE, DecidingScheduler
from rebalancer.runtime.live import agreement as live_agreement
from rebalancer.runtime.live.agreement import AgreementWatch
from rebalancer.sandbox.controllers import scheduler
from rebalancer.sandbox.controllers.loop import LiveState
from rebalancer.sandbox.registry import bind
from rebalancer.sandbox.storage import Record
from rebalancer.settings import load_settings
from tests.support.build import objects, snapshot
from tests.support.clusters.cluster_objects import node, template, workload
from tests.support.processes.daemon_process import BRISK, daemon, get
from tests.support.sandbox import ApiError, Cluster, Store
from tests.support.scheduler.plain import Json
from tests.support.servers.api import connected
from tests.support.servers.watching import watching
from tests.support.waiting import until
from tests.unit.engine.test_found_blind import CASES, without_pod_level

ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}


def configured(**profile: Any) -> Mapping[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


def args(plugin: str, **fields: Any) -> dict[str, Any]:
    return {"pluginConfig": [{"name": plugin, "args": fields}]}


def watching_patiently(connection: Connection) -> AbstractContextManager[WatchCache]:
    """A watch that is late on a busy machine is no reason to begin anew."""
    return watching(connection, WatchOptions(), kinds=frozenset(RESOURCES), stale_after=120.0)


@contextmanager
def compared(cluster: Cluster, settled: float = 1.0) -> Iterator[list[Comparison]]:
    """What is told while the cluster schedules."""
    found: list[Comparison] = []
    with connected(cluster.server) as c, watching_patiently(c) as cache:
        watch = AgreementWatch(cache, lambda: None, found.append, settled=settled).start()
        try:
            yield found
        finally:
            watch.stop()


def spread_pods(app: str = "web") -> Json:
    return template(
        app, topologySpreadConstraints=[{**SPREAD, "labelSelector": {"matchLabels": {"app": app}}}]
    )


def test_a_scheduler_of_the_same_rules_agrees_with_every_decision() -> None:
    nodes = [node(f"{z}-{i}", z, cpu="1") for z in "abc" for i in range(2)]
    nodes.append(node("a-9", "a", taints=[TAINT]))
    with Cluster(nodes, ready_after=0.02, grace=0.02) as cluster, compared(cluster) as found:
        cluster.store.create(workload("ReplicaSet", 9, template=spread_pods()))
        cluster.store.create(workload("ReplicaSet", 8, "large", cpu="700m"))
        until(lambda: len(found) >= 9)
        cluster.settle()
        until(lambda: sum(1 for c in found if c.node) >= 12)
    results = Counter(c.result for c in found)
    assert set(results) <= {Result.AGREES, Result.UNCLEAR}
    assert results[Result.AGREES] > results[Result.UNCLEAR]
    assert all(c.certain for c in found)
    assert {bool(c.node) for c in found} == {True, False}, "some were refused"


OTHERS: list[tuple[str, Mapping[str, Any], list[Json], Json, Result, set[str]]] = [
    (
        "the scheduler has a filter less",
        configured(plugins={"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}),
        [node("a-0", taints=[TAINT])],
        workload("ReplicaSet", 2),
        Result.DISAGREES,
        {"TaintToleration"},
    ),
    (
        "the scheduler adds an affinity",
        configured(
            **args(
                "NodeAffinity",
                addedAffinity={
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["batch"]}]}
                        ]
                    }
                },
            )
        ),
        [node("a-0"), node("b-0", "b")],
        workload("ReplicaSet", 2),
        Result.DISAGREES,
        {"NodeAffinity"},
    ),
    (
        "the scheduler spreads by default constraints",
        configured(**args("PodTopologySpread", defaultConstraints=[SPREAD], defaultingType="List")),
        [node("a-0"), node("b-0", "b", cpu="0")],
        workload("ReplicaSet", 4),
        Result.DISAGREES,
        {"PodTopologySpread"},
    ),
    (
        "the scheduler ignores a resource",
        configured(**args("NodeResourcesFit", ignoredResources=["example.com/gpu"])),
        [node("a-0")],
        workload(
            "ReplicaSet",
            1,
            template={
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [
                        {"name": "c", "image": "i", "resources": {"requests": {"example.com/gpu": "1"},
                                                                  "limits": {"example.com/gpu": "1"}}}
                    ]
                },
            },
        ),
        Result.DISAGREES,
        {"NodeResourcesFit"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "config", "nodes", "pods", "result", "plugins"), OTHERS, ids=[o[0] for o in OTHERS]
)
def test_a_scheduler_that_is_configured_otherwise_is_found_out(
    sentence: str,
    config: Mapping[str, Any],
    nodes: list[Json],
    pods: Json,
    result: Result,
    plugins: set[str],
) -> None:
    del sentence
    with Cluster(nodes, scheduler=parse_config(config)) as cluster, compared(cluster) as found:
        cluster.store.create(pods)
        until(lambda: any(c.result is result for c in found))
    (first, *_) = (c for c in found if c.result is result)
    assert first.certain
    assert set(first.plugins) == plugins
    assert set(first.nodes) <= {n["metadata"]["name"] for n in nodes}
    assert first.nodes
    assert first.message


@contextmanager
def bindings_out_of_order(monkeypatch: pytest.MonkeyPatch, together: int = 25) -> Iterator[None]:
    """Bindings reach the API server some at a time, in any order; for the scheduler they count at once."""
    chance, lock, over = random.Random(1), threading.Lock(), threading.Event()
    decided: list[tuple[Store, str, str, str]] = []
    monkeypatch.setattr(scheduler, "bind", lambda *one: decided.append(one))

    def deliver() -> None:
        while not over.wait(0.02) or decided:
            with lock:
                late = [decided.pop(0) for _ in range(min(together, len(decided)))]
            chance.shuffle(late)
            for one in late:
                with suppress(ApiError):
                    bind(*one)

    thread = threading.Thread(target=deliver)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("other", [False, True], ids=["the same rules", "a filter less"])
def test_a_burst_of_a_thousand_whose_bindings_come_out_of_order(
    other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No disagreement where there is none; and where there is, it is found all the same."""
    # A look that takes too long leaves pods out; on a busy machine that would be many of these.
    monkeypatch.setattr(live_agreement, "_BUDGET", 60.0)
    nodes = [node(f"{z}-{i}", z, cpu="16", taints=[TAINT] * (i == 0)) for z in "abc" for i in range(8)]
    less = configured(plugins={"multiPoint": {"disabled": [{"name": "TaintToleration"}]}})
    options = {"scheduler": parse_config(less)} if other else {}
    spread = {
        "web": {**SPREAD, "labelSelector": {"matchLabels": {"app": "web"}}},
        "api": {
            **SPREAD,
            "topologyKey": "kubernetes.io/hostname",
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": {"app": "api"}},
        },
    }
    wanted = {"web": 400, "api": 300, "plain": 300}

    def placed() -> int:
        return sum(bool(p["spec"].get("nodeName")) for p in cluster.store.list("Pod", "default"))

    with (
        Cluster(nodes, ready_after=0.02, **options) as cluster,
        compared(cluster) as found,
        bindings_out_of_order(monkeypatch),
    ):
        for app in wanted:
            constraints = [spread[app]] if app in spread else []
            made = template(app, topologySpreadConstraints=constraints)
            cluster.store.create(workload("ReplicaSet", 0, app, template=made))
        for app, replicas in wanted.items():
            cluster.scale("default", app, replicas)
        until(lambda: placed() == sum(wanted.values()))
        until(lambda: len(found) >= 0.99 * sum(wanted.values()))
    results = Counter(c.result for c in found)
    if other:
        assert {p for c in found if c.result is Result.DISAGREES for p in c.plugins} == {"TaintToleration"}
    else:
        assert results[Result.DISAGREES] == 0
        assert results[Result.AGREES] > 20 * results[Result.UNCLEAR]


REALLY = {
    EMPTY_SELECTORS: "1.38.0",
    GATED_NOMINATIONS: "1.37.0",
    MISSING_DRIVERS: "1.37.0",
    NEGATED_NAMESPACES: "1.34.9",
    NODE_WITHOUT_LIMITS: "1.31.14",
    RESIZES: "1.33.13",
    RESIZES_OF_PODS: "1.36.2",
    SIDECAR_PORTS: "1.34.9",
    SUMS_OF_RESIZES: "1.37.0",
}
"""A release of the scheduler that is otherwise in a change than the case's server; pod-level requests are
the same in all that have them, but for a feature gate."""


def _turn_off_pod_level(live: LiveState) -> None:
    decoded, known = live._decoded, dict[int, tuple[PodTemplate, PodTemplate]]()

    def without(record: Record) -> Pod:
        pod = decoded(record)
        _, other = known.setdefault(id(pod.template), (pod.template, without_pod_level(pod.template)))
        return replace(pod, template=other)

    live._decoded = without  # type: ignore[method-assign]


SHOWN = [c for c in CASES if c is not ATTACHMENTS]
"""The scheduler of these tests reads no VolumeAttachments."""


@pytest.mark.parametrize("change", SHOWN, ids=[c.source for c in SHOWN])
def test_a_scheduler_of_another_release_is_found_within_five_hundred_pods(change: Change) -> None:
    """The server says one version, its scheduler is of another: its decisions alone tell."""
    version, things, kinds = CASES[change]()
    chance, alive = random.Random(1), list[str]()
    with (
        Cluster(objects(*things), ready_after=0.02, grace=0.02, version=version.removeprefix("v")) as cluster,
        compared(cluster, 0.2) as found,
    ):
        live = cluster.scheduler.live
        live._version = REALLY.get(change, version)
        if change is POD_LEVEL_RESOURCES:
            _turn_off_pod_level(live)
        for i in range(500):
            if any(c.result is Result.DISAGREES for c in found):
                break
            kind, name = chance.choice(kinds).build()[0], f"new-{i}"
            meta = {"name": name, "namespace": "default", "labels": kind["metadata"]["labels"]}
            new = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": kind["spec"]}
            cluster.store.create(new)
            alive.append(name)
            while len(alive) > chance.choice((4, 8, 12)):
                cluster.store.delete("Pod", alive.pop(chance.randrange(len(alive))), "default")
            time.sleep(0.05)
        until(lambda: any(c.result is Result.DISAGREES for c in found), 30)
    (first, *_) = (c for c in found if c.result is Result.DISAGREES)
    assert first.branches
    state = ClusterState.of(snapshot(*things, *kinds, server_version=version))
    state.witness = Witness(doubted={(first.profile, b): "otherwise" for b in first.branches})
    rests = [
        p.template for p in state.snapshot.pods if {p.name} & {k.object["metadata"]["name"] for k in kinds}
    ]
    assert all("otherwise" in Framework(state).uncertainties(t) for t in rests)
    shown = {(c.profile, s) for c in found for s in c.shown}
    assert not any(Touched(Framework(state), t).covered(shown) for t in rests), "were one enough"


def test_a_daemon_tells_of_it_in_its_metrics_and_its_log(tmp_path: Path) -> None:
    config = parse_config(configured(plugins={"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}))
    with (
        Cluster([node("a-0", taints=[TAINT])], scheduler=config) as cluster,
        daemon(cluster.server, tmp_path, BRISK) as d,
    ):
        until(lambda: get(d.port, "/readyz")[0] == 200)
        cluster.store.create(workload("ReplicaSet", 2))
        until(lambda: "rebalancer_engine_agreement 0.0" in get(d.port, "/metrics")[1])
        metrics = get(d.port, "/metrics")[1]
        assert 'rebalancer_engine_comparisons_total{certain="true",result="disagrees"} 2.0' in metrics
        assert "which the engine rejects: TaintToleration (node(s) had untolerated taint(s))" in d.said()
        assert d.end() == 0
        assert "Traceback" not in d.said()


def lease(holder: str) -> Json:
    namespace, name = SCHEDULER_LEASE
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"holderIdentity": holder},
    }


def renew(cluster: Cluster, holder: str) -> None:
    namespace, name = SCHEDULER_LEASE
    spec = {"holderIdentity": holder, "renewTime": f"{time.time_ns()}"}
    cluster.store.modify("Lease", name, namespace, lambda o: o["spec"].update(spec))


def test_evidence_is_of_one_scheduler_and_only_where_every_field_is_known() -> None:
    with (
        Cluster([node("a-0")], version="1.38.0", without=["Scheduler"]) as cluster,
        connected(cluster.server) as c,
        watching_patiently(c) as cache,
    ):
        until(lambda: cache.not_ready() is None)

        now = [0.0]
        decides = DecidingScheduler(cache, LeaseClient(c, *SCHEDULER_LEASE), lambda: now[0])
        assert decides() == "", "it has no lease"
        cluster.store.create(lease("one"))
        assert [decides(), decides()] == ["", ""], "an old one says nothing"
        renew(cluster, "one")
        first = decides()
        assert first == decides() != ""
        renew(cluster, "two")
        assert decides() == "", "a new one may be old, too"
        renew(cluster, "two")
        second = decides()
        assert "" != second != first
        now[0] += 31.0
        assert decides() == "", "it is not renewed any more"
        renew(cluster, "two")
        assert decides() == second
        new = workload("ReplicaSet", 1)
        new["spec"]["template"]["spec"]["placementPolicy"] = {"name": "x"}
        cluster.store.create(new)
        until(lambda: bool(cache.unknown_field()))
        assert cache.unknown_field() == "Pod: Object contains unknown field `placementPolicy` - at `$.spec`"
        assert decides() == ""


def test_a_daemon_counts_what_the_scheduler_at_work_has_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ledger, scheduler_decisions):
        monkeypatch.setattr(module, "COVERED", 1)
    monkeypatch.setattr(live_agreement, "_ASK", 0.0)
    settings = load_settings(env={}, flags={"leaderElection": {"enabled": False}})
    stop, services = threading.Event(), list[Service]()
    with Cluster([node("a-0", cpu="2"), node("b-0", "b")], version="1.38.0", ready_after=0.02) as cluster:
        cluster.store.create(lease("one"))
        connection = Connection(ClusterOptions(kubeconfig=str(cluster.kubeconfig(tmp_path / "config"))))
        reloader = Reloader(settings, lambda: settings, file=None, observer=Observers([]))
        thread = threading.Thread(
            target=lambda: serve(connection, reloader, stop=stop, observers=[], begun=services.append)
        )
        thread.start()

        def covered() -> set[str]:
            (service,) = services
            return {b for _, b in service.memory.witness(service.cache.server_version).covered}

        try:
            until(lambda: services and services[0].cache.not_ready() is None)
            renew(cluster, "one")
            until(lambda: services[0].agreement._asked_at > 0)
            renew(cluster, "one")
            until(lambda: services[0].agreement._scheduler)
            cluster.store.create(workload("ReplicaSet", 1))
            until(lambda: {"NodeUnschedulable takes", "NodeResourcesFit takes, pods 1/8"} <= covered())
            for _ in range(2):
                renew(cluster, "two")
                assert covered() == set()
        finally:
            stop.set()
            thread.join(60)
            connection.close()


def test_where_another_scheduler_decides_what_waits_to_be_judged_is_unclear() -> None:
    with Cluster([node("a-0")], version="1.38.0", ready_after=0.02) as cluster:
        found: list[Comparison] = []
        now, name = [0.0], ["one"]
        with connected(cluster.server) as c, watching_patiently(c) as cache:
            watch = AgreementWatch(
                cache,
                lambda: None,
                found.append,
                scheduler=lambda: name[0],
                settled=5.0,
                monotonic=lambda: now[0],
            )
            watch.look()
            cluster.store.create(workload("ReplicaSet", 1, "first", cpu="700m"))
            until(lambda: _placed(cache) == 1 and _waits(watch))
            now[0] += 6.0
            until(lambda: _looked(watch, found, 1))
            cluster.store.create(workload("ReplicaSet", 1, "second", cpu="700m"))
            until(lambda: _placed(cache) == 2 and _waits(watch))
            name[0], now[0] = "two", now[0] + 6.0
            until(lambda: _looked(watch, found, 2))
        assert [(f.result, f.scheduler, bool(f.shown)) for f in found] == [
            (Result.AGREES, "one", True),
            (Result.UNCLEAR, "two", False),
        ]


def test_nodes_that_come_are_taken_in_and_heartbeats_are_not_news() -> None:
    with Cluster([node("a-0", cpu="1")], ready_after=0.02) as cluster:
        found: list[Comparison] = []
        now = [0.0]
        with connected(cluster.server) as c, watching_patiently(c) as cache:
            watch = AgreementWatch(cache, lambda: None, found.append, settled=0.0, monotonic=lambda: now[0])
            cluster.store.create(workload("ReplicaSet", 1, cpu="700m"))
            until(lambda: _looked(watch, found, 1))
            agreement = watch._agreement
            cluster.store.modify("Node", "a-0", None, lambda o: o["metadata"].update(annotations={"x": "y"}))
            until(lambda: not _same_nodes(cache, agreement))
            watch.look()
            assert watch._agreement is agreement, "nothing that a scheduler sees has changed"
            cluster.store.create(node("b-0", "b"))
            until(lambda: len(cache.nodes()) == 2)
            now[0] = 1000.0
            watch.look()
            assert watch._agreement is not agreement
            cluster.store.create(workload("ReplicaSet", 1, "more", cpu="2"))
            until(lambda: _looked(watch, found, 2))
        assert [(c.result, c.node) for c in found] == [(Result.AGREES, "a-0"), (Result.AGREES, "b-0")]


def _placed(cache: WatchCache) -> int:
    """How many pods are known to be on a node: the decision is as old as the clock says then."""
    return sum(bool(p.node_name) for p in cache.pods().values())


def _waits(watch: AgreementWatch) -> bool:
    watch.look()
    return bool(watch.waiting)


def _looked(watch: AgreementWatch, found: list[Comparison], number: int) -> bool:
    watch.look()
    return len(found) >= number


def _same_nodes(cache: Any, agreement: Any) -> bool:
    return bool(tuple(cache.nodes()) == agreement.state.snapshot.nodes)
