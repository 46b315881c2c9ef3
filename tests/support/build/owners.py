"""Builders of owners with their pods."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Self

from tests.support.build.base import metadata, reference
from tests.support.build.pods import PodShape, pod_object
from tests.support.build.volumes import claim, volume
from tests.support.scheduler.plain import Json

_API = {"ReplicationController": "v1", "Job": "batch/v1"}


class OwnerBuilder(PodShape):
    """A controller and its pods; `placed` says where they run.

    Pods are selected by their `owner` label. A Deployment comes with one ReplicaSet, named and labelled by
    its pod-template-hash.
    """

    def __init__(self, kind: str, name: str, namespace: str = "default") -> None:
        super().__init__(_API.get(kind, "apps/v1"), kind, name, namespace=namespace)
        self.kind, self.name, self.namespace = kind, name, namespace
        self.pod_labels["owner"] = name
        if kind == "Job":
            self.restarts("Never")
        self._placed: list[str] = []
        self._replicas: int | None = None
        self._unready: set[int] = set()
        self._zonal: dict[str, str] | None = None
        self._parallel = False
        self._on_delete = False

    def placed(self, per_node: Mapping[str, int]) -> Self:
        """So many pods on each node; "" for pods that are Pending. Further calls add."""
        self._placed += [node for node, count in per_node.items() for _ in range(count)]
        return self

    def on_nodes(self, nodes: list[str]) -> Self:
        """One pod on each node of the list, in that order."""
        self._placed += nodes
        return self

    def replicas(self, count: int) -> Self:
        """spec.replicas, where it differs from the pods placed."""
        self._replicas = count
        return self

    def grace(self, seconds: int) -> Self:
        """Its pods' termination grace period."""
        self._spec["terminationGracePeriodSeconds"] = seconds
        return self

    def unready(self, *indices: int) -> Self:
        """These pods are not Ready."""
        self._unready.update(indices)
        return self

    def zonal_volumes(self, zone_of_node: Mapping[str, str]) -> Self:
        """Each pod mounts a claim bound to a volume of the zone that it is in (StatefulSet)."""
        self._zonal = dict(zone_of_node)
        return self

    def parallel(self) -> Self:
        """StatefulSet: podManagementPolicy Parallel."""
        self._parallel = True
        return self

    def on_delete(self) -> Self:
        """StatefulSet: updateStrategy OnDelete."""
        self._on_delete = True
        return self

    def build(self) -> list[Json]:
        """The owner, its ReplicaSet if it is a Deployment, its pods, their claims and volumes."""
        if self.kind == "Bare":
            return self._pods(self.name, None, self.pod_labels)
        if self.kind != "Deployment":
            owner = self._owner(self.kind, self.name, self.pod_labels, {"owner": self.name})
            ref = reference(owner["apiVersion"], self.kind, self.namespace, self.name)
            return [owner, *self._pods(self.name, ref, self.pod_labels), *self._volumes()]
        hashed = {**self.pod_labels, "pod-template-hash": f"{sum(map(ord, self.name)):x}"}
        child = f"{self.name}-{hashed['pod-template-hash']}"
        selector = {"owner": self.name, "pod-template-hash": hashed["pod-template-hash"]}
        parent = self._owner("Deployment", self.name, self.pod_labels, {"owner": self.name})
        parent["status"]["updatedReplicas"] = parent["spec"]["replicas"]
        rs = self._owner("ReplicaSet", child, hashed, selector)
        rs["metadata"]["ownerReferences"] = [reference("apps/v1", "Deployment", self.namespace, self.name)]
        ref = reference("apps/v1", "ReplicaSet", self.namespace, child)
        return [parent, rs, *self._pods(child, ref, hashed)]

    def _owner(self, kind: str, name: str, labels: Mapping[str, str], selector: Mapping[str, str]) -> Json:
        count = len(self._placed) if self._replicas is None else self._replicas
        running = sum(1 for i, n in enumerate(self._placed) if n and i not in self._unready)
        meta = metadata(kind, self.namespace, name)
        meta.update(generation=1, labels=dict(labels))
        meta.update({k: v for k, v in self.object["metadata"].items() if k == "annotations"})
        spec: Json = {
            "replicas": count,
            "selector": {"matchLabels": dict(selector)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": self.template_spec()},
        }
        status: Json = {
            "replicas": len(self._placed),
            "readyReplicas": running,
            "availableReplicas": running,
            "observedGeneration": 1,
        }
        if kind == "ReplicationController":
            spec["selector"] = dict(selector)
        if kind == "StatefulSet":
            spec["serviceName"] = name
            spec["updateStrategy"] = {"type": "OnDelete" if self._on_delete else "RollingUpdate"}
            spec["podManagementPolicy"] = "Parallel" if self._parallel else "OrderedReady"
            status.update(
                currentReplicas=len(self._placed),
                updatedReplicas=len(self._placed),
                currentRevision=f"{name}-1",
                updateRevision=f"{name}-1",
            )
            if self._zonal is not None:
                spec["volumeClaimTemplates"] = [
                    {
                        "metadata": {"name": "data"},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "storageClassName": "zonal",
                            "resources": {"requests": {"storage": "1Gi"}},
                        },
                    }
                ]
        if kind in ("DaemonSet", "Job"):
            del spec["replicas"]
        if kind == "DaemonSet":
            status = {"desiredNumberScheduled": count, "observedGeneration": 1}
        return {
            "apiVersion": _API.get(kind, "apps/v1"),
            "kind": kind,
            "metadata": meta,
            "spec": spec,
            "status": status,
        }

    def _pods(self, prefix: str, owner: Json | None, labels: Mapping[str, str]) -> list[Json]:
        made = []
        for i, node in enumerate(self._placed):
            name = f"{prefix}-{i}" if self.kind == "StatefulSet" else f"{prefix}-{i:05d}"
            own = dict(labels)
            if self.kind == "StatefulSet":
                own.update(
                    {
                        "controller-revision-hash": f"{self.name}-1",
                        "statefulset.kubernetes.io/pod-name": name,
                        "apps.kubernetes.io/pod-index": str(i),
                    }
                )
            spec = self.spec()
            if self._zonal is not None:
                spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}]
            made.append(
                pod_object(
                    name,
                    self.namespace,
                    own,
                    spec,
                    node=node,
                    owner=deepcopy(owner),
                    is_ready=i not in self._unready,
                )
            )
            if self.pod_annotations:
                made[-1]["metadata"]["annotations"] = dict(self.pod_annotations)
        return made

    def _volumes(self) -> list[Json]:
        if self._zonal is None:
            return []
        made: list[Json] = []
        for i, node in enumerate(self._placed):
            name, bound = f"data-{self.name}-{i}", f"pv-{self.name}-{i}"
            made += claim(name, bound, namespace=self.namespace).build()
            made += volume(bound, name, zone=self._zonal[node], namespace=self.namespace).build()
        return made


def workload(name: str, kind: str = "ReplicaSet", namespace: str = "default") -> OwnerBuilder:
    """An owner of any kind; "Bare" for pods without one."""
    return OwnerBuilder(kind, name, namespace)


def replica_set(name: str, namespace: str = "default") -> OwnerBuilder:
    """A ReplicaSet."""
    return OwnerBuilder("ReplicaSet", name, namespace)


def deployment(name: str, namespace: str = "default") -> OwnerBuilder:
    """A Deployment with one ReplicaSet."""
    return OwnerBuilder("Deployment", name, namespace)


def stateful_set(name: str, namespace: str = "default") -> OwnerBuilder:
    """A StatefulSet."""
    return OwnerBuilder("StatefulSet", name, namespace)


def daemon_set(name: str, namespace: str = "default") -> OwnerBuilder:
    """A DaemonSet."""
    return OwnerBuilder("DaemonSet", name, namespace)


def job(name: str, namespace: str = "default") -> OwnerBuilder:
    """A Job."""
    return OwnerBuilder("Job", name, namespace)
