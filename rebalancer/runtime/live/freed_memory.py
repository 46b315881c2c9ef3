"""Memory that is free within the process goes back to the system.

A plan for a large cluster takes some hundred megabytes for seconds, in pieces of a size that the C library
keeps for later. A daemon would hold them until its next plan, minutes or days after.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Gives back what is free; takes some milliseconds. Where the C library is not glibc, nothing is done."""
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    try:
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # musl, macOS, Windows
        return lambda _: None
    return found
