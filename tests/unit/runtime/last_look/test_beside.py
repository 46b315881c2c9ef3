"""Moves of different waves in flight together: what one takes may be what another asks for."""

from __future__ import annotations

import pytest

from rebalancer.engine.config import Profile, SchedulerConfig
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.runtime.cycle.gates import Away
from rebalancer.runtime.last_look.room import may_fly
from tests.support.build import node, snapshot, workload

GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("ignored", "may"),
    [(frozenset[str](), False), (frozenset({GPU}), True)],
    ids=["it counts", "the scheduler's profile ignores it"],
)
def test_two_that_take_more_of_a_resource_than_their_node_has(ignored: frozenset[str], may: bool) -> None:
    machines = [node("a-0").zone("a"), node("b-0").zone("b").allocatable({GPU: 1})]
    cluster = snapshot(
        machines, (workload(n).spread("zone", 1).asks({GPU: 1}).placed({"a-0": 3}) for n in ("api", "web"))
    )
    careless = SchedulerConfig(profiles=(Profile(ignored_resources=frozenset({GPU})),))
    one, other = plan(cluster, PlanOptions(scheduler=careless)).moves
    simulation = Simulation(cluster, SchedulerConfig(profiles=(Profile(ignored_resources=ignored),)))
    assert may_fly(simulation, one, Away(flying=(other,), coming=(other,))) is may
    assert may_fly(simulation, one, Away(flying=(other,)))


def test_one_profile_may_ignore_what_another_counts() -> None:
    machines = [node("a-0").zone("a"), node("b-0").zone("b").allocatable({GPU: 1})]
    api, web = (
        workload(n).spread("zone", 1).asks({GPU: 1}).placed({"a-0": 3}).build() for n in ("api", "web")
    )
    for o in web:
        spec = o["spec"] if o["kind"] == "Pod" else o["spec"]["template"]["spec"]
        spec["schedulerName"] = "careless"
    careless = Profile(scheduler_name="careless", ignored_resources=frozenset({GPU}))
    both = SchedulerConfig(profiles=(Profile(), careless))
    cluster = snapshot(machines, api, web)
    one, other = plan(cluster, PlanOptions(scheduler=both)).moves
    simulation = Simulation(cluster, both)
    assert not may_fly(simulation, one, Away(flying=(other,), coming=(other,)))
    assert not may_fly(simulation, other, Away(flying=(one,), coming=(one,)))
