"""The nodes that could be added: shapes that the cluster has, in domains that it has, or that it lacks.

A shape is a node's allocatable resources, taints and further labels. Shapes and domains are combined freely:
a zone may get what only another has. Of two that take the same pods in the same domains the larger is enough
to find the fewest; which smaller one would do as well is asked once it is known what the pods need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from rebalancer.engine.state.cluster import PODS
from rebalancer.model.node import Node
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.pod_classes import PodClass
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.room.extended import HOSTNAME, lasting_spec

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
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
    free = np.stack([state.allocatable(r) - state.requested[r] for r in resources])
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
