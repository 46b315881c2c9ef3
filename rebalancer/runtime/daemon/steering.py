"""Scale-ins are steered between cycles too: pods come and go at any time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rebalancer.kube.errors import KubeError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.prevention.scale_in import ScaleInSteering, SteeringOptions

log = logging.getLogger(__name__)

_POLL = 5.0
_SHARE = 30
"""The next look comes at the earliest after so many times what finding the last changes took."""
_KINDS = ("Pod", "Node", "ReplicaSet", "Deployment", "Namespace", "Service")


class SteeringThread:
    """Looks whenever something has changed, in a thread of its own between `start` and `stop`.

    `options`: as the settings are now. `leading`: whether this process may act.
    """

    def __init__(
        self,
        cache: WatchCache,
        steering: ScaleInSteering,
        options: Callable[[], SteeringOptions],
        leading: Callable[[], bool],
        clock: Clock,
        *,
        poll: float = _POLL,
    ) -> None:
        self._cache = cache
        self._steering = steering
        self._options = options
        self._leading = leading
        self._clock = clock
        self._poll = poll
        self._seen: object = None
        self._next = 0.0
        self._thread = threading.Thread(target=self._run, name="scale-in", daemon=True)

    def start(self) -> None:
        """Begins. It ends when the clock says stop."""
        self._thread.start()

    def join(self) -> None:
        """Waits a moment for its end, after the stop."""
        if self._thread.is_alive():
            self._thread.join(2.0)

    def look(self) -> None:
        """One look, if there is reason for one."""
        options, now = self._options(), self._clock.monotonic()
        if not options.on or now < self._next or not self._leading() or self._cache.not_ready() is not None:
            return
        seen = (options, *(self._cache.generation(kind) for kind in _KINDS))
        if seen == self._seen:
            return
        report = self._steering.look(self._cache.snapshot(self._clock.now()), options)
        # What waits for its turn is looked at again, although nothing has changed.
        self._seen = None if report.waiting else seen
        self._next = self._clock.monotonic() + _SHARE * report.seconds

    def _run(self) -> None:
        while not self._clock.wait(self._poll):
            try:
                self.look()
            except KubeError as e:
                log.info("scale-ins are not steered just now: %s", e.message)
            except Exception:
                # Evictions do not depend on it.
                log.exception("scale-ins could not be steered")
