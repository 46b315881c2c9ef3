"""Which Pending pods may have been left without a node by our evictions?

Pods wait for many reasons, mostly for an autoscaler. An eviction can be the reason in two ways: the pod is a
replacement that found no node, or it would find one if our replacements were not where they are now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from rebalancer.engine.config import SchedulerConfig
from rebalancer.model.pod import Affinity, Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.history.ledger import Entry
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners


def displaced(snapshot: Snapshot, made: Sequence[Entry], config: SchedulerConfig | None) -> frozenset[str]:
    """namespace/name of the Pending pods that these evictions may have left without a node."""
    waiting = [p for p in snapshot.pods if p.unschedulable and p.waits]
    if not waiting or not made:
        return frozenset()
    there = {p.key: p for p in snapshot.pods if p.node_name and not p.terminating}
    landed = [there[e.replacement] for e in made if e.replacement in there]
    settled = {p.key for p in landed}
    missing = Counter(e.owner for e in made if e.replacement not in settled)
    ours = _replacements(snapshot, waiting, missing)
    others = [p for p in waiting if p.key not in ours]
    return ours | _would_fit(snapshot, others, landed, config)


def _replacements(snapshot: Snapshot, waiting: Sequence[Pod], missing: Counter[str]) -> frozenset[str]:
    """The Pending pods of owners of which pods were evicted: no more than were, the youngest."""
    if not missing:
        return frozenset()
    owners, found = Owners(snapshot, PolicyOptions()), set[str]()
    for pod in sorted(waiting, key=lambda p: (-(p.created or 0.0), p.key)):
        owner = owners.of(pod)
        if owner is not None and missing[top := owners.top(owner).key] > 0:
            missing[top] -= 1
            found.add(pod.key)
    return frozenset(found)


def _would_fit(
    snapshot: Snapshot, waiting: Sequence[Pod], landed: Sequence[Pod], config: SchedulerConfig | None
) -> frozenset[str]:
    """The Pending pods for which there would be a node without the replacements that have landed.

    Only their nodes are looked at; so what depends on other nodes, spread and affinity to pods, is left out.
    """
    rows, taken = {p.node_name for p in landed}, {p.key for p in landed}
    if not rows or not waiting:
        return frozenset()
    without = replace(
        snapshot,
        nodes=tuple(n for n in snapshot.nodes if n.name in rows),
        pods=tuple(p for p in snapshot.pods if p.node_name in rows and p.key not in taken),
    )
    simulation = Simulation(without, config)
    fits: dict[int, bool] = {}
    for template in {id(p.template): p.template for p in waiting}.values():
        bare = _bare(template)
        fits[id(template)] = bool(simulation.framework(bare).feasible(bare).any())
    return frozenset(p.key for p in waiting if fits[id(p.template)])


def _bare(template: PodTemplate) -> PodTemplate:
    node = template.affinity.node_affinity if template.affinity is not None else None
    return replace(template, spread=(), affinity=Affinity(node_affinity=node) if node is not None else None)
