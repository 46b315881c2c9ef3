"""The first requests of a daemon: asked until the API server answers.

A daemon is often started together with the API server or the network, so an answer that does not come is no
reason to end. A refusal is tried again a few times, because an API server that has just been started refuses
everything for a moment.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import TypeVar

from rebalancer.kube.client.retry import Backoff, retriable
from rebalancer.kube.errors import KubeError, StatusError, TransportError

T = TypeVar("T")

PATIENT = Backoff(first=1.0, cap=30.0, longest_wait=math.inf)
_REFUSALS = 3

log = logging.getLogger(__name__)


def until_answered(
    call: Callable[[], T],
    *,
    stop: threading.Event,
    told: Callable[[str], None] = lambda _: None,
    backoff: Backoff = PATIENT,
) -> T | None:
    """The result of `call`, which is tried again as long as its error may pass; None once `stop` is set.

    `told` gets the words of each error, as does the log. Raises what does not pass by itself: UserError, a
    refusal (401, 403, 410) that came three times in a row.
    """
    tried = refused = 0
    while not stop.is_set():
        tried += 1
        try:
            return call()
        except KubeError as e:
            may_pass = isinstance(e, TransportError) or retriable(e)
            refused = refused + 1 if isinstance(e, StatusError) and not may_pass else 0
            if not may_pass and not 0 < refused < _REFUSALS:
                raise
            if stop.is_set():
                break
            delay = backoff.delay(min(tried, 16), getattr(e, "retry_after", None))
            told(str(e))
            log.warning("%s; the daemon cannot begin, and tries again in %.1f s", e, delay)
            stop.wait(delay)
    return None
