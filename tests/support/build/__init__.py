"""Fluent builders of Kubernetes objects as a live cluster prints them.

    objects(
        node("a-0").zone("a"), node("b-0").zone("b"),
        workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}),
        pdb("web", {"app": "web"}, max_unavailable=1),
    )

`snapshot(...)` decodes the same arguments into the model. "zone", "hostname", "region" and "rack" stand for
the label keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from rebalancer.model.decode import Decoder
from rebalancer.model.node import NODEPOOL
from rebalancer.model.snapshot import KINDS, Object, Snapshot, build_snapshot
from rebalancer.model.workload import RuntimeClass
from tests.support.build.base import KEYS, Builder, flatten
from tests.support.build.owners import (
    OwnerBuilder,
    daemon_set,
    deployment,
    job,
    replica_set,
    stateful_set,
    workload,
)
from tests.support.build.pods import PodBuilder, pod
from tests.support.build.volumes import claim, volume
from tests.support.scheduler.budget import with_status
from tests.support.scheduler.plain import Json

__all__ = [
    "NodeBuilder",
    "OwnerBuilder",
    "PodBuilder",
    "claim",
    "daemon_set",
    "decoded",
    "deployment",
    "job",
    "node",
    "node_claim",
    "node_pool",
    "nodes",
    "objects",
    "pdb",
    "pod",
    "replica_set",
    "snapshot",
    "stateful_set",
    "volume",
    "workload",
]

NOW = datetime.fromisoformat("2026-06-01T00:00:00+00:00").timestamp()
"""The clock of built snapshots: months after the pods' creation."""

Thing = Builder | Json | Iterable["Thing"]


