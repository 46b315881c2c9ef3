"""Shows on standard error what the command is waiting for, if that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SHORT = 2.0
"""Seconds that need no clock."""


class Waiting:
    """What is waited for, how far it has come, and for how long."""

    def __init__(self, what: str, now: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._now = now
        self._began = now()
        self._come = ""

    def tell(self, come: str) -> None:
        """How far it has come."""
        self._come = come

    def line(self) -> str:
        """As it is at the moment; with the seconds, once there are some."""
        took = self._now() - self._began
        said = f"{self._what}: {self._come}" if self._come else self._what
        return f"{said} … {took:.0f} s" if took > _SHORT else said


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Shows `what` with a spinner until the block ends, how long that has taken, and what the block tells.

    If standard error is not a terminal, shows nothing.
    """
    waiting = Waiting(what)
    if not sys.stderr.isatty():
        yield waiting.tell
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    class Line:
        """The line with its spinner."""

        spinner = Spinner("dots")

        def __rich__(self) -> Spinner:
            self.spinner.update(text=Text(waiting.line()))
            return self.spinner

    with Live(Line(), console=Console(stderr=True), transient=True, refresh_per_second=8):
        yield waiting.tell
