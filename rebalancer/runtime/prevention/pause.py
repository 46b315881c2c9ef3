"""Whether people have paused everything: then deletion costs wait, too."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rebalancer.kube.coordination.brakes import Brakes
from rebalancer.kube.coordination.place import Place
from rebalancer.kube.errors import ForbiddenError, KubeError, NotFoundError
from rebalancer.policy.annotations import paused
from rebalancer.runtime.cycle.clock import Clock

log = logging.getLogger(__name__)

_FRESH = 5.0
"""Seconds for which an answer holds: a pause binds within them."""


class Unpaused:
    """Says whether a cost may be written now: `may` says so, and the brake, as far as it can be seen.

    Where the brake is missing or may not be read nothing is held: a cost evicts nobody, and
    `prevention.scaleIn: off` ends it. Other errors hold.
    """

    def __init__(self, brakes: Brakes, brake: Place, clock: Clock, may: Callable[[], bool]) -> None:
        self._brakes, self._brake = brakes, brake
        self._clock = clock
        self._may = may
        self._asked = float("-inf")
        self._open = False

    def __call__(self) -> bool:
        """Asks the API server every few seconds."""
        if not self._may():
            return False
        now = self._clock.monotonic()
        if now - self._asked >= _FRESH:
            self._open, self._asked = self._ask(), now
        return self._open

    def _ask(self) -> bool:
        try:
            there = self._brakes.everything(self._brake)
        except (ForbiddenError, NotFoundError) as e:
            log.debug("whether cost writes are paused cannot be seen: %s", e.message)
            return True
        except KubeError as e:
            log.info("deletion costs wait: whether they are paused is not known: %s", e.message)
            return False
        return paused(str(self._brake), there, self._clock.now()) is None
