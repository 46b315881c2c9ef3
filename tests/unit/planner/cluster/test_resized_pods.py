"""Pods that are resized in place: their nodes get back what they take, their replacements ask for what the
spec says."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import pytest

from rebalancer.planner import plan
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.replacement import Replacements
from tests.support.build import decoded, node, objects, snapshot, workload
from tests.support.clusters.random_clusters import random_cluster
from tests.support.scheduler.plain import Json

UNDER_WAY, PENDING = "PodResizeInProgress", "PodResizePending"


def resized(pod: Json, allocated: str, condition: str = UNDER_WAY, reason: str = "") -> Json:
    """The pod, of which its kubelet has allocated so much cpu to the first container."""
    pod["status"].setdefault("conditions", []).append({"type": condition, "status": "True", "reason": reason})
    name = pod["spec"]["containers"][0]["name"]
    given = {"allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": allocated}}}
    pod["status"]["containerStatuses"] = [{"name": name, **given}]
    return pod


def shrinking(listed: list[Json], name: str, allocated: str) -> list[Json]:
    """The objects, with the pods of this name's workload still as large as that."""
    return [
        resized(o, allocated) if o["kind"] == "Pod" and o["metadata"]["name"].startswith(name) else o
        for o in listed
    ]


@pytest.mark.parametrize(
    ("spec", "allocated", "condition", "reason", "takes", "asks"),
    [
        ("1", "4", UNDER_WAY, "", 4000, 2000),
        ("3", "4", UNDER_WAY, "", 4000, 3000),
        ("4", "1", UNDER_WAY, "", 4000, 4000),
        ("4", "1", PENDING, "Infeasible", 1000, 4000),
    ],
    ids=[
        "it shrinks to less than its owner's template says",
        "it shrinks to more than that",
        "it grows",
        "it can never grow where it is",
    ],
)
def test_what_it_takes_and_what_its_replacement_asks_for(
    spec: str, allocated: str, condition: str, reason: str, takes: int, asks: int
) -> None:
    owner, made = deepcopy(workload("web").requests(cpu=2).placed({"a-0": 1}).build())
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": spec}}
    cluster = snapshot(node("a-0").zone("a"), owner, resized(made, allocated, condition, reason))
    (pod,), (found,) = cluster.pods, cluster.workloads
    replacement = Replacements().of(pod.template, found)
    state = Simulation(cluster, None).state
    assert (dict(state.holds(pod.template))["cpu"], replacement.requests["cpu"]) == (takes, asks)
    assert dict(state.asks(replacement))["cpu"] == asks


def test_a_pod_that_shrinks_moves_to_where_the_smaller_one_fits() -> None:
    machines = [node("a-0").zone("a").cpu(64), node("b-0").zone("b").cpu(2)]
    web = workload("web").spread("zone", 1).requests(cpu=1).placed({"a-0": 4})
    made = plan(decoded(shrinking(objects(machines, web), "web", "4")))
    assert (len(made.moves), made.residual_excess, made.least_excess) == (2, 0, 0)


def test_no_bound_is_higher_than_what_the_plan_reaches_on_the_room_that_they_give_back() -> None:
    """`light` gives back 4 cpu with each pod, and takes 1 elsewhere."""
    machines = [node("a-0").zone("a").cpu(64), node("b-0").zone("b").cpu(8)]
    light = workload("light").spread("zone", 1).requests(cpu=1).placed({"b-0": 2})
    needy = workload("needy").spread("zone", 1).requests(cpu=4).placed({"a-0": 3})
    stuck = workload("stuck").spread("zone", 1).requests(cpu=6).placed({"a-0": 3})
    made = plan(decoded(shrinking(objects(machines, light, needy, stuck), "light", "4")))
    assert {m.pod.name.split("-")[0] for m in made.moves} == {"light", "needy"}
    assert (made.residual_excess, made.least_excess) == (2, 2)


def test_a_placement_may_use_the_room_of_those_that_stay_in_the_plan() -> None:
    machines = [node("a-0").zone("a").cpu(64), node("b-0").zone("b").cpu(8)]
    light = workload("light").spread("hostname", 9).requests(cpu=1).placed({"b-0": 2})
    needy = workload("needy").spread("zone", 1).requests(cpu=4).placed({"a-0": 4})
    made = plan(decoded(shrinking(objects(machines, light, needy), "light", "4")))
    assert (made.residual_excess, made.least_excess) == (3, 0)


def test_a_pod_of_the_same_workload_gives_back_more_than_another_asks_for() -> None:
    machines = [node("a-0").zone("a").cpu(64), node("b-0").zone("b").cpu(4)]
    web = workload("web").spread("zone", 1).requests(cpu=1).placed({"a-0": 7, "b-0": 1})
    listed = objects(machines, web)
    (big,) = (o for o in listed if o["kind"] == "Pod" and o["spec"]["nodeName"] == "b-0")
    resized(big, "4")
    made = plan(decoded(listed))
    assert (made.residual_excess, made.least_excess) == (5, 0)


def some_resized(rng: Random, listed: list[Json]) -> list[Json]:
    """Some of the pods shrink, grow or wait to grow."""
    listed = [deepcopy(o) for o in listed]
    for o in listed:
        requests: dict[str, Any] = (
            o["spec"]["containers"][0].get("resources", {}).get("requests", {}) if o["kind"] == "Pod" else {}
        )
        if "cpu" in requests and rng.random() < 0.4:
            other = rng.choice(["50m", "300m", "900m"])
            how = rng.choice([(UNDER_WAY, ""), (PENDING, "Deferred"), (PENDING, "Infeasible")])
            if rng.random() < 0.5:
                resized(o, other, *how)
            else:
                resized(o, str(requests["cpu"]), *how)
                o["spec"]["containers"][0]["resources"] = {"requests": {**requests, "cpu": other}}
    return listed


def test_no_plan_beats_the_bound_in_random_clusters() -> None:
    for seed in range(12):
        rng = Random(f"resized/{seed}")
        listed = some_resized(rng, random_cluster(rng, ("small", "tiny")[seed % 2]))
        made = plan(decoded(listed))
        assert made.least_excess <= made.residual_excess, seed
