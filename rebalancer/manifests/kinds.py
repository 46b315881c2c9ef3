"""The kinds that are read from files, their API groups, and which of them a file lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rebalancer.model.decode import KINDS
from rebalancer.model.unread import CONSEQUENCES

CAPTURED_AT = "rebalancer/captured-at"
"""Annotation of a List: when the cluster was read, RFC 3339. It is the clock of a plan from that file."""
CAPTURED_KINDS = "rebalancer/kinds"
"""Annotation of a List: the kinds that were asked for, comma-separated; one of them without objects is known
to have none."""
SERVER_VERSION = "rebalancer/server-version"
"""Annotation of a List: the API server's gitVersion."""

RESOURCES = (
    "nodes,pods,namespaces,services,replicationcontrollers,replicasets,deployments,statefulsets,"
    "controllerrevisions,daemonsets,jobs,poddisruptionbudgets,persistentvolumes,persistentvolumeclaims,"
    "storageclasses,csinodes,csidrivers,csistoragecapacities,priorityclasses,horizontalpodautoscalers,"
    "resourcequotas"
)
KUBECTL = f"kubectl get {RESOURCES} -A -o json > cluster.json"
"""What to run to get a file with everything that is read."""

_GROUPS = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ControllerRevision"), "apps"),
    "Job": "batch",
    "PodDisruptionBudget": "policy",
    "PriorityClass": "scheduling.k8s.io",
    "HorizontalPodAutoscaler": "autoscaling",
    **dict.fromkeys(("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity"), "storage.k8s.io"),
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
    }
)


def is_read(kind: str, api_version: str) -> bool:
    """Whether this is one of `KINDS`, and of Kubernetes: Knative has a Service, Longhorn a Node.

    An object without apiVersion (an item of a typed list) is taken at its word.
    """
    if kind not in KINDS:
        return False
    if not api_version:
        return True
    group = api_version.rpartition("/")[0]
    return group == _GROUPS.get(kind, "")


def absences(present: Collection[str]) -> Iterator[str]:
    """A sentence for each group of kinds of which no object was in the files, with what follows from it."""
    for kinds, consequence in CONSEQUENCES:
        missing = [k for k in kinds if k not in present]
        if missing:
            named = missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])} or {missing[-1]}"
            yield f"no {named} in the snapshot: {consequence}"
