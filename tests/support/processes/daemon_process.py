"""`rebalancer run` as a process, with settings that the test changes."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.processes.command import BIN, environment
from tests.support.processes.forked import Program
from tests.support.sandbox import ApiServer

BRISK = """
evictions: {canary: 0, stabilization: 0s, coolDown: 0s, perSecond: 0}
schedule: {interval: 1s}
leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
"""


_EACH = 1000
_FIRST = 12_000 + _EACH * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_offsets = itertools.count(os.getpid())


def free_port() -> int:
    """A port that nobody takes before it is bound: the system gives none below 32,768 to who asks for any,
    and each worker of the tests takes them from a range of its own."""
    while True:
        port = _FIRST + next(_offsets) % _EACH
        with socket.socket() as s, suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except OSError:
        return 0, ""


class Process:
    """A daemon under observation."""

    def __init__(self, server: ApiServer, folder: Path, settings: str, *arguments: str) -> None:
        self.port = free_port()
        self.config = folder / "config.yaml"
        self.configure(settings)
        command = [str(BIN), "run", *arguments, "--config", str(self.config)]
        command += ["--kubeconfig", str(server.kubeconfig(folder / "kubeconfig"))]
        self.errors = folder / "errors"
        with self.errors.open("w") as errors:
            self.popen = Program(command, stderr=errors, env=environment())

    def configure(self, settings: str) -> None:
        """Writes the settings."""
        self.config.write_text(f'{settings}\nhealth: {{address: "127.0.0.1:{self.port}"}}\n')

    def said(self) -> str:
        """What it wrote so far."""
        return self.errors.read_text()

    def end(self) -> int:
        """As a kubelet ends it."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(120)


@contextmanager
def daemon(server: ApiServer, folder: Path, settings: str = BRISK, *arguments: str) -> Iterator[Process]:
    folder.mkdir(exist_ok=True)
    process = Process(server, folder, settings, *arguments)
    try:
        yield process
    except BaseException:
        print(f"exit code {process.popen.poll()}, and it said:\n{process.said()}", file=sys.stderr)
        raise
    finally:
        process.popen.kill()
        process.popen.wait()


def evictions(server: ApiServer) -> int:
    return sum(a.subresource == "eviction" for a in server.accesses)
