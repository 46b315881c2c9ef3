"""The clock and the request to stop. Both are passed in: tests use a clock of their own, a signal sets the
stop.

A machine's clock may be wrong, and so may an API server's. Where the two differ by more than a minute, each
rule takes the more cautious time. Mostly that is the earlier: a pause is not over yet, a pod not old enough,
an eviction not long ago. What is written down for later cycles bears the later time, for the same reason.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

APART = 60.0
"""Seconds by which two clocks may differ."""


class Clock(Protocol):
    """All times and durations are in seconds."""

    def now(self) -> float:
        """Seconds since the epoch, UTC: the earliest that it may be."""
        ...

    def latest(self) -> float:
        """The latest that it may be: the same, unless two clocks disagree."""
        ...

    def doubt(self) -> str:
        """Why it is not known what time it is, in a sentence; "" if it is."""
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


class LastSent:
    """When a pod was last released or evicted, of the monotonic clock: `at` outlives a cycle."""

    at = -math.inf


class RateLimit:
    """When the next pod may be released or evicted: one for all of a cycle. `rates`: how many a second, by
    each of the settings in force; None: as many as can be. `turn`: seconds until it is this installation's
    turn. `last`: of the cycles before."""

    def __init__(
        self,
        clock: Clock,
        rates: Callable[[], Iterable[float | None]] = tuple,
        turn: Callable[[], float] = lambda: 0.0,
        last: LastSent | None = None,
    ) -> None:
        self._clock, self._rates, self._turn, self._last = clock, rates, turn, last or LastSent()

    @property
    def next_at(self) -> float:
        """The earliest moment for it, of the monotonic clock."""
        rates = [r for r in self._rates() if r]
        at, now = self._last.at + (1 / min(rates) if rates else 0.0), self._clock.monotonic()
        # Whose turn it is takes a look at all pods.
        wait = self._turn() if at <= now else 0.0
        return now + wait if wait else at

    def sent(self) -> None:
        """A request was sent."""
        self._last.at = self._clock.monotonic()


class StopAskedError(Exception):
    """A stop was asked for in the middle of something that may be given up."""


class SignOfLife(Struct, frozen=True):
    """What planning calls again and again: a sign of life, and the end of it when a stop is asked for."""

    clock: Clock

    def __call__(self) -> None:
        """Raises StopAskedError."""
        if self.clock.stopping():
            raise StopAskedError


class SystemClock:
    """The machine's clock, beside the API server's. A signal, or the caller, sets `stop`.

    `server`: what the API server's clock shows, None while it does not say; without it there is one clock.
    `used` is told of each use.
    """

    def __init__(
        self,
        stop: threading.Event | None = None,
        server: Callable[[], float | None] | None = None,
        used: Callable[[], None] = lambda: None,
    ) -> None:
        self.stop = stop or threading.Event()
        self._server = server
        self._used = used

    def now(self) -> float:
        self._used()
        return min(self._both())

    def latest(self) -> float:
        return max(self._both())

    def doubt(self) -> str:
        if self._server is None:
            return ""
        if self._server() is None:
            return (
                "whether this machine's clock is right: the API server's answers have no Date; "
                "pauses, windows, caps and ages go by this clock alone"
            )
        here, there = self._both()
        if here == there:
            return ""
        how = "ahead of" if here > there else "behind"
        return (
            f"what time it is: this machine's clock is {abs(here - there) / 60:,.0f} min {how} the API "
            "server's; pauses, windows, caps and ages go by whichever of the two is more cautious; set the "
            "wrong one"
        )

    def _both(self) -> tuple[float, float]:
        here, there = time.time(), self._server() if self._server is not None else None
        return (here, there) if there is not None and abs(here - there) > APART else (here, here)

    def monotonic(self) -> float:
        from rebalancer.kube.connection import steady  # here, as a report of a file needs no client

        self._used()
        return steady()  # goes on while the machine sleeps

    def wait(self, seconds: float) -> bool:
        self._used()
        stop = self.stop.wait(seconds)
        self._used()
        return stop

    def linger(self, seconds: float) -> bool:
        self._used()
        time.sleep(seconds)
        self._used()
        return False

    def stopping(self) -> bool:
        self._used()
        return self.stop.is_set()
