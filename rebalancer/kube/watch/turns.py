"""Lists of all kinds but add-ons, one after the other: the server's flow control and memory see one long list
of ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LOOK = 0.1
"""Seconds after which a thread that waits notices that it is to end."""


class Turns:
    """Who asks first lists first. `patience`: seconds after which the next in line waits no longer for a list
    that hangs, or is very large; all others wait for that next one."""

    def __init__(self, stop: threading.Event, patience: float) -> None:
        self._stop = stop
        self._patience = patience
        self._changed = threading.Condition()
        self._line: list[object] = []

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While it lasts, others wait."""
        me = object()
        with self._changed:
            self._line.append(me)
            head, since = self._line[0], time.monotonic()
            while self._line[0] is not me and not self._stop.is_set():
                self._changed.wait(min(_LOOK, self._patience))
                if self._line[0] is not head:
                    head, since = self._line[0], time.monotonic()
                elif self._line[1] is me and time.monotonic() - since >= self._patience:
                    self._line.remove(head)
        try:
            yield
        finally:
            with self._changed:
                if me in self._line:  # unless somebody lost patience
                    self._line.remove(me)
                self._changed.notify_all()
