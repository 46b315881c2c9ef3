"""What the program found, as nodes to add: where, like which, with how much free, and for whose pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rebalancer.engine.state.cluster import PODS, ClusterState
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.bounds.added_nodes import Added
from rebalancer.planner.cluster.pod_classes import PodClass
from rebalancer.room.advice import ForPods, NewNodes
from rebalancer.room.extended import belongs_to_node, lasting_spec
from rebalancer.room.kinds import NodeKind
from rebalancer.room.posed import Posed


def new_nodes(posed: Posed, best: Added, every: Sequence[NodeKind]) -> tuple[NewNodes, ...]:
    """The nodes, equal ones together."""
    found: dict[tuple[object, ...], list[NewNodes]] = {}
    for row in best.nodes:
        pods = [
            (c, int(number))
            for c, number in zip(posed.component.classes, best.placed[:, row], strict=True)
            if number
        ]
        one = _node(posed, posed.kind_of(row), pods, every)
        key = one.like, tuple(one.domains.items()), tuple(one.free.items())
        found.setdefault(key, []).append(one)
    return tuple(_together(alike) for alike in found.values())


def bare_node(snapshot: Snapshot, kind: NodeKind) -> NewNodes:
    """One of this kind, like a node that is in these domains already, if there is such a one."""
    taints = lasting_spec(kind.like).taints
    like = next(
        (
            n
            for n in snapshot.nodes
            if kind.labels.items() <= n.labels.items()
            and n.allocatable == kind.like.allocatable
            and lasting_spec(n).taints == taints
        ),
        kind.like,
    )
    return NewNodes(
        number=1,
        domains=kind.labels,
        like=like.name,
        free={},
        unlike=tuple(k for k, v in kind.labels.items() if like.labels.get(k) != v),
        taints=taints,
    )


def wanted(state: ClusterState, pods: Sequence[tuple[PodClass, int]]) -> dict[str, int]:
    """What these pods ask for in all, by resource."""
    total: dict[str, int] = {}
    for c, number in pods:
        for resource, amount in state.asks(c.replacement):
            total[resource] = total.get(resource, 0) + number * amount
    return total


def _node(
    posed: Posed, kind: NodeKind, pods: Sequence[tuple[PodClass, int]], every: Sequence[NodeKind]
) -> NewNodes:
    free = wanted(posed.simulation.state, pods)
    smaller = [
        k
        for k in every
        if k.labels == kind.labels
        and lasting_spec(k.like).taints == lasting_spec(kind.like).taints
        and all(_left(posed, k).get(r, 0) >= amount for r, amount in free.items())
    ]
    # The largest that was thought of is enough; a smaller one that is, costs less.
    best = min((*smaller, kind), key=lambda k: (_size(k), k is not kind))
    owners = posed.view.evictable.owners
    return replace(
        bare_node(posed.before, best),
        free=free,
        pods=tuple(
            ForPods(owners.top(c.owner).key, c.replacement, number)
            for c, number in pods
            if c.owner is not None
        ),
    )


def _left(posed: Posed, kind: NodeKind) -> Mapping[str, int]:
    """What such a node has beside what it runs for itself."""
    left = dict(kind.like.allocatable)
    for pod in posed.snapshot.pods:
        if pod.node_name == kind.like.name and belongs_to_node(pod):
            for resource, amount in posed.simulation.state.holds(pod.template):
                left[resource] = left.get(resource, 0) - amount
    return left


def _size(kind: NodeKind) -> tuple[int, ...]:
    return tuple(kind.like.allocatable.get(r, 0) for r in ("cpu", "memory", PODS))


def _together(alike: Sequence[NewNodes]) -> NewNodes:
    return replace(alike[0], number=len(alike))
