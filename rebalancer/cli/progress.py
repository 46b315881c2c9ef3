"""What is being waited for, on standard error, and only if somebody is looking at it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Shows `what` with a spinner until the block ends; nothing where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(what)):
        yield
