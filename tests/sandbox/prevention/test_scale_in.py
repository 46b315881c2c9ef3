"""Scale-ins over HTTP: what is written, at which pace, over whom, and that it goes without a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.brakes import Brakes, set_brake
from rebalancer.kube.connection import Connection
from rebalancer.kube.ledger_store import Place
from rebalancer.kube.patches import CostWriter
from rebalancer.kube.reading import read_snapshot
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CostResult, SteeringReport
from rebalancer.prevention.scale_in import ScaleInOptions
from rebalancer.runtime.commands.fix import take_back
from rebalancer.runtime.cycle.gates import PauseCheck
from rebalancer.runtime.last_look.look import pod_refuses
from rebalancer.runtime.prevention import REST, ScaleInSteering, SteeringOptions, SteeringThread, Unpaused
from tests.support.build import nodes, objects, replica_set
from tests.support.judge.scale_in import COST
from tests.support.processes.command import call
from tests.support.processes.daemon_process import daemon
from tests.support.sandbox import ApiServer, Cluster, Reply
from tests.support.scheduler.plain import Json
from tests.support.servers.api import FakeTime, connected
from tests.support.waiting import until

ALL = SteeringOptions(scope=ScaleInOptions(mode="all"))
CROWDED = (nodes(a=1, b=1, c=1), replica_set("web").spread("zone").placed({"a-0": 3, "b-0": 2, "c-0": 1}))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*CROWDED)) as s:
        yield s


def costs(server: ApiServer | Cluster) -> dict[str, str]:
    """Pod → its cost, as the API server has it."""
    pods = server.store.list("Pod", "default")
    return {
        p["metadata"]["name"]: p["metadata"]["annotations"][COST]
        for p in pods
        if COST in (p["metadata"].get("annotations") or {})
    }


def seen(connection: Connection, time: FakeTime) -> Snapshot:
    return read_snapshot(connection, now=time.now, wait=time.wait)


class Told:
    def __init__(self) -> None:
        self.reports: list[SteeringReport] = []

    def __call__(self, report: SteeringReport) -> None:
        self.reports.append(report)


def steering(
    connection: Connection, time: FakeTime, told: Told | None = None, **more: Any
) -> ScaleInSteering:
    return ScaleInSteering(CostWriter(connection), time, told or Told(), **more)


def annotated(server: ApiServer, pod: str, manager: str = "kubectl-annotate", **changes: str | None) -> None:
    """As `kubectl annotate` does it."""
    made = server.store.get("Pod", pod, "default")
    annotations = dict(made["metadata"].get("annotations") or {})
    for key, value in changes.items():
        name = COST if key == "cost" else key
        if value is None:
            annotations.pop(name, None)
        else:
            annotations[name] = value
    changed: Json = {**made, "metadata": {**made["metadata"], "annotations": annotations}}
    server.store.update(changed, manager=manager)


def test_costs_are_written_once_five_a_second(server: ApiServer) -> None:
    time, told = FakeTime(), Told()
    with connected(server) as connection:
        steered = steering(connection, time, told)
        began = time.monotonic()
        steered.look(seen(connection, time), ALL)
        assert sorted(costs(server).values()) == ["-1", "-1", "-2"]
        assert time.monotonic() - began == pytest.approx(3 / 5)
        assert told.reports[0].count(CostResult.WRITTEN) == 3
        patches = [a for a in server.accesses if a.verb == "patch"]
        time.wait(2 * REST)
        steered.look(seen(connection, time), ALL)
        assert [a for a in server.accesses if a.verb == "patch"] == patches, "nothing has changed since"
        assert len(told.reports) == 1


def test_an_owner_is_written_to_once_a_minute_at_most(server: ApiServer) -> None:
    time = FakeTime()
    with connected(server) as connection:
        steered = steering(connection, time)
        steered.look(seen(connection, time), ALL)
        server.store.delete("Pod", "web-00003", "default", grace=0)
        annotated(server, "web-00001", cost=None, manager="rebalancer-scale-in")
        before = costs(server)
        assert steered.look(seen(connection, time), ALL).waiting > 0
        assert costs(server) == before
        time.wait(REST)
        assert steered.look(seen(connection, time), ALL).waiting == 0
        assert costs(server) != before


def test_a_dry_run_shows_and_writes_nothing(server: ApiServer) -> None:
    time, told = FakeTime(), Told()
    with connected(server) as connection:
        dry = SteeringOptions(scope=ALL.scope, dry=True)
        steering(connection, time, told).look(seen(connection, time), dry)
    assert not costs(server)
    assert told.reports[0].count(CostResult.RECORDED) == 3


def test_who_has_set_a_cost_keeps_it(server: ApiServer) -> None:
    annotated(server, "web-00000", cost="7")
    time, told = FakeTime(), Told()
    with connected(server) as connection:
        looked = seen(connection, time)
        # Between the look and the write.
        annotated(server, "web-00001", cost="9")
        steering(connection, time, told).look(looked, ALL)
        found = costs(server)
        assert (found["web-00000"], found["web-00001"]) == ("7", "9")
        assert told.reports[0].steering.foreign == 1
        assert told.reports[0].count(CostResult.CHANGED) == 1
        assert take_back(connection, "", time, lambda _: None)[1] == 0
        assert costs(server) == {"web-00000": "7", "web-00001": "9"}
        steered = steering(connection, time)
        steered.look(seen(connection, time), ALL)
        annotated(server, "web-00002", cost="3")
        assert {p.name: p.own_cost for p in seen(connection, time).pods}["web-00002"] is None


def test_off_leaves_no_trace(server: ApiServer) -> None:
    before = [p["metadata"] for p in server.store.list("Pod", "default")]
    time = FakeTime()
    with connected(server) as connection:
        steering(connection, time).look(seen(connection, time), ALL)
        assert any("managedFields" in p["metadata"] for p in server.store.list("Pod", "default"))
        assert take_back(connection, "", time, lambda _: None) == (3, 0)

    def bare(metadata: Json) -> Json:
        return {k: v for k, v in metadata.items() if k != "resourceVersion" and v != {}}

    after = [p["metadata"] for p in server.store.list("Pod", "default")]
    assert [bare(m) for m in after] == [bare(m) for m in before]


def test_without_the_right_it_says_so_and_does_not_insist(server: ApiServer) -> None:
    server.faults.add(Reply(403), verb="patch")
    time, told = FakeTime(), Told()
    with connected(server) as connection:
        steered = steering(connection, time, told)
        for _ in range(3):
            steered.look(seen(connection, time), ALL)
        assert sum(a.verb == "patch" for a in server.accesses) == 1
        assert "patch" in told.reports[0].outcomes[0].message
        time.wait(REST)
        steered.look(seen(connection, time), ALL)
        assert sum(a.verb == "patch" for a in server.accesses) == 2


def test_a_pause_holds_the_costs_and_its_end_lets_them_go(server: ApiServer) -> None:
    time, brake = FakeTime(), Place("default", "rebalancer-brake")
    with connected(server) as connection:
        may = Unpaused(PauseCheck(Brakes(connection, wait=time.wait), brake, time), time, lambda: True)
        set_brake(connection, brake, "true")
        steered = steering(connection, time, may=may)
        assert steered.look(seen(connection, time), ALL).waiting == 3
        assert not costs(server)
        set_brake(connection, brake, None)
        time.wait(REST)
        steered.look(seen(connection, time), ALL)
        assert len(costs(server)) == 3


def test_without_the_right_to_read_the_brake_nothing_is_held(server: ApiServer) -> None:
    time, brake = FakeTime(), Place("default", "rebalancer-brake")
    server.faults.add(Reply(403), path="rebalancer-brake")
    with connected(server) as connection:
        may = Unpaused(PauseCheck(Brakes(connection, wait=time.wait), brake, time), time, lambda: True)
        steering(connection, time, may=may).look(seen(connection, time), ALL)
    assert len(costs(server)) == 3


def test_who_does_not_lead_writes_nothing(server: ApiServer) -> None:
    time = FakeTime()
    with connected(server) as connection:
        steering(connection, time, may=lambda: False).look(seen(connection, time), ALL)
    assert not costs(server)


def test_our_cost_does_not_stop_an_eviction_and_that_of_somebody_else_does(server: ApiServer) -> None:
    time = FakeTime()
    with connected(server) as connection:
        planned = {p.name: p for p in seen(connection, time).pods}
        steering(connection, time).look(seen(connection, time), ALL)
        annotated(server, "web-00004", cost="5")
        now = {p.name: p for p in seen(connection, time).pods}
    steered = next(n for n, p in now.items() if p.own_cost is not None)
    assert pod_refuses(planned[steered], now[steered]) is None
    assert pod_refuses(planned["web-00004"], now["web-00004"]) is not None


def test_a_steered_replica_set_shrinks_from_the_fullest_zone() -> None:
    """Unsteered the youngest goes, wherever it is: the pods of zone a are the oldest."""
    with Cluster(objects(*CROWDED), ready_after=0.02, grace=0.02) as cluster:
        cluster.settle()
        time = FakeTime()
        with connected(cluster.server) as connection:
            steering(connection, time).look(seen(connection, time), ALL)
        for left, spread in ((5, [2, 2, 1]), (3, [1, 1, 1]), (2, [1, 1])):
            cluster.scale("default", "web", left)
            cluster.settle()
            there = Counter(p["spec"]["nodeName"] for p in cluster.store.list("Pod", "default"))
            assert sorted(there.values(), reverse=True) == spread


def test_the_daemon_follows_between_cycles(server: ApiServer) -> None:
    time = FakeTime()
    with connected(server) as connection:
        cache = WatchCache(connection).start()
        try:
            until(lambda: cache.not_ready() is None)
            steered = steering(connection, time)
            thread = SteeringThread(cache, steered, lambda: ALL, lambda: True, time)
            thread.look()
            assert len(costs(server)) == 3
            server.store.delete("Pod", "web-00005", "default", grace=0)
            until(lambda: cache.pod("default", "web-00005") is None)
            until(
                lambda: all(p.own_cost is not None for p in cache.snapshot(0).pods if p.name in costs(server))
            )
            requests = len(server.accesses)
            thread.look()
            thread.look()
            assert len(server.accesses) == requests, "one zone is empty now, and the order is the same"
        finally:
            cache.stop()


def test_once_and_off_as_commands(server: ApiServer, tmp_path: Path) -> None:
    config = tmp_path / "rebalancer.yaml"
    config.write_text("prevention: {scaleIn: all}\n")
    dry = call(server, tmp_path, "once", "--config", str(config), "--dry-run")
    assert "would-write: default/web-00000: deletion cost none -> -2" in dry.stdout, dry.stderr
    assert not costs(server)
    shown = call(server, tmp_path, "prevent", "show", "--all")
    assert "1 workload steered, 3 deletion costs to write" in shown.stdout, shown.stderr
    done = call(server, tmp_path, "once", "--config", str(config))
    assert "written: default/web-00000: deletion cost none -> -2" in done.stdout, done.stderr
    assert len(costs(server)) == 3
    over = call(server, tmp_path, "prevent", "off")
    assert over.stdout == "removed from 3 pods\n", over.stderr
    assert not costs(server)


def test_run_steers_without_evicting(server: ApiServer, tmp_path: Path) -> None:
    settings = "prevention: {scaleIn: all}\nschedule: {interval: 1s}\n"
    with daemon(server, tmp_path, settings) as d:
        until(lambda: len(costs(server)) == 3)
        assert d.end() == 0
    assert not [a for a in server.accesses if a.subresource == "eviction"]
