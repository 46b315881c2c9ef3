"""What the plan says no placement can beat, held to an independent integer program over final placements."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given

from rebalancer.planner import plan
from rebalancer.planner.plan import Cause
from tests.support.build import decoded, node, objects, snapshot, workload
from tests.support.clusters.random_clusters import clusters, random_cluster
from tests.support.judge.bound import bound
from tests.support.judge.cells import Cells, UnsupportedError
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State


@given(clusters("small"))
def test_no_placement_beats_it(listed: list[Json]) -> None:
    made = plan(decoded(listed))
    assert made.least_excess <= made.residual_excess
    assert made.residual_excess - made.least_excess == sum(b.excess for b in made.between)
    assert made.residual_excess or (made.least_excess, made.least_exact) == (0, True)
    try:
        independent = bound(Cells.of(State.of(listed)))
    except UnsupportedError:
        return
    assert made.least_excess <= independent.excess


@pytest.mark.parametrize("seed", [0, 2, 3, 4, 5, pytest.param(1, marks=pytest.mark.nightly)])
def test_it_is_what_the_independent_program_reaches(seed: int) -> None:
    listed = list(random_cluster(Random(f"least/{seed}"), ("small", "full", "tiny")[seed % 3]))
    made, independent = plan(decoded(listed)), bound(Cells.of(State.of(listed)))
    assert independent.proved
    assert (made.least_excess, made.least_exact) == (independent.excess, True)


@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 7))])
def test_each_constraint_has_its_own(seed: int) -> None:
    listed = list(random_cluster(Random(f"least/{seed}"), "full"))
    made = plan(decoded(listed))
    assert made.residual_excess
    for c in made.constraints:
        if c.residual_excess:
            assert c.least_excess is not None
            assert 0 <= c.least_excess <= c.residual_excess
        else:
            assert c.least_excess is None


def test_a_swap_between_full_zones_is_not_walkable_in_steps_that_do_no_harm() -> None:
    machines = [node("a-0").zone("a").pods(8), node("b-0").zone("b").pods(8)]
    left = workload("left").spread("zone", 1).placed({"a-0": 5, "b-0": 3})
    right = workload("right").spread("zone", 1).placed({"a-0": 3, "b-0": 5})
    made = plan(snapshot(machines, left, right))
    assert (made.residual_excess, made.least_excess) == (2, 0)
    assert [(b.cause, b.excess) for b in made.between] == [(Cause.NOT_REACHABLE, 2)]


def test_by_zone_and_hostname_a_placement_may_be_one_that_the_scheduler_never_makes() -> None:
    machines = [*(node(f"a-{i}").zone("a") for i in range(40)), *(node(f"b-{i}").zone("b") for i in range(2))]
    web = workload("web").spread("zone", 1).spread("hostname", 1).placed({f"a-{i}": 1 for i in range(12)})
    listed = objects(machines, web)
    made, independent = plan(decoded(listed)), bound(Cells.of(State.of(listed)))
    assert (made.residual_excess, made.least_excess, independent.excess) == (7, 2, 2)
    assert [(b.cause, b.excess) for b in made.between] == [(Cause.NOT_PLACED, 5)]


def test_what_has_no_room_cannot_be_had_by_any_placement() -> None:
    machines = [node("a-0").zone("a"), node("b-0").zone("b").pods(1)]
    made = plan(decoded(objects(machines, workload("web").spread("zone", 1).placed({"a-0": 4}))))
    assert (made.residual_excess, made.least_excess, made.between) == (1, 1, ())


def test_pods_that_may_not_go_and_host_ports_take_room_from_every_placement() -> None:
    for seed in (5012, 5016, 5044, 5086):
        listed = list(random_cluster(Random(f"least/{seed}"), ("small", "full", "tiny")[seed % 3]))
        made, independent = plan(decoded(listed)), bound(Cells.of(State.of(listed)))
        assert made.residual_excess
        assert (made.least_excess, independent.proved) == (independent.excess, True)


def test_pods_of_a_class_that_ask_for_less_than_the_others_make_no_bound_too_high() -> None:
    """One pod was resized in place, or is from before its VerticalPodAutoscaler's recommendation."""
    machines = [node("a-0").zone("a").cpu("64"), node("b-0").zone("b").cpu("8")]
    needy = workload("needy").spread("zone", 1).requests(cpu="4").placed({"a-0": 4})
    movable = workload("movable").spread("hostname", 9).requests(cpu="4").placed({"a-0": 1, "b-0": 2})
    listed = objects(machines, needy, movable)
    for o in listed:
        if o["kind"] == "Pod" and o["metadata"]["name"] == "movable-00000":
            o["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    assert plan(decoded(listed)).least_excess == 0
