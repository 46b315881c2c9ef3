"""What is not known counts against evicting."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from rebalancer.engine.config import DEFAULT_CONFIG
from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.node import Node, NodeClaim, NodePool
from rebalancer.model.pod import Pod, Symptoms
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Identity, Object, Snapshot
from rebalancer.model.storage import VolumeAttachment
from rebalancer.model.workload import UNASKED, Namespace, Service, VerticalPodAutoscaler, Workload
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.ledger import Entry, Fate
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.last_look.health import Health, displaced, fallen
from tests.support.build import NOW, ago, deployment, node, nodes, pod, snapshot
from tests.support.build.pods import PodBuilder
from tests.support.servers.api import FakeTime
from tests.unit.policy.judged import patched


class Blind(WatchCache):
    """A watch that knows nodes and pods, and has lost another kind."""

    def __init__(self, cluster: Snapshot) -> None:
        self._cluster = cluster

    def nodes(self) -> tuple[Node, ...]:
        return self._cluster.nodes

    def pods(self) -> Mapping[Identity, Pod]:
        return {(p.namespace, p.name): p for p in self._cluster.pods}

    def namespaces(self) -> tuple[Namespace, ...]:
        return ()

    def classes(self) -> list[Object]:
        return []

    def node_claims(self) -> tuple[NodeClaim, ...]:
        return self._cluster.node_claims

    def attachments(self) -> tuple[VolumeAttachment, ...]:
        return self._cluster.attachments

    def node_pools(self) -> tuple[NodePool, ...]:
        return self._cluster.node_pools

    def vertical_autoscalers(self, namespace: str) -> tuple[VerticalPodAutoscaler, ...]:
        return tuple(v for v in self._cluster.vertical_autoscalers if v.metadata.namespace == namespace)

    def workloads(self, namespace: str = "") -> tuple[Workload, ...]:
        return tuple(w for w in self._cluster.workloads if namespace in ("", w.namespace))

    def services(self, namespace: str) -> tuple[Service, ...]:
        return tuple(s for s in self._cluster.services if s.metadata.namespace == namespace)

    def snapshot(self, now: float) -> Snapshot:  # noqa: ARG002
        raise CacheNotReadyError("ReplicaSet: nothing heard for 300 s", kinds=("ReplicaSet",))


def gate(*things: object) -> Health:
    time = FakeTime()
    memory = Memory(time, HistoryRules(), limits=CircuitLimits(displaced=Limit(number=0)))
    return Health(Blind(snapshot(*things)), memory, time, DEFAULT_CONFIG)


def test_pending_pods_of_which_it_cannot_be_said_whose_doing_they_are_stop_evictions() -> None:
    reason = gate(*nodes(a=1, b=1), pod("x")).why_not()
    assert reason is not None
    assert reason.code is ReasonCode.NOT_CURRENT
    assert "ReplicaSet: nothing heard for 300 s" in reason.message


def test_without_pending_pods_nothing_else_needs_to_be_known() -> None:
    assert gate(*nodes(a=1, b=1)).why_not() is None


def test_what_comes_for_a_pod_that_went_with_its_node_is_not_late() -> None:
    [starts] = snapshot(nodes(a=1), pod("web-aa-2").on("a-0").unready()).pods
    made = Entry(
        at=100.0, cycle="c", namespace="default", pod="web-aa-0", uid="u", owner="ReplicaSet/default/web-aa",
        node="a", predicted="b", fate=Fate.DONE, replacement="default/web-aa-1",
    )  # fmt: skip
    pods: dict[Identity, Pod] = {("default", starts.name): starts}
    assert fallen([made], pods, 200.0, 200.0)[0]
    assert fallen([replace(made, removed=150.0)], pods, 200.0, 200.0) == ({}, [])
    undone = replace(made, fate=Fate.UNDONE)
    assert fallen([undone], pods, 200.0, 200.0) == ({}, []), "it went as we gave a label back"


def moved(pod: str, owner: str, replacement: str) -> Entry:
    return Entry(
        at=100.0, cycle="c", namespace="default", pod=pod, uid="u", owner=owner,
        node="a", predicted="b", fate=Fate.DONE, replacement=f"default/{replacement}",
    )  # fmt: skip


def test_a_pod_of_a_stateful_set_that_ends_in_time_is_not_late() -> None:
    """A rolling restart a day after moves is none of their doing; a kubelet that does not answer is."""
    [ends] = snapshot(nodes(a=1), pod("db-0").on("a-0")).pods
    made = moved("db-0", "StatefulSet/default/db", "db-0")
    pods: dict[Identity, Pod] = {("default", "db-0"): replace(ends, deleted=230.0)}
    assert fallen([made], pods, 200.0, 200.0) == ({}, [])
    assert fallen([made], pods, 231.0, 231.0)[0] == {
        "default/db-0": "it was Ready, and none of its name comes before it is gone"
    }


def test_a_restart_hours_after_the_move_says_nothing_of_where_it_went() -> None:
    [there] = snapshot(nodes(a=1), pod("web-aa-1").on("a-0")).pods
    made = moved("web-aa-0", "ReplicaSet/default/web-aa", "web-aa-1")
    for now, late in ((3600.0, 1), (3800.0, 0)):
        crashed = replace(there, symptoms=Symptoms(crashed=now - 5))
        pods: dict[Identity, Pod] = {("default", "web-aa-1"): crashed}
        assert len(fallen([made], pods, now, now)[0]) == late


def waits() -> PodBuilder:
    return pod("shop").requests(cpu="1")


WAITING: dict[str, tuple[PodBuilder, bool]] = {
    "it takes the room": (pod("shop").requests(cpu="3"), True),
    "there was no room before": (pod("shop").requests(cpu="5"), False),
    "there is room still, and a spread that does not count it keeps the pod out": (
        waits().spread("zone", selector={"owner": "shop"}), False,
    ),
    "there is room still, and a spread that counts it keeps the pod out": (
        waits().spread("zone", selector={"owner": "web"}), True,
    ),
    "there is room still, and anti-affinity keeps it off": (
        waits().away_from("zone", owner="web"), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("shop", "ours"), WAITING.values(), ids=WAITING)
def test_a_pod_waits_because_of_a_replacement_where(shop: PodBuilder, ours: bool) -> None:
    came = pod("web-aa-1").labels(owner="web").requests(cpu="2").on("b-0")
    s = snapshot(node("a-0").zone("a").cpu(1), node("b-0").zone("b").cpu(4), came, shop)
    made = [moved("web-aa-0", "ReplicaSet/default/web-aa", "web-aa-1")]
    assert displaced(s, made, None) == ({"default/shop"} if ours else set())


@pytest.mark.parametrize(("fell", "asked"), [(2, False), (3, True)])
def test_as_many_as_may_be_late_are_looked_at(fell: int, asked: bool) -> None:
    time = FakeTime()
    memory = Memory(time, HistoryRules(), limits=CircuitLimits(late=3))
    made = tuple(
        Entry(
            at=time.now(), cycle="c", namespace="default", pod=f"old-{i}", uid=f"u{i}", node="a",
            owner=f"ReplicaSet/default/w{i}", predicted="b", fate=Fate.DONE, replacement=f"default/w{i}",
        )
        for i in range(fell)
    )  # fmt: skip
    memory.ledger = replace(memory.ledger, entries=made)
    there = snapshot(nodes(a=1), *(pod(f"w{i}").on("a-0").unready() for i in range(fell)))
    reason = Health(Blind(there), memory, time, DEFAULT_CONFIG).why_not()
    assert (reason is not None and reason.code is ReasonCode.NOT_CURRENT) is asked


def test_where_a_webhook_is_asked_that_nobody_reaches_pods_stay_and_elsewhere_they_go() -> None:
    """Two in one namespace have said it for two days; in another a pod was made today."""
    says = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": UNASKED[0]}
    status = {"conditions": [says | {"lastTransitionTime": ago(172_800)}]}
    two = patched(
        "Deployment", {"status": status}, *(deployment(n, namespace="mesh").placed({"a-0": 1}) for n in "xy")
    )
    made = patched(
        "Pod", {"metadata": {"creationTimestamp": ago(86_400)}}, deployment("web").placed({"a-0": 1})
    )
    for more, whole in ((made, False), ([], True)):
        there = snapshot(nodes(a=1), two, more, deployment("quiet", namespace="quiet").placed({"a-0": 1}))
        health = Health(Blind(there), None, FakeTime(NOW), DEFAULT_CONFIG)
        assert (health.why_not() is not None) is whole
        stays = {p.namespace for p in there.pods if health.silent(p) is not None}
        assert stays == {p.namespace for p in there.pods} - ({"default"} if more else set())
