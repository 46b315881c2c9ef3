"""The daemon under faults: nothing evicted twice or outside the plan, no crash, recovery, clear messages."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.outcome import End, Observers
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.runtime.daemon.service import Reloader, Service, serve
from rebalancer.runtime.observers.log import LogObserver
from rebalancer.settings import load_settings
from tests.support.build import nodes, objects, pdb, workload
from tests.support.processes.command import moving
from tests.support.processes.daemon_process import BRISK, daemon, evictions
from tests.support.runs.machine import BRAKE, Machine
from tests.support.runs.one_cycle import EXECUTE, SKEWED
from tests.support.runs.witness import Witness
from tests.support.sandbox import ApiServer, Cluster, Cut, Delay, Garbage, Reply
from tests.support.servers.api import FakeTime
from tests.support.waiting import until

THINGS = (
    *nodes(a=2, b=2, c=2),
    workload("web").spread("zone", 1).placed({"a-0": 3, "a-1": 3}),
    workload("api").spread("zone", 1).placed({"b-0": 4}),
    pdb("web", {"owner": "web"}, max_unavailable=1),
)
SETTINGS: dict[str, Any] = {
    "evictions": {
        "enabled": True,
        "canary": 0,
        "stabilization": "0s",
        "coolDown": "0s",
        "retryAfter": "1s",
        "perSecond": 0,
        "readyTimeout": "20s",
    },
    "schedule": {"interval": "500ms"},
    "breaker": {"pause": "300ms"},
    "leaderElection": {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"},
}


class Live:
    """A cluster with controllers, a daemon in a thread, a witness."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.witness = Witness(cluster.server)
        self.stop = threading.Event()
        settings = load_settings(env={}, flags=SETTINGS)
        options = ClusterOptions(
            kubeconfig=str(cluster.kubeconfig(folder / "kubeconfig")), connect_timeout=1.0, read_timeout=2.0
        )
        self.connection = Connection(options)
        observer = Observers([self.witness, LogObserver()])
        reloader = Reloader(settings, lambda: settings, file=None, observer=observer)

        def begun(service: Service) -> None:
            brisk = replace(service._live.settle, poll=0.1, budgets=2.0)
            service._live = replace(service._live, settle=brisk)

        self._thread = threading.Thread(
            target=lambda: serve(self.connection, reloader, stop=self.stop, observers=[observer], begun=begun)
        )
        self._thread.start()

    def end(self) -> None:
        """As SIGTERM."""
        self.stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the daemon does not end"
        self.connection.close()

    def zones(self, app: str) -> list[int]:
        """Pods per zone."""
        count = Counter(dict.fromkeys("abc", 0))
        for p in self.cluster.store.list("Pod"):
            if p["metadata"]["labels"].get("owner") == app and "deletionTimestamp" not in p["metadata"]:
                count[p["spec"].get("nodeName", "?")[0]] += 1
        return sorted(count.values())

    def balanced(self) -> bool:
        """Both, everywhere."""
        return self.zones("web") == [2, 2, 2] and self.zones("api") == [1, 1, 2]

    def bugs(self) -> list[Exception]:
        """Errors that are not meant for people."""
        from rebalancer.errors import UserError

        return [e for e in self.witness.errors if not isinstance(e, UserError)]


@contextmanager
def live(folder: Path, seed: int = 1) -> Iterator[Live]:
    with Cluster(objects(*THINGS), seed=seed, ready_after=0.1, grace=0.1) as cluster:
        cluster.settle()
        it = Live(cluster, folder)
        try:
            yield it
        finally:
            it.stop.set()
            it.end()


Fault = Callable[[Cluster], object]


def rule(action: Any, **match: Any) -> Fault:
    return lambda cluster: cluster.faults.add(action, **match)


def restart(cluster: Cluster) -> None:
    cluster.server.stop()
    time.sleep(0.3)
    cluster.server.start()


