"""A realistic cluster of any size, as the JSON bytes that an API server keeps: what the benchmarks read.

There are 30 pods a node. Workloads have a heavy tail, from a dozen pods to 1,200. Each is a Deployment with
its ReplicaSet, two older ReplicaSets that are scaled to zero, a Service and a budget. A quarter spreads over
zones and nodes, the rest over zones alone. An eighth has lost most of its pods in one zone. A pod has 8 to
9 kB: environment, probes, mounts, a token volume of its own, conditions, container statuses, managed fields.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from tests.perf.clusters.realistic_parts import Json, deployment, node, pod, pod_spec, replica_set

ZONES = ("zone-a", "zone-b", "zone-c")


class Workload(NamedTuple):
    """A Deployment: its pods, and whether it spreads over nodes too, and is skewed."""

    number: int
    replicas: int
    two_keys: bool
    skewed: bool

    @property
    def namespace(self) -> str:
        """Twenty workloads share one."""
        return f"team-{self.number // 20:03d}"

    @property
    def name(self) -> str:
        """Of the Deployment."""
        return f"service-{self.number:04d}"


class Size(NamedTuple):
    """How large a cluster is. `managed_fields`: whether objects have theirs; without, a pod has 6 kB.
    `balanced`: no workload is skewed."""

    pods: int
    managed_fields: bool = True
    balanced: bool = False

    @property
    def nodes(self) -> int:
        """A thirtieth of the pods, the same number in each zone."""
        return max(6, self.pods // 30 // 3 * 3)


def objects(size: Size) -> Iterator[tuple[str, bytes]]:
    """(kind, JSON without kind and apiVersion, as items of a list) in the server's order; always the same."""
    for number in range(size.nodes):
        yield "Node", msgspec.json.encode(node(number, ZONES[number % 3], managed=size.managed_fields))
    every = workloads(size)
    for namespace in sorted({w.namespace for w in every}):
        yield "Namespace", msgspec.json.encode({"metadata": {"name": namespace, "resourceVersion": "5"}})
    for w in every:
        spec = pod_spec(w.namespace, w.name, w.two_keys, w.number)
        yield "Deployment", msgspec.json.encode(deployment(w.namespace, w.name, w.replicas, spec))
        for revision in (1, 2, 3):
            current = revision == 3
            made = replica_set(w.namespace, w.name, revision, w.replicas if current else 0, spec)
            yield "ReplicaSet", msgspec.json.encode(made)
        yield "Service", msgspec.json.encode(_service(w))
        yield "PodDisruptionBudget", msgspec.json.encode(_budget(w))
        yield from (("Pod", body) for body in _pods(w, spec, size))


def workloads(size: Size) -> list[Workload]:
    """Heavy-tailed replicas that add up to the pods."""
    rng = random.Random(size.pods)
    found: list[Workload] = []
    left = size.pods
    while left > 0:
        # A Pareto tail: half of the workloads have some twenty pods, a few have hundreds.
        replicas = min(left, max(3, min(1200, int(11 * rng.paretovariate(1.06)))))
        number = len(found)
        two_keys, skewed = rng.random() < 0.25, number % 8 == 3 and not size.balanced
        found.append(Workload(number, replicas, two_keys, skewed and replicas >= 4))
        left -= replicas
    return found


class Body:
    """A pod's JSON with the parts that differ from pod to pod left open."""

    def __init__(self, w: Workload, spec: Json, *, managed: bool) -> None:
        whole = msgspec.json.encode(pod(w.namespace, w.name, spec, managed=managed)).decode()
        self._pieces: list[str] = []
        self._open: list[str] = []
        for part in whole.split("@"):
            (self._open if len(self._open) < len(self._pieces) else self._pieces).append(part)

    def fill(self, values: dict[str, str]) -> bytes:
        """The pod with these values."""
        parts = [self._pieces[0]]
        for name, piece in zip(self._open, self._pieces[1:], strict=True):
            parts += (values[name], piece)
        return "".join(parts).encode()


def _pods(w: Workload, spec: Json, size: Size) -> Iterator[bytes]:
    body = Body(w, spec, managed=size.managed_fields)
    rng = random.Random(w.number)
    per_zone = size.nodes // 3
    weights = (9, 8, 3) if w.skewed else (1, 1, 1)
    ordinal = 0
    for z, count in enumerate(shares(weights, w.replicas, w.number)):
        start = rng.randrange(per_zone)
        for k in range(count):
            where = ((start + k) % per_zone) * 3 + z
            yield body.fill(values(w, ordinal, where, 1_000_000 + w.number * 1000 + ordinal))
            ordinal += 1


def values(w: Workload, ordinal: int, node_number: int, version: int) -> dict[str, str]:
    """What one pod has for itself."""
    suffix = f"{(w.number * 7919 + ordinal * 104729) % 60466176:05x}"
    digest = sha256(f"{w.number}-{ordinal}".encode()).hexdigest()
    hour, minute, second = ordinal % 24, w.number % 60, (w.number * 7 + ordinal) % 60
    return {
        "suffix": f"{suffix[:5]}{ordinal:x}",
        "uid": f"{digest[:8]}-{digest[8:12]}-4{digest[12:15]}-8{digest[15:18]}-{digest[18:30]}",
        "node": f"node-{node_number:05d}",
        "ip": f"10.{node_number >> 8 & 255}.{node_number & 255}.{ordinal % 250 + 1}",
        "version": str(version),
        "time": f"2026-03-{1 + w.number % 28:02d}T{hour:02d}:{minute:02d}:{second:02d}Z",
        "hash": digest,
    }


def shares(weights: tuple[int, ...], total: int, turn: int) -> list[int]:
    """`total` in these proportions; what does not divide goes to one zone after the other."""
    found = [total * weight // sum(weights) for weight in weights]
    for i in range(total - sum(found)):
        found[(turn + i) % len(found) if len(set(weights)) == 1 else 0] += 1
    return found


def _service(w: Workload) -> Json:
    return {
        "metadata": {"name": w.name, "namespace": w.namespace, "resourceVersion": "7"},
        "spec": {
            "selector": {"app": w.name},
            "ports": [{"port": 80, "targetPort": 8080}],
            "type": "ClusterIP",
        },
    }


def _budget(w: Workload) -> Json:
    return {
        "metadata": {"name": w.name, "namespace": w.namespace, "resourceVersion": "8", "generation": 1},
        "spec": {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": w.name}}},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": max(1, w.replicas // 4),
            "currentHealthy": w.replicas,
            "desiredHealthy": w.replicas - max(1, w.replicas // 4),
            "expectedPods": w.replicas,
        },
    }


def document(size: Size) -> Iterator[bytes]:
    """A List of the cluster as `kubectl get … -o json` prints it, in pieces."""
    from rebalancer.kube.resources import RESOURCES

    yield b'{"apiVersion":"v1","kind":"List","items":['
    between = b"\n"
    for kind, item in objects(size):
        resource = RESOURCES[kind]
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        yield between + f'{{"apiVersion":"{version}","kind":"{kind}",'.encode() + item[1:]
        between = b",\n"
    yield b"\n]}\n"


def sample(size: Size) -> dict[str, Any]:
    """What is in such a cluster, for a table."""
    every = workloads(size)
    return {
        "nodes": size.nodes,
        "pods": size.pods,
        "workloads": len(every),
        "two keys": sum(w.two_keys for w in every),
        "skewed": sum(w.skewed for w in every),
        "largest": max(w.replicas for w in every),
    }
