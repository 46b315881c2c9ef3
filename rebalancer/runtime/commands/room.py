"""What `room` does, and the report where it is cheap: the nodes that are missing, as a document."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
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


def why_kept(snapshot: Snapshot, plan: Plan) -> str:
    """Why a buffer that is not asked for any more may be needed all the same; "" if it is not.

    An excess that stays counts whatever keeps it, and in whatever namespace: what keeps it may pass, and then
    the room is wanted. With none there is nothing left to be proved.
    """
    if plan.moves:
        return f"the plan has {plural(len(plan.moves), 'eviction')} that may use its room"
    if stays := sum(c.residual_excess for c in plan.constraints):
        return f"an excess of {stays} stays, which may want its room"
    if waiting := sum(p.waits for p in snapshot.pods):
        return f"{plural(waiting, 'pod')} Pending may want its room"
    unread = {r.kind for r in snapshot.reads if r.unreadable or not r.known} | snapshot.refused
    return f"not everything could be read: {', '.join(sorted(unread))}" if unread else ""


def left_over(
    connection: Connection,
    objects: Sequence[Json],
    *,
    namespaces: Collection[str],
    outside: Callable[[str], object],
    kept: str,
    remove: bool,
) -> Iterator[str]:
    """Says which buffers and templates in these namespaces (empty = all) are not among these objects any
    more, and removes them if asked to.

    `outside`: whether a namespace is outside the scope: what is there is none of ours. `kept`: why none of
    them may go, "" if they may. What somebody else manages, too, stays in any case, buffer and template
    together. Raises KubeError where one cannot be removed.
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
    shared = {(o.namespace, o.name) for o in there if not o.ours}
    for one in (o for o in there if str(o) not in wanted and not outside(o.namespace)):
        if (one.namespace, one.name) in shared:
            yield f"not asked for any more, but somebody else manages it, too, so it stays: {one}"
        elif kept:
            yield f"not asked for any more, but kept: {one}: {kept}"
        elif remove:
            capacity_buffers.remove(connection, one)
            yield f"removed, as it is not needed any more: {one}"
        else:
            yield f"not needed any more: {one}; --apply removes it"
