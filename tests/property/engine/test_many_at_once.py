"""What is asked of many nodes at once, or remembered until the next change, is what each node would say."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.engine.framework import Frameworks
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.findings.cannot_be_replaced import BackAgain, kept_pods
from rebalancer.planner import PlanOptions
from rebalancer.planner.cluster.groups import Groups
from rebalancer.planner.planner import view_of
from tests.support.build import decoded
from tests.support.clusters.random_clusters import clusters, random_cluster
from tests.support.scheduler.plain import Json


@settings(max_examples=40, deadline=None)
@given(clusters("small"), st.integers(0, 1 << 30))
def test_counts_by_domain_are_those_of_the_present_pods(objects: list[Json], seed: int) -> None:
    rng, state = Random(seed), ClusterState.of(decoded(objects))
    templates = [p.template for p in state.pods.values()]
    if not templates:
        return
    groups = Groups(state, templates, soft=True).all
    for step in range(12):
        placed = sorted(state.pods, key=str)
        match rng.randrange(4 if placed else 1):
            case 0:
                state.add(("new", step), rng.choice(templates), rng.randrange(state.table.size))
            case 1:
                state.remove(rng.choice(placed))
            case 2:
                state.terminate(rng.choice(placed))
            case _:
                state.restore(rng.choice(placed))
        for group in rng.sample(groups, min(3, len(groups))):
            if rng.random() < 0.2:
                group.counts(state)  # from now on the counts by node are kept
            c = group.constraint
            there = np.zeros(state.table.size, dtype=np.int64)
            for template, row, terminating in state.pods.values():
                there[row] += c.counts(template.namespace, template.labels) and not terminating
            for _ in range(2):
                assert group.counts_once(state).tolist() == group.by_domain(there).tolist()
        if rng.random() < 0.1:
            state = state.copy()


def test_the_first_rejection_of_a_node_is_that_of_its_diagnosis() -> None:
    rejected = 0
    for seed in range(40):
        snapshot = decoded(random_cluster(Random(seed), "full", pending=seed % 2 == 0))
        state = ClusterState.of(snapshot)
        frameworks, rows = Frameworks(state), np.arange(state.table.size)
        for template in {id(p.template): p.template for p in snapshot.pods}.values():
            framework = frameworks.of(template)
            diagnosis = framework.diagnose(template)
            expected = (
                list(diagnosis.nodes) if diagnosis.prefilter is None else [diagnosis.prefilter] * len(rows)
            )
            assert framework.rejections(template, rows) == expected, seed
            rejected += sum(r is not None for r in expected)
    assert rejected > 100


def test_pods_that_surely_can_go_back_can_on_each_of_their_nodes() -> None:
    surely = 0
    for seed in range(60):
        snapshot = decoded(random_cluster(Random(seed), "full"))
        view = view_of(snapshot, PlanOptions())
        back = BackAgain(view.simulation)
        for kept in kept_pods(snapshot, view.evictable, view.simulation.state.table):
            if back.all(kept):
                surely += 1
                assert back.of(kept, kept.rows).fits.all(), seed
    assert surely > 20


def test_room_for_one_is_room_for_one_or_more() -> None:
    for seed in range(20):
        snapshot = decoded(random_cluster(Random(seed), "full"))
        simulation = view_of(snapshot, PlanOptions()).simulation
        every = np.arange(simulation.state.table.size)
        for group in snapshot.live:
            room = simulation.room(group.template, {})
            assert simulation.has_room(group.template, every).tolist() == (room > 0).tolist()
