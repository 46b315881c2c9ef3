"""Pods that an owner keeps running and that are alike: one owner, one template, by node."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from rebalancer.findings.subject import REPLICATED
from rebalancer.model.alike import among
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.policy.evictable import Evictable
from rebalancer.spread.arrays import Rows
from rebalancer.spread.nodes import NodeTable


class Kept(Struct, frozen=True, eq=False, dict=True):
    """`replacement`: what the owner makes in place of one. `pods`: its live pods; `table`: their nodes."""

    owner: Workload
    template: PodTemplate
    replacement: PodTemplate
    pods: list[Pod]
    table: NodeTable

    @cached_property
    def rows(self) -> Rows:
        """The numbers of their nodes, each once."""
        index = self.table.index
        return np.fromiter(dict.fromkeys(index[p.node_name] for p in self.pods), dtype=np.intp)

    @cached_property
    def by_node(self) -> dict[int, list[Pod]]:
        """The pods on each node, by its number."""
        found: dict[int, list[Pod]] = {}
        for pod in self.pods:
            found.setdefault(self.table.index[pod.node_name], []).append(pod)
        return found


def kept_pods(snapshot: Snapshot, evictable: Evictable, table: NodeTable) -> list[Kept]:
    """All of them whose owner makes a new pod in place of one that is gone, in the snapshot's order."""
    found = []
    for group in among(snapshot.live, table.index):
        owner = evictable.owners.of(group.one)
        if owner is not None and owner.kind in REPLICATED:
            replacement = evictable.replacements.of(group.template, owner)
            found.append(Kept(owner, group.template, replacement, group.pods, table))
    return found
