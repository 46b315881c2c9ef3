"""What a plan calls out of the scheduler's reach nobody reaches, however many pods go at once."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.planner.plan import Cause, Plan
from tests.support.build import decoded
from tests.support.clusters.random_clusters import Size, clusters, random_cluster
from tests.support.judge.cells import Cells, UnsupportedError
from tests.support.judge.wander import lowest
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State

STEPS = 150
SURELY = (17, 78, 153, 199, 329)
"""Clusters of which some of the excess is out of the scheduler's reach."""


def _out_of_reach(made: Plan) -> int:
    return sum(b.excess for b in made.between if b.cause is Cause.NOT_PLACED)


def _holds(listed: list[Json], rng: Random) -> Plan:
    made = plan(decoded(listed))
    try:
        cells = Cells.of(State.of(listed))
    except UnsupportedError:
        return made
    if made.residual_excess:
        assert lowest(cells, rng, STEPS) >= made.least_excess + _out_of_reach(made)
    return made


@settings(max_examples=25)
@given(clusters("small"))
def test_nobody_gets_lower(listed: list[Json]) -> None:
    _holds(listed, Random(len(listed)))


@pytest.mark.parametrize("seed", SURELY)
def test_nobody_gets_lower_where_it_is_claimed(seed: int) -> None:
    listed = list(random_cluster(Random(f"wander/{seed}"), ("tiny", "small")[seed % 2]))
    assert _out_of_reach(_holds(listed, Random(seed)))


@pytest.mark.parametrize(("seed", "size"), [(75, "small"), (148, "full")])
def test_a_component_of_few_pods_is_searched_to_the_end(seed: int, size: Size) -> None:
    """It says that nothing leads lower, not that the search gave up."""
    made = plan(decoded(list(random_cluster(Random(f"lim/{seed}"), size))))
    codes = {r.code for c in made.constraints if c.residual_excess for r in c.reasons}
    assert ReasonCode.NOT_NEEDED in codes
    assert ReasonCode.SIMULATION_LIMIT not in codes
