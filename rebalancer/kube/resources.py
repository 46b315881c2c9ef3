"""Where each kind lives in the API, and what the tool loses when it may not read it."""

from __future__ import annotations

from urllib.parse import quote

from msgspec import Struct

_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class Resource(Struct, frozen=True):
    """A kind's place in the API.

    `without` is the consequence of not being able to list it, as the end of a sentence; empty for the kinds
    without which nothing can be decided. `metadata_only`: nothing but metadata is read, so that the server
    is asked to leave out the rest.
    """

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True
    without: str = ""
    metadata_only: bool = False

    @property
    def qualified(self) -> str:
        """plural.group, as `kubectl auth can-i` takes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def accept(self) -> str:
        """The Accept header of a list."""
        return _METADATA_LIST if self.metadata_only else "application/json"

    @property
    def watch_accept(self) -> str:
        """The Accept header of a watch."""
        return _METADATA if self.metadata_only else "application/json"

    def unknown(self, why: object) -> str:
        """The warning that goes with planning without this kind."""
        return f"{self.qualified} cannot be listed: {self.without} ({why})"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a list or an object, every part escaped."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(p, safe="") for p in (name, subresource) if p]
        return "/".join(parts)


_STORAGE = "volumes are taken to fit wherever the pod goes"

_ALL = (
    Resource("Node", "", "v1", "nodes", namespaced=False),
    Resource("Pod", "", "v1", "pods"),
    Resource(
        "Namespace",
        "",
        "v1",
        "namespaces",
        namespaced=False,
        without="namespace selectors of affinity terms cannot be resolved",
        metadata_only=True,
    ),
    Resource("Service", "", "v1", "services", without="default constraints cannot be derived from services"),
    Resource(
        "ReplicaSet",
        "apps",
        "v1",
        "replicasets",
        without="their pods have no known owner and stay where they are",
    ),
    Resource(
        "StatefulSet",
        "apps",
        "v1",
        "statefulsets",
        without="their pods have no known owner and stay where they are",
    ),
    Resource(
        "ReplicationController",
        "",
        "v1",
        "replicationcontrollers",
        without="their pods have no known owner and stay where they are",
    ),
    Resource("Deployment", "apps", "v1", "deployments", without="rollouts in progress are not seen"),
    Resource("DaemonSet", "apps", "v1", "daemonsets", without="their templates are unknown"),
    Resource("Job", "batch", "v1", "jobs", without="their templates are unknown"),
    Resource(
        "ControllerRevision",
        "apps",
        "v1",
        "controllerrevisions",
        without="revisions of StatefulSets in a rollout are unknown",
        metadata_only=True,
    ),
    Resource(
        "PodDisruptionBudget",
        "policy",
        "v1",
        "poddisruptionbudgets",
        without="budgets are not planned with: only the API server still keeps them, eviction by eviction",
    ),
    Resource(
        "PriorityClass",
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        namespaced=False,
        without="preemption policies are taken from the pods alone",
    ),
    Resource(
        "HorizontalPodAutoscaler",
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        without="workloads that are being scaled are not recognised by their autoscaler",
    ),
    Resource(
        "ResourceQuota",
        "",
        "v1",
        "resourcequotas",
        without="quotas that would stop a replacement are not seen",
    ),
    Resource("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", without=_STORAGE),
    Resource("PersistentVolume", "", "v1", "persistentvolumes", namespaced=False, without=_STORAGE),
    Resource("StorageClass", "storage.k8s.io", "v1", "storageclasses", namespaced=False, without=_STORAGE),
    Resource(
        "CSINode", "storage.k8s.io", "v1", "csinodes", namespaced=False, without="volume limits are unknown"
    ),
    Resource(
        "CSIDriver",
        "storage.k8s.io",
        "v1",
        "csidrivers",
        namespaced=False,
        without="storage capacity is unknown",
    ),
    Resource(
        "CSIStorageCapacity",
        "storage.k8s.io",
        "v1",
        "csistoragecapacities",
        without="storage capacity is unknown",
    ),
)

RESOURCES: dict[str, Resource] = {r.kind: r for r in _ALL}
"""Every kind that is read, in the order in which lists are started: the long ones first."""
