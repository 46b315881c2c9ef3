"""Pods on nodes that are not Ready, where an evicted pod may stay Terminating for a long time.

A pod is gone only when its kubelet says so, and the kubelet of a node that is not Ready may not say so for
hours. A ReplicaSet makes its replacement all the same. A StatefulSet does not, because a pod's name can be
used only once at a time.
"""

from __future__ import annotations

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload


class NotReadyNodes:
    """The nodes of a snapshot that are not Ready."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._names = frozenset(n.name for n in snapshot.nodes if not n.ready)

    def why_not(self, pod: Pod, owner: Workload | None) -> Reason | None:
        """Why the pod's replacement might never be made; None if its owner does not wait until the pod is
        gone."""
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
