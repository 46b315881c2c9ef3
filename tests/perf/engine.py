"""Simulated placements a second (filter, score, assume) on 5,000 nodes with 30,000 pods."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from typing import Any

from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.decode import Decoder
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot, build_snapshot
from tests.perf import Figure

NODES, PODS, APPS = 5_000, 30_000, 300
PLACEMENTS, ROUNDS = 1_000, 3
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"

Json = dict[str, Any]


def node(number: int) -> Json:
    """A node in one of three zones."""
    name = f"node-{number:04}"
    room = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "200Gi"}
    images = [{"names": [f"app-{i}:1"], "sizeBytes": 200_000_000} for i in range(number % 7, APPS, 61)]
    return {
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: f"zone-{number % 3}"}},
        "status": {"allocatable": room, "images": images},
    }


def pod(name: str, app: str, node_name: str = "", **spec: object) -> Json:
    """A pod of an app."""
    requests = {"cpu": "250m", "memory": "512Mi"}
    container = {"name": "c", "image": f"{app}:1", "resources": {"requests": requests}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}},
        "spec": {"containers": [container], **({"nodeName": node_name} if node_name else {}), **spec},
        "status": {"phase": "Running"},
    }


def spread(app: str, key: str, max_skew: int = 1, when: str = "DoNotSchedule") -> Json:
    """A spread constraint of an app."""
    return {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": app}},
    }


def anti_affinity(app: str) -> Json:
    """Required anti-affinity of an app's pods on a node."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


CASES: dict[str, tuple[Json, float | None]] = {
    "(a) one hard zone constraint": ({"topologySpreadConstraints": [spread("app-0", ZONE)]}, 1000),
    "(b) hard zone and hostname": (
        {"topologySpreadConstraints": [spread("app-0", ZONE), spread("app-0", HOSTNAME, 2)]},
        500,
    ),
    "(c) soft zone": ({"topologySpreadConstraints": [spread("app-0", ZONE, when="ScheduleAnyway")]}, 500),
    "(d) required anti-affinity on hostname": ({"affinity": anti_affinity("app-0")}, None),
    "(e) system defaults with a Service": ({}, None),
}


def cluster(decoder: Decoder) -> Snapshot:
    """5,000 nodes, 30,000 pods of 300 apps (each tenth with anti-affinity), a Service for app-0."""
    service = {"metadata": {"name": "app-0", "namespace": "default"}, "spec": {"selector": {"app": "app-0"}}}
    objects = [decoder.decode("Node", encoded(node(i))) for i in range(NODES)]
    objects.append(decoder.decode("Service", encoded(service)))
    for i in range(PODS):
        app = i % APPS
        spec = {"affinity": anti_affinity(f"app-{app}")} if app % 10 == 5 else {}
        where = f"node-{(i * 7 + i // NODES) % NODES:04}"
        objects.append(decoder.decode("Pod", encoded(pod(f"pod-{i}", f"app-{app}", where, **spec))))
    return build_snapshot(objects, now=0.0, server_version="v1.36.2")


def encoded(document: Json) -> bytes:
    """JSON bytes."""
    return json.dumps(document).encode()


def template(decoder: Decoder, spec: Json) -> PodTemplate:
    """The template of a new pod of app-0."""
    found = decoder.decode("Pod", encoded(pod("new", "app-0", **spec)))
    assert isinstance(found, Pod)
    return found.template


def place(framework: Framework, wanted: PodTemplate, number: int) -> None:
    """Places pods one after the other, each on its best node."""
    for i in range(number):
        feasible = framework.feasible(wanted)
        totals = framework.score(wanted, feasible).totals
        totals[~feasible] = -1
        framework.state.add(("new", i), wanted, int(totals.argmax()))


def run() -> Iterator[Figure]:
    """Each kind of pod on a fresh cluster; the best of three rounds, as other work disturbs."""
    decoder = Decoder()
    snapshot = cluster(decoder)
    start = time.perf_counter()
    base = ClusterState.of(snapshot)
    _ = base.table.domains(HOSTNAME), base.table.domains(ZONE), base.table.image("")
    yield Figure("state from a snapshot", 1000 * (time.perf_counter() - start), "ms")
    for name, (spec, target) in CASES.items():
        wanted = template(decoder, spec)
        framework = Framework(base.copy())
        gc.collect()
        start = time.perf_counter()
        place(framework, wanted, 1)
        first = time.perf_counter() - start
        best = 0.0
        for _ in range(ROUNDS):
            for key in [k for k in framework.state.pods if isinstance(k, tuple)]:
                framework.state.remove(key)
            start = time.perf_counter()
            place(framework, wanted, PLACEMENTS)
            best = max(best, PLACEMENTS / (time.perf_counter() - start))
        yield Figure(name, best, "placements/s", target)
        yield Figure("    the first of its template", 1000 * first, "ms")
    start = time.perf_counter()
    for _ in range(100):
        base.copy()
    yield Figure("a branch of the state", 10 * (time.perf_counter() - start), "ms")