class NodeBuilder(Builder):
    """A Ready node of 8 cpu, 32Gi and 110 pods."""

    def __init__(self, name: str) -> None:
        super().__init__("v1", "Node", name, namespace="")
        self.object["metadata"]["labels"] = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        self.object["spec"] = {}
        self.object["status"] = {
            "capacity": dict(room),
            "allocatable": dict(room),
            "conditions": [{"type": "Ready", "status": "True"}],
        }

    def zone(self, name: str) -> NodeBuilder:
        """In a zone."""
        return self.label("zone", name)

    def label(self, key: str, value: str) -> NodeBuilder:
        """With a label; short keys are spelled out."""
        self.object["metadata"]["labels"][KEYS.get(key, key)] = value
        return self

    def without_label(self, key: str) -> NodeBuilder:
        """Without a label that it would have."""
        self.object["metadata"]["labels"].pop(KEYS.get(key, key), None)
        return self

    def room(self, **quantities: str | int) -> NodeBuilder:
        """Allocatable resources by name; `extended` ones by `allocatable`."""
        return self.allocatable(quantities)

    def allocatable(self, quantities: Mapping[str, str | int]) -> NodeBuilder:
        """Allocatable resources, any names."""
        for name, q in quantities.items():
            self.object["status"]["allocatable"][name] = str(q)
            self.object["status"]["capacity"][name] = str(q)
        return self

    def cpu(self, quantity: str | int) -> NodeBuilder:
        """Allocatable cpu."""
        return self.room(cpu=quantity)

    def pods(self, count: int) -> NodeBuilder:
        """How many pods it takes."""
        return self.room(pods=count)

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> NodeBuilder:
        """With a taint."""
        taint = {"key": key, "effect": effect, **({"value": value} if value else {})}
        self.object["spec"].setdefault("taints", []).append(taint)
        return self

    def cordoned(self) -> NodeBuilder:
        """As `kubectl cordon` leaves it: unschedulable, and with the node controller's taint."""
        self.object["spec"]["unschedulable"] = True
        return self.taint("node.kubernetes.io/unschedulable")

    def not_ready(self) -> NodeBuilder:
        """As the node controller leaves a node whose kubelet is silent."""
        self.object["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        self.taint("node.kubernetes.io/unreachable")
        return self.taint("node.kubernetes.io/unreachable", effect="NoExecute")


def node(name: str) -> NodeBuilder:
    """A node."""
    return NodeBuilder(name)


def nodes(**per_zone: int) -> list[NodeBuilder]:
    """`nodes(a=2, b=1)`: nodes a-0, a-1 in zone a and b-0 in zone b."""
    return [node(f"{z}-{i}").zone(z) for z, count in per_zone.items() for i in range(count)]


def node_claim(
    name: str, node: str = "", *, age: float = 0, drifted: float | None = None, **spec: str
) -> Builder:
    """Karpenter's object for a node of the pool `default`, made `age` seconds ago; `drifted`: so long."""
    built = Builder("karpenter.sh/v1", "NodeClaim", name, namespace="")
    built.object["metadata"] |= {"creationTimestamp": ago(age), "labels": {NODEPOOL: "default"}}
    listed: list[Json] = [{"type": "Consolidatable", "status": "True"}]
    if drifted is not None:
        listed.append({"type": "Drifted", "status": "True", "lastTransitionTime": ago(drifted)})
    built.object["spec"] = spec
    built.object["status"] = {**({"nodeName": node} if node else {}), "conditions": listed}
    return built


def node_pool(
    name: str,
    *,
    zones: Iterable[str] = (),
    taint: str = "",
    used: str = "0",
    ready: bool = True,
    **limits: str,
) -> Builder:
    """What Karpenter adds nodes from; `used`: the cpu that its nodes have; `ready`: as it says."""
    built = Builder("karpenter.sh/v1", "NodePool", name, namespace="")
    asked = [{"key": KEYS["zone"], "operator": "In", "values": list(zones)}] if zones else []
    spec: Json = {"requirements": asked}
    if taint:
        spec["taints"] = [{"key": taint, "effect": "NoSchedule"}]
    built.object["spec"] = {"template": {"spec": spec}, "limits": limits}
    conditions = [{"type": "Ready", "status": str(ready)}]
    built.object["status"] = {"resources": {"cpu": used}, "conditions": conditions}
    return built


def ago(seconds: float) -> str:
    return datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pdb(
    name: str,
    selector: Mapping[str, str] | None,
    *,
    min_available: int | str | None = None,
    max_unavailable: int | str | None = None,
    unhealthy: str = "",
    namespace: str = "default",
) -> Builder:
    """A budget; `objects` fills its status from the pods. `selector` None is an absent one."""
    built = Builder("policy/v1", "PodDisruptionBudget", name, namespace=namespace)
    spec: Json = {}
    if selector is not None:
        spec["selector"] = {"matchLabels": dict(selector)} if selector else {}
    if min_available is not None:
        spec["minAvailable"] = min_available
    if max_unavailable is not None:
        spec["maxUnavailable"] = max_unavailable
    if unhealthy:
        spec["unhealthyPodEvictionPolicy"] = unhealthy
    built.object["metadata"]["generation"] = 1
    built.object["spec"] = spec
    return built


def objects(*things: Any) -> list[Json]:
    """The API objects of builders, dicts and nested lists of them; budgets get their status."""
    return with_status(flatten(things))


def snapshot(*things: Any, now: float = NOW, server_version: str = "v1.36.2") -> Snapshot:
    """What the tool reads of these objects, every kind having been listed."""
    return decoded(objects(*things), now=now, server_version=server_version)


def decoded(listed: Iterable[Json], *, now: float = NOW, server_version: str = "v1.36.2") -> Snapshot:
    """What the tool reads of API objects that are complete already."""
    decoder = Decoder()
    found = [decoder.decode(o["kind"], msgspec.json.encode(o)) for o in listed if o["kind"] in KINDS]
    return built(found, now=now, server_version=server_version)


def built(found: Iterable[Object], *, now: float = NOW, server_version: str = "v1.36.2") -> Snapshot:
    """What the tool makes of objects that it has read. RuntimeClasses are never listed: a file has them."""
    every = list(found)
    kinds = [k for k in KINDS if k != "RuntimeClass" or any(isinstance(o, RuntimeClass) for o in every)]
    return build_snapshot(every, now=now, source="built", server_version=server_version, kinds=kinds)
