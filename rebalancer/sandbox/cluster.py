"""A whole cluster on loopback: `with Cluster(objects) as cluster: ... cluster.url`. The one of the demo."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.model.node import HOSTNAME, ZONE
from rebalancer.sandbox.controllers.deployment import Deployments, ReplicaSets
from rebalancer.sandbox.controllers.infrastructure import Disruption, Nodes, Volumes
from rebalancer.sandbox.controllers.kubelet import HASH, Kubelet, ReadyAfter, hash_of
from rebalancer.sandbox.controllers.loop import Controller, Loop
from rebalancer.sandbox.controllers.scheduler import Scheduler
from rebalancer.sandbox.controllers.statefulset import DaemonSets, StatefulSets
from rebalancer.sandbox.objects import Object, condition, copied, set_condition
from rebalancer.sandbox.registry import Store, evict
from rebalancer.sandbox.resources import NODES, PODS, ApiError
from rebalancer.sandbox.server import ApiServer

_SCALED = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")


class Cluster:
    """An API server with everything behind it.

    objects      what it starts from, as they are (`rebalancer.manifests.read_objects` reads snapshot files)
    seed         of names, uids and the scheduler's choice among equally good nodes
    ready_after  seconds from a pod's assignment until it is Ready, or a function of the pod (None = never)
    grace        no pod takes longer to end than this, in seconds, whatever its grace period
    patience     no pod tolerates a silent node for longer, in seconds
    scheduler    the scheduler's configuration
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
        self.controllers: dict[str, Controller] = {
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
        loop.controllers = [*self.controllers.values()]

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
            if HOSTNAME in kept:
                node["metadata"]["labels"][HOSTNAME] = name
            node.setdefault("spec", {}).pop("unschedulable", None)
            if condition(node, "Ready") is not None:
                set_condition(node, {"type": "Ready", "status": "True"}, self.store.now())
            self.store.create(node)
            names.append(name)
        return names


# A small shop after an outage: the cluster of `rebalancer demo`.
#
# Zone c was away for an hour. Its pods were made again in zones a and b, which no constraint forbids while
# zone c has no nodes. Now its nodes are back, and empty. Losing zone a today would take half of most
# services.
#
# Two groups stay as they are whatever is evicted: a database whose volumes were made in zones a and b, and
# model servers for which zone c has no room. A service whose budget allows no disruption is mended only
# where pods may be replaced first.

ZONES = ("a", "b", "c")
_SINCE = "2026-01-01T00:00:00Z"
_GENERAL, _GPU = "general", "gpu"
_NODES = 3


class Service(NamedTuple):
    """A workload and where its pods are: `zones` counts them in a, b, c.

    `hosts`: maxSkew over hosts as well, 0 = none. `budget` as in a PodDisruptionBudget's spec. `ordinal`: a
    StatefulSet; `storage`: with zonal volumes. `cpu` in cores.
    """

    namespace: str
    name: str
    zones: tuple[int, int, int]
    budget: Mapping[str, int | str] = MappingProxyType({})
    hosts: int = 0
    cpu: str = "250m"
    pool: str = _GENERAL
    ordinal: bool = False
    storage: bool = False


SERVICES = (
    Service("shop", "frontend", (7, 5, 0), {"maxUnavailable": "25%"}, hosts=2),
    Service("shop", "cart", (3, 3, 0), {"minAvailable": 4}),
    Service("shop", "checkout", (4, 2, 0), {"maxUnavailable": 1}, hosts=1),
    Service("shop", "catalog", (4, 4, 0), {"maxUnavailable": "30%"}),
    Service("shop", "search", (2, 2, 0), {"maxUnavailable": 1}),
    Service("shop", "payments", (2, 1, 0), {"maxUnavailable": 1}),
    Service("shop", "sessions", (2, 1, 0), {"maxUnavailable": 1}, ordinal=True),
    Service("shop", "reviews", (1, 1, 1), {"maxUnavailable": 1}),
    Service("shop", "mailer", (1, 1, 1)),
    Service("shop", "invoices", (2, 0, 0), {"minAvailable": 2}),
    Service("data", "orders-db", (2, 2, 0), {"maxUnavailable": 1}, ordinal=True, storage=True),
    Service("ml", "model-server", (2, 2, 0), cpu="3500m", pool=_GPU),
)


def after_outage() -> list[Object]:
    """All objects of the cluster, each as the API server stores it."""
    return [*_nodes(), *_storage_class(), *_training(), *(o for s in SERVICES for o in _service(s))]


def _nodes() -> Iterator[Object]:
    for zone in ZONES:
        for i in range(_NODES):
            yield _node(f"{zone}-{i}", zone, _GENERAL)
        yield _node(f"{zone}-gpu", zone, _GPU)


def _node(name: str, zone: str, pool: str) -> Object:
    size = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    taints = {"taints": [{"key": "pool", "value": _GPU, "effect": "NoSchedule"}]} if pool == _GPU else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone, "pool": pool}},
        "spec": taints,
        "status": {
            "capacity": size,
            "allocatable": size,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _storage_class() -> Iterator[Object]:
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "zonal"},
        "provisioner": "csi.example",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _training() -> Iterator[Object]:
    """A Job that fills the one node of zone c on which model servers could run."""
    uid = _uid("Job", "ml", "training")
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "training", "namespace": "ml", "uid": uid},
        "spec": {"template": {"spec": _spec("training", "8", _GPU)}},
        "status": {"active": 1},
    }
    owner = ("batch/v1", "Job", "training", uid)
    spec = {**_spec("training", "8", _GPU), "restartPolicy": "Never"}
    yield _pod("ml", "training-x7k2p", {"app": "training"}, owner, spec, "c-gpu")


