"""Bursts whose bindings arrive out of order: no order of events that is possible may count as a disagreement,
and a scheduler with another rule is found all the same."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.engine.config import parse_config
from rebalancer.model.snapshot import Snapshot
from tests.support.build import node, pod, snapshot
from tests.support.scheduler.out_of_order import OutOfOrder, pods_like

ZONE = "topology.kubernetes.io/zone"


def burst(seed: int, *, deletions: int, left_out: str = "", **delays: float) -> list[Comparison]:
    """Two hundred pods of five kinds, in two tenths of a second, and some end meanwhile."""
    chance = random.Random(seed)
    nodes = [node(f"{z}-{i}").zone(z).cpu(8).pods(10) for z in "abc" for i in range(12)]
    there = [pod(f"first-{z}{i}").labels(app="db").on(f"{z}-{i}") for z in "abc" for i in range(8)]
    kinds = [
        pod("web").labels(app="web").requests(cpu="300m").spread("zone", 1),
        pod("api").labels(app="api").requests(cpu="500m").spread("zone", 2).spread("hostname", 3),
        pod("db").labels(app="db").requests(cpu="200m").away_from("kubernetes.io/hostname", app="db"),
        pod("plain").labels(app="plain").requests(cpu="700m"),
        pod("near").labels(app="near").requests(cpu="100m").near(ZONE, app="db"),
    ]
    cluster = snapshot(*nodes, *kinds, *there)
    options: dict[str, Any] = dict(delays)
    if left_out:
        disabled = {"plugins": {"multiPoint": {"disabled": [{"name": left_out}]}}}
        kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        options["config"] = parse_config({**kind, "profiles": [disabled]})
    scheduler = OutOfOrder(_only(cluster, there=True), seed=seed, **options)
    new = [p for kind in _only(cluster, there=False).pods for p in pods_like(kind, 40)]
    chance.shuffle(new)
    scheduler.create(new, lambda i: i * 0.001)
    for _ in range(deletions):
        victim = chance.choice(new).key
        scheduler.at(chance.random() * 3, lambda now, victim=victim: scheduler.delete(victim, now))  # type: ignore[misc]
    return scheduler.run()


def _only(cluster: Snapshot, *, there: bool) -> Snapshot:
    """With the pods that have a node, or with the others."""
    return msgspec.structs.replace(cluster, pods=tuple(p for p in cluster.pods if bool(p.node_name) is there))


@pytest.mark.parametrize(
    ("seed", "deletions", "late", "behind"),
    [(1, 0, 0.5, 0.2), (2, 60, 0.5, 0.2), (23, 60, 2.5, 1.0), (38, 40, 2.5, 1.0)],
    ids=["bindings alone", "pods end meanwhile", "everything is late", "and some end before their binding"],
)
def test_no_order_that_is_possible_is_a_disagreement(
    seed: int, deletions: int, late: float, behind: float
) -> None:
    found = Counter(c.result for c in burst(seed, deletions=deletions, late=late, behind=behind))
    assert set(found) <= {Result.AGREES, Result.UNCLEAR}
    assert found[Result.AGREES] > 20 * found[Result.UNCLEAR]


def test_a_scheduler_without_a_rule_is_found_in_the_burst() -> None:
    found = [c for c in burst(1, deletions=20, left_out="InterPodAffinity") if c.result is Result.DISAGREES]
    assert found
    (branch,) = {b for c in found for b in c.branches}
    assert branch == "InterPodAffinity rejects: In, anti-affinity, others' In, others' anti-affinity"


def test_few_decisions_test_a_rejection() -> None:
    """Which is why none makes a move certain (docs/scheduler.md): that a pod went elsewhere shows only of a
    better node that it is closed."""
    chance = random.Random(1)
    nodes = [node(f"{z}-{i}").zone(z).cpu(8).pods(20) for z in "abc" for i in range(8)]
    kinds = [
        pod("web").labels(app="web").requests(cpu="300m").spread("zone", 1),
        pod("api").labels(app="api").requests(cpu="500m").spread("zone", 2).spread("hostname", 3),
        pod("db").labels(app="db").requests(cpu="200m").away_from("kubernetes.io/hostname", app="db"),
        pod("plain").labels(app="plain").requests(cpu="700m"),
    ]
    cluster = snapshot(*nodes, *kinds)
    scheduler = OutOfOrder(_only(cluster, there=True), seed=1)
    alive: list[str] = []
    for i in range(500):
        (made,) = pods_like(chance.choice(cluster.pods), 1)
        made = msgspec.structs.replace(made, name=f"{made.name}-{i}", uid=str(i))
        scheduler.create([made], lambda _, i=i: i * 20.0)  # type: ignore[misc]
        alive.append(made.key)
        if len(alive) > 60:
            victim = alive.pop(chance.randrange(len(alive)))
            scheduler.at(i * 20.0 + 10, lambda now, victim=victim: scheduler.delete(victim, now))  # type: ignore[misc]
    found = Counter(b.partition(":")[0] for c in scheduler.run() for b in c.branches)
    assert found["PodTopologySpread takes"] == 242
    assert found["PodTopologySpread rejects"] == 7
