"""The entry point: the one place where an error becomes a line on standard error."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from rebalancer.cli.console import ExitCode, program_name
from rebalancer.errors import UserError

_NEW_OBJECTS = 100_000
"""After so many the garbage collector looks for circles. Modules are made of many more, all of which stay."""


def main() -> None:
    """Runs the command line and exits."""
    gc.set_threshold(_NEW_OBJECTS)
    _open_closed_streams()
    interrupt = _Interrupt()
    try:
        try:
            from rebalancer.cli.app import app

            # Names may contain characters that the locale's encoding does not have.
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
            app(prog_name=program_name(sys.argv[0]))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the pipe (head, less) has closed it.
        _abandon_output()
        sys.exit(ExitCode.OK)
    except (Exception, KeyboardInterrupt, SystemExit) as e:
        if interrupt.came and not _meant(e):
            interrupt.end()
        if isinstance(e, SystemExit) or debugging():
            raise
        _say(_told(e))
        if isinstance(e, OSError):
            _abandon_output()
        sys.exit(ExitCode.ERROR)


def _open_closed_streams() -> None:
    """A stream that was closed before the start is empty, and takes what nobody reads. Opened in their order
    they get their own numbers, which else a connection would have."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, errors="backslashreplace"))  # noqa: SIM115


class _Interrupt:
    """Handles Ctrl-C, also while modules are still being imported."""

    def __init__(self) -> None:
        self.came = False
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the caller ignores it
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Ends the process if a module is being imported, since that may swallow KeyboardInterrupt."""
        self.came = True
        if _importing(frame):
            self.end()
        signal.default_int_handler(number, frame)

    def end(self) -> NoReturn:
        """Prints a line and exits at once. The interpreter's own exit would wait for threads, and a second
        Ctrl-C would show a traceback. Commands have cleaned up by now."""
        show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        sys.stderr.write(f"{show_cursor}interrupted\n")
        sys.stderr.flush()
        os._exit(ExitCode.INTERRUPTED)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _meant(error: BaseException) -> bool:
    """Whether a command chose this end itself after an interrupt, and does not just die of it."""
    return isinstance(error, SystemExit) and error.code != ExitCode.INTERRUPTED


def _told(error: BaseException) -> str:
    """An error as one line: what to do about it, or that it is a bug."""
    if isinstance(error, UserError):
        return f"error: {error}"
    if isinstance(error, OSError) and error.errno is not None:
        from rebalancer.output_file import unwritable

        if error.filename is None:  # errors of reading and connecting come as UserError
            return f"error: {unwritable('the output', error)}"
        return f"error: {error.filename}: {(error.strerror or str(error)).lower()}"
    return f"error: this is a bug: {type(error).__name__}: {error}; --debug shows where"


def _abandon_output() -> None:
    """Replaces standard output, so that the interpreter's flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def debugging() -> bool:
    """Whether to show tracebacks."""
    return "--debug" in sys.argv or os.environ.get("REBALANCER_DEBUG", "") not in ("", "0")


def _say(text: str) -> None:
    print(" ".join(text.split()), file=sys.stderr)
