"""Leader election between processes: the leader is stopped in its tracks, or killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.forked import Program
from tests.support.sandbox import ApiServer

ROOT = Path(__file__).parents[3]
DURATION = 1.0
"""Seconds of the lease in tests.support.processes.electing."""
SLACK = 30.0
"""Seconds that a busy machine may take more; without load it is a fifth of one."""


class Candidate:
    """A process, and the times at which it found itself leading, in a file."""

    def __init__(self, kubeconfig: Path, name: str, folder: Path) -> None:
        self.name = name
        self._said = folder / name
        with self._said.open("w") as out:
            self.process = Program(
                [sys.executable, "-m", "tests.support.processes.electing", str(kubeconfig), name],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=out,
            )

    def led(self) -> list[float]:
        text = self._said.read_text()
        return [float(line) for line in text[: text.rfind("\n") + 1].split()]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.communicate("\n", timeout=120)
        elif self.process.stdin:
            self.process.stdin.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Candidate, Candidate]]:
    """The leader, and the one that waits."""
    with ApiServer() as server:
        kubeconfig = server.kubeconfig(tmp_path / "config")
        first = Candidate(kubeconfig, "first", tmp_path)
        wait_for(lambda: len(first.led()) > 3)
        second = Candidate(kubeconfig, "second", tmp_path)
        wait_for(lambda: any(a.resource == "leases" and a.verb == "get" for a in server.accesses))
        time.sleep(1.0)  # it has seen the lease
        yield first, second
        first.end()
        second.end()


def wait_for(true: object) -> None:
    until = time.monotonic() + 120
    while not true():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_leader_that_is_stopped_and_goes_on_leads_no_more(pair: tuple[Candidate, Candidate]) -> None:
    first, second = pair
    first.process.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    wait_for(lambda: len(second.led()) > 20)
    took = second.led()[0] - stopped
    first.process.send_signal(signal.SIGCONT)
    time.sleep(1.5 * DURATION)
    assert max(first.led()) < min(second.led())
    assert took < DURATION + SLACK


def test_a_leader_that_is_stopped_for_a_moment_keeps_the_lead(pair: tuple[Candidate, Candidate]) -> None:
    first, second = pair
    for _ in range(5):
        first.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        first.process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
    wait_for(lambda: max(first.led()) > time.monotonic() - 0.2)
    assert not second.led()


def test_a_leader_that_is_killed_is_followed_when_its_lease_has_run_out(
    pair: tuple[Candidate, Candidate],
) -> None:
    first, second = pair
    first.process.kill()
    killed = time.monotonic()
    first.process.wait()
    wait_for(second.led)
    assert max(first.led()) < min(second.led())
    assert 0.3 < second.led()[0] - killed < DURATION + SLACK
