"""Scale-ins over HTTP: what is written, at which pace, over whom, and that it goes without a trace."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from rebalancer.kube.config_maps import Brakes, Place, set_brake
from rebalancer.kube.connection import Connection
from rebalancer.kube.patches import CostWriter
from rebalancer.kube.reading import read_snapshot
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CostOutcome, CostResult, Observers, SteeringReport
from rebalancer.prevention.scale_in import ScaleInOptions
from rebalancer.prevention.steering import steer
from rebalancer.report.words import steering_lines
from rebalancer.runtime.commands.fix import take_back
from rebalancer.runtime.cycle.gates import PauseCheck
from rebalancer.runtime.daemon.service import Reloader, Service
from rebalancer.runtime.last_look.look import pod_refuses
from rebalancer.runtime.live.places import places_of
from rebalancer.runtime.prevention import (
    BARRED,
    ScaleInSteering,
    SteeringOptions,
    SteeringThread,
    Unpaused,
)
from rebalancer.settings import Settings, load_settings
from tests.support.build import nodes, objects, replica_set
from tests.support.judge.scale_in import COST, NOON, Rule, left_after
from tests.support.processes.command import call
from tests.support.processes.daemon_process import daemon, get
from tests.support.sandbox import ApiServer, Cluster, Reply
from tests.support.sandbox.authority import Access
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


def test_costs_are_written_once(server: ApiServer) -> None:
    time, told = FakeTime(), Told()
    with connected(server) as connection:
        steered = steering(connection, time, told)
        steered.look(seen(connection, time), ALL)
        assert sorted(costs(server).values()) == ["-1", "-1", "-2"]
        assert told.reports[0].count(CostResult.WRITTEN) == 3
        patches = [a for a in server.accesses if a.verb == "patch"]
        time.wait(2 * BARRED)
        steered.look(seen(connection, time), ALL)
        assert [a for a in server.accesses if a.verb == "patch"] == patches, "nothing has changed since"
        assert len(told.reports) == 1


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
        time.wait(BARRED)
        steered.look(seen(connection, time), ALL)
        assert sum(a.verb == "patch" for a in server.accesses) == 2


def test_who_is_refused_does_not_keep_others_waiting() -> None:
    """A policy, or a Role that is missing in one namespace: all of its workloads, and one of another."""

    def web(namespace: str, *names: str) -> list[Any]:
        shape = {"a-0": 3, "b-0": 2, "c-0": 1}
        return [replica_set(n, namespace=namespace).spread("zone").placed(shape) for n in names]

    alpha = web("alpha", "u", "v", "w", "x", "y")
    time, told = FakeTime(), Told()
    with (
        ApiServer(objects(nodes(a=1, b=1, c=1), *alpha, *web("beta", "a", "b", "c"))) as server,
        connected(server) as connection,
    ):

        def left() -> dict[str, int]:
            pods = seen(connection, time).pods
            return dict(Counter(f"{p.namespace}/{p.owner.name}" for p in pods if p.own_cost and p.owner))

        server.faults.add(Reply(403), verb="patch", path="/namespaces/alpha/")
        server.faults.add(Reply(403), verb="patch", path="/namespaces/beta/pods/a-")
        steered = steering(connection, time, told)
        for _ in range(30):
            steered.look(seen(connection, time), ALL)
            time.wait(10)
        assert left() == {"beta/b": 3, "beta/c": 3}
        assert len([a for a in patched(server) if a.code == 403]) <= 3 * 6, "three a minute"
        assert {a.name[0] for a in patched(server)} >= {*"uvwxy"}, "each has its turn"
        server.faults.clear()
        for _ in range(3):
            time.wait(BARRED)
            steered.look(seen(connection, time), ALL)
        assert len(left()) == 8
        server.faults.add(Reply(403), verb="patch", path="/namespaces/alpha/")
        outcomes: list[CostOutcome] = []
        assert take_back(connection, "", time, outcomes.append) == (9, 15)
        assert {f"{o.change.pod.namespace} {o.result.value}" for o in outcomes} == {
            "alpha failed",
            "beta written",
        }
        assert len(outcomes) == 9 + 3


def test_a_pause_holds_the_costs_and_its_end_lets_them_go(server: ApiServer) -> None:
    time, brake = FakeTime(), Place("default", "rebalancer-brake")
    with connected(server) as connection:
        may = Unpaused(PauseCheck(Brakes(connection, wait=time.wait), brake, time), time, lambda: True)
        set_brake(connection, brake, "true")
        steered = steering(connection, time, may=may)
        assert steered.look(seen(connection, time), ALL).waiting == 3
        assert not costs(server)
        set_brake(connection, brake, None)
        time.wait(BARRED)
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


@pytest.mark.parametrize(
    "then",
    ["{scaleIn: 'off'}", "{scaleIn: all, dryRun: true}", "{scaleIn: all}\nscope: {mode: nonsense}"],
    ids=["off", "dry run", "not usable"],
)
def test_what_became_stricter_binds_in_the_middle_of_a_cycle(
    then: str, server: ApiServer, tmp_path: Path
) -> None:
    """Only between two cycles does the daemon take settings over: here, never."""
    file, stop = tmp_path / "settings.yaml", threading.Event()

    def load() -> Settings:
        return load_settings(file, env={})

    alone = "leaderElection: {enabled: false}\nprevention: "
    file.write_text(f"{alone}{{scaleIn: all}}")
    with connected(server) as connection:
        places = places_of(load(), connection, wait=stop.wait)
        reloader = Reloader(load(), load, file=file, observer=Observers())
        service = Service(connection, reloader, places=places, stop=stop, observers=[])
        service.cache.start()
        try:
            until(lambda: service.cache.not_ready() is None)
            service.steering.look()
            assert len(costs(server)) == 3
            file.write_text(f"{alone}{then}")
            take_back(connection, "", FakeTime(), lambda _: None)
            assert not costs(server)
            until(lambda: all(p.own_cost is None for p in service.cache.snapshot(0).pods))
            sleep(1.1)  # it looks once a second
            service.steering.look()
            assert not costs(server)
        finally:
            service.cache.stop()


# -- whose namespaces

SPACES = ("shop", "other")


def spaces(**on_other: dict[str, str]) -> list[Json]:
    """Two namespaces with three costs to write in each; shop is of the team shop. `on_other`: metadata."""
    made = objects(
        nodes(a=1, b=1, c=1),
        *(
            replica_set("web", namespace=n).spread("zone").placed({"a-0": 3, "b-0": 2, "c-0": 1})
            for n in SPACES
        ),
    )
    said: dict[str, Json] = {"shop": {"labels": {"team": "shop"}}, "other": on_other}
    made = [o for o in made if o["kind"] != "Namespace"]
    return made + [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n, **said[n]}} for n in SPACES
    ]


def with_costs_in(server: ApiServer) -> list[str]:
    """The namespace of each pod that has a cost."""
    return sorted(
        n
        for n in SPACES
        for p in server.store.list("Pod", n)
        if COST in (p["metadata"].get("annotations") or {})
    )


def test_a_namespace_that_the_selector_of_the_scope_leaves_out_is_not_touched(tmp_path: Path) -> None:
    config = tmp_path / "rebalancer.yaml"
    selector = "scope: {namespaceSelector: {matchLabels: {team: shop}}}\n"
    with ApiServer(spaces(labels={"team": "x"})) as server:
        config.write_text("prevention: {scaleIn: all}\n" + selector)
        assert call(server, tmp_path, "once", "--config", str(config)).returncode == 0
        assert with_costs_in(server) == ["shop"] * 3
        config.write_text("prevention: {scaleIn: all}\n")
        assert call(server, tmp_path, "once", "--config", str(config)).returncode == 0
        assert with_costs_in(server) == ["other"] * 3 + ["shop"] * 3
        config.write_text("prevention: {scaleIn: annotated}\n" + selector)
        assert call(server, tmp_path, "once", "--config", str(config)).returncode == 0
        assert with_costs_in(server) == ["other"] * 3, "taken back in its own namespaces only"


@pytest.mark.parametrize(("mode", "says", "before"), [("all", "off", 0), ("annotated", "spread", 3)])
def test_where_namespaces_are_hidden_nothing_is_written_and_nothing_removed(
    mode: str, says: str, before: int, tmp_path: Path
) -> None:
    config = tmp_path / "rebalancer.yaml"
    config.write_text(f"prevention: {{scaleIn: {mode}}}\n")
    with ApiServer(spaces(annotations={"rebalancer.io/scale-in": says})) as server:
        if before:
            assert call(server, tmp_path, "once", "--config", str(config)).returncode == 0
        assert with_costs_in(server) == ["other"] * before
        server.faults.add(Reply(403), verb="list", path="/api/v1/namespaces")
        done = call(server, tmp_path, "once", "--config", str(config))
        assert with_costs_in(server) == ["other"] * before
        assert "2 workloads left as they are: namespaces may not be listed" in done.stdout, done.stderr


# -- several that steer


def test_two_installations_do_not_fight(server: ApiServer) -> None:
    """One is for the whole cluster; the other for another namespace at first, then for this one, too."""
    time, told = FakeTime(), Told()

    def look(by: str, **scope: Any) -> None:
        options = SteeringOptions(scope=ScaleInOptions(by=by, **scope))
        steered = ScaleInSteering(CostWriter(connection, by), time, told)
        steered.look(seen(connection, time), options)

    with connected(server) as connection:
        look("rebalancer/brake", mode="all")
        before, patches = costs(server), sum(a.verb == "patch" for a in server.accesses)
        assert len(before) == 3
        look("shop-tools/brake", mode="all", included=("shop",))
        look("shop-tools/brake", mode="annotated")
        look("rebalancer/brake", mode="all")
        look("shop-tools/brake", mode="all")
    assert costs(server) == before
    assert sum(a.verb == "patch" for a in server.accesses) == patches
    assert told.reports[-1].steering.kept == {"rebalancer/brake": 1}
    said = "\n".join(steering_lines(told.reports[-1]))
    assert "1 workload left alone: the rebalancer with the brake rebalancer/brake steers" in said


def test_who_it_was_stands_beside_the_cost(server: ApiServer) -> None:
    time = FakeTime()
    with connected(server) as connection:
        options = SteeringOptions(scope=ScaleInOptions(mode="all", by="rebalancer/brake"))
        ScaleInSteering(CostWriter(connection, "rebalancer/brake"), time, Told()).look(
            seen(connection, time), options
        )
        assert {p.cost_by for p in seen(connection, time).pods if p.own_cost is not None} == {
            "rebalancer/brake"
        }


def test_a_run_for_one_namespace_leaves_the_others_as_they_are(server: ApiServer, tmp_path: Path) -> None:
    server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "twin"}})
    config = tmp_path / "rebalancer.yaml"
    config.write_text("prevention: {scaleIn: all}\n")
    assert call(server, tmp_path, "once", "--config", str(config)).returncode == 0
    before = costs(server)
    assert len(before) == 3
    assert call(server, tmp_path, "once", "--config", str(config), "-n", "twin").returncode == 0
    assert costs(server) == before


def test_a_fight_is_noticed_named_and_left(server: ApiServer) -> None:
    time, told = FakeTime(), Told()
    with connected(server) as connection:
        steered = steering(connection, time, told)
        for _ in range(20):
            steered.look(seen(connection, time), ALL)
            for pod in costs(server):
                annotated(server, pod, cost=None)
            time.wait(5)
        assert sum(a.verb == "patch" for a in server.accesses) == 9, "three times three"
        assert told.reports[-1].disputed == ("ReplicaSet/default/web",)
        assert told.reports[-1].waiting == 0
        time.wait(600)
        steered.look(seen(connection, time), ALL)
        assert len(costs(server)) == 3, "whoever it was may be gone by now"


def test_a_watch_that_is_late_is_no_fight() -> None:
    """A kubelet's update comes between each look and its write; the watch brings it after our own write."""
    time, told, may = FakeTime(), Told(), [True]
    with ApiServer(crowd(1)) as server, connected(server) as connection:
        steered = steering(connection, time, told, may=lambda: may[0])
        for beat in range(6):
            before = seen(connection, time)
            for pod in before.pods:
                annotated(server, pod.name, heartbeat=str(beat))
            between = seen(connection, time)
            may[0] = True
            steered.look(before, ALL, lambda: True)
            may[0] = False
            for late in (before, between):
                steered.look(late, ALL)
            time.wait(1)
        assert len(costs(server)) == 6
        assert not told.reports[-1].disputed


