"""`rebalancer pause` and `resume` as a person types them, and who heeds them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.cli.commands.changing import pause as pausing
from rebalancer.kube.coordination.place import labels_of
from rebalancer.policy.annotations import PAUSE
from tests.support.build import objects
from tests.support.processes.command import call, moving
from tests.support.processes.daemon_process import BRISK, daemon, evictions
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer, Reply
from tests.support.waiting import until


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*SKEWED)) as s:
        yield s


def said(server: ApiServer, namespace: str = "default") -> str | None:
    """What the brake says."""
    there = server.store.get("ConfigMap", "rebalancer-brake", namespace)
    value: str | None = (there["metadata"].get("annotations") or {}).get(PAUSE)
    return value


def test_a_pause_holds_once_and_ends_with_resume(server: ApiServer, tmp_path: Path) -> None:
    done = call(server, tmp_path, "pause", "--reason", "incident 4711")
    assert done.stdout == (
        "evictions are paused until `rebalancer resume`: ConfigMap default/rebalancer-brake\n"
    ), done.stderr
    assert said(server) == "incident 4711"
    with moving(server):
        held = call(server, tmp_path, "once", "--execute")
        assert held.returncode == 0
        assert "incident 4711" in held.stdout
        assert evictions(server) == 0
        over = call(server, tmp_path, "resume")
        assert over.stdout == "the pause is over: ConfigMap default/rebalancer-brake\n", over.stderr
        assert call(server, tmp_path, "once", "--execute").returncode == 0
    assert evictions(server) == 4


def test_a_pause_with_an_end_is_written_as_a_time_and_a_reason(server: ApiServer, tmp_path: Path) -> None:
    done = call(server, tmp_path, "pause", "--for", "2h", "--reason", "we look")
    assert done.stdout.startswith("evictions are paused for 2h: "), done.stderr
    time, _, why = (said(server) or "").partition(" ")
    left = datetime.fromisoformat(time) - datetime.now(UTC)
    assert timedelta(minutes=119) < left <= timedelta(hours=2)
    assert why == "we look"


def test_a_pause_lasts_by_the_servers_clock(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "time", SimpleNamespace(time=lambda: 1_000_000_000.0))
    config = server.kubeconfig(tmp_path / "config")
    done = CliRunner().invoke(app, ["pause", "--for", "2h", "--kubeconfig", str(config)])
    assert done.exit_code == 0, done.output
    left = datetime.fromisoformat(said(server) or "") - datetime.now(UTC)
    assert timedelta(minutes=119) < left <= timedelta(hours=2)


def test_a_pause_of_centuries_is_a_slip_of_the_hand(server: ApiServer, tmp_path: Path) -> None:
    done = call(server, tmp_path, "pause", "--for", "9999999d")
    assert done.returncode == 2
    assert "at most 3650d" in done.stderr


def test_a_pause_that_is_over_holds_nobody(server: ApiServer, tmp_path: Path) -> None:
    call(server, tmp_path, "pause", "--for", "1s")
    with moving(server):
        until(lambda: call(server, tmp_path, "once", "--execute").returncode == 0)
    assert evictions(server) == 4


def test_a_brake_that_was_taken_away_holds_and_resume_makes_it(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        ledger = {"name": "rebalancer-ledger", "namespace": "default", "labels": labels_of("ledger")}
        server.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": ledger})
        held = call(server, tmp_path, "once", "--execute")
        assert held.returncode == 1
        assert "by which people pause evictions, is missing; `rebalancer resume` creates it" in held.stdout
        assert evictions(server) == 0
        assert call(server, tmp_path, "resume").returncode == 0
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        assert evictions(server) == 4


def test_where_nothing_is_installed_the_first_run_that_evicts_makes_the_brake(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        assert call(server, tmp_path, "once").returncode == 0
        assert not server.store.list("ConfigMap"), "a dry run writes nothing"
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        assert evictions(server) == 4
        assert said(server) is None
        assert call(server, tmp_path, "pause").stdout.endswith("ConfigMap default/rebalancer-brake\n")


def test_where_an_installation_may_not_be_looked_for_no_brake_is_made(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        server.faults.add(Reply(403), resource="configmaps", verb="list")
        assert call(server, tmp_path, "once", "--execute").returncode == 1
        assert evictions(server) == 0


def test_a_missing_brake_can_be_put_on(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server:
        assert call(server, tmp_path, "pause").returncode == 0
        assert said(server) == "true"


def test_the_brake_of_the_installation_is_found_in_whatever_namespace_it_is(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server:
        for kind, name, namespace in (("Namespace", "ops", None), ("ConfigMap", "rebalancer-brake", "ops")):
            meta = {"name": name, "labels": LABELS} | ({"namespace": namespace} if namespace else {})
            server.store.create({"apiVersion": "v1", "kind": kind, "metadata": meta})
        done = call(server, tmp_path, "pause", "--reason", "incident")
        assert done.stdout.endswith("ConfigMap ops/rebalancer-brake\n"), done.stderr
        assert said(server, "ops") == "incident"
        held = call(server, tmp_path, "once", "--execute")
        assert "incident" in held.stdout


LABELS = {"app.kubernetes.io/name": "rebalancer", "app.kubernetes.io/component": "brake"}


def test_a_pause_meets_a_running_daemon(server: ApiServer, tmp_path: Path) -> None:
    slow = BRISK.replace("perSecond: 0", "perSecond: 0.2").replace("interval: 1s", "interval: 2s")
    with moving(server), daemon(server, tmp_path, slow, "--execute") as d:
        until(lambda: evictions(server) == 1)
        assert call(server, tmp_path, "pause").returncode == 0
        before = evictions(server)
        until(lambda: "nothing is evicted now" in d.said())
        assert evictions(server) == before < 4
        assert call(server, tmp_path, "resume").returncode == 0
        until(lambda: evictions(server) == 4)
        assert d.end() == 0


@pytest.mark.parametrize("wrong", ["2", "0s", "soon"])
def test_a_pause_for_no_time_is_a_wrong_use(wrong: str, server: ApiServer, tmp_path: Path) -> None:
    assert call(server, tmp_path, "pause", "--for", wrong).returncode == 2
    assert said(server) is None


def test_a_missing_right_is_named(server: ApiServer, tmp_path: Path) -> None:
    server.faults.add(Reply(403), resource="configmaps", verb="update")
    done = call(server, tmp_path, "pause")
    assert done.returncode == 1
    assert '{apiGroups: [""], resources: ["configmaps"], verbs: ["update"]}' in done.stderr
