"""Commands as processes of their own that need not import anything first.

Starting Python and importing what a command needs takes most of a second, and what it does for a test a tenth
of one. So a process that has imported everything, and does nothing else, forks each of them. It has its own
signals, exit code and output, as any other. What is of the start itself (what is imported, how the command
was installed, what an interrupt meets on the way) is tested with `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]
_SUBREAPER = 36
"""Of prctl: who is orphaned below this process becomes its child."""


class Program(subprocess.Popen[str]):
    """`subprocess.Popen` of `rebalancer ...` or of `python -m MODULE ...`, and of text. Only on Linux does a
    process get children that another forks; elsewhere each is started."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        super().__init__(command, text=True, **options)

    if sys.platform == "linux":

        def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
            cwd, env = rest[4:6]
            pipes = rest[9:15]
            given = [fd if fd != -1 else number for number, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
            self.pid = _template().fork(args, cwd or Path.cwd(), os.environ if env is None else env, given)
            self._child_created = True
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(
    command: Sequence[str], *, timeout: float = 240.0, input: str | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` of one, with what it says."""
    options |= {"stdin": subprocess.PIPE} if input is not None else {}
    with Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class _Template:
    """The process that forks them. It ends when this one does."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        self._lock = threading.Lock()
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=_ROOT,
            )
        atexit.register(self._end)

    def fork(
        self, command: Sequence[str], cwd: str | Path, env: Mapping[str, str], fds: Sequence[int]
    ) -> int:
        """The new process's number."""
        message = json.dumps([list(map(str, command)), str(cwd), dict(env)]).encode()
        with self._lock:
            socket.send_fds(self._ours, [message], fds)
            return int(self._ours.recv(64))

    def _end(self) -> None:
        self._ours.close()
        self._process.wait()


@cache
def _template() -> _Template:
    return _Template()


def main(control: socket.socket) -> None:
    """Forks until nobody can ask for it any more."""
    import rebalancer

    for module in pkgutil.walk_packages(rebalancer.__path__, "rebalancer."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.freeze()
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1 << 20, 3)
        if not message:
            return
        there, here = os.pipe()
        between = os.fork()
        if not between:
            if os.fork():
                os._exit(0)
            os.write(here, str(os.getpid()).encode())
            os.close(there)
            os.close(here)
            control.close()
            become(*json.loads(message), fds=fds)
            return
        os.waitpid(between, 0)
        os.close(here)
        control.send(os.read(there, 64))
        for fd in (there, *fds):
            os.close(fd)


def become(command: list[str], cwd: str, env: dict[str, str], *, fds: list[int]) -> None:
    """This process is the command from now on."""
    # Whoever runs the tests may ignore it, as nohup does.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  (the other one knows that it is no pipe)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    if command[0] == sys.executable:
        assert command[1] == "-m"
        sys.argv = command[2:]
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
    else:
        from rebalancer.cli import main as of_command_line

        sys.argv = command
        of_command_line()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
