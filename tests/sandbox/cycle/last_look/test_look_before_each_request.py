"""Every request that can evict is preceded by the whole last look, whatever became of the one before it."""

from __future__ import annotations

import time as real
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.client.config import ClusterOptions
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.evict import evictor
from rebalancer.kube.evict.evictor import LiveEvictor
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.outcome.cycle import MoveStatus
from rebalancer.outcome.observer import Observer
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.gates import gates, permission
from rebalancer.runtime.cycle.gates.permission import Permission
from rebalancer.runtime.cycle.parts import CycleLimits
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.assembly import LiveOptions
from rebalancer.runtime.live.single.once import run_once
from tests.support.build import deployment, node, objects, pdb
from tests.support.runs.machine import BRAKE
from tests.support.runs.one_cycle import Run
from tests.support.sandbox import ApiServer, Cluster, Cut, Delay, Reply
from tests.support.sandbox.faults import Action
from tests.support.servers.api import FakeTime

CLUSTER = (
    node("a-0").zone("a").cpu(8),
    node("b-0").zone("b").cpu(8),
    deployment("web").spread("zone", 1).requests(cpu="1").placed({"a-0": 3, "b-0": 1}),
    pdb("web", {"app": "web"}, max_unavailable=1),
)
STALE = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "code": 429,
    "reason": "TooManyRequests",
    "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    "details": {"causes": [{"reason": "DisruptionBudget", "message": "web is still being processed"}],
                "retryAfterSeconds": 10},
}  # fmt: skip

ANSWERS: list[tuple[str, Action]] = [
    ("429 of a stale budget, Retry-After 10 s", Reply(429, STALE, {"Retry-After": "10"})),
    ("429 of flow control, Retry-After 60 s", Reply(429, None, {"Retry-After": "60"})),
    ("409", Reply(409)),
    ("500", Reply(500)),
    ("a cut connection", Cut("before")),
    ("silence", Delay(float("inf"))),
]


def cordoned(server: ApiServer) -> None:
    server.store.modify("Node", "b-0", None, lambda o: o["spec"].update(unschedulable=True))


def filled(server: ApiServer) -> None:
    """Somebody else's pod takes the room of the only destination."""
    server.store.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "batch", "namespace": "default", "labels": {"app": "batch"}},
            "spec": {
                "nodeName": "b-0",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "7"}}}],
            },
            "status": {"phase": "Running"},
        }
    )


def scaled(server: ApiServer) -> None:
    for kind, name in (
        ("Deployment", "web"),
        ("ReplicaSet", server.store.list("ReplicaSet")[0]["metadata"]["name"]),
    ):
        server.store.modify(kind, name, "default", lambda o: o["spec"].update(replicas=3))


def exhausted(server: ApiServer) -> None:
    server.store.modify("PodDisruptionBudget", "web", "default", lambda o: o["spec"].update(maxUnavailable=0))


def protected(server: ApiServer) -> None:
    for pod in server.store.list("Pod"):
        server.store.modify(
            "Pod",
            pod["metadata"]["name"],
            "default",
            lambda o: o["metadata"].update(annotations={"rebalancer.io/evict": "false"}),
        )


CHANGES: list[Callable[[ApiServer], None]] = [cordoned, filled, scaled, exhausted, protected]


class Meanwhile(Observer):
    """Changes the cluster once, as soon as an eviction was asked for and refused."""

    def __init__(self, server: ApiServer, change: Callable[[ApiServer], None], time: FakeTime) -> None:
        self._server, self._change = server, change
        self.done = False
        time.during = self.wait

    def wait(self, _: float) -> None:
        asked = any(a.subresource == "eviction" for a in self._server.accesses)
        if asked and not self.done:
            self.done = True
            self._change(self._server)
            real.sleep(0.3)  # the watch tells of it


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictor, "_READ_TIMEOUT", 0.3)


