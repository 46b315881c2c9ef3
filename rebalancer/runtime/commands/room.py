"""What `room` does, and the report where it is cheap: the nodes that are missing, as a document."""

from __future__ import annotations

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.report.room.document import RoomReport, build_room
from rebalancer.room import LOOKED_FOR_UNASKED, room


def missing_room(
    snapshot: Snapshot, options: PlanOptions, plan: Plan, *, asked: bool = False
) -> RoomReport | None:
    """None where the plan leaves no excess, or where the cluster is large and nobody asked."""
    if not asked and (not plan.residual_excess or len(snapshot.pods) > LOOKED_FOR_UNASKED):
        return None
    return build_room(room(snapshot, options, plan), plan.constraints, source=snapshot.source)
