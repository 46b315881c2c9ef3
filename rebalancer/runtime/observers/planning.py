"""Whether a plan is being made at this moment."""

from __future__ import annotations

from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import CycleReport
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import Plan


class PlanningWatch(Observer):
    """`on` from the snapshot of a cycle to its plan, or its end."""

    def __init__(self) -> None:
        self.on = False

    def on_snapshot(self, snapshot: Snapshot) -> None:  # noqa: ARG002
        self.on = True

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        self.on = False

    def on_report(self, report: CycleReport) -> None:  # noqa: ARG002
        self.on = False

    def on_error(self, error: Exception) -> None:  # noqa: ARG002
        self.on = False
