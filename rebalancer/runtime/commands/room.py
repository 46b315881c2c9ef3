"""What `room` does, and the report where it is cheap: the nodes that are missing, as a document."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.report.room.buffers import SELECTOR
from rebalancer.report.room.document import RoomReport, build_room
from rebalancer.report.wording.text import plural
from rebalancer.room import LOOKED_FOR_UNASKED, room

Json = dict[str, Any]
if TYPE_CHECKING:
    from rebalancer.kube.client.connection import Connection


def missing_room(
    snapshot: Snapshot, options: PlanOptions, plan: Plan, *, asked: bool = False
) -> RoomReport | None:
    """None where the plan leaves no excess, or where the cluster is large and nobody asked."""
    if not asked and (not plan.residual_excess or len(snapshot.pods) > LOOKED_FOR_UNASKED):
        return None
    return build_room(room(snapshot, options, plan), plan.constraints, source=snapshot.source)


def apply_buffers(connection: Connection, objects: Sequence[Json]) -> Iterator[str]:
    """Creates or updates them in order, and says so one by one. Raises KubeError and UserError."""
    from rebalancer.kube.patch.capacity_buffers import apply

    for obj in objects:
        apply(connection, obj)
        yield f"applied: {obj['kind']}/{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def why_kept(room: RoomReport, plan: Plan, left_out: Sequence[str]) -> str:
    """Why a buffer that is not asked for any more may be needed all the same; "" if it is not."""
    if plan.moves:
        return f"the plan has {plural(len(plan.moves), 'eviction')} that may use its room"
    if left_out:
        return "not all room that is missing can be asked for"
    return "" if room.proved else "what room is missing was not found out for certain"


def left_over(
    connection: Connection,
    objects: Sequence[Json],
    *,
    namespaces: Collection[str],
    kept: str,
    remove: bool,
) -> Iterator[str]:
    """Says which buffers and templates in these namespaces (empty = all) are not among these objects any
    more, and removes them if asked to.

    `kept`: why none of them may go, "" if they may. What somebody else made stays in any case. Raises
    KubeError where one cannot be removed.
    """
    from rebalancer.kube.errors import ForbiddenError, KubeError
    from rebalancer.kube.patch import capacity_buffers

    wanted = {f"{o['kind']}/{o['metadata']['namespace']}/{o['metadata']['name']}" for o in objects}
    try:
        there = capacity_buffers.found(connection, SELECTOR, namespaces)
    except KubeError as e:
        if remove or not isinstance(e, ForbiddenError):
            yield f"whether there are buffers that are not needed any more is not known: {e}"
        return
    for one in (o for o in there if str(o) not in wanted):
        if not one.ours:
            yield f"not asked for any more, and applied by somebody else, so it stays: {one}"
        elif kept:
            yield f"not asked for any more, but kept: {one}: {kept}"
        elif remove:
            capacity_buffers.remove(connection, one)
            yield f"removed, as it is not needed any more: {one}"
        else:
            yield f"not needed any more: {one}; --apply removes it"
