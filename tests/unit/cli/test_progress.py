"""What is shown while a command works: phase, how far it has come, seconds."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from rebalancer.cli.console import progress
from rebalancer.runtime.commands.source import Source, load_snapshot
from rebalancer.sandbox import ApiServer
from tests.support.build import nodes, objects, workload


class Terminal(io.StringIO):
    """Somebody looks at it."""

    def isatty(self) -> bool:
        return True


def test_the_line_has_phase_counts_and_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress("reading the cluster") as tell:
        tell("4,000 objects, [pods]")
    assert re.search(r"reading the cluster: 4,000 objects, \[pods\].*0:00:0\d", terminal.getvalue())
    assert terminal.getvalue().endswith("\x1b[2K"), "and it goes"


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