TOO_MANY = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "too many requests"}
PATIENCE = {"Retry-After": "1"}
BROKEN_EVENT = Cut("body", body_bytes=9, after_events=1)
FAULTS: list[tuple[str, Fault, str]] = [
    ("429 with Retry-After", rule(Reply(429, headers=PATIENCE), subresource="eviction", times=2), ""),
    ("429 without Retry-After", rule(Reply(429, TOO_MANY), subresource="eviction", times=3), ""),
    ("500 to evictions", rule(Reply(500), subresource="eviction", times=4), "it is tried again at"),
    ("503 to everything", rule(Reply(503), probability=0.3, times=40), ""),
    ("a connection cut before the eviction", rule(Cut("before"), subresource="eviction", times=1), ""),
    ("connections cut after the eviction", rule(Cut("after"), subresource="eviction", times=2), "read back"),
    ("connections cut in the middle of answers", rule(Cut("body", body_bytes=30), verb="get", times=6), ""),
    ("watches cut in the middle of an event", rule(BROKEN_EVENT, verb="watch", times=8), ""),
    ("garbage", rule(Garbage(), verb="get", probability=0.3, times=12), ""),
    ("a half-open server", rule(Delay(float("inf")), verb="get", resource="replicasets", times=1), ""),
    ("the ledger refuses", rule(Reply(500), resource="configmaps", verb="update", times=6), ""),
    ("expired tokens", rule(Reply(401), times=30), ""),
    ("revoked rights", rule(Reply(403), subresource="eviction", times=2), "evicting is forbidden"),
    ("revoked rights to look", rule(Reply(403), verb="get", resource="pods", times=2), "look is forbidden"),
    ("a restart of the server", restart, ""),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "says"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_the_daemon_recovers_from(
    fault: Fault, says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with live(tmp_path) as it:
        until(lambda: bool(it.witness.planned) or it.balanced())
        fault(it.cluster)
        until(it.balanced)
        it.cluster.faults.clear()
        it.witness.check()
        assert it.bugs() == []
    assert "Traceback" not in caplog.text
    if says and len(it.witness.evicted) > 2:
        assert says in caplog.text
    assert it.witness.told <= len(it.witness.evicted)


class Jumpy(FakeTime):
    """A wall clock that somebody sets, beside a monotonic one that nobody can."""

    def __init__(self, at: float) -> None:
        super().__init__(at)
        self.offsets = [86_400.0, -172_800.0, 3600.0]

    def now(self) -> float:
        return self.at + (self.offsets[len(self.waits) % 3] if self.waits else 0.0)

    def monotonic(self) -> float:
        return self.at


def test_a_wall_clock_that_jumps_changes_nothing_but_ages() -> None:
    with Machine() as m:
        run = m.cycle(HistoryRules(cool_down=60), time=Jumpy(m.time.at))
        m.time.at += 60
        again = m.cycle(HistoryRules(cool_down=60))
    assert run.report.end is End.COMPLETE
    assert run.report.evicted == run.evictions() == 4
    assert again.report.evicted == 0


@pytest.mark.parametrize("where", ["between plan and eviction", "between eviction and answer"])
def test_a_leader_that_is_killed(where: str, tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        witness = Witness(server)
        if where == "between plan and eviction":
            slow = server.faults.add(Delay(1.5), verb="get", resource="pods", times=1)
        else:
            slow = server.faults.add(Delay(1.5), subresource="eviction", times=1)
        with moving(server):
            with daemon(server, tmp_path / "one", BRISK, "--execute") as one:
                until(lambda: slow.hits == 1)
                one.popen.send_signal(signal.SIGKILL)
                one.popen.wait()
            before = len(witness.evicted)
            with daemon(server, tmp_path / "two", BRISK, "--execute") as two:
                until(lambda: evictions(server) >= 4 and "cycle over (complete)" in two.said())
                assert two.end() == 0
    assert before <= 1
    assert len(witness.evicted) == len(set(witness.evicted)) == 4
    names = Counter(a.name for a in server.accesses if a.subresource == "eviction" and a.code == 201)
    assert max(names.values()) == 1


def test_rights_that_never_come_do_not_wear_the_server_out() -> None:
    with Machine() as m:
        m.server.faults.add(Reply(403), subresource="eviction")
        run = m.cycle(options=replace(EXECUTE, brake=BRAKE))
        tries = sum(a.subresource == "eviction" for a in m.server.accesses)
    assert (run.report.end, tries) == (End.ABORTED, 1)
