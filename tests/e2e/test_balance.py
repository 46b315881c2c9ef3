"""A scale-down leaves a service in one zone; the tool evicts two pods, and the scheduler does the rest."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import yaml

from tests.e2e.kubectl import QUICK, Kubectl


def test_report_then_once_then_nothing_is_left(kubectl: Kubectl) -> None:
    kubectl.skewed("web")
    before = {p["metadata"]["uid"] for p in kubectl.pods("web")}

    done = kubectl.rebalancer("report", "-o", "json", "--exit-code")
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)
    planned = {e["pod"] for e in report["evictions"] if e["namespace"] == kubectl.namespace}
    assert len(planned) == 2

    recorded = kubectl.rebalancer("once")
    assert recorded.returncode == 0, recorded.stderr
    assert {p["metadata"]["uid"] for p in kubectl.pods("web")} == before, "nothing is evicted unasked"

    executed = kubectl.rebalancer("once", "--execute")
    assert executed.returncode == 0, executed.stdout + executed.stderr
    assert kubectl.spread("web") == [1, 1, 1]
    assert len(before & {p["metadata"]["uid"] for p in kubectl.pods("web")}) == 1, "two were evicted, no more"

    again = kubectl.rebalancer("once", "--execute")
    assert again.returncode == 0, again.stderr
    assert "  evicted: " not in again.stdout
    assert "rebalancer-ledger" not in kubectl("get", "configmaps", "-n", "default", "-o", "name")


def test_the_daemon_balances_and_ends_at_a_signal(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(QUICK))
    kubectl.skewed("api")
    with subprocess.Popen(
        kubectl.command("run", "--config", str(tmp_path / "settings.yaml")),
        env=kubectl.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as daemon:  # fmt: skip
        try:
            kubectl.until(
                lambda: kubectl.spread("api") == [1, 1, 1] and kubectl.ready("api") == 3,
                "the daemon balances",
            )
        finally:
            daemon.send_signal(signal.SIGTERM)
            _, said = daemon.communicate(timeout=60)
    assert daemon.returncode == 0, said
    assert "Traceback" not in said