def _service(service: Service) -> Iterator[Object]:
    namespace, name = service.namespace, service.name
    labels = {"app": name}
    spec = _spec(name, service.cpu, service.pool)
    spec["topologySpreadConstraints"] = [_spread(ZONE, 1, labels)]
    if service.hosts:
        spec["topologySpreadConstraints"].append(_spread(HOSTNAME, service.hosts, labels))
    template: dict[str, Any] = {"metadata": {"labels": labels}, "spec": spec}
    if service.budget:
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}, **service.budget},
        }
    if service.ordinal:
        yield from _stateful(service, template)
    else:
        yield from _deployed(service, template)


def _deployed(service: Service, template: dict[str, Any]) -> Iterator[Object]:
    namespace, name, total = service.namespace, service.name, sum(service.zones)
    value = hash_of(template)
    labels = {**template["metadata"]["labels"], HASH: value}
    deployment = _owner("Deployment", namespace, name, total, template["metadata"]["labels"], template)
    revised = {"metadata": {"labels": labels}, "spec": template["spec"]}
    replica_set = _owner("ReplicaSet", namespace, f"{name}-{value}", total, labels, revised)
    parent = ("apps/v1", "Deployment", name, deployment["metadata"]["uid"])
    replica_set["metadata"]["ownerReferences"] = [_reference(parent)]
    deployment["status"]["updatedReplicas"] = total
    yield deployment
    yield replica_set
    owner = ("apps/v1", "ReplicaSet", replica_set["metadata"]["name"], replica_set["metadata"]["uid"])
    for i, node in enumerate(_places(service)):
        pod = f"{name}-{value}-{hash_of([name, i])[:5]}"
        yield _pod(namespace, pod, labels, owner, template["spec"], node)


