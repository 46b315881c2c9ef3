"""What it costs to know at any time how much of the spread is violated: 150,000 pods, 3,300 constraints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.decode import Decoder
from rebalancer.model.node import Node, Taint
from rebalancer.model.snapshot import Snapshot, build_snapshot
from rebalancer.spread.index import SpreadIndex
from tests.perf import Figure
from tests.perf.clusters.realistic import Size, objects

PODS, EVENTS, NODES = 150_000, 50_000, 5


def run() -> Iterator[Figure]:
    """In CPU time. A core takes 2,000 events a second if one costs less than 500 µs."""
    decoder = Decoder()
    listed = objects(Size(PODS, managed_fields=False))
    snapshot = build_snapshot((decoder.decode(kind, raw) for kind, raw in listed), now=0.0)
    index = SpreadIndex(_rules(snapshot.nodes))
    began = time.process_time()
    for pod in snapshot.pods:
        index.put(pod)
    yield Figure("all pods counted", (time.process_time() - began) * 1000, "ms")
    rng = Random(1)
    began = time.process_time()
    for _ in range(EVENTS):
        pod = rng.choice(snapshot.pods)
        index.drop(pod.namespace, pod.name)
        index.put(pod)
    yield Figure("a pod that comes or goes", _micros(began, 2 * EVENTS), "µs", 100, less_is_better=True)
    began = time.process_time()
    for version in range(EVENTS):
        index.put(replace(rng.choice(snapshot.pods), resource_version=str(version)))
    yield Figure(
        "a pod of which something else changes", _micros(began, EVENTS), "µs", 50, less_is_better=True
    )
    began = time.process_time()
    for _ in range(NODES):
        nodes = list(snapshot.nodes)
        place = rng.randrange(len(nodes))
        nodes[place] = tainted = _tainted(nodes[place])
        index.move(_rules(tuple(nodes)), {tainted.name})
    yield Figure("a node's taint", _micros(began, NODES) / 1000, "ms", 500, less_is_better=True)


def _rules(nodes: tuple[Node, ...]) -> ClusterState:
    return ClusterState(Snapshot(nodes=nodes, pods=(), now=0.0))


def _tainted(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, taints=(Taint("dedicated", effect="NoSchedule"),)))


def _micros(began: float, events: int) -> float:
    return (time.process_time() - began) / events * 1e6
