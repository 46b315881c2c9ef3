"""A plan that takes long: it is a sign of life, a stop ends it, and the lease does not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rebalancer.findings import plan_with_findings
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Observers
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.runtime.daemon.service import Reloader, Service, serve
from rebalancer.runtime.live.assembly import LastPlan
from rebalancer.settings import Settings, load_settings
from tests.support.build import decoded, objects
from tests.support.processes.daemon_process import free_port, get
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer
from tests.support.servers.api import connected
from tests.support.waiting import until

HUNG_AFTER = 1.0
Make = Callable[[Snapshot, PlanOptions], Plan]


class Daemon:
    """`rebalancer run --execute` in a thread, with a planner of the test's."""

    def __init__(self, server: ApiServer, run: Callable[[], None], port: int, stop: threading.Event) -> None:
        self.server, self.port, self.stop = server, port, stop
        self.thread = threading.Thread(target=run)

    def holder(self) -> str:
        """Who leads."""
        lease = self.server.store.find("Lease", "rebalancer", "default")
        name: str = lease["spec"]["holderIdentity"] if lease is not None else ""
        return name


@contextmanager
def planning(make: Make) -> Iterator[Daemon]:
    port, stop = free_port(), threading.Event()
    flags = {
        "evictions": {"enabled": True},
        "health": {"address": f"127.0.0.1:{port}", "hungAfter": f"{HUNG_AFTER:.0f}s"},
    }

    def load() -> Settings:
        return load_settings(env={}, flags=flags)

    with ApiServer(objects(*SKEWED)) as server, connected(server) as connection:
        reloader = Reloader(load(), load, file=None, observer=Observers())

        def begun(service: Service) -> None:
            service._last_plan = LastPlan(make)

        def run() -> None:
            serve(connection, reloader, stop=stop, observers=[], begun=begun)

        daemon = Daemon(server, run, port, stop)
        daemon.thread.start()
        try:
            yield daemon
        finally:
            stop.set()
            daemon.thread.join(60)


def test_a_plan_that_makes_progress_is_alive_and_a_stop_ends_it_within_seconds() -> None:
    began = threading.Event()

    def endless(_: Snapshot, options: PlanOptions) -> Plan:
        while True:
            began.set()
            options.on_progress()
            time.sleep(0.05)

    with planning(endless) as d:
        assert began.wait(120)
        until_then = time.monotonic() + 3 * HUNG_AFTER
        while time.monotonic() < until_then:
            assert get(d.port, "/healthz") == (200, "ok\n")
            time.sleep(0.2)
        assert d.holder()
        d.stop.set()
        asked = time.monotonic()
        until(lambda: d.holder() == "")
        assert time.monotonic() - asked < 10
        d.thread.join(60)
        assert not d.thread.is_alive()
        assert not any(a.subresource == "eviction" for a in d.server.accesses)


def test_a_plan_that_is_stuck_is_not_alive_and_still_does_not_keep_the_lease() -> None:
    began, go_on = threading.Event(), threading.Event()

    def stuck(snapshot: Snapshot, options: PlanOptions) -> Plan:
        began.set()
        go_on.wait(120)
        return plan_with_findings(snapshot, options)

    with planning(stuck) as d:
        assert began.wait(120)
        until(lambda: get(d.port, "/healthz")[0] == 503)
        d.stop.set()
        until(lambda: d.holder() == "")
        go_on.set()
        d.thread.join(60)
        assert not d.thread.is_alive()
        assert not any(a.subresource == "eviction" for a in d.server.accesses)


class EnoughError(Exception):
    """What a caller raises to end the planning."""


@pytest.mark.parametrize("after", [1, 5, 20])
def test_what_the_callers_function_raises_ends_the_planning(after: int) -> None:
    calls: list[float] = []

    def on_progress() -> None:
        calls.append(time.monotonic())
        if len(calls) == after:
            raise EnoughError

    with pytest.raises(EnoughError):
        plan_with_findings(decoded(objects(*SKEWED)), PlanOptions(on_progress=on_progress))
    assert len(calls) == after
