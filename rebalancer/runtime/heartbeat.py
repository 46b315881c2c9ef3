"""Signs of life of the loop, for the probe that restarts a process which hangs."""

from __future__ import annotations

import threading

from rebalancer.runtime.clock import Clock


class Heartbeat:
    """Beaten by whoever works; `hung` tells whether it has stopped. Seconds throughout.

    A loop that rests between two cycles need not beat, but must begin again when it is due.
    """

    def __init__(self, clock: Clock, patience: float) -> None:
        self._clock = clock
        self.patience = patience
        self._last = clock.monotonic()
        self._due: float | None = None

    def beat(self) -> None:
        """It works."""
        self._last, self._due = self._clock.monotonic(), None

    def rest(self, until: float | None) -> None:
        """It rests until that time of the monotonic clock; None: it does not know."""
        self._last, self._due = self._clock.monotonic(), until

    def hung(self) -> str:
        """Since when nothing has happened that should have, "" if all is well."""
        silent = self._clock.monotonic() - max(self._last, self._due or self._last)
        return f"the loop has not moved for {silent:.0f} s" if silent > self.patience else ""


class BeatingClock:
    """A clock whose every use is a sign of life: the loop asks it all the time, even while it waits."""

    def __init__(self, clock: Clock, heart: Heartbeat) -> None:
        self._clock = clock
        self._heart = heart
        self._worker: int | None = None

    def works_here(self) -> None:
        """The calling thread's uses count from now on, no other's."""
        self._worker = threading.get_ident()
        self._heart.beat()

    def now(self) -> float:
        """Since the epoch, UTC."""
        self._beat()
        return self._clock.now()

    def monotonic(self) -> float:
        """Of a clock that never jumps."""
        self._beat()
        return self._clock.monotonic()

    def wait(self, seconds: float) -> bool:
        """Sleeps, at most until a stop is asked for."""
        self._beat()
        stop = self._clock.wait(seconds)
        self._beat()
        return stop

    def linger(self, seconds: float) -> bool:
        """Sleeps whatever happens."""
        self._beat()
        self._clock.linger(seconds)
        self._beat()
        return False

    def stopping(self) -> bool:
        """Whether a stop was asked for."""
        self._beat()
        return self._clock.stopping()

    def _beat(self) -> None:
        if threading.get_ident() == self._worker:
            self._heart.beat()
