"""The engine's state of the cluster, kept equal to the store. Pods are added and removed one by one.

The engine computes once what depends on nodes, volumes and selectors. So changes of those make a new state;
pods that come, go or terminate are entries in the present one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.decode import Decoder
from rebalancer.model.kinds import KINDS
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import build_snapshot
from rebalancer.sandbox.api.objects import Object
from rebalancer.sandbox.api.resources import NODES, PODS, RESOURCES, Resource
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.storage.history import Event, Record


def _node_view(obj: Object) -> Any:
    """What the engine reads of a node: not its heartbeats."""
    status = obj.get("status") or {}
    ready = [c.get("status") for c in status.get("conditions") or () if c.get("type") == "Ready"]
    return (
        obj["metadata"].get("labels"),
        obj.get("spec"),
        status.get("allocatable"),
        status.get("images"),
        ready,
    )


def _selector(obj: Object) -> Any:
    return (obj.get("spec") or {}).get("selector")


def _labels(obj: Object) -> Any:
    return obj["metadata"].get("labels")


def _whole(obj: Object) -> Any:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}


_VIEWS: dict[str, Callable[[Object], Any]] = {
    "Node": _node_view,
    "Namespace": _labels,
    "Service": _selector,
    "ReplicaSet": _selector,
    "ReplicationController": _selector,
    "StatefulSet": _selector,
    "PersistentVolume": _whole,
    "PersistentVolumeClaim": _whole,
    "StorageClass": _whole,
    "CSINode": _whole,
    "CSIDriver": _whole,
    "CSIStorageCapacity": _whole,
}
"""By kind: what of an object the engine keeps. Other kinds it does not read."""

_READ: tuple[Resource, ...] = tuple(
    r for r in RESOURCES if r.kind in _VIEWS and r.group in ("", "apps", "storage.k8s.io")
)


class LiveState:
    """`changes` counts what may make an unschedulable pod schedulable, or a choice of node different."""

    def __init__(self, store: Store, config: SchedulerConfig, version: str) -> None:
        self.changes = 0
        self._store = store
        self._config = config
        self._version = version
        self._decoder = Decoder()
        self._pods: dict[str, Pod] = {}
        self._state: ClusterState | None = None
        self._frameworks: dict[str, Framework] = {}

    def notice(self, event: Event) -> Pod | None:
        """Takes a change in; the pod, if it was one's (None also where it is gone)."""
        if event.resource is not PODS:
            view = _VIEWS.get(event.resource.kind) if event.resource in _READ else None
            if view is not None and (
                event.type != "MODIFIED" or event.old is None or view(event.old.obj) != view(event.obj)
            ):
                self._state = None
                self.changes += 1
            return None
        uid = event.obj["metadata"]["uid"]
        if event.type == "DELETED":
            self._pods.pop(uid, None)
            if self._state is not None and uid in self._state.pods:
                self._state.remove(uid)
                self.changes += 1
            return None
        pod = self._decoded(event.record)
        self._pods[uid] = pod
        if self._state is not None:
            self.changes += self._enter(self._state, pod)
        return pod

    def pod(self, uid: str) -> Pod | None:
        """The pod as last seen."""
        return self._pods.get(uid)

    @property
    def state(self) -> ClusterState:
        """The cluster now."""
        if self._state is None:
            self._state = self._built()
            self._frameworks.clear()
        return self._state

    def framework(self, scheduler_name: str) -> Framework:
        """The profile's plugins over `state`."""
        state = self.state
        found = self._frameworks.get(scheduler_name)
        if found is None:
            found = Framework(state, self._config.profile(scheduler_name))
            self._frameworks[scheduler_name] = found
        return found

    def decoded_pod(self, obj: Object) -> Pod:
        """A pod that is not in the store, as the engine would see it."""
        pod = self._decoder.decode("Pod", msgspec.json.encode(obj))
        assert isinstance(pod, Pod)
        return pod

    def assume(self, pod: Pod, row: int) -> None:
        """The pod is bound to a node; the store's own word of it follows."""
        self.state.add(pod.uid, pod.template, row)
        self.changes += 1

    def _decoded(self, record: Record) -> Pod:
        pod = self._decoder.decode("Pod", record.item())
        assert isinstance(pod, Pod)
        return pod

    def _built(self) -> ClusterState:
        objects = [
            self._decoder.decode(resource.kind, record.item())
            for resource in _READ
            for record in self._store.collection(resource).scan()
        ]
        snapshot = build_snapshot(
            objects,
            now=self._store.clock(),
            source="sandbox",
            server_version=self._version,
            kinds=KINDS,
        )
        state = ClusterState(snapshot, self._config)
        for pod in self._pods.values():
            self._enter(state, pod)
        return state

    def _enter(self, state: ClusterState, pod: Pod) -> bool:
        """Makes the state hold the pod as it is; whether that was a change."""
        placed = state.pods.get(pod.uid)
        row = None if pod.finished else state.table.index.get(pod.node_name)
        if row is None:
            if placed is not None:
                state.remove(pod.uid)
            return placed is not None
        if placed is not None and (placed.template is not pod.template or placed.row != row):
            state.remove(pod.uid)
            placed = None
        changed = placed is None
        if placed is None:
            state.add(pod.uid, pod.template, row)
        if pod.terminating and (placed is None or not placed.terminating):
            state.terminate(pod.uid)
            changed = True
        return changed


def is_node_change(event: Event) -> bool:
    """Whether a node changed in what a scheduler sees of it."""
    return event.resource is NODES and (
        event.type != "MODIFIED" or event.old is None or _node_view(event.old.obj) != _node_view(event.obj)
    )
