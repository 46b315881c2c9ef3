"""A watch that has gone silent without anybody knowing: what it shows is old; nothing is evicted on that."""

from __future__ import annotations

import time as real
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.reflector import WatchOptions
from rebalancer.outcome import End
from rebalancer.runtime.cycle.carrying_out import CycleLimits
from rebalancer.runtime.last_look import cluster_now
from rebalancer.runtime.live.assembly import Surroundings
from tests.support.build import nodes, objects, pdb, workload
from tests.support.runs.one_cycle import EXECUTE, SKEWED, Run, once
from tests.support.sandbox import ApiServer, Delay, Reply
from tests.support.servers.api import FakeTime, connected
from tests.support.servers.hands import Hands


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_now, "_PATIENCE", 2.0)


SILENT = WatchOptions(streaming=False, silence=600.0)
ONE_PLAN = replace(EXECUTE, limits=CycleLimits(max_replans=0))
"""Where nothing heals, further plans would only wait, each for as long as the first."""


def zones(server: ApiServer) -> list[int]:
    """Pods per zone, of three nodes named after their zone."""
    on = [p["spec"].get("nodeName", "?")[0] for p in server.store.list("Pod")]
    return [on.count(z) for z in "abc"]


def somebody_else(server: ApiServer, hands: Hands) -> None:
    """Moves four of six pods out of zone a."""
    for n in range(2, 6):
        server.store.delete("Pod", f"web-{n:05d}", "default", grace=0)
        for _ in range(4):
            hands.step()
    assert zones(server) == [2, 2, 2]


