"""Lists of all kinds, one after the other: the server's flow control and memory see one list of ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LOOK = 0.1
"""Seconds after which a thread that waits notices that it is to end."""


class Turns:
    """Who asks first lists first. `patience`: seconds after which nobody waits any longer for a list that
    hangs, or is very large."""

    def __init__(self, stop: threading.Event, patience: float) -> None:
        self._stop = stop
        self._patience = patience
        self._changed = threading.Condition()
        self._line: list[object] = []

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While it lasts, others wait."""
        me, until = object(), time.monotonic() + self._patience
        with self._changed:
            self._line.append(me)
            while self._line[0] is not me and not self._stop.is_set() and time.monotonic() < until:
                self._changed.wait(_LOOK)
        try:
            yield
        finally:
            with self._changed:
                self._line.remove(me)
                self._changed.notify_all()
