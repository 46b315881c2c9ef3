"""A watch that has gone silent without anybody knowing: what it shows is old; nothing is evicted on that."""

from __future__ import annotations

import time as real
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rebalancer.kube.cache import WatchCache
from rebalancer.kube.reflector import WatchOptions
from rebalancer.runtime.live import Surroundings
from rebalancer.runtime.outcome import End
from rebalancer.sandbox import ApiServer, Delay
from tests.sandbox.test_cycle_once import EXECUTE, SKEWED, Run, once
from tests.support.api import FakeTime, connected
from tests.support.build import objects, pdb
from tests.support.hands import Hands

SILENT = WatchOptions(streaming=False, silence=600.0)


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
            assert cache.wait_ready(10)
            hands = Hands(server)
            somebody_else(server, hands)
            assert len([p for p in cache.pods() if p.node_name == "a-0"]) == 6, "it knows nothing of that"
            time = FakeTime()
            if heals:
                server.faults.remove(fault)
                time.during = lambda _: real.sleep(0.05)
            run = Run(server, EXECUTE, hands=hands, time=time, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.evictions() == 0
    assert zones(server) == [2, 2, 2]
    if not heals:
        assert run.report.end is End.UNSTABLE
        assert "the watch of pods is behind: " in run.report.message


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
            assert cache.wait_ready(10)
            change(server)
            run = Run(server, EXECUTE, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.evictions() == 0


def test_a_watch_that_keeps_up_lets_everything_go() -> None:
    with ApiServer(objects(*SKEWED)) as server, connected(server) as c:
        cache = WatchCache(c)
        cache.start()
        try:
            assert cache.wait_ready(10)
            time = FakeTime()
            time.during = lambda _: real.sleep(0.01)
            run = Run(server, EXECUTE, time=time, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.report.end is End.COMPLETE
    assert run.evictions() == 4


ONE_BY_ONE = (*SKEWED, pdb("web", {"app": "web"}, max_unavailable=1))


def test_without_a_watch_a_wave_long_after_the_reading_gets_a_new_one() -> None:
    """Four waves of one pod, each of which takes some seconds."""
    quick = once(ONE_BY_ONE)
    slow = once(ONE_BY_ONE, replace(EXECUTE, lasts=1.0))
    assert quick.report.plans < slow.report.plans == 5
    assert quick.evictions() == slow.evictions() == 4
    assert slow.report.end is End.COMPLETE


def test_without_a_watch_what_somebody_else_repairs_meanwhile_is_left_alone() -> None:
    with ApiServer(objects(*ONE_BY_ONE)) as server:
        time, hands = FakeTime(), Hands(server)

        def during(_: float) -> None:
            """After the first eviction, three more leave zone a by other hands."""
            gone = [p for p in server.store.list("Pod") if p["spec"].get("nodeName") == "a-0"]
            if any(a.subresource == "eviction" for a in server.accesses) and len(gone) > 2:
                server.store.delete("Pod", gone[-1]["metadata"]["name"], "default", grace=0)

        time.during = during
        run = Run(server, replace(EXECUTE, lasts=1.0), hands=hands, time=time)
        assert zones(server) == [2, 2, 2]
    assert run.evictions() == 1
    assert run.report.end is End.COMPLETE
