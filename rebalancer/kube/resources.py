"""Where each kind lives in the API."""

from __future__ import annotations

from urllib.parse import quote

from msgspec import Struct

from rebalancer.model.missing_kinds import consequence

_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class Resource(Struct, frozen=True):
    """A kind's place in the API.

    `metadata_only`: nothing but metadata is read, so that the server is asked to leave out the rest.
    """

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True
    metadata_only: bool = False

    @property
    def api_version(self) -> str:
        """group/version, as an object says it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """plural.group, as `kubectl auth can-i` takes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def without(self) -> str:
        """What follows where it may not be listed; "" for what nothing can be decided without."""
        return consequence(self.kind)

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


_ALL = (
    Resource("Node", "", "v1", "nodes", namespaced=False),
    Resource("Pod", "", "v1", "pods"),
    Resource("Namespace", "", "v1", "namespaces", namespaced=False, metadata_only=True),
    Resource("Service", "", "v1", "services"),
    Resource("ReplicaSet", "apps", "v1", "replicasets"),
    Resource("StatefulSet", "apps", "v1", "statefulsets"),
    Resource("ReplicationController", "", "v1", "replicationcontrollers"),
    Resource("Deployment", "apps", "v1", "deployments"),
    Resource("DaemonSet", "apps", "v1", "daemonsets"),
    Resource("Job", "batch", "v1", "jobs"),
    Resource("ControllerRevision", "apps", "v1", "controllerrevisions", metadata_only=True),
    Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
    Resource("PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses", namespaced=False),
    Resource("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers"),
    Resource("ResourceQuota", "", "v1", "resourcequotas"),
    Resource("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
    Resource("PersistentVolume", "", "v1", "persistentvolumes", namespaced=False),
    Resource("StorageClass", "storage.k8s.io", "v1", "storageclasses", namespaced=False),
    Resource("CSINode", "storage.k8s.io", "v1", "csinodes", namespaced=False),
    Resource("CSIDriver", "storage.k8s.io", "v1", "csidrivers", namespaced=False),
    Resource("CSIStorageCapacity", "storage.k8s.io", "v1", "csistoragecapacities"),
)

RESOURCES: dict[str, Resource] = {r.kind: r for r in _ALL}
"""Every kind that is read, in the order in which lists are started: the long ones first."""
