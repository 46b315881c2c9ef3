"""Trying again: jittered, bounded, honouring Retry-After, and ending at once when asked to stop.

The official client has helpers for this; they stop trying as soon as the delay reaches their cap, know no
bound on the total and cannot be interrupted, so the thirty lines are here.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from rebalancer.kube.errors import KubeError, ResponseError, ServerError, TooManyRequestsError, TransportError

T = TypeVar("T")
Wait = Callable[[float], bool]
"""Sleeps so many seconds; True means: stop now. `threading.Event().wait` is one."""

log = logging.getLogger(__name__)
_DOUBLED = 60
"""Times, beyond which a float overflows in the end: what is watched is tried for as long as the process
lives."""


class Backoff(Struct, frozen=True):
    """How often and how long. Seconds; the delay before try n is first·2ⁿ⁻¹, at most `cap`, of which a random
    half is taken away. A Retry-After above `longest_wait` is not waited for."""

    tries: int = 5
    first: float = 0.5
    cap: float = 15.0
    longest_wait: float = 60.0

    def delay(self, tried: int, retry_after: float | None, rng: Callable[[], float] = random.random) -> float:
        """Seconds to wait after so many tries; never less than the server asked for."""
        own = min(self.cap, self.first * 2.0 ** min(tried - 1, _DOUBLED)) * (0.5 + 0.5 * rng())
        # Many clients were told the same number: spread them.
        return max(own, retry_after + rng()) if retry_after is not None else own


def retriable(error: KubeError) -> bool:
    """Whether a *read* may succeed if it is asked again."""
    if isinstance(error, TransportError):
        return not error.lasting
    return isinstance(error, ResponseError | TooManyRequestsError | ServerError)


DEFAULT_BACKOFF = Backoff()


def retry(call: Callable[[], T], *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> T:
    """The result of `call`, tried again while its error is retriable. Only for requests that change nothing.

    Raises the last error: when tries are used up, when the server asks for more patience than allowed, or
    when `wait` says stop.
    """
    tried = 0
    while True:
        tried += 1
        try:
            return call()
        except KubeError as e:
            if not retriable(e) or tried >= backoff.tries:
                raise
            after = getattr(e, "retry_after", None)
            if after is not None and after > backoff.longest_wait:
                raise
            delay = backoff.delay(tried, after)
            log.info("%s; try %d of %d in %.1f s", e.message, tried + 1, backoff.tries, delay)
            if wait(delay):
                raise
