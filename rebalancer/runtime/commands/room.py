"""What `room` does, and the report where it is cheap: the nodes that are missing, as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.report.room.document import RoomReport, build_room
from rebalancer.room import LOOKED_FOR_UNASKED, room

if TYPE_CHECKING:
    from rebalancer.kube.client.connection import Connection


def missing_room(
    snapshot: Snapshot, options: PlanOptions, plan: Plan, *, asked: bool = False
) -> RoomReport | None:
    """None where the plan leaves no excess, or where the cluster is large and nobody asked."""
    if not asked and (not plan.residual_excess or len(snapshot.pods) > LOOKED_FOR_UNASKED):
        return None
    return build_room(room(snapshot, options, plan), plan.constraints, source=snapshot.source)


def apply_buffers(connection: Connection, objects: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Creates or updates them in order, and says so one by one. Raises KubeError and UserError."""
    from rebalancer.kube.patch.capacity_buffers import apply

    for obj in objects:
        apply(connection, obj)
        yield f"applied: {obj['kind']}/{obj['metadata']['namespace']}/{obj['metadata']['name']}"
