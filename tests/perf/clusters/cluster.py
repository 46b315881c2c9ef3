"""A synthetic cluster of any size, as the JSON that an API server would send, decoded once."""

from __future__ import annotations

import random
from typing import Any, Literal

import msgspec

from rebalancer.model.decode import Decoder
from rebalancer.model.snapshot import Object, Snapshot, build_snapshot

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
Json = dict[str, Any]
Kind = Literal["hard", "soft", "system"]


def synthetic(
    nodes: int,
    workloads: int,
    replicas: int,
    *,
    skewed: float,
    both_keys: float,
    kind: Kind = "hard",
    seed: int = 1,
) -> Snapshot:
    """`workloads` ReplicaSets of `replicas` pods over three zones.

    A share `skewed` of them has lost most of zone c; a share `both_keys` also has a hostname constraint
    (maxSkew 2). `kind`: of constraint; "system": the pods have none, so those of the system apply.
    """
    rng = random.Random(seed)
    decoder = Decoder()
    objects: list[Object] = []
    names: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    for i in range(nodes):
        zone = "abc"[i % 3]
        name = f"{zone}-{i:05d}"
        names[zone].append(name)
        objects.append(decoder.decode("Node", msgspec.json.encode(_node(name, zone))))
    for w in range(workloads):
        uneven, two = w < skewed * workloads, rng.random() < both_keys
        owner = f"app-{w:05d}"
        spec = _spec(owner, two, kind)
        objects.append(decoder.decode("ReplicaSet", msgspec.json.encode(_replica_set(owner, replicas, spec))))
        weights = (9, 8, 3) if uneven else (1, 1, 1)
        zones = _exact(weights, replicas)
        for zone, count in zip("abc", zones, strict=True):
            start = rng.randrange(len(names[zone]))
            for k in range(count):
                node = names[zone][(start + k) % len(names[zone])]
                pod = _pod(owner, f"{owner}-{zone}{k:03d}", node, spec)
                objects.append(decoder.decode("Pod", msgspec.json.encode(pod)))
    return build_snapshot(objects, now=1.8e9, kinds=("Node", "Pod", "ReplicaSet", "PodDisruptionBudget"))


def _exact(weights: tuple[int, ...], total: int) -> list[int]:
    shares = [total * w // sum(weights) for w in weights]
    shares[0] += total - sum(shares)
    return shares


def _node(name: str, zone: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _spec(owner: str, two: bool, kind: Kind) -> Json:
    def constraint(key: str, skew: int) -> Json:
        return {
            "maxSkew": skew,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule" if kind == "hard" else "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": owner}},
        }

    spread = [constraint(ZONE, 1), *([constraint(HOSTNAME, 2)] if two else [])]
    return {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}],
        "schedulerName": "default-scheduler",
        **({"topologySpreadConstraints": spread} if kind != "system" else {}),
    }


def _replica_set(owner: str, replicas: int, spec: Json) -> Json:
    return {
        "metadata": {"name": owner, "namespace": "default", "uid": f"uid-{owner}"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": owner}},
            "template": {"metadata": {"labels": {"app": owner}}, "spec": spec},
        },
        "status": {"replicas": replicas, "readyReplicas": replicas},
    }


def _pod(owner: str, name: str, node: str, spec: Json) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {"app": owner},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner,
                    "uid": f"uid-{owner}",
                    "controller": True,
                }
            ],
        },
        "spec": {**spec, "nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
