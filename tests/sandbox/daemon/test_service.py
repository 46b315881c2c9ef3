"""`rebalancer run` as a process: probes, settings that change, election, and who is told what."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.policy.annotations import PAUSE
from rebalancer.policy.release import MARK
from tests.support.build import deployment, nodes, objects, pdb
from tests.support.processes.command import call, moving
from tests.support.processes.daemon_process import BRISK, daemon, evictions, get
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer, Cluster, Delay
from tests.support.waiting import until


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*SKEWED)) as s:
        yield s


def test_probes_metrics_and_an_orderly_end(server: ApiServer, tmp_path: Path) -> None:
    with moving(server), daemon(server, tmp_path, BRISK, "--execute") as d:
        until(lambda: get(d.port, "/readyz")[0] == 200)
        assert get(d.port, "/healthz") == (200, "ok\n")
        assert get(d.port, "/other")[0] == 404
        until(lambda: evictions(server) == 4)
        until(lambda: "cycle over (complete)" in d.said())
        code, metrics = get(d.port, "/metrics")
        assert (code, "# TYPE" in metrics) == (200, True)
        assert d.end() == 0
        assert "Traceback" not in d.said()
    lease = server.store.get("Lease", "rebalancer", "default")
    assert lease["spec"]["holderIdentity"] == ""


def test_a_cache_that_is_not_synced_is_not_ready_and_nothing_is_evicted(
    server: ApiServer, tmp_path: Path
) -> None:
    fault = server.faults.add(Delay(float("inf")), resource="nodes")
    with moving(server), daemon(server, tmp_path, BRISK, "--execute") as d:
        until(lambda: get(d.port, "/readyz")[0] == 503)
        until(lambda: "the cycle waits: " in d.said())
        assert "WARNING" not in d.said(), "a first reading that takes a while is no reason to worry"
        assert "Node" in get(d.port, "/readyz")[1]
        assert evictions(server) == 0
        server.faults.remove(fault)
        assert d.end() == 0


def test_changed_settings_are_taken_over_and_invalid_ones_refused(server: ApiServer, tmp_path: Path) -> None:
    with moving(server), daemon(server, tmp_path) as d:
        until(lambda: "cycle over (recorded)" in d.said())
        d.configure(BRISK + "evictions: nonsense")
        until(lambda: "the changed settings are refused, the old ones stay: " in d.said())
        assert f"{d.config}" in d.said()
        d.configure(BRISK.replace("canary: 0", "canary: 0, enabled: true"))
        until(lambda: "the changed settings are in force" in d.said())
        until(lambda: evictions(server) == 4)
        os.kill(d.popen.pid, signal.SIGHUP)
        time.sleep(1.5)
        assert d.popen.poll() is None
        assert d.end() == 0


def test_of_two_daemons_one_acts_and_the_other_follows_when_it_is_killed(
    server: ApiServer, tmp_path: Path
) -> None:
    paused = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    with moving(server):
        server.store.modify(
            "Namespace", "default", None, lambda o: o["metadata"].update(annotations={PAUSE: "wait"})
        )
        del paused
        with (
            daemon(server, tmp_path / "one", BRISK, "--execute") as one,
            daemon(server, tmp_path / "two", BRISK, "--execute") as two,
        ):
            until(lambda: "this instance leads" in one.said() + two.said())
            time.sleep(1.0)
            leaders = [d for d in (one, two) if "this instance leads" in d.said()]
            assert len(leaders) == 1
            other = two if leaders[0] is one else one
            leaders[0].popen.kill()
            until(lambda: "this instance leads" in other.said())
            server.store.modify("Namespace", "default", None, lambda o: o["metadata"].pop("annotations"))
            until(lambda: evictions(server) == 4)
            assert other.end() == 0
    names = [a.name for a in server.accesses if a.subresource == "eviction"]
    assert len(names) == len(set(names))


def test_a_standby_heeds_what_its_file_said_before_it_led(server: ApiServer, tmp_path: Path) -> None:
    on, off = (BRISK.replace("canary: 0", f"canary: 0, enabled: {e}") for e in ("true", "false"))
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "rebalancer", "namespace": "default"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600, "leaseTransitions": 1},
    }
    server.store.create(lease)
    with moving(server), daemon(server, tmp_path, on, "--execute") as d:
        until(lambda: get(d.port, "/readyz")[0] == 200)
        d.configure(off)
        given_back = {"holderIdentity": "", "leaseDurationSeconds": 1}
        server.store.modify("Lease", "rebalancer", "default", lambda o: o["spec"].update(given_back))
        until(lambda: "evictions.enabled is false now" in d.said())
        assert d.end() == 0
    assert evictions(server) == 0


def test_the_lease_is_kept_while_what_an_earlier_process_released_is_evicted(tmp_path: Path) -> None:
    """Whoever led meanwhile would send a second request for the same pod."""
    settings = BRISK.replace("canary: 0", "enabled: true, canary: 0, method: replaceFirst")
    placed = {"a-0": 2, "a-1": 1, "b-0": 2, "b-1": 1}
    web = deployment("web").spread("zone", 1).placed(placed)
    things = objects(*nodes(a=2, b=2, c=2), web, pdb("web", {"owner": "web"}, max_unavailable=0))
    with Cluster(things, seed=0, patience=0.05, grace=0.01, ready_after=0.01) as cluster:
        cluster.settle(30)
        with daemon(cluster.server, tmp_path / "killed", settings) as killed:
            until(lambda: any(MARK in (p["metadata"].get("annotations") or {}) for p in pods(cluster)))
            killed.popen.kill()
            killed.popen.wait()
        slow = cluster.faults.add(Delay(4.0), subresource="eviction")
        with daemon(cluster.server, tmp_path / "next", settings) as d:
            until(lambda: slow.hits)
            d.popen.send_signal(signal.SIGTERM)
            while not evictions(cluster.server):
                assert cluster.store.get("Lease", "rebalancer", "default")["spec"]["holderIdentity"]
                time.sleep(0.1)
            assert d.popen.wait(120) == 0
        assert cluster.store.get("Lease", "rebalancer", "default")["spec"]["holderIdentity"] == ""


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    return cluster.store.list("Pod")


def test_a_port_that_is_taken_is_an_error_in_one_line(server: ApiServer, tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        (tmp_path / "c.yaml").write_text(f'health: {{address: "127.0.0.1:{s.getsockname()[1]}"}}')
        done = call(server, tmp_path, "run", "--config", str(tmp_path / "c.yaml"))
    assert done.returncode == 1
    assert "for probes: Address already in use; is another one running?" in done.stderr


def test_history_tells_why_a_pod_was_evicted(server: ApiServer, tmp_path: Path) -> None:
    empty = call(server, tmp_path, "history")
    assert empty.stdout.startswith(
        "nothing is remembered: neither in ConfigMap default/rebalancer-ledger nor"
    )
    with moving(server):
        call(server, tmp_path, "once", "--execute")
    victim = next(a.name for a in server.accesses if a.subresource == "eviction")
    told = call(server, tmp_path, "history", f"default/{victim}")
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("\n") == 3
    assert f"default/{victim} of ReplicaSet/default/web" in told.stdout
    assert "topology.kubernetes.io/zone: from a to" in told.stdout
    every = call(server, tmp_path, "history", "rs/web", "-o", "json")
    assert len([json.loads(line) for line in every.stdout.splitlines()]) == 4
    assert "nothing is remembered about nobody" in call(server, tmp_path, "history", "nobody").stdout


def test_history_without_a_ledger_reads_the_events(server: ApiServer, tmp_path: Path) -> None:
    with moving(server):
        call(server, tmp_path, "once", "--execute")
    server.store.delete("ConfigMap", "rebalancer-ledger", "default")
    told = call(server, tmp_path, "history")
    assert told.stdout.count("EvictedForSpread") == 4


def test_the_servers_verdict_is_asked_for_by_a_flag(server: ApiServer, tmp_path: Path) -> None:
    done = call(server, tmp_path, "once", "--dry-run=server")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("would be evicted, says the API server") == 4
    assert "the API server only gave its verdicts" in done.stdout
    assert len(server.store.list("Pod")) == 6
    wrong = call(server, tmp_path, "once", "--dry-run=maybe")
    assert wrong.returncode == 2
