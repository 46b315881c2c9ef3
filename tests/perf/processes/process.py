"""A command as a process of its own, with what it takes; and the benchmarks' server."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: bench
contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]
clusters: [{{name: bench, cluster: {{server: "{server}"}}}}]
users: [{{name: bench, user: {{token: bench}}}}]
"""


_OUTPUT = 65536
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Modules are compiled once, as an installation has them, and not each time that a command starts."""


class Usage(NamedTuple):
    """What a process took: seconds, CPU seconds (user and system) and its highest memory in MiB.

    `output` is the beginning of what it wrote: a process counts the memory of the one that started it among
    its own until it runs its own program, so that this one has to stay small.
    """

    seconds: float
    cpu: float
    peak: float
    output: bytes


def measured(arguments: Sequence[str], *, env: dict[str, str] | None = None) -> Usage:
    """Runs `python -m …` to its end. Raises RuntimeError with what it said, should it fail."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=out, stderr=err, env={**_ENVIRONMENT, **(env or {})}
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {err.read().decode()[-2000:]}")
        return Usage(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, out.read(_OUTPUT))


class Bench:
    """A server that is up. `kubeconfig` leads to it."""

    def __init__(self, address: str, kubeconfig: Path) -> None:
        self.address = address
        self.kubeconfig = str(kubeconfig)

    def change(self, pods: int, *, moved: bool = False) -> str:
        """So many pods change, or are on other nodes; the last version of them."""
        where = f"{self.address}/bench/change?pods={pods}{'&moved' if moved else ''}"
        request = urllib.request.Request(where, data=b"", method="POST")
        with urllib.request.urlopen(request) as answer:
            return str(msgspec.json.decode(answer.read())["version"])

    def requests(self) -> dict[str, Any]:
        """How many requests came, and the bytes that were sent, by what was asked for."""
        with urllib.request.urlopen(f"{self.address}/bench/requests") as answer:
            found: dict[str, Any] = msgspec.json.decode(answer.read())
            return found


@contextmanager
def serving(pods: int, folder: Path, *, balanced: bool = False) -> Iterator[Bench]:
    """The benchmarks' API server with so many pods."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.perf.processes.server", str(pods), *(["balanced"] if balanced else [])],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError("the benchmarks' server did not start")
        kubeconfig = folder / f"kubeconfig-{pods}"
        kubeconfig.write_text(_KUBECONFIG.format(server=address))
        yield Bench(address, kubeconfig)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