# -- pace


def following(connection: Connection, cache: WatchCache, time: FakeTime) -> SteeringThread:
    """As the daemon has it; it costs as much CPU time as it does, by the test's clock."""
    steered = steering(connection, time, newest=lambda pod: cache.pod(pod.namespace, pod.name))
    return SteeringThread(cache, steered, lambda: ALL, lambda: True, time)


def crowd(workloads: int) -> list[Json]:
    """Balanced; the pods of zone a are the oldest, so that a scale-in by age takes zone c first."""
    made = objects(nodes(a=1, b=1, c=1))
    for number in range(workloads):
        made += objects(replica_set(f"w{number:03}").spread("zone").placed({"a-0": 7, "b-0": 7, "c-0": 6}))
    return made


def lost(server: ApiServer, shrink_by: int) -> int:
    """How many ReplicaSets would end with an excess if they shrank by so many pods now."""
    rule = Rule({"a-0": "a", "b-0": "b", "c-0": "c"}, 1)
    of: dict[str, list[Json]] = {}
    for pod in server.store.list("Pod", "default"):
        of.setdefault(pod["metadata"]["ownerReferences"][0]["name"], []).append(pod)
    return sum(bool(rule.excess(left_after(pods, len(pods) - shrink_by))) for pods in of.values())


