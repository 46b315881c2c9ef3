"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(true: Callable[[], object], seconds: float = 120.0) -> float:
    """Waits until it is true; the seconds it took. The limit is generous: a test is to fail of what does not
    happen, not of a machine with other things to do."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, "it did not come about in time"
        time.sleep(0.01)
    return time.monotonic() - began