@pytest.mark.parametrize("heals", [False, True], ids=["for good", "for a moment"])
def test_a_half_open_watch_of_pods_while_somebody_else_repaired_everything(heals: bool) -> None:
    with ApiServer(objects(*SKEWED)) as server, connected(server) as c:
        fault = server.faults.add(Delay(float("inf"), after_events=0), verb="watch", resource="pods")
        cache = WatchCache(c, options=replace(SILENT, silence=1.0) if heals else SILENT)
        cache.start()
        try:
            assert cache.wait_ready(60)
            hands = Hands(server)
            somebody_else(server, hands)
            known = [p for p in cache.pods().values() if p.node_name == "a-0"]
            assert len(known) == 6, "it knows nothing of that"
            time = FakeTime()
            if heals:
                server.faults.remove(fault)
                time.during = lambda _: real.sleep(0.05)
            options = EXECUTE if heals else ONE_PLAN
            run = Run(server, options, hands=hands, time=time, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.evictions() == 0
    assert zones(server) == [2, 2, 2]
    if not heals:
        assert run.report.end is End.UNSTABLE
        assert "the watch is behind: what happened to Pod objects" in run.report.message


CHANGES: list[tuple[str, Callable[[ApiServer], object]]] = [
    ("a pod that is gone", lambda s: s.store.delete("Pod", "web-00005", "default", grace=0)),
    ("a pod that has changed", lambda s: s.store.modify(
        "Pod", "web-00005", "default", lambda o: o["metadata"].update(annotations={"x": "y"}))),
    ("a pod that is new", lambda s: s.store.create(
        {**s.store.get("Pod", "web-00005", "default"), "metadata": {
            "name": "web-new", "namespace": "default", "labels": {"app": "web", "owner": "web"}}})),
]  # fmt: skip


@pytest.mark.parametrize("change", [c[1] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_what_a_silent_watch_has_not_seen_of_a_constraints_pods_stops_evictions(
    change: Callable[[ApiServer], object],
) -> None:
    with ApiServer(objects(*SKEWED)) as server, connected(server) as c:
        server.faults.add(Delay(float("inf"), after_events=0), verb="watch", resource="pods")
        cache = WatchCache(c, options=SILENT)
        cache.start()
        try:
            assert cache.wait_ready(60)
            change(server)
            run = Run(server, ONE_PLAN, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.evictions() == 0


def test_a_watch_that_keeps_up_lets_everything_go() -> None:
    with ApiServer(objects(*SKEWED)) as server, connected(server) as c:
        cache = WatchCache(c)
        cache.start()
        try:
            assert cache.wait_ready(60)
            time = FakeTime()
            time.during = lambda _: real.sleep(0.01)
            run = Run(server, EXECUTE, time=time, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.report.end is End.COMPLETE
    assert run.evictions() == 4


ONE_BY_ONE = (*SKEWED, pdb("web", {"app": "web"}, max_unavailable=1))
"""Four waves of one pod."""


def cluster_wide(server: ApiServer) -> Counter[str]:
    """Lists of a whole kind, by resource. A watch that goes on asks for one object by such a list."""
    lists = (a for a in server.accesses if a.verb == "list" and a.limit != 1)
    return Counter(a.resource for a in lists if not a.namespace and not a.fields)


def test_once_lists_the_cluster_once_however_many_waves_there_are() -> None:
    run = once(ONE_BY_ONE)
    assert run.report.end is End.COMPLETE
    assert run.evictions() == 4
    assert run.report.plans < 5, "what follows a wave that went as planned needs no new plan"
    assert max(cluster_wide(run.server).values(), default=0) <= 1


def test_what_somebody_else_repaired_while_a_plan_was_made_for_minutes_is_left_alone() -> None:
    with ApiServer(objects(*SKEWED), bookmark_every=0.1) as server:
        time, hands = FakeTime(), Hands(server)

        def repaired(number: int) -> None:
            if number == 1:
                time.at += 600
                somebody_else(server, hands)

        run = Run(server, EXECUTE, hands=hands, time=time, after_plan=repaired)
        assert zones(server) == [2, 2, 2]
    assert run.evictions() == 0
    assert run.report.end is End.COMPLETE


def test_what_somebody_else_repairs_between_two_waves_is_left_alone() -> None:
    with ApiServer(objects(*ONE_BY_ONE), bookmark_every=0.1) as server:
        time, hands = FakeTime(), Hands(server)

        def during(_: float) -> None:
            """After the first eviction, three more leave zone a by other hands."""
            gone = [p for p in server.store.list("Pod") if p["spec"].get("nodeName") == "a-0"]
            if any(a.subresource == "eviction" for a in server.accesses) and len(gone) > 2:
                server.store.delete("Pod", gone[-1]["metadata"]["name"], "default", grace=0)
            real.sleep(0.02)

        time.during = during
        run = Run(server, EXECUTE, hands=hands, time=time)
        assert zones(server) == [2, 2, 2]
    assert run.evictions() == 1
    assert run.report.end is End.COMPLETE


DEAD = (
    *nodes(a=1, b=1, c=1),
    workload("web").spread("zone", 1).requests(cpu="1").placed({"a-0": 6}),
)


def cordon_all(server: ApiServer) -> None:
    for name in ("b-0", "c-0"):
        server.store.modify("Node", name, None, lambda o: o["spec"].update(unschedulable=True))


def fill_all(server: ApiServer) -> None:
    """Pods of others, that no constraint counts, take the room of all destinations."""
    for name in ("b-0", "c-0"):
        server.store.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"batch-{name}", "namespace": "default", "labels": {"app": "batch"}},
                "spec": {
                    "nodeName": name,
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "100"}}}],
                },
                "status": {"phase": "Running"},
            }
        )


@pytest.mark.parametrize("lasts", [True, False], ids=["for good", "the first connection only"])
@pytest.mark.parametrize(
    ("kind", "change"), [("nodes", cordon_all), ("pods", fill_all)], ids=["nodes cordoned", "room taken"]
)
def test_a_half_open_watch_hides_nothing_about_the_destinations(
    kind: str, change: Callable[[ApiServer], None], lasts: bool
) -> None:
    with ApiServer(objects(*DEAD), bookmark_every=0.1) as server, connected(server) as c:
        server.faults.add(
            Delay(float("inf"), after_events=0), verb="watch", resource=kind, times=None if lasts else 1
        )
        cache = WatchCache(c, options=SILENT)
        cache.start()
        try:
            assert cache.wait_ready(60)
            run = Run(
                server,
                ONE_PLAN if lasts else EXECUTE,
                after_plan=lambda number: change(server) if number == 1 else None,
                around=Surroundings(cache=cache),
            )
        finally:
            cache.stop()
    assert run.evictions() == 0
    if lasts:
        assert f"what happened to {kind.title().removesuffix('s')} objects" in run.report.message


