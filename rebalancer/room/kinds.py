"""The nodes that could be added: shapes that the cluster has, in domains that it has, or that it lacks.

A shape is a node's allocatable resources, taints and further labels. Shapes and domains are combined freely:
a zone may get what only another has. Of two that take the same pods in the same domains the larger is enough
to find the fewest; which smaller one would do as well is asked once it is known what the pods need.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.state.cluster import PODS
from rebalancer.model.node import (
    HOSTNAME,
    OF_ITS_NODE,
    REGION,
    ZONE,
    Node,
    lasting_spec,
)
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.components import Component, components
from rebalancer.planner.cluster.groups import Group, Groups
from rebalancer.planner.cluster.pod_classes import Classes, PodClass
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.constraints import View
from rebalancer.planner.moves import victim_order
from rebalancer.planner.plan import PlanOptions
from rebalancer.spread.constraint import Constraint

# A snapshot with more nodes, or with larger ones.


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


def _copy(name: str, like: Node, labels: Mapping[str, str]) -> Node:
    own = {**like.labels, HOSTNAME: name, **labels}
    metadata = replace(like.metadata, name=name, uid="", labels=own, annotations={})
    return Node(metadata=metadata, spec=lasting_spec(like), status=replace(like.status, conditions=()))


def belongs_to_node(pod: Pod) -> bool:
    """Whether the node runs it for itself: a pod of a DaemonSet, or a static one."""
    return pod.owner is not None and pod.owner.kind in OF_ITS_NODE


def _of_the_node(snapshot: Snapshot, names: Iterable[str]) -> Mapping[str, list[Pod]]:
    wanted, found = set(names), defaultdict[str, list[Pod]](list)
    for pod in snapshot.pods:
        if pod.node_name in wanted and belongs_to_node(pod) and not pod.finished and not pod.terminating:
            found[pod.node_name].append(pod)
    return found


_SHAPES = 12
_KINDS = 96
_NEW_DOMAINS = 3
_PREFIX = "new-node"
NEW = "new domain"
"""What the label value of a domain that the cluster does not have begins with."""


class NodeKind(Struct, frozen=True, eq=False):
    """A shape in a domain. `labels`: its values of the topology keys."""

    like: Node
    labels: Mapping[str, str]


class Kinds(Struct, frozen=True, eq=False):
    """`every`: all that were thought of. `whole`: none was left out for their number."""

    every: tuple[NodeKind, ...]
    whole: bool


def kinds(snapshot: Snapshot, groups: Iterable[Group]) -> Kinds:
    """What could be added for these groups."""
    every = list(groups)
    keys = sorted({g.constraint.topology_key for g in every} - {HOSTNAME} | {ZONE, REGION})
    models = [n for n in snapshot.nodes if n.ready]
    shapes, all_shapes = _shapes(models, keys)
    places: Counter[tuple[tuple[str, str], ...]] = Counter(
        tuple((k, n.labels[k]) for k in keys if k in n.labels) for n in models
    )
    combined = [dict(place) for place, _ in sorted(places.items(), key=lambda p: (-p[1], p[0]))]
    combined += _new_domains(every, combined)
    found = [NodeKind(shape, place) for place in combined for shape in shapes]
    return Kinds(tuple(found[:_KINDS]), all_shapes and len(found) <= _KINDS)


def _shapes(nodes: Sequence[Node], keys: Sequence[str]) -> tuple[list[Node], bool]:
    """One node of each shape, common ones first."""
    values: dict[str, set[str]] = {}
    for node in nodes:
        for key, value in node.labels.items():
            values.setdefault(key, set()).add(value)
    # A label that tells most nodes from all others is no part of a shape.
    telling = {k for k, v in values.items() if len(v) * 2 > len(nodes)} | {HOSTNAME, *keys}
    found: dict[tuple[object, ...], list[Node]] = {}
    for node in nodes:
        labels = tuple(sorted((k, v) for k, v in node.labels.items() if k not in telling))
        shape = labels, lasting_spec(node).taints, tuple(sorted(node.allocatable.items()))
        found.setdefault(shape, []).append(node)
    common = sorted(found.values(), key=lambda of: (-len(of), of[0].name))
    return [of[0] for of in common[:_SHAPES]], len(common) <= _SHAPES


def _new_domains(groups: Iterable[Group], places: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Places with a value of a key that no node has, as many as `minDomains` is short of."""
    short: dict[str, int] = {}
    for g in groups:
        key, missing = g.constraint.topology_key, g.constraint.min_domains - g.size
        if key != HOSTNAME and missing > 0:
            short[key] = max(short.get(key, 0), missing)
    common = places[0] if places else {}
    return [
        {**common, key: f"{NEW} {i + 1}"}
        for key, missing in sorted(short.items())
        for i in range(min(missing, _NEW_DOMAINS))
    ]


