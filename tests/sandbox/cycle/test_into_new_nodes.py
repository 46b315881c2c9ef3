"""A pod that is replaced first waits for a node that Karpenter adds, over HTTP, with controllers; a thread of
the test plays Karpenter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End, Fate
from rebalancer.planner import PlanOptions
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import PolicyOptions
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.configured import LiveOptions
from tests.sandbox.cycle.test_release import (
    Ready,
    cycle,
    marks,
    names,
    once_when,
    pods,
    process,
    released,
    zones,
)
from tests.support.build import deployment, node, node_claim, node_pool, objects, pdb
from tests.support.sandbox import Cluster, bind
from tests.support.sandbox.custom import ADD_ONS, served
from tests.support.scheduler.plain import Json

pytestmark = pytest.mark.usefixtures("patient")

LIMITS = SettleLimits(ready=8.0, pending=0.2, budgets=5.0, serving=0.1, poll=0.02)
IN_VAIN = replace(LIMITS, ready=0.5)
TIGHT = (node("a-0").zone("a").cpu(16), node("b-0").zone("b").cpu(16), node("c-0").zone("c").cpu(1))
FULL = pdb("web", {"owner": "web"}, max_unavailable=0)
POOL = node_pool("default", zones=["c"], cpu="100")


def web() -> Any:
    return deployment("web").requests(cpu=2).spread("zone", 1).placed({"a-0": 3, "b-0": 3})


def options(settle: SettleLimits = LIMITS, *, on: bool = True, method: Any = "auto") -> LiveOptions:
    policy = PolicyOptions(method=method, into_new_nodes=on)
    return LiveOptions(execute=True, settle=settle, planning=PlanOptions(policy=policy))


def unplaced(cluster: Cluster) -> list[Json]:
    return [p for p in pods(cluster) if not p["spec"].get("nodeName")]


def rejected(pod: Json) -> bool:
    """Whether the scheduler has found no node for it."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)


@contextmanager
def karpenter(cluster: Cluster, zone: str = "c", delay: float = 0.1) -> Iterator[list[str]]:
    """For a pod that is Pending, after a delay, a claim and its node. The nodes that it has added."""
    added: list[str] = []
    end = threading.Event()

    def run() -> None:
        while not end.wait(0.02):
            if not any(map(rejected, unplaced(cluster))) or end.wait(delay):
                continue
            name = f"karpenter-{len(added)}"
            new = node(name).zone(zone).label("karpenter.sh/nodepool", "default")
            new.label("karpenter.sh/initialized", "true")
            for made in objects(node_claim(f"default-{len(added)}", name), new):
                for given in ("resourceVersion", "uid"):
                    made["metadata"].pop(given, None)
                cluster.store.create(made)
            added.append(name)
            while unplaced(cluster) and not end.wait(0.02):
                pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield added
    finally:
        end.set()
        thread.join()


@contextmanager
def tight(*more: Any, ready_after: float = 0.1) -> Iterator[Cluster]:
    with (
        served(*ADD_ONS),
        Cluster(objects(*TIGHT, web(), FULL, *(more or (POOL,))), ready_after=ready_after) as cluster,
    ):
        cluster.settle()
        yield cluster


def test_a_zone_without_room_is_mended_and_no_pod_less_is_ready(tmp_path: Path) -> None:
    memory = Memory(SystemClock(), HistoryRules())
    with tight() as cluster, karpenter(cluster) as added, Ready(cluster) as ready:
        report, story = cycle(cluster, tmp_path, options(), memory=memory)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.DONE, Fate.DONE], story.told
        assert (report.end, zones(cluster)[:2], len(added)) == (End.COMPLETE, [2, 2], 1)
        assert (ready.fewest, unplaced(cluster), marks(cluster)) == (6, [], [])
        first, second = report.outcomes
        assert (first.move.awaits, second.move.awaits) == (("topology.kubernetes.io/zone=c",), ())
        assert (first.node, first.expected, first.prediction) == (added[0], True, "hit")
        entry = memory.ledger.entries[0]
        assert (entry.predicted, entry.into) == ("new node of NodePool default in c", first.move.awaits)


