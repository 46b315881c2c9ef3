"""A tight cluster of any size, as JSON: what real old clusters are, and the benchmark's roomy one is not.

Nodes differ in size and are 85 to 100 % full; every workload asks for something else; it has one pod a node
at most, and spreads over many zones. One zone failed and returned: some workloads lost their pods there to
other zones, others still wait for a node (`pending`), the rest came back.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any, NamedTuple

import msgspec

from rebalancer.model.decode import Decoder
from rebalancer.model.snapshot import Snapshot, build_snapshot

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
Json = dict[str, Any]
FAILED = 0
"""The number of the zone that failed and returned."""


class Tight(NamedTuple):
    """`violated`: workloads with a pod in every zone that lost those in the failed one. `pending`: pods that
    the zone's end left without a node. `resources` that each pod asks for; `own_sizes`: each pod for other
    amounts, as if sized by itself, else as its owner's template has it."""

    nodes: int
    pods: int
    zones: int
    violated: int
    pending: int = 0
    resources: int = 4
    seed: int = 1
    own_sizes: bool = False


ROWS = {
    "100 nodes, 5,000 pods, 407 Pending": Tight(100, 5_000, 10, 20, 407),
    "100 nodes, 5,000 pods": Tight(100, 5_000, 10, 20),
    "500 nodes, 20,000 pods": Tight(500, 20_000, 20, 94),
    "500 nodes, 20,000 pods, each its own size": Tight(500, 20_000, 20, 94, own_sizes=True),
}
"""What is measured, by name."""


def small(seed: int, *, pending: int = 0) -> Tight:
    """One that a judge can follow through every landing."""
    rng = random.Random(seed)
    zones = rng.choice([3, 4, 5])
    nodes = zones * rng.choice([2, 3, 4])
    pods, violated, resources = nodes * rng.choice([3, 5, 6]), rng.choice([1, 2, 3, 4]), rng.choice([2, 3])
    return Tight(nodes, pods, zones, violated, pending, resources, seed, own_sizes=seed % 3 == 0)


def document(t: Tight) -> bytes:
    """A List as `kubectl get … -o json` prints it."""
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items(t)})


def snapshot(t: Tight) -> Snapshot:
    """The cluster, decoded."""
    decoder = Decoder()
    objects = [decoder.decode(i["kind"], msgspec.json.encode(i)) for i in items(t)]
    return build_snapshot(objects, now=1.8e9, kinds=("Node", "Pod", "ReplicaSet"))


class _Pod(NamedTuple):
    """`node`: its number, -1: Pending."""

    workload: int
    ordinal: int
    asks: tuple[int, ...]
    node: int


