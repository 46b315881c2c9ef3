"""Whole plans, where the search has to choose: tangles against a naive walker, likely moves, certainty."""

from __future__ import annotations

from random import Random

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Certainty
from tests.support.build import decoded, nodes, objects, workload
from tests.support.clusters.random_clusters import random_cluster
from tests.support.clusters.scenarios import scenario
from tests.support.judge.bound import bound
from tests.support.judge.cells import Cells, UnsupportedError
from tests.support.judge.reach import reach
from tests.support.judge.verdict import judge_plan
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State


def test_a_course_through_interchangeable_nodes_is_one_that_gets_there() -> None:
    found = judge_plan(random_cluster(Random(7068), "small"), plan, cycles=False)
    assert {"false-optimal", "landing-dependent", "residual"}.isdisjoint(dict(found.findings))


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (21, 51))])
def test_a_tangle_is_walked_as_low_as_by_a_naive_walker_that_solves_a_program_for_each_step(
    seed: int,
) -> None:
    listed = random_cluster(Random(seed), "full")
    found = plan(decoded(listed))
    try:
        cells = Cells.of(State.of(listed))
    except UnsupportedError:
        pytest.skip("counts cannot express the cluster")
    (excess, _), _ = reach(cells, bound(cells, seconds=5), Random(0), seconds=1)
    assert found.residual_excess <= excess


def test_where_no_walk_is_sure_the_likeliest_one_is_planned_and_said_to_be_likely() -> None:
    listed = [o for o in scenario("random_cluster") if o["kind"] == "Node" or _of(o, "w004")]
    found = plan(decoded(listed))
    assert (found.excess, found.residual_excess) == (4, 0)
    assert (len(found.moves), found.lower_bound) == (5, 5)
    assert not found.optimal
    assert not found.moves[-1].certain


def _of(item: Json, owner: str) -> bool:
    return bool(item["metadata"]["name"].startswith(owner))


FOREIGN = "some-scheduler"
CERTAINTIES: list[tuple[str, str, Certainty, list[bool]]] = [
    ("the default scheduler, certain moves asked for: certain ones", "", "certain", [True, True]),
    ("the default scheduler, likely moves allowed: certain ones all the same", "", "likely", [True, True]),
    ("another scheduler, certain moves asked for: none", FOREIGN, "certain", []),
    ("another scheduler, likely moves allowed: likely ones", FOREIGN, "likely", [False, False]),
]


@pytest.mark.parametrize(
    ("scheduler", "certainty", "expected"),
    [pytest.param(*rest, id=sentence) for sentence, *rest in CERTAINTIES],
)
def test_certainty(scheduler: str, certainty: Certainty, expected: list[bool]) -> None:
    web = workload("web").spread("zone", 1, selector={"app": "web"})
    listed = objects(nodes(a=1, b=1, c=1), web.placed({"a-0": 4, "b-0": 1, "c-0": 1}))
    for item in listed:
        if scheduler and item["kind"] != "Node":
            spec = item["spec"] if item["kind"] == "Pod" else item["spec"]["template"]["spec"]
            spec["schedulerName"] = scheduler
    found = plan(decoded(listed), PlanOptions(certainty=certainty))
    assert [m.certain for m in found.moves] == expected
    assert found.optimal == (expected == [True, True])
    if not expected:
        (result,) = found.constraints
        assert [r.code for r in result.reasons] == [ReasonCode.NOT_CERTAIN]


def test_no_move_is_predicted_to_land_where_another_victim_of_its_wave_still_holds_the_room() -> None:
    found = judge_plan(random_cluster(Random(8), "full"), plan, compare=False, cycles=False)
    assert "predicted-astray" not in dict(found.findings)


def test_a_move_into_room_that_a_likely_move_has_to_leave_first_is_likely_too() -> None:
    found = judge_plan(random_cluster(Random(166), "small"), plan, compare=False, cycles=False)
    assert "pending" not in dict(found.findings)
    assert found.plan is not None
    assert [m.certain for m in found.plan.moves] == [False, False]
