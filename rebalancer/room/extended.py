"""A snapshot with more nodes, or with larger ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from rebalancer.model.node import Node, NodeSpec
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.leaving_nodes import (
    CANDIDATE_TAINT,
    LEAVING_TAINTS,
    STARTING_PREFIXES,
    STARTING_TAINTS,
)

HOSTNAME = "kubernetes.io/hostname"
_PASSING = LEAVING_TAINTS | STARTING_TAINTS | {CANDIDATE_TAINT}
_BY_KUBERNETES = "node.kubernetes.io/"


def with_nodes(snapshot: Snapshot, added: Sequence[tuple[str, Node, Mapping[str, str]]]) -> Snapshot:
    """Empty nodes beside the others, each with a name, a node that it is like, and labels of its own.

    They run what the node that they are like runs for itself: pods of DaemonSets and static ones.
    """
    own = _of_the_node(snapshot, {like.name for _, like, _ in added})
    nodes = [_copy(name, like, labels) for name, like, labels in added]
    pods = [
        replace(p, name=f"{p.name}-{name}", uid=f"{p.uid or p.key}/{name}", node_name=name)
        for name, like, _ in added
        for p in own[like.name]
    ]
    drivers = {
        name: replace(found, metadata=replace(found.metadata, name=name))
        for name, like, _ in added
        if (found := snapshot.csi_nodes.get(like.name)) is not None
    }
    return replace(
        snapshot,
        nodes=tuple(sorted((*snapshot.nodes, *nodes), key=lambda n: n.name)),
        pods=tuple(sorted((*snapshot.pods, *pods), key=lambda p: (p.namespace, p.name))),
        csi_nodes={**snapshot.csi_nodes, **drivers},
    )


def enlarged(snapshot: Snapshot, name: str, more: Mapping[str, int]) -> Snapshot:
    """One node with so much more to allocate, in the scheduler's integers."""

    def larger(node: Node) -> Node:
        quantities = dict(node.status.allocatable)
        for resource, amount in more.items():
            total = node.allocatable.get(resource, 0) + amount
            quantities[resource] = f"{total}m" if resource == "cpu" else total
        return replace(node, status=replace(node.status, allocatable=quantities))

    return replace(snapshot, nodes=tuple(larger(n) if n.name == name else n for n in snapshot.nodes))


def lasting_spec(node: Node) -> NodeSpec:
    """The node's spec without what tells of its present state: cordons, and taints that come and go."""
    taints = tuple(
        t
        for t in node.spec.taints
        if t.key not in _PASSING and not t.key.startswith((_BY_KUBERNETES, *STARTING_PREFIXES))
    )
    return NodeSpec(taints=taints)


def _copy(name: str, like: Node, labels: Mapping[str, str]) -> Node:
    own = {**like.labels, HOSTNAME: name, **labels}
    metadata = replace(like.metadata, name=name, uid="", labels=own)
    return Node(metadata=metadata, spec=lasting_spec(like), status=replace(like.status, conditions=()))


def belongs_to_node(pod: Pod) -> bool:
    """Whether the node runs it for itself: a pod of a DaemonSet, or a static one."""
    return pod.owner is not None and pod.owner.kind in ("DaemonSet", "Node")


def _of_the_node(snapshot: Snapshot, names: Iterable[str]) -> Mapping[str, list[Pod]]:
    wanted, found = set(names), defaultdict[str, list[Pod]](list)
    for pod in snapshot.pods:
        if pod.node_name in wanted and belongs_to_node(pod) and not pod.finished and not pod.terminating:
            found[pod.node_name].append(pod)
    return found
