"""The clock and the request to stop. Both are passed in: tests use a clock of their own, a signal sets the
stop."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from msgspec import Struct


class Clock(Protocol):
    """All times and durations are in seconds."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that is never set."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleeps until the time is over or a stop is asked for. True: stop now."""
        ...

    def linger(self, seconds: float) -> bool:
        """Sleeps the whole time, also when a stop is asked for. Always False."""
        ...

    def stopping(self) -> bool:
        """Whether a stop was asked for."""
        ...


class StopAskedError(Exception):
    """A stop was asked for in the middle of something that may be given up."""


class Heed(Struct, frozen=True):
    """What planning calls again and again: a sign of life, and the end of it when a stop is asked for."""

    clock: Clock

    def __call__(self) -> None:
        """Raises StopAskedError."""
        if self.clock.stopping():
            raise StopAskedError


class SystemClock:
    """The machine's clock. A signal, or the caller, sets `stop`."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self.stop = stop or threading.Event()

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        return self.stop.wait(seconds)

    def linger(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False

    def stopping(self) -> bool:
        return self.stop.is_set()