def useful(
    simulation: Simulation, groups: Sequence[Group], classes: Sequence[PodClass], rows: Sequence[int]
) -> list[int]:
    """Of nodes that could be added those (by place in `rows`) that take pods: of two that take the same in
    the same domains the larger one."""
    state = simulation.state
    resources = sorted({PODS, *(r for c in classes for r, _ in state.asks(c.replacement))})
    free = np.stack([simulation.free(r) for r in resources])
    kept: dict[tuple[object, ...], list[int]] = {}
    for place, row in enumerate(rows):
        takes = tuple(bool(c.static[row]) for c in classes)
        if not any(takes):
            continue
        domains = tuple(
            int(g.domain_of[row]) if g.constraint.topology_key != HOSTNAME else int(g.domain_of[row] >= 0)
            for g in groups
        )
        alike = kept.setdefault((takes, domains), [])
        if not any((free[:, rows[other]] >= free[:, row]).all() for other in alike):
            alike[:] = [o for o in alike if not (free[:, row] >= free[:, rows[o]]).all()] + [place]
    return sorted(p for alike in kept.values() for p in alike)


def named(chosen: Sequence[NodeKind], each: int = 1) -> list[tuple[str, Node, Mapping[str, str]]]:
    """So many new nodes of each kind, for `with_nodes`; those of one kind follow each other."""
    return [
        (f"{_PREFIX}-{k}-{i}", kind.like, kind.labels) for k, kind in enumerate(chosen) for i in range(each)
    ]


# All that keeps an excess as one component, in a cluster that may have further nodes.


class Posed:
    """`component`: the constraints in `keep`, and all that share pods with them, whose pods compete for room;
    pods of others stay where they are. `before`: the cluster without further nodes. `rows`: the
    further nodes, those of one kind after each other."""

    def __init__(
        self,
        snapshot: Snapshot,
        options: PlanOptions,
        keep: Collection[Constraint],
        chosen: Sequence[NodeKind] = (),
        each: int = 1,
    ) -> None:
        """With so many nodes of `each` of these kinds."""
        added = named(chosen, each)
        self.chosen, self.each = list(chosen), each
        self.before = snapshot
        self.snapshot = with_nodes(snapshot, added) if added else snapshot
        self.view = view = View(self.snapshot, options)
        self.simulation = view.simulation
        groups = Groups(view.simulation.state, (alike.template for alike in self.snapshot.live))
        order = victim_order(self.snapshot, view.evictable.budgets)
        classes = Classes(view.simulation, groups, view.evictable, view.live, order)
        wanted = {g for g in groups.all if g.constraint in keep}
        parts = [
            part
            for part in components(groups.all, classes.coupled(wanted))
            if part[1] and not wanted.isdisjoint(part[0])
        ]
        self.component = Component(
            tuple(g for own, _ in parts for g in own),
            tuple(c for _, own in parts for c in own),
            view.simulation,
        )
        index = view.simulation.state.table.index
        self.rows = [index[name] for name, _, _ in added]

    @property
    def alike(self) -> list[Sequence[int]]:
        """The rows, by kind."""
        return [self.rows[i : i + self.each] for i in range(0, len(self.rows), self.each)]

    def kind_of(self, row: int) -> NodeKind:
        """Of a further node."""
        return self.chosen[self.rows.index(row) // self.each]

    @property
    def enough(self) -> int:
        """Nodes of each kind beyond which further ones change nothing: a node for every pod, and for every
        domain that is asked for."""
        domains = max((g.constraint.min_domains for g in self.component.groups), default=0)
        return int(self.component.start.sum()) + domains