@pytest.mark.parametrize("change", CHANGES, ids=[c.__name__ for c in CHANGES])
@pytest.mark.parametrize("answer", [a[1] for a in ANSWERS], ids=[a[0] for a in ANSWERS])
def test_what_changes_while_an_eviction_waits_for_its_second_try_stops_it(
    answer: Action, change: Callable[[ApiServer], None]
) -> None:
    with ApiServer(objects(*CLUSTER), bookmark_every=0.1) as server:
        server.faults.add(answer, subresource="eviction", times=1)
        time = FakeTime()
        meanwhile = Meanwhile(server, change, time)
        run = Run(server, time=time)
    assert meanwhile.done
    assert run.evictions() == 0
    assert {o.status for o in run.report.outcomes} <= {MoveStatus.SKIPPED, MoveStatus.FAILED}


@pytest.mark.parametrize("answer", [a[1] for a in ANSWERS], ids=[a[0] for a in ANSWERS])
def test_a_second_try_in_an_unchanged_cluster_goes_out_after_a_whole_look(answer: Action) -> None:
    with ApiServer(objects(*CLUSTER), bookmark_every=0.1) as server:
        server.faults.add(answer, subresource="eviction", times=1)
        run = Run(server)
    assert run.evictions() == 1
    assert run.zones() == [2, 2]
    for asked in looks(run):
        assert {"pods", "replicasets", "deployments", "poddisruptionbudgets"} <= asked


def looks(run: Run) -> Iterator[set[str]]:
    """What was read since the eviction request before, for each of them."""
    asked: set[str] = set()
    for access in run.server.accesses:
        if access.subresource == "eviction":
            yield asked
            asked = set()
        elif access.verb in ("get", "list"):
            asked.add(access.resource)


@pytest.fixture
def ages(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds from the beginning of the look to each request that can evict, by the clock on the wall."""
    began, found = [0.0], list[float]()
    ask, post = Permission._ask, LiveEvictor._post

    def asked(self: Permission) -> Reason | None:
        began[0] = real.monotonic()
        return ask(self)

    def posted(self: LiveEvictor, pod: Pod, reason: str) -> int:
        found.append(real.monotonic() - began[0])
        return post(self, pod, reason)

    monkeypatch.setattr(Permission, "_ask", asked)
    monkeypatch.setattr(LiveEvictor, "_post", posted)
    return found


SLOW: list[tuple[str, dict[str, Any], int]] = [
    ("at once", {"times": 0}, 1),
    ("slowly, once", {"times": 1}, 1),
    ("slowly, always", {}, 0),
]


@pytest.mark.parametrize(("how", "evictions"), [s[1:] for s in SLOW], ids=[s[0] for s in SLOW])
def test_no_request_is_sent_more_than_a_second_after_the_look_began(
    how: dict[str, Any], evictions: int, ages: list[float], tmp_path: Path
) -> None:
    with Cluster(objects(*CLUSTER), ready_after=0.05, grace=0.05) as cluster:
        cluster.settle()
        cluster.faults.add(Delay(1.1), verb="get", resource="deployments", **how)
        connection = Connection(ClusterOptions(kubeconfig=str(cluster.kubeconfig(tmp_path / "config"))))
        options = LiveOptions(execute=True, settle=SettleLimits(poll=0.05), limits=CycleLimits(max_replans=0))
        report = run_once(connection, options, clock=SystemClock())
        connection.close()
    assert report.evicted == len(ages) == evictions
    assert all(age < 1.0 for age in ages)
    if not evictions:
        assert "4 times in a row" in report.message


def test_what_is_read_for_a_look_is_read_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read takes 0.8 s, and a look no more than twice that: pod, owner, namespace and brake."""
    monkeypatch.setattr(permission, "FRESH", 1.6)
    monkeypatch.setattr(gates, "FRESH", 1.6)
    with Cluster(objects(*CLUSTER), ready_after=0.05, grace=0.05) as cluster:
        cluster.settle()
        cluster.faults.add(Delay(0.8), verb="get")
        connection = Connection(ClusterOptions(kubeconfig=str(cluster.kubeconfig(tmp_path / "config"))))
        options = LiveOptions(
            execute=True,
            brake=BRAKE,
            settle=SettleLimits(poll=0.05),
            limits=CycleLimits(max_replans=0),
        )
        report = run_once(connection, options, clock=SystemClock())
        connection.close()
    assert report.evicted == 1, report.message
