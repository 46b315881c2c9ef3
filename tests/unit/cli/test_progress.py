"""What is shown while a command works: phase, how far it has come, seconds."""

from __future__ import annotations

from pathlib import Path

from rebalancer.cli.console import Waiting, progress
from rebalancer.runtime.commands.source import Source, load_snapshot
from rebalancer.sandbox import ApiServer
from tests.support.build import nodes, objects, workload


def test_the_line_has_phase_counts_and_after_two_seconds_the_time() -> None:
    times = iter([0.0, 1.0, 2.5, 61.0])
    waiting = Waiting("reading the cluster", lambda: next(times))
    assert waiting.line() == "reading the cluster"
    assert waiting.line() == "reading the cluster … 2 s"
    waiting.tell("4,000 objects, pods")
    assert waiting.line() == "reading the cluster: 4,000 objects, pods … 61 s"


def test_a_live_cluster_is_counted_as_it_comes(tmp_path: Path) -> None:
    things = objects(*nodes(a=2), workload("web").placed({"a-0": 3}))
    told: list[str] = []
    with ApiServer(things) as server:
        load_snapshot(Source(kubeconfig=str(server.kubeconfig(tmp_path / "config"))), told.append)
    assert told[0] == "2 objects, nodes"
    assert told[1] == "5 objects, pods"


def test_nothing_is_shown_where_nobody_looks() -> None:
    with progress("reading") as tell:
        tell("half of it")
