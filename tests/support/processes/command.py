"""The command line as a process, against an embedded API server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes.forked import run
from tests.support.sandbox import ApiServer
from tests.support.servers.hands import Choose, Hands

BIN = Path(sys.executable).parent / "rebalancer"


@contextmanager
def moving(server: ApiServer, choose: Choose | None = None) -> Iterator[None]:
    """Controllers and scheduler act in real time."""
    stop, hands = threading.Event(), Hands(server, ends_after=1, ready_after=1, choose=choose)

    def work() -> None:
        while not stop.wait(0.05):
            hands.step()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("REBALANCER_", "KUBECONFIG"))}


def call(
    server: ApiServer, folder: Path, *arguments: str, token: str | None = None
) -> subprocess.CompletedProcess[str]:
    """`token`: of who calls; the admin's by default."""
    kubeconfig = server.kubeconfig(folder / "kubeconfig", token=token)
    command = [str(BIN), *arguments, "--kubeconfig", str(kubeconfig)]
    return run(command, env=environment())