def test_where_no_node_comes_all_is_as_it_was_and_the_two_zones_wait(tmp_path: Path) -> None:
    memory = Memory(SystemClock(), HistoryRules())
    with tight() as cluster, Ready(cluster) as ready:
        before = names(cluster)
        report, _ = cycle(cluster, tmp_path, options(IN_VAIN), memory=memory)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.UNDONE]
        assert (names(cluster), ready.fewest, unplaced(cluster), marks(cluster)) == (before, 6, [], [])
        assert report.reason is not None
        assert (report.end, report.reason.code) == (End.WAITING, ReasonCode.NO_NODE_CAME)
        assert "zone=a to topology.kubernetes.io/zone=c has waited once" in report.message
        entry = memory.ledger.entries[0]
        assert memory.ledger.totals.failed == 0
        assert report.reason.numbers["until"] == pytest.approx(entry.shrank[0] + 600, abs=2)
        with karpenter(cluster) as added:
            report, _ = cycle(cluster, tmp_path, options(), memory=memory)
        assert (report.end, report.outcomes, added) == (End.WAITING, (), [])


def braked(cluster: Cluster, folder: Path) -> Fate:
    on = True

    def off() -> None:
        nonlocal on
        on = False

    with once_when(lambda: unplaced(cluster), off):
        memory = Memory(SystemClock(), HistoryRules())
        report, _ = cycle(
            cluster, folder, options(), memory=memory, newest=lambda: replace(options(), execute=on)
        )
    assert not any(e.shrank for e in memory.ledger.entries), "the autoscaler is not to blame"
    return report.outcomes[0].status


def killed(cluster: Cluster, folder: Path) -> None:
    process(cluster, folder, 1, dies_at=4, sent=True, options=options())
    assert len(released(cluster)) == 1
    process(cluster, folder, 2, fresh=True)


def elsewhere(cluster: Cluster, folder: Path) -> Fate:
    """A node of a zone that the pool does not name; the pod is bound there by hand."""

    def bound() -> None:
        (new,) = unplaced(cluster)
        bind(cluster.store, "default", new["metadata"]["name"], "b-0")

    with once_when(lambda: unplaced(cluster), bound):
        report, _ = cycle(cluster, folder, options())
    assert "which was not planned" in report.outcomes[0].message
    return report.outcomes[0].status


def preempting(cluster: Cluster, folder: Path) -> Fate:
    """Pods of a class that has come could be preempted by the one that waits."""
    low = {"kind": "PriorityClass", "metadata": {"name": "low"}, "value": -10}

    def come() -> None:
        cluster.store.create({"apiVersion": "scheduling.k8s.io/v1", **low})

    with once_when(lambda: unplaced(cluster), come):
        report, _ = cycle(cluster, folder, options())
    assert "in time" not in report.outcomes[0].message
    return report.outcomes[0].status


ENDS: dict[str, Callable[[Cluster, Path], Fate | None]] = {
    "a brake": braked,
    "the end of the process": killed,
    "a node that does not help": elsewhere,
    "a lower PriorityClass": preempting,
}


@pytest.mark.parametrize("happens", ENDS.values(), ids=ENDS)
def test_what_comes_between_leaves_all_as_it_was(
    happens: Callable[[Cluster, Path], Fate | None], tmp_path: Path
) -> None:
    with tight() as cluster:
        before = names(cluster)
        with Ready(cluster) as ready:
            assert happens(cluster, tmp_path) in (Fate.UNDONE, None)
        cluster.settle()
        assert (names(cluster), ready.fewest, unplaced(cluster), marks(cluster)) == (before, 6, [], [])


def test_who_follows_on_a_killed_process_finishes_it_when_the_node_has_come(tmp_path: Path) -> None:
    with tight() as cluster:
        with Ready(cluster) as ready, karpenter(cluster):
            process(cluster, tmp_path, 1, dies_at=4, sent=True, options=options())
            process(cluster, tmp_path, 2, fresh=True)
        cluster.settle()
        assert (zones(cluster)[:2], ready.fewest, marks(cluster)) == ([2, 3], 6, [])


@pytest.mark.parametrize(
    ("planned", "newest"),
    [({"on": False}, {"on": False}), ({"method": "evict"}, {"method": "evict"}), ({}, {"on": False})],
    ids=["off", "evict", "off since the plan"],
)
def test_otherwise_nothing_is_sent(planned: dict[str, Any], newest: dict[str, Any], tmp_path: Path) -> None:
    with tight() as cluster:
        report, _ = cycle(cluster, tmp_path, options(**planned), newest=lambda: options(**newest))
        assert report.evicted == 0
        assert not any(a.verb == "patch" and a.resource == "pods" for a in cluster.server.accesses)