def patched(server: ApiServer) -> list[Access]:
    return [a for a in server.accesses if a.verb == "patch"]


@pytest.mark.parametrize(
    ("workloads", "seconds", "shrink_by"),
    [(20, 10.0, 10), pytest.param(250, 60.0, 4, marks=pytest.mark.nightly)],
)
def test_a_burst_is_right_within(workloads: int, seconds: float, shrink_by: int) -> None:
    time = FakeTime()
    with ApiServer(crowd(workloads)) as server, connected(server) as connection:
        cache = WatchCache(connection).start()
        try:
            until(lambda: cache.not_ready() is None)
            thread, began, written = following(connection, cache, time), time.monotonic(), 0
            assert lost(server, 2) == workloads
            while time.monotonic() < began + seconds:
                at = time.monotonic()
                thread.look()
                count = len(patched(server))
                assert count - written <= 20 * (time.monotonic() - at) + 1
                written = count
                time.wait(0.05)
            assert [lost(server, by) for by in range(1, shrink_by + 1)] == [0] * shrink_by, written
        finally:
            cache.stop()


def test_who_would_go_wrong_next_comes_first_then_who_has_changed() -> None:
    """w000 is right as far as it is written, w001 is, too, and has a new pod; w002 would go wrong."""
    time = FakeTime(at=NOON + 3600)
    with ApiServer(crowd(3)) as server, connected(server) as connection:
        for pod in server.store.list("Pod", "default"):
            if pod["metadata"]["name"] in ("w001-00000", "w002-00000"):
                server.store.delete("Pod", pod["metadata"]["name"], "default", grace=0)
            if pod["metadata"]["name"] == "w001-00000":
                kept = {k: pod["metadata"][k] for k in ("name", "namespace", "labels", "ownerReferences")}
                server.store.create({**pod, "metadata": kept})
        looked = seen(connection, time)
        for change in (c for o in steer(looked, ALL.scope).owners for c in o.changes[:4]):
            if change.pod.name[:4] != "w002" and change.pod.name != "w001-00000":
                assert CostWriter(connection).write(change).result is CostResult.WRITTEN
        first = len(patched(server))
        steering(connection, time).look(seen(connection, time), ALL)
        order = [a.name[:4] for a in patched(server)[first:]]
    assert order[0] == "w002"
    assert order.index("w001") < order.index("w000")