def _stateful(service: Service, template: dict[str, Any]) -> Iterator[Object]:
    namespace, name, total = service.namespace, service.name, sum(service.zones)
    labels = template["metadata"]["labels"]
    stateful = _owner("StatefulSet", namespace, name, total, labels, template)
    stateful["spec"] |= {"serviceName": name, "podManagementPolicy": "OrderedReady"}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "zonal",
        "resources": {"requests": {"storage": "10Gi"}},
    }
    if service.storage:
        stateful["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    yield stateful
    owner = ("apps/v1", "StatefulSet", name, stateful["metadata"]["uid"])
    for i, node in enumerate(_places(service)):
        spec = dict(template["spec"])
        if service.storage:
            volume = f"data-{name}-{i}"
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": volume}}]
            yield from _volume(namespace, volume, claim, node.partition("-")[0])
        yield _pod(namespace, f"{name}-{i}", labels, owner, spec, node)


def _volume(namespace: str, name: str, claim: dict[str, Any], zone: str) -> Iterator[Object]:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "capacity": claim["resources"]["requests"],
            "accessModes": claim["accessModes"],
            "storageClassName": claim["storageClassName"],
            "claimRef": {"namespace": namespace, "name": name},
            "csi": {"driver": "csi.example", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
        "status": {"phase": "Bound"},
    }
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, **bound},
        "spec": {**claim, "volumeName": f"pv-{name}"},
        "status": {"phase": "Bound"},
    }


def _places(service: Service) -> list[str]:
    """The pods' nodes: of each zone one after the other."""
    nodes = ["gpu"] if service.pool == _GPU else [str(i) for i in range(_NODES)]
    places = [
        [f"{z}-{nodes[i % len(nodes)]}" for i in range(n)] for z, n in zip(ZONES, service.zones, strict=True)
    ]
    return [node for zone in places for node in zone]


def _spread(key: str, skew: int, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }


def _spec(name: str, cpu: str, pool: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "256Mi"}}
    spec: dict[str, Any] = {
        "containers": [{"name": name, "image": f"registry.example/{name}:1.0", "resources": resources}],
        "nodeSelector": {"pool": pool},
        "terminationGracePeriodSeconds": 30,
    }
    if pool == _GPU:
        spec["tolerations"] = [{"key": "pool", "operator": "Equal", "value": _GPU, "effect": "NoSchedule"}]
    return spec


def _owner(
    kind: str, namespace: str, name: str, total: int, labels: dict[str, str], template: dict[str, Any]
) -> Object:
    counts = ("replicas", "readyReplicas", "availableReplicas")
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": _uid(kind, namespace, name),
            "creationTimestamp": _SINCE,
            "generation": 1,
            "labels": labels,
        },
        "spec": {"replicas": total, "selector": {"matchLabels": labels}, "template": template},
        "status": {**dict.fromkeys(counts, total), "observedGeneration": 1},
    }


def _pod(
    namespace: str,
    name: str,
    labels: dict[str, str],
    owner: tuple[str, str, str, str],
    spec: dict[str, Any],
    node: str,
) -> Object:
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    conditions = [{"type": k, "status": "True", "lastTransitionTime": _SINCE} for k in kinds]
    containers = [
        {"name": c["name"], "image": c["image"], "imageID": "", "ready": True, "restartCount": 0}
        for c in spec["containers"]
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": _uid("Pod", namespace, name),
            "creationTimestamp": _SINCE,
            "labels": labels,
            "ownerReferences": [_reference(owner)],
        },
        "spec": {**spec, "nodeName": node},
        "status": {
            "phase": "Running",
            "startTime": _SINCE,
            "conditions": conditions,
            "containerStatuses": containers,
        },
    }


def _reference(owner: tuple[str, str, str, str]) -> dict[str, Any]:
    version, kind, name, uid = owner
    who = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
    return {**who, "controller": True, "blockOwnerDeletion": True}


def _uid(*of: str) -> str:
    """Any uid will do; the same object has the same one in every run."""
    letters = hash_of(list(of)).encode().hex()
    return f"{letters[:8]}-{letters[8:12]}-4{letters[13:16]}-8{letters[17:20]}-{letters[:12]}"
