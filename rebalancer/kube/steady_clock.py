"""The clock by which the age of what is known is measured."""

from __future__ import annotations

import time


def steady() -> float:
    """Seconds of a clock that never jumps and, where the system has one, goes on while it sleeps.

    After a suspended machine wakes up, leases have run out and watches are dead; `time.monotonic` would not
    have noticed.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(clock) if clock is not None else time.monotonic()