def test_new_pods_come_first_and_nothing_is_written_at_rest() -> None:
    """Twenty workloads are at rest, two of them grow by ten; then an hour in which only heartbeats come."""
    time = FakeTime()
    time.during = lambda seconds: sleep(min(seconds, 1.0) / 50)
    with ApiServer(crowd(20)) as server, connected(server) as connection:
        cache = WatchCache(connection).start()
        try:
            until(lambda: cache.not_ready() is None)
            thread = following(connection, cache, time)
            for _ in range(100):
                thread.look()
                time.wait(0.5)
            assert [lost(server, by) for by in range(1, 20)] == [0] * 19
            first = len(patched(server))
            for name in ("w000", "w001"):
                for number in (0, 1, 2, 7, 8, 9, 14, 15, 16, 17):
                    old = server.store.get("Pod", f"{name}-{number:05}", "default")
                    kept = {k: old["metadata"][k] for k in ("namespace", "labels", "ownerReferences")}
                    new = {"name": f"{name}-{number:05}-new", "creationTimestamp": "2026-01-01T11:59:00Z"}
                    server.store.create({**old, "metadata": {**kept, **new, "uid": new["name"]}})
            until(lambda: len(cache.pods()) == 420)
            began = time.monotonic()
            while time.monotonic() < began + 2:
                thread.look()
                time.wait(0.05)
            assert {a.name[:4] for a in patched(server)[first:]} == {"w000", "w001"}
            assert [lost(server, by) for by in range(1, 20)] == [0] * 19
            settled = len(patched(server))
            for minute in range(60):
                annotated(server, f"w{minute % 20:03}-00003", heartbeat=str(minute))
                for _ in range(60):
                    thread.look()
                    time.at += 1
            assert len(patched(server)) == settled
        finally:
            cache.stop()


