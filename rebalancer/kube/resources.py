"""Where each kind lives in the API."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.missing_kinds import ADD_ONS, consequence

_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class Resource(Struct, frozen=True):
    """A kind's place in the API.

    `metadata_only`: nothing but metadata is read, so that the server is asked to leave out the rest.
    `within`: the only namespace in which objects are listed and watched; "" = all.
    """

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True
    metadata_only: bool = False
    within: str = ""

    def parts(self, namespaces: Iterable[str]) -> tuple[Resource, ...]:
        """The kind in each of these namespaces; as a whole where there are none, or where it has none."""
        return tuple(replace(self, within=n) for n in namespaces if self.namespaced) or (self,)

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
    def add_on(self) -> bool:
        """Whether a cluster need not have it: where it is not served there are none, and no plan waits for
        it."""
        return self.kind in ADD_ONS

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
        if (namespace := namespace or self.within) and self.namespaced:
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
    Resource("VerticalPodAutoscaler", "autoscaling.k8s.io", "v1", "verticalpodautoscalers"),
    Resource("DeviceClass", "resource.k8s.io", "v1", "deviceclasses", namespaced=False),
    Resource("NodeClaim", "karpenter.sh", "v1", "nodeclaims", namespaced=False),
)

RESOURCES: dict[str, Resource] = {r.kind: r for r in _ALL}
"""Every kind that is read, in the order in which lists are started: the long ones first."""
NAMED = {
    r.kind: r
    for r in (
        Resource("ServiceAccount", "", "v1", "serviceaccounts", metadata_only=True),
        Resource("RuntimeClass", "node.k8s.io", "v1", "runtimeclasses", namespaced=False, metadata_only=True),
    )
}
"""Kinds of which only single objects are read, by the names that templates give."""
_OF_DRIVERS = frozenset({"CSIStorageCapacity"})
"""Kinds whose objects are in namespaces of drivers, wherever the pods are that they matter to."""


def kinds_within(namespaces: Collection[str]) -> frozenset[str]:
    """The kinds of which all that matters can be read where only these namespaces are; empty = all are."""
    return frozenset(RESOURCES) - (_OF_DRIVERS if namespaces else frozenset())
