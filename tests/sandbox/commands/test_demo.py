"""The demo: it converges, tells what stays, and ends when it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.policy.options import Method
from rebalancer.runtime.commands import simulate as demo
from rebalancer.sandbox.cluster import after_outage
from tests.docs.console import Shown, missing
from tests.support.sandbox import Cluster
from tests.support.servers.budget_watch import BudgetWatch
from tests.support.servers.kubectl import kubectl_with, needs_kubectl

ROOT = Path(__file__).parents[3]
STAYS = {
    "data/orders-db": "pinned-by-volume",
    "ml/model-server": "no-feasible-node",
}
COMMAND = [sys.executable, "-c", "from rebalancer.cli import main; main()", "demo"]
PLAIN = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "COLUMNS")}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "GRACE", 0.05)
    monkeypatch.setattr(demo, "READY_AFTER", (0.02, 0.1))
    monkeypatch.setattr(demo, "INTERVAL", 0.3)
    monkeypatch.setattr(demo, "_LIMITS", replace(demo._LIMITS, serving=0.2))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("seed", range(3))
def test_it_converges_within_all_budgets(seed: int) -> None:
    with demo.demo_cluster(seed) as (cluster, kubeconfig):
        before = Counter(o["kind"] for o in after_outage())
        watch = BudgetWatch(cluster.store)
        result = demo.run_demo(cluster, kubeconfig, stop=threading.Event())
        assert result.converged
        assert not result.interrupted
        assert watch.broken == []
        assert watch.checked == result.evicted
        first, last = result.cycles[0].first, result.cycles[-1].last
        assert first is not None
        assert last is not None
        assert (first.excess, last.excess) == (22, 2)
        assert result.evicted == first.lower_bound == 14
        assert [m.pod.name[:8] for m in first.moves if m.method is Method.REPLACE_FIRST] == ["invoices"]
        why = {
            f"{c.constraint.namespace}/{c.workloads[0].rpartition('/')[2]}": c
            for c in last.constraints
            if c.excess
        }
        assert {name: c.reasons[0].code.value for name, c in why.items()} == STAYS
        assert len(cluster.store.list("Pod")) == before["Pod"]


@needs_kubectl
@pytest.mark.usefixtures("quick")
def test_kubectl_looks_around_in_it_and_can_delete_and_annotate() -> None:
    """What the demo invites to; of patches it takes those that merge JSON."""
    with demo.demo_cluster(1) as (_, kubeconfig):
        kubectl = kubectl_with(kubeconfig)
        columns = "custom-columns=A:.metadata.namespace,B:.metadata.name,C:.spec.nodeName"
        rows = [
            line.split() for line in kubectl("get", "pods", "-A", "--no-headers", "-o", columns).splitlines()
        ]
        assert len(rows) == 59
        assert kubectl("get", "pods", "-A", "--no-headers").count("\n") == 59
        assert "frontend" in kubectl("describe", "deployment", "frontend", "-n", "shop")
        kubectl("delete", "pod", rows[0][1], "-n", rows[0][0], "--wait=false")
        verbs = {line.split()[0]: line for line in kubectl("api-resources", "-o", "wide").splitlines()}
        assert "delete" in verbs["pods"]
        assert "patch" in verbs["pods"]
        kubectl("annotate", "deployment", "frontend", "-n", "shop", "a=b")
        where = ("deployment", "frontend", "-n", "shop", "-o", "jsonpath={.metadata.annotations.a}")
        said = kubectl("get", *where)
        assert said == "b"


@pytest.mark.usefixtures("quick")
def test_the_command_tells_the_whole_story_in_plain_lines() -> None:
    done = CliRunner().invoke(app, ["demo", "--seed", "2"])
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    told = ("wave 1 of", "evicted  shop/", "is Ready on c-", "7 → 0", "released shop/invoices")
    done_all = "excess 22 → 2 with 14 evictions"
    for expected in (*told, done_all, "Before and after", "What stays, and why", *STAYS, *STAYS.values()):
        assert expected in done.output
    assert " to one of the " in done.output.partition("The ledger knows")[2]
    table = done.output.partition("Before and after\n")[2].partition("\n\n")[0].splitlines()
    assert len(table) == 1 + 14, "a row each, none wrapped"
    assert max(map(len, table)) <= 120
    assert not [line for line in done.output.splitlines() if line != line.rstrip()]
    [end] = re.findall(r"^Done: [^`]+", (ROOT / "README.md").read_text(), re.MULTILINE)
    shown = Shown("README.md", "demo", (" ".join(end.split()),))
    assert not missing(shown, done.output)


@pytest.mark.usefixtures("quick")
def test_it_fails_when_it_does_not_converge_in_time() -> None:
    done = CliRunner().invoke(app, ["demo", "--timeout", "0.2"])
    assert done.exit_code == 1
    assert "Not done after" in done.output or "The daemon made no plan." in done.output


@pytest.mark.usefixtures("quick")
def test_it_fails_at_once_when_a_cycle_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("no plan")

    monkeypatch.setattr(demo, "run_once", broken)
    done = CliRunner().invoke(app, ["demo"])
    assert done.exit_code == 1
    assert "error: no plan" in done.output


def test_an_interrupt_ends_it_cleanly() -> None:
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=PLAIN
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "evicted" in line and " s  " in line:
                break
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=120)
        assert time.monotonic() - began < 40, "the demo takes as long as a minute"
        assert process.returncode == 130
        assert errors == ""
        assert "Stopped after" in rest


def test_nothing_happens_in_the_broken_cluster_by_itself() -> None:
    with Cluster(after_outage()) as cluster:
        cluster.settle()
        there = {o["metadata"]["uid"] for o in after_outage() if o["kind"] == "Pod"}
        assert {p["metadata"]["uid"] for p in cluster.store.list("Pod")} == there
        assert len(cluster.store.list("ReplicaSet")) == sum(o["kind"] == "ReplicaSet" for o in after_outage())


@pytest.mark.usefixtures("quick")
def test_history_tells_of_every_eviction_from_ledger_and_events() -> None:
    with demo.demo_cluster(1) as (cluster, kubeconfig):
        result = demo.run_demo(cluster, kubeconfig, stop=threading.Event())
        shown = CliRunner().invoke(app, ["history", "-o", "json", "--kubeconfig", str(kubeconfig)])
        lines = [json.loads(line) for line in shown.stdout.splitlines()]
        events = [e for e in cluster.store.list("Event") if e.get("reason") == "EvictedForSpread"]
    assert len(lines) == len(result.history) == result.evicted
    assert all(line["landed"] for line in lines)
    assert len(events) == 2 * result.evicted, "on the pod and on its owner"
