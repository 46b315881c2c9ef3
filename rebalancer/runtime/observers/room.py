"""What room is missing, looked for after cycles that leave another excess than the one before."""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import CycleReport
from rebalancer.outcome.observer import Observer
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.room import LOOKED_FOR_UNASKED, room


class RoomWatch(Observer):
    """Tells `tell` how many nodes are missing. In a large cluster, where it takes long, nothing is told."""

    def __init__(self, tell: Observer, options: Callable[[], PlanOptions]) -> None:
        self._tell = tell
        self._options = options
        self._last: tuple[Snapshot, Plan] | None = None
        self._seen: object = None

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Remembers the last one of the cycle."""
        self._last = snapshot, plan

    def on_report(self, report: CycleReport) -> None:  # noqa: ARG002
        """Looks, when the cycle has done its work."""
        last, self._last = self._last, None
        if last is None or len(last[0].pods) > LOOKED_FOR_UNASKED:
            return
        snapshot, plan = last
        stays = [(c.constraint, c.domains, c.residual_excess) for c in plan.constraints if c.residual_excess]
        seen = len(snapshot.nodes), stays
        if seen != self._seen:
            self._seen = seen
            self._tell.on_room(room(snapshot, self._options(), plan))
