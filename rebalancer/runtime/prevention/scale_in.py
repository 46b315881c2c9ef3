"""Deletion costs, written where they are not as they should be: slowly, and never in haste for one owner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from rebalancer.engine.config import SchedulerConfig
from rebalancer.kube.errors import ForbiddenError
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.steering import CostOutcome, CostResult, SteeringReport
from rebalancer.prevention.scale_in.scope import ScaleInOptions
from rebalancer.prevention.scale_in.steering import CostChange, steer
from rebalancer.runtime.cycle.clock import Clock

log = logging.getLogger(__name__)

PER_SECOND = 5.0
"""Writes over all owners: a large cluster's API server does not notice them."""
REST = 60.0
"""Seconds between two times that the pods of one owner are written to: an autoscaler may change its mind."""


class Writer(Protocol):
    """Writes one cost (`kube.patch.deletion_cost.CostWriter`)."""

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