def items(t: Tight) -> list[Json]:
    """Nodes, ReplicaSets, pods; always the same."""
    rng = random.Random(t.seed)
    pods, replicas = _placed(t, rng)
    names = [
        *("cpu", "memory", "ephemeral-storage")[: t.resources],
        *(f"example.com/r{i}" for i in range(3, t.resources)),
    ]
    used = [[0] * t.resources for _ in range(t.nodes)]
    for p in pods:
        if p.node >= 0:
            used[p.node] = [u + a for u, a in zip(used[p.node], p.asks, strict=True)]
    usual = [sorted(u[r] for u in used)[t.nodes // 2] for r in range(t.resources)]
    found: list[Json] = []
    for number in range(t.nodes):
        returned = number % t.zones == FAILED
        # What came back is as large as other nodes, with room for what it lost.
        holds = [max(u, m) if returned else u for u, m in zip(used[number], usual, strict=True)]
        full = [rng.uniform(0.85, 1.0) for _ in names]
        room = [max(1, int(h / f)) for h, f in zip(holds, full, strict=True)]
        found.append(_node(number, t.zones, names, room))
    specs = [_spec(p, names, replicas[p.workload] > 1) for p in pods]
    templates = {} if t.own_sizes else {p.workload: spec for p, spec in zip(pods, specs, strict=True)}
    for workload, count in enumerate(replicas):
        found.append(_replica_set(workload, count, templates.get(workload)))
    found += (_pod(p, spec) for p, spec in zip(pods, specs, strict=True))
    return found


def _placed(t: Tight, rng: random.Random) -> tuple[list[_Pod], list[int]]:
    """Every pod where it is now, and how many each workload has."""
    in_zone: dict[int, list[int]] = defaultdict(list)
    for number in range(t.nodes):
        in_zone[number % t.zones].append(number)
    replicas: list[int] = []
    left = t.pods
    while left:
        # The first are as large as the figures ask; then a heavy tail.
        large = len(replicas) < t.violated
        count = rng.randint(t.zones, 2 * t.zones) if large else int(1.5 * rng.paretovariate(1.0))
        replicas.append(min(left, count, t.nodes * 3 // 4))
        left -= replicas[-1]
    pods: list[_Pod] = []
    load = [0.0] * t.nodes
    waiting = t.pending
    for workload, count in enumerate(replicas):
        base = [int(10 ** rng.uniform(1.5, 3.5)) for _ in range(t.resources)]
        lost = workload < t.violated
        zones = list(range(t.zones))
        rng.shuffle(zones)
        free = {z: sorted(in_zone[z], key=lambda n: load[n] + rng.random()) for z in zones}
        for ordinal in range(count):
            asks = tuple(int(b * rng.uniform(0.7, 1.3)) if t.own_sizes else b for b in base)
            zone = zones[ordinal % t.zones]
            if (zone == FAILED and lost) or not free[zone]:
                zone = next(z for z in rng.sample(zones, t.zones) if z != FAILED and free[z])
            elif waiting and count < t.zones and (zone == FAILED or ordinal % 3 == 2):
                waiting -= 1
                pods.append(_Pod(workload, ordinal, asks, -1))
                continue
            node = free[zone].pop(0)
            load[node] += 1
            pods.append(_Pod(workload, ordinal, asks, node))
    return pods, replicas


def _node(number: int, zones: int, names: list[str], room: list[int]) -> Json:
    holds = {n: _amount(n, r) for n, r in zip(names, room, strict=True)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"n-{number:05d}",
            "uid": f"n{number}",
            "labels": {HOSTNAME: f"n-{number:05d}", ZONE: f"z-{number % zones:02d}"},
        },
        "spec": {},
        "status": {
            "allocatable": {**holds, "pods": "500"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _amount(name: str, value: int) -> str:
    return {"cpu": f"{value}m"}.get(name, f"{value}Mi" if "." not in name else str(value))


def _replica_set(workload: int, count: int, spec: Json | None) -> Json:
    labels = {"app": f"w-{workload}"}
    template = {"template": {"metadata": {"labels": labels}, "spec": spec}} if spec is not None else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": f"w-{workload}", "namespace": "default", "uid": f"r{workload}"},
        "spec": {"replicas": count, "selector": {"matchLabels": labels}, **template},
        "status": {"replicas": count},
    }


def _spec(p: _Pod, names: list[str], spread: bool) -> Json:
    own = {"matchLabels": {"app": f"w-{p.workload}"}}
    spec: Json = {
        "containers": [
            {
                "name": "c",
                "resources": {
                    "requests": {n: _amount(n, a) for n, a in zip(names, p.asks, strict=True)},
                },
            }
        ],
        "schedulerName": "default-scheduler",
    }
    if spread:
        term = {"topologyKey": HOSTNAME, "labelSelector": own}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**constraint, "labelSelector": own}]
    return spec


def _pod(p: _Pod, spec: Json) -> Json:
    runs = p.node >= 0
    if runs:
        spec = {**spec, "nodeName": f"n-{p.node:05d}"}
    why = {} if runs else {"reason": "Unschedulable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"w-{p.workload}-{p.ordinal}",
            "namespace": "default",
            "uid": f"p{p.workload}-{p.ordinal}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": f"w-{p.workload}"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"w-{p.workload}",
                    "uid": f"r{p.workload}",
                    "controller": True,
                }
            ],
        },
        "spec": spec,
        "status": {
            "phase": "Running" if runs else "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "True" if runs else "False", **why},
                *([{"type": "Ready", "status": "True"}] if runs else []),
            ],
        },
    }