def test_a_half_open_watch_is_replaced_and_the_work_is_done() -> None:
    with ApiServer(objects(*DEAD)) as server, connected(server) as c:
        for kind in ("nodes", "pods"):
            server.faults.add(Delay(float("inf"), after_events=0), verb="watch", resource=kind, times=1)
        cache = WatchCache(c, options=SILENT)
        cache.start()
        try:
            assert cache.wait_ready(60)
            began = real.monotonic()
            run = Run(server, EXECUTE, around=Surroundings(cache=cache))
            seconds = real.monotonic() - began
        finally:
            cache.stop()
    assert run.report.end is End.COMPLETE
    assert run.evictions() == 4
    assert seconds < 60


def test_no_matter_how_large_the_cluster_a_current_watch_costs_two_short_ones_every_second_or_so() -> None:
    with ApiServer(objects(*DEAD)) as server, connected(server) as c:
        cache = WatchCache(c)
        cache.start()
        try:
            assert cache.wait_ready(60)
            before = len(server.accesses)
            for _ in range(4):
                assert not cache.wait_current(("Node", "Pod"), cache.monotonic(), 8.0, lambda: False)
            asked = [a for a in server.accesses[before:] if a.resource in ("nodes", "pods")]
        finally:
            cache.stop()
    assert Counter(a.verb for a in asked)["list"] <= 2, "of one object, when the long watches end"
    assert len(asked) <= 20


def test_a_half_open_watch_of_budgets_is_found_out_and_holds_nothing_up() -> None:
    """What a budget says of the pod is read before it goes; that it has room again is seen by the watch."""
    with ApiServer(objects(*ONE_BY_ONE), bookmark_every=0.1) as server, connected(server) as c:
        server.faults.add(
            Delay(float("inf"), after_events=0), verb="watch", resource="poddisruptionbudgets", times=1
        )
        cache = WatchCache(c, options=replace(SILENT, close_silence=1.0))
        cache.start()
        try:
            assert cache.wait_ready(60)
            time = FakeTime()
            time.during = lambda _: real.sleep(0.05)
            run = Run(server, EXECUTE, time=time, around=Surroundings(cache=cache))
            seen = {b.metadata.name: b.metadata.resource_version for b in cache.budgets("default")}
            there = server.store.get("PodDisruptionBudget", "web", "default")["metadata"]["resourceVersion"]
        finally:
            cache.stop()
    assert run.evictions() == 4
    assert run.report.end is End.COMPLETE
    assert seen == {"web": there}


def test_where_nothing_happens_and_no_bookmark_comes_the_end_of_a_short_watch_tells_as_much() -> None:
    """As from a real API server: it sends none that is not newer than the version the watch began with."""
    with ApiServer(objects(*DEAD), progress_notify=False) as server, connected(server) as c:
        cache = WatchCache(c, options=replace(WatchOptions(), close_timeout=1))
        cache.start()
        try:
            assert cache.wait_ready(60)
            before = len(server.accesses)
            for _ in range(3):
                assert not cache.wait_current(("Node", "Pod"), cache.monotonic(), 60.0, lambda: False)
            asked = [a for a in server.accesses[before:] if a.resource in ("nodes", "pods")]
        finally:
            cache.stop()
    assert Counter(a.verb for a in asked)["list"] <= len(asked) / 2 + 1, "of one object each"


def test_evictions_go_on_where_nothing_happens_and_no_bookmark_comes() -> None:
    with ApiServer(objects(*SKEWED), progress_notify=False) as server, connected(server) as c:
        cache = WatchCache(c, options=replace(WatchOptions(), close_timeout=1))
        cache.start()
        try:
            assert cache.wait_ready(60)
            time = FakeTime()
            time.during = lambda _: real.sleep(0.01)
            run = Run(server, EXECUTE, time=time, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.report.end is End.COMPLETE
    assert run.evictions() == 4


def test_a_short_watch_that_a_proxy_ends_too_soon_tells_nothing() -> None:
    with ApiServer(objects(*DEAD), progress_notify=False) as server, connected(server) as c:
        cache = WatchCache(c, options=replace(WatchOptions(), close_timeout=30))
        cache.start()
        try:
            assert cache.wait_ready(60)
            server.faults.add(Reply(200, b""), verb="watch", resource="pods")
            assert cache.wait_current(("Pod",), cache.monotonic(), 3.0, lambda: False)
        finally:
            cache.stop()
