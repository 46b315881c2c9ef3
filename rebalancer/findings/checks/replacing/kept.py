"""Pods that an owner keeps running and that are alike: one owner, one template, by node."""

from __future__ import annotations

from msgspec import Struct

from rebalancer.findings.subject import REPLICATED
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.nodes import NodeTable


class Kept(Struct, frozen=True, eq=False):
    """`replacement`: what the owner makes in place of one. `by_node[row]`: its live pods on each node."""

    owner: Workload
    template: PodTemplate
    replacement: PodTemplate
    by_node: dict[int, list[Pod]]

    @property
    def number(self) -> int:
        """How many pods."""
        return sum(map(len, self.by_node.values()))


def kept_pods(snapshot: Snapshot, evictable: Evictable, table: NodeTable) -> list[Kept]:
    """All of them whose owner makes a new pod in place of one that is gone, in the snapshot's order."""
    found: dict[tuple[int, int], Kept | None] = {}
    index = table.index
    for pod in snapshot.pods:
        row = index.get(pod.node_name)
        if row is None or pod.finished or pod.terminating or pod.owner is None:
            continue
        key = id(pod.template), id(pod.owner)
        if key not in found:
            owner = evictable.owners.of(pod)
            found[key] = None
            if owner is not None and owner.kind in REPLICATED:
                replacement = evictable.replacements.of(pod.template, owner)
                found[key] = Kept(owner, pod.template, replacement, {})
        kept = found[key]
        if kept is not None:
            kept.by_node.setdefault(row, []).append(pod)
    return [kept for kept in found.values() if kept is not None]