def test_a_pod_that_changes_all_the_time_is_read_again_and_no_storm_follows(server: ApiServer) -> None:
    time, told = FakeTime(), Told()
    with connected(server) as connection:
        looked = seen(connection, time)
        for pod in looked.pods:
            annotated(server, pod.name, heartbeat="1")
        began = time.monotonic()
        steering(connection, time, told).look(looked, ALL)
        assert told.reports[0].count(CostResult.WRITTEN) == 3
        assert [a.code for a in patched(server)] == [409, 200] * 3
        assert time.monotonic() - began >= 5 / 20, "each try has a turn of its own"
        take_back(connection, "", time, lambda _: None)
        cache = WatchCache(connection).start()
        try:
            until(lambda: cache.not_ready() is None)
            before = len(patched(server))
            looked = cache.snapshot(time.now())
            for pod in looked.pods:
                annotated(server, pod.name, heartbeat="2")
            version = server.store.get("Pod", "web-00005", "default")["metadata"]["resourceVersion"]
            until(lambda: cache.has_come_to("Pod", "default", "web-00005", version))
            newest = steering(connection, time, newest=lambda pod: cache.pod(pod.namespace, pod.name))
            newest.look(looked, ALL)
            assert [a.code for a in patched(server)[before:]] == [200] * 3
        finally:
            cache.stop()


def test_a_refusal_of_each_write_ends_in_a_pause(server: ApiServer) -> None:
    server.faults.add(Reply(500), verb="patch")
    time = FakeTime()
    with connected(server) as connection:
        steered = steering(connection, time)
        steered.look(seen(connection, time), ALL)
        count = len(patched(server))
        steered.look(seen(connection, time), ALL)
        assert len(patched(server)) == count


# -- replicas


def test_of_two_replicas_that_only_steer_one_leads_and_nobody_is_kept_from_evicting(
    server: ApiServer, tmp_path: Path
) -> None:
    settings = (
        "prevention: {scaleIn: all}\nschedule: {interval: 1h}\n"
        "leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 200ms}\n"
    )

    def holder() -> str:
        lease = server.store.find("Lease", "rebalancer-brake-scale-in", "default")
        return str(lease["spec"].get("holderIdentity") or "") if lease is not None else ""

    with daemon(server, tmp_path / "a", settings) as a:
        until(lambda: len(costs(server)) == 3)
        first = holder()
        assert first
        with daemon(server, tmp_path / "b", settings) as b:
            until(lambda: get(b.port, "/readyz")[0] == 200)
            annotated(server, "web-00001", cost=None, manager="rebalancer-scale-in")
            until(lambda: len(costs(server)) == 3)
            assert holder() == first
            assert a.end() == 0
            until(lambda: holder() not in ("", first))
            annotated(server, "web-00001", cost=None, manager="rebalancer-scale-in")
            until(lambda: len(costs(server)) == 3)
            assert b.end() == 0
    assert server.store.find("Lease", "rebalancer", "default") is None


def test_two_installations_of_one_namespace_each_steer_their_own(tmp_path: Path) -> None:
    settings = (
        "prevention: {scaleIn: all}\nschedule: {interval: 1h}\n"
        "leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 200ms}\n"
    )

    def own(name: str) -> str:
        return f"{settings}brake: {{name: {name}-brake}}\nscope: {{namespaces: {{include: [{name}]}}}}\n"

    with ApiServer(spaces()) as server, daemon(server, tmp_path / "a", own("shop")):
        until(lambda: with_costs_in(server) == ["shop"] * 3)
        with daemon(server, tmp_path / "b", own("other")):
            until(lambda: with_costs_in(server) == ["other"] * 3 + ["shop"] * 3)


