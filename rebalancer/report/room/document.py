"""The content of `rebalancer room`, which the report has as `room`. Its JSON is a public interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, Struct, UnsetType

from rebalancer.planner.plan import ConstraintResult
from rebalancer.report.api_version import API_VERSION
from rebalancer.report.wording.quantities import quantities
from rebalancer.room import NewNodes, Room


class PodsReport(Struct, frozen=True, rename="camel"):
    """Pods that would go to a new node. `workload` is Kind/namespace/name."""

    workload: str
    pods: int


class NewNodesReport(Struct, frozen=True, rename="camel"):
    """Equal new nodes. `domains`: their labels by topology key. `like`: a node that has the shape. `taints`:
    its own, as kubectl writes them. `free`: what each must have left for pods, as quantities; empty if that
    depends on the order of evictions. `unlike`: keys of `domains` that the node `like` has otherwise."""

    nodes: int
    domains: Mapping[str, str]
    like: str
    taints: tuple[str, ...]
    free: Mapping[str, str]
    unlike: tuple[str, ...]
    pods: tuple[PodsReport, ...]


class InsteadReport(Struct, frozen=True, rename="camel"):
    """What would do as well: any one of `nodes` with so much `more`."""

    nodes: tuple[str, ...]
    more: Mapping[str, str]


class RoomReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """What room is missing, over all workloads together.

    `excess`: what the plan leaves. `missing`: the `nodes` that would cure it, or what of it room can cure.
    `least`: what no placement with any such nodes beats. `left`: what the plan with these leaves, after so
    many `evictions`. `mends`: workloads, namespace/Kind/name, whose constraints then hold, or hold better.
    `proved`: no fewer nodes do, and no more do better. `searched`: nothing was left out for the time it would
    take. `waiting`: Pending pods, which want room too and are
    not counted here.
    """

    api_version: str = API_VERSION
    kind: str = "Room"
    source: str
    excess: int
    nodes: int
    missing: tuple[NewNodesReport, ...]
    instead: InsteadReport | UnsetType = UNSET
    least: int
    left: int
    evictions: int
    mends: tuple[str, ...]
    proved: bool
    searched: bool
    waiting: int


def build_room(room: Room, constraints: Sequence[ConstraintResult], *, source: str = "") -> RoomReport:
    """The document; `constraints`: those of the plan that the advice is about."""
    mended = (
        f"{c.constraint.namespace}/{w}" for c in (constraints[i] for i in room.mends) for w in c.workloads
    )
    instead = room.instead
    return RoomReport(
        source=source,
        excess=room.excess,
        nodes=room.number,
        missing=tuple(map(_nodes, room.nodes)),
        instead=InsteadReport(instead.nodes, quantities(instead.more)) if instead is not None else UNSET,
        least=room.least,
        left=room.left,
        evictions=room.evictions,
        mends=tuple(dict.fromkeys(mended)),
        proved=room.proved,
        searched=room.searched,
        waiting=room.waiting,
    )


def _nodes(new: NewNodes) -> NewNodesReport:
    return NewNodesReport(
        nodes=new.number,
        domains=new.domains,
        like=new.like,
        taints=tuple(map(str, new.taints)),
        free=quantities(new.free),
        unlike=new.unlike,
        pods=tuple(PodsReport(p.workload, p.pods) for p in new.pods),
    )
