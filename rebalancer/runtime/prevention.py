"""Deletion costs, written where they are not as they should be: slowly, and never in haste for one owner."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from rebalancer.engine.config import SchedulerConfig
from rebalancer.kube.errors import ForbiddenError, KubeError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CostOutcome, CostResult, SteeringReport
from rebalancer.prevention.scale_in import ScaleInOptions
from rebalancer.prevention.steering import CostChange, steer
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.gates import PauseCheck

log = logging.getLogger(__name__)

PER_SECOND = 5.0
"""Writes over all owners: a large cluster's API server does not notice them."""
REST = 60.0
"""Seconds between two times that the pods of one owner are written to: an autoscaler may change its mind."""


class Writer(Protocol):
    """Writes one cost (`kube.patches.CostWriter`)."""

    def write(self, change: CostChange) -> CostOutcome:
        """What became of it. Raises ForbiddenError."""
        ...


class SteeringOptions(Struct, frozen=True, kw_only=True):
    """Whose scale-in is steered, under which scheduler. `dry`: nothing is written."""

    scope: ScaleInOptions = ScaleInOptions()
    scheduler: SchedulerConfig | None = None
    dry: bool = False

    @property
    def on(self) -> bool:
        """Whether there is anything to look at."""
        return self.scope.mode != "off"


class ScaleInSteering:
    """Remembers when which owner was written to.

    `tell` is called with every look that has news; `may` is asked before each write whether this process may
    act.
    """

    def __init__(
        self,
        writer: Writer,
        clock: Clock,
        tell: Callable[[SteeringReport], None],
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._tell = tell
        self._may = may
        self._written: dict[str, float] = {}
        self._barred = float("-inf")
        self._told: object = None

    def look(self, snapshot: Snapshot, options: SteeringOptions) -> SteeringReport:
        """Writes what this snapshot asks for, as far as its turn has come."""
        began = self._clock.monotonic()
        steering = steer(snapshot, options.scope, options.scheduler)
        now = self._clock.monotonic()
        self._written = {key: at for key, at in self._written.items() if now - at < REST}
        outcomes: list[CostOutcome] = []
        for owner in steering.owners if now >= self._barred else ():
            if owner.owner.key in self._written or not owner.changes:
                continue
            if options.dry:
                outcomes += [CostOutcome(c, CostResult.RECORDED) for c in owner.changes]
            elif not self._write(owner.owner.key, owner.changes, outcomes):
                break
        done = sum(o.result not in (CostResult.FAILED, CostResult.CHANGED) for o in outcomes)
        report = SteeringReport(
            steering=steering,
            outcomes=tuple(outcomes),
            waiting=steering.changes - done,
            seconds=now - began,
        )
        news = steering.held_back, steering.foreign, [] if not options.dry else _shown(outcomes)
        if news != self._told or (outcomes and not options.dry):
            self._told = news
            self._tell(report)
        return report

    def _write(self, owner: str, changes: Iterable[CostChange], outcomes: list[CostOutcome]) -> bool:
        """Whether the next owner may follow."""
        for change in changes:
            if not self._may():
                return False
            self._written[owner] = self._clock.monotonic()
            try:
                outcomes.append(self._writer.write(change))
            except ForbiddenError as e:
                outcomes.append(CostOutcome(change, CostResult.FAILED, str(e)))
                self._barred = self._clock.monotonic() + REST
                return False
            if self._clock.wait(1.0 / PER_SECOND):
                return False
        return True


def _shown(outcomes: Iterable[CostOutcome]) -> list[tuple[str, int]]:
    return [(o.change.pod.key, o.change.cost) for o in outcomes]


# Whether people have paused everything: then deletion costs wait, too.

_FRESH = 5.0
"""Seconds for which an answer holds: a pause binds within them."""


class Unpaused:
    """Says whether a cost may be written now: `may` says so, and the brake, as far as it can be seen.

    Where the brake is missing or may not be read nothing is held: a cost evicts nobody, and
    `prevention.scaleIn: off` ends it. Other errors hold.
    """

    def __init__(self, brake: PauseCheck, clock: Clock, may: Callable[[], bool]) -> None:
        self._brake = brake
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
            reason = self._brake.why_not()
        except KubeError as e:
            log.info("deletion costs wait: %s", e.message)
            return False
        return reason is None or reason.code is ReasonCode.NO_BRAKE


# Scale-ins are steered between cycles too: pods come and go at any time.

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
