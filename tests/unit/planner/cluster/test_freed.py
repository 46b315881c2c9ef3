"""What a plan was made with is freed with it: a daemon holds one state of the cluster at a time."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest

from rebalancer.findings import findings
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions
from rebalancer.planner.planner import plan_view, view_of
from tests.support.build import decoded
from tests.support.clusters.random_clusters import random_cluster
from tests.support.clusters.scenarios import scenario


def outlives_its_plan(snapshot: Snapshot, options: PlanOptions) -> bool:
    """Whether the cluster's state is left to the garbage collector."""
    gc.disable()
    try:
        view = view_of(snapshot, options)
        plan_view(view, options)
        findings(view.simulation, view.evictable)
        state = weakref.ref(view.simulation.state)
        del view
        return state() is not None
    finally:
        gc.enable()


@pytest.mark.parametrize("options", [PlanOptions(), PlanOptions(soft="predicted")], ids=["hard", "soft"])
def test_the_state_of_a_random_cluster_goes_with_the_plan(options: PlanOptions) -> None:
    made = {n: decoded(random_cluster(Random(n), "small", pending=True)) for n in range(12)}
    assert [n for n, snapshot in made.items() if outlives_its_plan(snapshot, options)] == []


@pytest.mark.parametrize("name", ["scale_down", "zone_outage"])
def test_so_does_that_of_a_scenario(name: str) -> None:
    assert not outlives_its_plan(decoded(scenario(name)), PlanOptions())
