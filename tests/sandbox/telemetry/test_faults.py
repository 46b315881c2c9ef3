"""A collector that is dead, slow, refuses, or drips: no eviction waits for it, nor does the end."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from rebalancer.outcome import Eviction, Observer
from rebalancer.planner.plan import Move
from rebalancer.telemetry.start import FAILED, FULL, Telemetry, TelemetryOptions, telemetry_for
from tests.support.build import objects
from tests.support.processes.command import moving
from tests.support.runs.one_cycle import EXECUTE, SKEWED, cycle
from tests.support.sandbox import ApiServer
from tests.support.servers.otlp import collector

IN_ALL = 6.0
"""Seconds that telemetry may take at the end of a process."""
WAITED = 6.0
"""An eviction that waited for an export would take its timeout, 2 s, at least."""


@contextmanager
def dead() -> Iterator[str]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{s.getsockname()[1]}"


@contextmanager
def black_hole() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(64)
        yield f"http://127.0.0.1:{s.getsockname()[1]}"


@contextmanager
def misbehaving(delay: float = 0.0, status: int = 200, drip: bool = False) -> Iterator[str]:
    with collector() as c:
        c.delay, c.status, c.drip = delay, status, drip
        yield c.url


COLLECTORS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "dead": dead,
    "a black hole": black_hole,
    "slow": lambda: misbehaving(delay=20),
    "busy (503)": lambda: misbehaving(status=503),
    "refusing (401)": lambda: misbehaving(status=401),
    "one byte a second": lambda: misbehaving(drip=True),
}


class Gaps(Observer):
    """Seconds between a move's turn and the end of its eviction."""

    def __init__(self) -> None:
        self.evictions: list[float] = []
        self._at = 0.0

    def on_move(self, move: Move) -> None:  # noqa: ARG002
        self._at = time.monotonic()

    def on_eviction(self, move: Move, eviction: Eviction) -> None:  # noqa: ARG002
        self.evictions.append(time.monotonic() - self._at)


@pytest.mark.timing
@pytest.mark.parametrize("kind", COLLECTORS)
def test_no_eviction_waits_and_the_end_is_bounded(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    gaps = Gaps()
    caplog.set_level(logging.INFO, logger="rebalancer")
    with ExitStack() as stack:
        url = stack.enter_context(COLLECTORS[kind]())
        server = stack.enter_context(ApiServer(objects(SKEWED)))
        with telemetry_for(TelemetryOptions(endpoint=url, metrics=True)) as telemetry:
            began = time.monotonic()
            report = cycle(server, EXECUTE, [gaps, *telemetry.observers])
            worked = time.monotonic() - began
            ended = telemetry.close()
    assert report.evicted == len(gaps.evictions) == 4
    assert max(gaps.evictions) < WAITED
    assert worked < IN_ALL
    assert ended.seconds < IN_ALL
    assert sum(ended.dropped.values()) + ended.delivered == telemetry._tally.ended > 30
    if kind != "one byte a second":
        assert ended.delivered == 0
        assert "spans were not delivered" in caplog.text
    print(f"{kind}: end in {ended.seconds:.2f} s, {ended.dropped}")


PROGRAM = """
import atexit, time
# Registered first, called last: when all threads are joined, before the interpreter frees its modules.
atexit.register(lambda: print("END", time.monotonic(), flush=True))
from rebalancer.cli import main
main()
"""


@pytest.mark.timing
@pytest.mark.parametrize("kind", ["a black hole", "slow"])
def test_the_whole_process_ends_in_time(kind: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(COLLECTORS[kind]())
        server = stack.enter_context(ApiServer(objects(SKEWED)))
        stack.enter_context(moving(server))
        env = {k: v for k, v in os.environ.items() if not k.startswith(("REBALANCER_", "OTEL_"))}
        env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_METRICS_EXPORTER": "otlp"}
        arguments = ["once", "--execute", "--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))]
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout
            complete = end = 0.0
            for line in process.stdout:
                if line.startswith("complete:"):
                    complete = time.monotonic()
                if line.startswith("END"):
                    end = float(line.split()[1])
            assert process.wait(60) == 0
    assert 0 < end - complete < IN_ALL


def test_it_is_said_once_that_nothing_arrives_and_once_that_it_does_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    caplog.set_level(logging.INFO, "rebalancer.telemetry")
    with collector() as c:
        c.status = 400
        telemetry = Telemetry(TelemetryOptions(endpoint=c.url))
        for number, status in enumerate((400, 400, 200, 200), 1):
            c.status = status
            before = c.requests
            telemetry.spans.on_cycle(number)
            telemetry.spans.abandon()
            while c.requests == before:
                time.sleep(0.01)
            time.sleep(0.05)
        ended = telemetry.close()
    said = [r.getMessage() for r in caplog.records if r.name.startswith("rebalancer.telemetry")]
    host = c.url.removeprefix("http://")
    assert [s.partition(":")[0] for s in said if "reach" in s] == [
        f"traces do not reach {host.partition(':')[0]}",
        f"traces reach {host.partition(':')[0]}",
    ]
    assert "400" in said[0]
    assert ended.dropped[FAILED] == 2
    assert ended.delivered == 2


def test_a_full_queue_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    with collector() as c:
        c.delay = 1.0
        telemetry = Telemetry(TelemetryOptions(endpoint=c.url, exit_timeout=0.1))
        for number in range(100):
            telemetry.spans.on_cycle(number)
            telemetry.spans.abandon()
        lost = telemetry._tally.dropped()[FULL]
        assert lost >= 70
        text = telemetry.exposition()[0].decode()
        assert f'rebalancer_telemetry_dropped_spans_total{{reason="queue-full"}} {lost}.0' in text
        ended = telemetry.close()
        assert sum(ended.dropped.values()) + ended.delivered == 100


def test_closing_twice_does_nothing() -> None:
    telemetry = Telemetry(TelemetryOptions())
    assert telemetry.close() is telemetry.close()
