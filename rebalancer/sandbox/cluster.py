"""A whole cluster on loopback: `with Cluster(objects) as cluster: ... cluster.url`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.sandbox.controllers.deployment import Deployments, ReplicaSets
from rebalancer.sandbox.controllers.infrastructure import Disruption, Nodes, Volumes
from rebalancer.sandbox.controllers.kubelet import Kubelet, ReadyAfter
from rebalancer.sandbox.controllers.loop import Controller, Loop
from rebalancer.sandbox.controllers.scheduler import Scheduler
from rebalancer.sandbox.controllers.statefulset import DaemonSets, StatefulSets
from rebalancer.sandbox.objects import Object, condition, copied, set_condition
from rebalancer.sandbox.registry import Store, evict
from rebalancer.sandbox.resources import NODES, PODS, ApiError
from rebalancer.sandbox.server import ApiServer

_SCALED = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")
_HOSTNAME = "kubernetes.io/hostname"


class Cluster:
    """An API server with everything behind it.

    objects      what it starts from, as they are (`rebalancer.manifests.read_objects` reads snapshot files)
    seed         of names, uids and the scheduler's choice among equally good nodes
    ready_after  seconds from a pod's assignment until it is Ready, or a function of the pod (None = never)
    grace        no pod takes longer to end than this, in seconds, whatever its grace period
    patience     no pod tolerates a silent node for longer, in seconds
    scheduler    the scheduler's configuration
    without      kinds that nobody looks after, for instance a Deployment whose rollout is stuck
    server       what serves it
    options      the rest is the server's: port, version, tls, history, …
    """

    def __init__(
        self,
        objects: Iterable[Object] = (),
        *,
        seed: int = 0,
        ready_after: ReadyAfter = 0.05,
        grace: float = 0.05,
        patience: float = 0.5,
        scheduler: SchedulerConfig = DEFAULT_CONFIG,
        without: Iterable[str] = (),
        server: type[ApiServer] = ApiServer,
        **options: Any,
    ) -> None:
        self.server = server(objects, seed=seed, **options)
        self.store: Store = self.server.store
        self.loop = Loop(self.store)
        self._number = count(1)
        store, loop = self.store, self.loop
        version = self.server.api.version
        self.kubelet = Kubelet(store, loop, ready_after, grace)
        self.scheduler = Scheduler(store, loop, seed=seed, config=scheduler, version=version)
        everyone: dict[str, Controller] = {
            "Deployment": Deployments(store, loop),
            "ReplicaSet": ReplicaSets(store, loop),
            "ReplicationController": ReplicaSets(store, loop, "ReplicationController"),
            "StatefulSet": StatefulSets(store, loop),
            "DaemonSet": DaemonSets(store, loop, self.scheduler.live),
            "PersistentVolumeClaim": Volumes(store, loop),
            "PodDisruptionBudget": Disruption(store, loop),
            "Node": Nodes(store, loop, patience),
            "Kubelet": self.kubelet,
            "Scheduler": self.scheduler,
        }
        left_out = set(without)
        if unknown := left_out - set(everyone):
            raise ValueError(f"nobody looks after {', '.join(sorted(unknown))} anyway")
        loop.controllers = [c for kind, c in everyone.items() if kind not in left_out]

    @property
    def url(self) -> str:
        return self.server.url

    def kubeconfig(self, path: str | Path) -> Path:
        """Write a kubeconfig for it, which kubectl takes too. Its path."""
        return self.server.kubeconfig(path)

    def start(self) -> Self:
        self.server.start()
        self.loop.start()
        return self

    def stop(self) -> None:
        """Ends controllers, watches and connections."""
        self.loop.stop()
        self.server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and self.loop.error is not None:
            raise RuntimeError("a controller of the sandbox failed") from self.loop.error

    def settle(self, timeout: float = 10.0) -> None:
        """Waits until nothing changes any more by itself. TimeoutError says what still does."""
        self.loop.settle(timeout)

    # -- changes under way

    def scale(self, namespace: str, name: str, replicas: int) -> None:
        """The Deployment, else StatefulSet, ReplicaSet or ReplicationController of that name; KeyError."""

        def change(obj: Object) -> None:
            obj["spec"]["replicas"] = replicas

        for kind in _SCALED:
            if self.store.find(kind, name, namespace) is not None:
                self.store.modify(kind, name, namespace, change)
                return
        raise KeyError(f"no workload {namespace}/{name} that scales")

    def cordon(self, node: str, *, on: bool = True) -> None:
        """ApiError 404 where there is no such node."""

        def change(obj: Object) -> None:
            obj.setdefault("spec", {}).pop("unschedulable", None)
            if on:
                obj["spec"]["unschedulable"] = True

        self.store.modify(NODES, node, None, change)

    def drain(self, node: str, timeout: float = 10.0) -> None:
        """As `kubectl drain --force --ignore-daemonsets`: cordons, then evicts within the budgets.

        Returns when the pods are gone; TimeoutError names those that their budgets keep.
        """
        self.cordon(node)
        until = time.monotonic() + timeout
        while left := self._evictable(node):
            for pod in left:
                metadata = pod["metadata"]
                body = {"metadata": {"name": metadata["name"]}}
                try:
                    evict(self.store, metadata["namespace"], metadata["name"], body)
                except ApiError as error:
                    if error.code not in (404, 429):
                        raise
            if time.monotonic() > until:
                names = ", ".join(p["metadata"]["name"] for p in self._evictable(node))
                raise TimeoutError(f"{node} still has {names} after {timeout:g} s")
            time.sleep(0.01)

    def _evictable(self, node: str) -> list[Object]:
        def wanted(pod: Object) -> bool:
            owners = pod["metadata"].get("ownerReferences") or ()
            return pod["spec"].get("nodeName") == node and all(o["kind"] != "DaemonSet" for o in owners)

        return self.store.list(PODS, where=wanted)

    def fail_domain(self, key: str, value: str) -> list[str]:
        """The nodes with that label stop answering: unreachable, their pods not Ready and, after `patience`,
        deleted and stuck Terminating. The nodes' names."""
        return self._answer(
            key, value, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."
        )

    def _answer(self, key: str, value: str, status: str, reason: str, message: str) -> list[str]:
        def change(obj: Object) -> None:
            now = self.store.now()
            verdict = {"type": "Ready", "status": status, "reason": reason, "message": message}
            set_condition(obj, verdict, now)

        with self.store.lock:
            names = [n["metadata"]["name"] for n in self._nodes(key, value)]
            for name in names:
                self.store.modify(NODES, name, None, change, subresource="status")
        return names

    def _nodes(self, key: str, value: str) -> list[Object]:
        return self.store.list(NODES, where=lambda n: (n["metadata"].get("labels") or {}).get(key) == value)

    def add_nodes(self, number: int, *, like: str, **labels: str) -> list[str]:
        """Empty, Ready nodes that are otherwise as node `like`; `labels` of their own. Their names."""
        names: list[str] = []
        model = copied(self.store.get(NODES, like))
        for _ in range(number):
            name = next(n for i in self._number if self.store.find(NODES, n := f"{like}-x{i}") is None)
            node = copied(model)
            kept = node["metadata"].get("labels") or {}
            node["metadata"] = {"name": name, "labels": {**kept, **labels}}
            if _HOSTNAME in kept:
                node["metadata"]["labels"][_HOSTNAME] = name
            node.setdefault("spec", {}).pop("unschedulable", None)
            if condition(node, "Ready") is not None:
                set_condition(node, {"type": "Ready", "status": "True"}, self.store.now())
            self.store.create(node)
            names.append(name)
        return names
