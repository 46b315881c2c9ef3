"""Time, and the wish to stop: both are passed in, so that tests need not wait and a signal need not."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds, everywhere."""

    def now(self) -> float:
        """Since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Of a clock that never jumps."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleeps, at most until a stop is asked for; True: stop now."""
        ...

    def linger(self, seconds: float) -> bool:
        """Sleeps whatever happens; always False."""
        ...

    def stopping(self) -> bool:
        """Whether a stop was asked for."""
        ...


class SystemClock:
    """The machine's clock; `stop` is set by a signal, or by whoever embeds the loop."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self.stop = stop or threading.Event()

    def now(self) -> float:
        """Since the epoch, UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Of a clock that never jumps."""
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Sleeps, at most until a stop is asked for."""
        return self.stop.wait(seconds)

    def linger(self, seconds: float) -> bool:
        """Sleeps whatever happens."""
        time.sleep(seconds)
        return False

    def stopping(self) -> bool:
        """Whether a stop was asked for."""
        return self.stop.is_set()
