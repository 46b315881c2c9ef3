"""Shows on standard error what the command is waiting for, if that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SHORT = 2.0
"""Seconds that need no clock."""


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Shows `what` with a spinner until the block ends, and how long that has taken.

    If standard error is not a terminal, shows nothing.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    began = time.monotonic()

    class Waiting:
        """The line as it is at the moment."""

        spinner = Spinner("dots")

        def __rich__(self) -> Spinner:
            """With the seconds, once there are some."""
            took = time.monotonic() - began
            self.spinner.update(text=Text(f"{what} … {took:.0f} s" if took > _SHORT else what))
            return self.spinner

    with Live(Waiting(), console=Console(stderr=True), transient=True, refresh_per_second=8):
        yield
