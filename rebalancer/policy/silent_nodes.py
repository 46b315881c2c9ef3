"""Nodes whose kubelet may not end a pod, and owners that wait for that end.

A pod is gone only when its kubelet says so. On a node that is not Ready nobody may say it for hours; a
ReplicaSet makes its replacement all the same, a StatefulSet, which keeps the name for one pod at a time, does
not.
"""

from __future__ import annotations

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload


class SilentNodes:
    """The nodes of a snapshot that are not Ready."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._names = frozenset(n.name for n in snapshot.nodes if not n.ready)

    def why_not(self, pod: Pod, owner: Workload | None) -> Reason | None:
        """Why the pod's replacement might never be made; None where its owner does not wait for its end."""
        if owner is None or owner.kind != "StatefulSet" or pod.node_name not in self._names:
            return None
        return Reason(
            ReasonCode.NODE_NOT_READY,
            f"its node {pod.node_name} is not Ready: the pod may never end there, and before that "
            f"StatefulSet {owner.name} makes no replacement",
            {},
            "bring the node back; if it is shut down for good, delete it or taint it with "
            "node.kubernetes.io/out-of-service:NoExecute",
        )
