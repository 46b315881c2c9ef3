"""Whether the replacement of a pod that dies would find a node: by a table, and by a plain scheduler."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import yaml

from rebalancer.findings import findings
from rebalancer.model.reason import Finding
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from tests.support.build import decoded, deployment, node, nodes, objects, pod, stateful_set, workload
from tests.support.clusters.random_clusters import random_cluster
from tests.support.scheduler.owners import owner_of, replacement
from tests.support.scheduler.plain import Json
from tests.support.scheduler.spread import alive
from tests.support.scheduler.state import State, feasible

KEPT = ("ReplicaSet", "StatefulSet")


def stuck(listed: list[Json]) -> dict[str, Finding]:
    cluster = decoded(listed)
    every = findings(Simulation(cluster, None), Evictable(cluster, PolicyOptions()))
    return {f.object: f for f in every if f.code == "cannot-be-replaced"}


def zones_and_racks() -> list[Any]:
    """The emptiest rack lies in a full zone: racks 0/1/4/5, of which r0 and r3 are in zone a."""
    return [
        node("n0").zone("a").label("rack", "r0"),
        node("n1").zone("b").label("rack", "r1"),
        node("n2").zone("b").label("rack", "r2"),
        node("n3").zone("a").label("rack", "r3"),
        workload("web").spread("zone", 1).spread("rack", 1).placed({"n1": 1, "n2": 4, "n3": 5}),
    ]


CASES: dict[str, tuple[list[Any], int, str, str]] = {
    "the emptiest rack lies in a zone that may take no more: pods of the other zone are stuck": (
        zones_and_racks(),
        4,
        "maxSkew 1 over topology.example/rack",
        "maxSkew: 2",
    ),
    "one pod a host, and its own host was cordoned since": (
        [node("a-0").zone("a").cordoned(), workload("web").spread("hostname", 1).placed({"a-0": 1})],
        1,
        "node(s) were unschedulable",
        "kubectl uncordon a-0",
    ),
    "a StatefulSet whose volume is in a zone of cordoned nodes": (
        [
            node("a-0").zone("a").cordoned(),
            node("b-0").zone("b"),
            stateful_set("db").placed({"a-0": 1}).zonal_volumes({"a-0": "a"}),
        ],
        1,
        "node(s) were unschedulable",
        "kubectl uncordon a-0",
    ),
    "its own node was tainted since, and there is no other": (
        [node("a-0").zone("a").taint("dedicated", "x"), workload("web").placed({"a-0": 1})],
        1,
        "node(s) had untolerated taint(s)",
        "# on a-0 nothing else is in the way: node(s) had untolerated taint(s)",
    ),
    "its node was cordoned and tainted: no single change helps, and none is told": (
        [
            node("a-0").zone("a").cordoned().taint("dedicated", "x"),
            workload("web").placed({"a-0": 1}),
        ],
        1,
        "node(s) were unschedulable",
        "",
    ),
    "one pod a host, and somebody has put another of them beside it since": (
        [
            node("a-0").zone("a").room(pods=5),
            workload("web").labels(app="web").away_from("hostname", app="web").placed({"a-0": 1}),
            pod("twin").labels(app="web").on("a-0"),
        ],
        1,
        "node(s) didn't match pod anti-affinity rules",
        "# one more node like a-0",
    ),
    "a pod that came since wants none of them on its host": (
        [
            node("a-0").zone("a").room(pods=5),
            workload("web").labels(app="web").placed({"a-0": 1}),
            pod("alone").away_from("hostname", app="web").on("a-0"),
        ],
        1,
        "node(s) didn't satisfy existing pods anti-affinity rules",
        "# one more node like a-0",
    ),
    "the owner's template asks for more room than any node has left": (
        [node("a-0").zone("a").room(cpu="1", pods=2), workload("big").requests(cpu="2").placed({"a-0": 1})],
        1,
        "Insufficient cpu",
        "# on a-0 nothing else is in the way: Insufficient cpu",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_pods_that_no_node_would_take_again(case: str) -> None:
    things, pods, cause, remedy = CASES[case]
    [finding] = stuck(objects(*things)).values()
    assert finding.numbers["pods"] == pods
    assert cause in finding.message
    assert remedy in finding.remedy
    assert bool(remedy) or not finding.remedy


SOUND: dict[str, list[Any]] = {
    "a pod goes back to where it was": [
        nodes(a=1, b=1),
        deployment("web").spread("zone", 1).placed({"a-0": 1}),
    ],
    "of one pod a host each can go back to its own": [
        nodes(a=1, b=1),
        workload("web").labels(app="web").away_from("hostname", app="web").placed({"a-0": 1, "b-0": 1}),
    ],
    "its room is its own": [node("a-0").zone("a").pods(1), workload("web").placed({"a-0": 1})],
    "a bare pod is replaced by nobody": [node("a-0").zone("a").cordoned(), pod("one").on("a-0")],
    "pods of lower priority would make room": [
        node("a-0").zone("a").pods(2).cordoned(),
        node("b-0").zone("b").pods(1),
        workload("vital").priority(1000).placed({"a-0": 1}),
        workload("idle").placed({"b-0": 1}),
    ],
}


@pytest.mark.parametrize("case", SOUND)
def test_pods_that_can_be_replaced(case: str) -> None:
    found = stuck(objects(*SOUND[case]))
    assert not {o for o in found if "idle" not in o}, found


def test_the_max_skew_to_paste_opens_a_node() -> None:
    listed = objects(*zones_and_racks())
    [finding] = stuck(listed).values()
    index = int(finding.remedy.partition("topologySpreadConstraints[")[2].partition("]")[0])
    [constraint] = yaml.safe_load(finding.remedy)
    for o in listed:
        spec = o["spec"].get("template", {}).get("spec") or o["spec"]
        if "topologySpreadConstraints" in spec:
            spec["topologySpreadConstraints"][index] = constraint
    assert not stuck(listed)


@pytest.mark.parametrize("seed", range(12))
def test_a_plain_scheduler_says_the_same_of_each_pod(seed: int) -> None:
    listed = list(random_cluster(Random(f"replacing/{seed}"), ("small", "tiny", "full")[seed % 3]))
    state = State.of(listed)
    lowest = min(p["spec"].get("priority", 0) for p in state.pods.values())
    expected: dict[str, int] = {}
    may_preempt: set[str] = set()
    for key, one in state.pods.items():
        owner = owner_of(state, one)
        if not alive(one) or not one["spec"].get("nodeName") or owner is None or owner["kind"] not in KEPT:
            continue
        itself = {"kind": owner["kind"], "name": owner["metadata"]["name"]}
        [top] = owner["metadata"].get("ownerReferences") or [itself]
        name = f"{top['kind']}/{owner['metadata']['namespace']}/{top['name']}"
        if not feasible(state.without([key]), replacement(state, one)):
            expected[name] = expected.get(name, 0) + 1
            if one["spec"].get("priority", 0) > lowest:
                may_preempt.add(name)
    found = {o: f.numbers["pods"] for o, f in stuck(listed).items()}
    assert {o: n for o, n in found.items() if o not in may_preempt} == {
        o: n for o, n in expected.items() if o not in may_preempt
    }
    assert all(n <= expected[o] for o, n in found.items())
