"""Signs of life of the cycle, for the liveness probe."""

from __future__ import annotations

import threading

from rebalancer.runtime.cycle.clock import Clock


class Heartbeat:
    """`hung` says whether there was no sign of life for longer than `patience`. All times in seconds.

    Between two cycles no signs are expected, until the next cycle is due.
    """

    def __init__(self, clock: Clock, patience: float) -> None:
        self._clock = clock
        self.patience = patience
        self._last = clock.monotonic()
        self._due: float | None = None

    def beat(self) -> None:
        """A sign of life."""
        self._last, self._due = self._clock.monotonic(), None

    def rest(self, until: float | None) -> None:
        """Nothing is expected until that time of the monotonic clock. None: the time is not known."""
        self._last, self._due = self._clock.monotonic(), until

    def hung(self) -> str:
        """For how long nothing has happened although it should have, "" if all is well."""
        silent = self._clock.monotonic() - max(self._last, self._due or self._last)
        return f"the loop has not moved for {silent:.0f} s" if silent > self.patience else ""


class BeatingClock:
    """A clock whose every use is a sign of life. A cycle uses it all the time, also while it waits."""

    def __init__(self, clock: Clock, heart: Heartbeat) -> None:
        self._clock = clock
        self._heart = heart
        self._worker: int | None = None

    def works_here(self) -> None:
        """From now on, only uses by the calling thread count."""
        self._worker = threading.get_ident()
        self._heart.beat()

    def now(self) -> float:
        self._beat()
        return self._clock.now()

    def latest(self) -> float:
        return self._clock.latest()

    def doubt(self) -> str:
        return self._clock.doubt()

    def monotonic(self) -> float:
        self._beat()
        return self._clock.monotonic()

    def wait(self, seconds: float) -> bool:
        self._beat()
        stop = self._clock.wait(seconds)
        self._beat()
        return stop

    def linger(self, seconds: float) -> bool:
        self._beat()
        self._clock.linger(seconds)
        self._beat()
        return False

    def stopping(self) -> bool:
        self._beat()
        return self._clock.stopping()

    def _beat(self) -> None:
        if threading.get_ident() == self._worker:
            self._heart.beat()
