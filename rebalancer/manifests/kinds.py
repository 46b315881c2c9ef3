"""The kinds that are read from files, their API groups, and which of them are missing in a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from rebalancer.model.kinds import KINDS
from rebalancer.model.missing_kinds import CONSEQUENCES, missed
from rebalancer.model.node import Node

CAPTURED_AT = "rebalancer/captured-at"
"""Annotation of a List: when the cluster was read (RFC 3339). A plan from that file computes ages from it."""
CAPTURED_KINDS = "rebalancer/kinds"
"""Annotation of a List: the kinds that were read, comma-separated. If one of them has no object in the file,
the cluster has none."""
REFUSED_KINDS = "rebalancer/refused-kinds"
"""Annotation of a List: the kinds that could not be listed, comma-separated; "" for none. Files of earlier
versions lack it; there it is every kind that is not in CAPTURED_KINDS."""
SERVER_VERSION = "rebalancer/server-version"
"""Annotation of a List: the API server's gitVersion."""

RESOURCES = (
    "nodes,pods,namespaces,services,replicationcontrollers,replicasets,deployments,statefulsets,"
    "controllerrevisions,daemonsets,jobs,poddisruptionbudgets,persistentvolumes,persistentvolumeclaims,"
    "storageclasses,csinodes,csidrivers,csistoragecapacities,priorityclasses,horizontalpodautoscalers,"
    "resourcequotas"
)
KUBECTL = f"kubectl get {RESOURCES} -A -o json > cluster.json"
"""The command that writes a file with everything that is read, but for kinds that a cluster need not have."""

_GROUPS = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ControllerRevision"), "apps"),
    "Job": "batch",
    "PodDisruptionBudget": "policy",
    "PriorityClass": "scheduling.k8s.io",
    "HorizontalPodAutoscaler": "autoscaling",
    **dict.fromkeys(("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity"), "storage.k8s.io"),
    "NodeClaim": "karpenter.sh",
    "DeviceClass": "resource.k8s.io",
    "VerticalPodAutoscaler": "autoscaling.k8s.io",
}
CLUSTER_SCOPED = frozenset(
    {
        "Node",
        "Namespace",
        "PersistentVolume",
        "StorageClass",
        "CSINode",
        "CSIDriver",
        "PriorityClass",
        "NodeClaim",
        "DeviceClass",
    }
)


def is_read(kind: str, api_version: str) -> bool:
    """Whether this is one of `KINDS`, and of its API group. Knative has a Service too, and Longhorn a Node.

    The group of an object without apiVersion (an item of a typed list) is not checked.
    """
    if kind not in KINDS:
        return False
    if not api_version:
        return True
    group = api_version.rpartition("/")[0]
    return group == _GROUPS.get(kind, "")


def absences(present: Collection[str], nodes: Iterable[Node] = ()) -> Iterator[str]:
    """A sentence for each group of kinds that are missing in the files, with the consequence."""
    nodes = tuple(nodes)
    for kinds, consequence in CONSEQUENCES:
        missing = [k for k in kinds if k not in present and missed(k, nodes)]
        if missing:
            named = missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])} or {missing[-1]}"
            yield f"no {named} in the snapshot: {consequence}"