# -- what scale-ins have left


class Leader:
    """An elector, as far as the record goes by it."""

    def __init__(self, annotations: dict[str, str] | None = None) -> None:
        self.annotations = annotations or {}
        self.notes: dict[str, str] = {}


def seen_to(cache: WatchCache, left: int) -> bool:
    owner = cache.workload("ReplicaSet", "default", "web")
    there = [p for p in cache.pods().values() if not p.terminating]
    return owner is not None and owner.replicas == left == len(there)


@contextmanager
def followed(
    options: SteeringOptions, leads: Callable[[], bool], leader: Any
) -> Iterator[tuple[Callable[[], None], Callable[[int], None]]]:
    """Six pods, three of them in zone a, the oldest; some looks at them, and a scale-in that is seen."""
    time = FakeTime()
    with (
        Cluster(objects(*CROWDED), ready_after=0.02, grace=0.02) as cluster,
        connected(cluster.server) as connection,
    ):
        cluster.settle()
        cache = WatchCache(connection).start()

        def scale_in(left: int) -> None:
            cluster.scale("default", "web", left)
            cluster.settle()
            until(lambda: seen_to(cache, left))

        def looks() -> None:
            for _ in range(3):
                thread.look()
                time.wait(20)

        try:
            until(lambda: cache.not_ready() is None)
            thread = SteeringThread(
                cache, steering(connection, time), lambda: options, leads, time, elector=lambda: leader
            )
            yield looks, scale_in
        finally:
            cache.stop()


def scaled_in(steered: bool, leader: Any) -> None:
    """Then five, then three, by a ReplicaSet controller."""
    options = ALL if steered else SteeringOptions()
    with followed(options, lambda: True, leader) as (looks, scale_in):
        for left in (6, 5, 3):
            scale_in(left)
            looks()


def test_what_scale_ins_have_left_is_recorded() -> None:
    leader = Leader()
    scaled_in(False, leader)
    assert leader.notes == {"rebalancer.io/scale-ins": "1000000 2 1 1"}
    steered = Leader(leader.notes)
    scaled_in(True, steered)
    assert steered.notes == {"rebalancer.io/scale-ins": "1000000 4 1 1"}, "the next holder goes on"


def test_what_another_leader_has_counted_is_not_counted_again() -> None:
    leader, leads = Leader(), [True]
    with followed(SteeringOptions(), lambda: leads[0], leader) as (looks, scale_in):
        looks()
        leads[0] = False
        looks()
        scale_in(5)
        looks()
        leader.annotations = {"rebalancer.io/scale-ins": "1000000 1 1 1"}
        leads[0] = True
        looks()
    assert leader.notes == {"rebalancer.io/scale-ins": "1000000 1 1 1"}


def test_what_was_recorded_is_shown(server: ApiServer, tmp_path: Path) -> None:
    settings = (
        "prevention: {scaleIn: all, dryRun: true}\nschedule: {interval: 1h}\n"
        "leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 200ms}\n"
    )
    before = call(server, tmp_path, "prevent", "show")
    assert "no daemon that evicts, or has prevention.scaleIn on, has recorded scale-ins yet" in before.stdout

    def noted() -> bool:
        lease = server.store.find("Lease", "rebalancer-brake-scale-in", "default") or {"metadata": {}}
        return "rebalancer.io/scale-ins" in (lease["metadata"].get("annotations") or {})

    with daemon(server, tmp_path / "a", settings) as d:
        until(noted)
        assert d.end() == 0
    assert not costs(server)
    # Left from a time with evictions.
    before_it: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": {}}
    before_it["metadata"] = {"name": "rebalancer", "namespace": "default"}
    before_it["metadata"]["annotations"] = {"rebalancer.io/scale-ins": "1700000000 9 9 9"}
    before_it["spec"]["renewTime"] = "2023-11-14T22:13:20.000000Z"
    server.store.create(before_it)
    shown = call(server, tmp_path, "prevent", "show")
    assert re.match(
        r"since \d{4}-\d\d-\d\d \d\d:\d\d UTC: 0 scale-ins, 0 ended with an excess, ", shown.stdout
    )
