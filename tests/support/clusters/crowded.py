"""Random small clusters that are nearly full, with pods that wait for one another and for room."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from tests.support.build import node, objects, workload
from tests.support.build.owners import OwnerBuilder
from tests.support.clusters.random_clusters import Cluster
from tests.support.scheduler.owners import assigned
from tests.support.scheduler.plain import Json, requests
from tests.support.scheduler.state import State, feasible

_ROOM = ((0, 0, 100, 100, 100, 200), (0, 100, 100, 200, 200, 300))
"""Millicores that a node has to spare; more in every other cluster."""


def crowded_cluster(rng: Random) -> list[Json]:
    """One to three workloads that run, one or two of them uneven over their domains, and up to five Pending
    pods of several. Those that find a node are placed there, for the most part."""
    zones = "abc"[: rng.choice((2, 2, 3))]
    size = rng.randint(len(zones), 6)
    zone_of = {f"{z}-{i}": z for i, z in enumerate((zones * 3)[:size])}
    names = list(zone_of)
    machines = [
        node(n).zone(z).label("region", "r").label("slot", rng.choice("xy")) for n, z in zone_of.items()
    ]
    owners = [_workload(rng, i, running=True) for i in range(rng.randint(1, 3))]
    uneven = owners[: rng.choice((1, 1, 2))]
    for owner in uneven:
        owner.spread("zone" if rng.random() < 0.8 else "hostname", 1)
    fullest = rng.choice(zones)
    full = [n for n in names if zone_of[n] == fullest]
    for owner in owners:
        lean = 0.85 if owner in uneven else 0.0
        count = rng.randint(2, 4) if owner in uneven else rng.randint(1, 3)
        owner.on_nodes([rng.choice(full if rng.random() < lean else names) for _ in range(count)])
    used = dict.fromkeys(names, 0)
    for pod in (o for owner in owners for o in owner.build() if o["kind"] == "Pod"):
        used[pod["spec"]["nodeName"]] += requests(pod)["cpu"]
    room = rng.choice(_ROOM)
    for machine in machines:
        machine.cpu(f"{used[machine.object['metadata']['name']] + rng.choice(room)}m")
    left = rng.randint(1, 5)
    while left:
        count = min(left, rng.choice((1, 1, 1, 2)))
        left -= count
        if rng.random() < 0.2:
            owner = rng.choice(owners)
        else:
            owner = _workload(rng, len(owners), running=False)
            owners.append(owner)
        owner.placed({"": count})
    return _settled(rng, objects(machines, owners))


def crowded() -> st.SearchStrategy[list[Json]]:
    """The same for Hypothesis."""
    return st.randoms(use_true_random=False).map(lambda rng: Cluster(crowded_cluster(rng)))


def _workload(rng: Random, index: int, *, running: bool) -> OwnerBuilder:
    made = workload(f"w{index}", rng.choice(("ReplicaSet", "ReplicaSet", "StatefulSet")))
    made.requests(cpu=rng.choice(("100m", "100m", "100m", "200m")))
    if rng.random() < 0.5:
        made.parallel()
    if rng.random() < 0.2:
        made.labels(app=f"w{rng.randint(0, index)}")

    def some() -> str:
        return f"w{rng.randint(0, index + 1)}"

    ties = rng.choice((0, 0, 1)) if running else rng.choice((0, 1, 1, 2))
    for _ in range(ties):
        match rng.randint(0, 6):
            case 0 | 1:
                made.near(rng.choice(("zone", "hostname", "region")), app=some())
            case 2:
                made.away_from(rng.choice(("zone", "hostname")), app=some())
            case 3 | 4:
                key = rng.choice(("zone", "zone", "hostname"))
                selector = {"app": made.pod_labels["app"] if rng.random() < 0.7 else some()}
                made.spread(key, rng.choice((1, 1, 2)), selector=selector)
            case 5:
                made.host_port(8080)
            case _:
                made.selects(slot=rng.choice("xy"))
    if rng.random() < 0.2:
        made.priority(rng.choice((10, 100)))
    return made


def _settled(rng: Random, found: list[Json]) -> list[Json]:
    """The cluster once what finds a node has it; a few pods that may choose are late."""
    state = State.of(found)
    late = {p["metadata"]["name"] for p in state.pending() if rng.random() < 0.15}
    while open_ := [
        (p, nodes)
        for p in state.pending()
        if (nodes := feasible(state, p)) and (len(nodes) == 1 or p["metadata"]["name"] not in late)
    ]:
        pod, nodes = rng.choice(open_)
        state = state.with_pods([assigned(pod, rng.choice(nodes))])
    return state.objects()
