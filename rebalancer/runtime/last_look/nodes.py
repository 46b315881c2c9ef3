"""What a plan rests on of the nodes, and what of it has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from rebalancer.model.node import NODEPOOL, Node, Taint
from rebalancer.model.pod import Affinity, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.cluster.leaving_nodes import INITIALIZED


class NodeFacts(Struct, frozen=True):
    """What the scheduler asks of one node: labels under the keys in question, taints that repel, cordon, and
    what its pods may request in all."""

    labels: tuple[tuple[str, str], ...]
    taints: frozenset[Taint]
    unschedulable: bool
    allocatable: dict[str, str | int | float]


Facts = Mapping[str, NodeFacts]
"""By the node's name."""


def keys_of(templates: Iterable[PodTemplate]) -> frozenset[str]:
    """The node labels on which the placement of these pods rests."""
    keys: set[str] = set()
    for t in {id(t): t for t in templates}.values():
        keys.update(c.topology_key for c in t.spread)
        keys.update(t.node_selector)
        keys.update(_affinity_keys(t.affinity))
    # Karpenter's say whether a node is set up.
    return frozenset(keys) | {"topology.kubernetes.io/zone", "kubernetes.io/hostname", NODEPOOL, INITIALIZED}


def facts(nodes: Iterable[Node], keys: frozenset[str]) -> dict[str, NodeFacts]:
    """Node name → what counts of it. Taints that only express preference come and go with the autoscaler."""
    return {
        n.name: NodeFacts(
            tuple(sorted((k, v) for k, v in n.labels.items() if k in keys)),
            frozenset(t for t in n.spec.taints if t.effect != "PreferNoSchedule"),
            n.spec.unschedulable,
            n.status.allocatable,
        )
        for n in nodes
    }


def why(reason: Reason, planned: Facts, live: Facts, names: Iterable[str]) -> Reason:
    """`reason`, for which a move is not right any more, and what of its own nodes may have led to it."""
    removed = sorted(n for n in names if n in planned and n not in live)
    other = sorted(n for n in names if n in planned and n in live and live[n] != planned[n])
    parts = [
        f"{len(found)} {what} ({', '.join(found[:3])}{', …' if len(found) > 3 else ''})"
        for found, what in (
            (removed, "removed"),
            (other, "relabelled, tainted, cordoned or resized"),
        )
        if found
    ]
    if not parts:
        return reason
    return Reason(
        ReasonCode.NODES_CHANGED,
        f"{reason.message}; nodes have changed since the plan: {'; '.join(parts)}",
        {**reason.numbers, "removed": len(removed), "changed": len(other)},
    )


def _affinity_keys(affinity: Affinity | None) -> Iterable[str]:
    if affinity is None:
        return
    node = affinity.node_affinity
    if node is not None:
        terms = [*(node.required.node_selector_terms if node.required else ())]
        terms += [p.preference for p in node.preferred]
        for term in terms:
            yield from (e.key for e in term.match_expressions)
    for inter in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if inter is not None:
            yield from (t.topology_key for t in inter.required)
            yield from (t.pod_affinity_term.topology_key for t in inter.preferred)
