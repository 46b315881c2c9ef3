"""How low joint moves can lead, by trying everything: no plan ends lower, and few end higher."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner import plan
from rebalancer.planner.plan import PlanOptions
from tests.property.joint import JOINT
from tests.support.build import decoded, node, objects, workload
from tests.support.clusters.stuck import SEVEN, SWAP
from tests.support.clusters.tangled import tangled
from tests.support.judge.cells import Cells
from tests.support.judge.jointly_reached import Jointly, TooManyError
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State


def lowest(listed: list[Json], largest: int = 3) -> int:
    return Jointly(Cells.of(State.of(listed)), largest).lowest()


HAND_COUNTED: list[tuple[str, list[Any], int]] = [
    ("two full zones with a pod too many of each other's workload", [SWAP], 0),
    ("seven replicas in zones 2/4/1", [SEVEN], 0),
    (
        "two zones, one of them full of pods that nothing keeps out of it",
        [
            node("a-0").zone("a"),
            node("b-0").zone("b").pods(1),
            workload("web").spread("zone", 1).placed({"a-0": 3}),
            workload("other").placed({"b-0": 1}),
        ],
        2,
    ),
]


@pytest.mark.parametrize(("things", "excess"), [pytest.param(*c[1:], id=c[0]) for c in HAND_COUNTED])
def test_as_counted_by_hand(things: list[Any], excess: int) -> None:
    assert lowest(objects(*things)) == excess


def test_pairs_alone_do_not_free_seven_replicas() -> None:
    assert lowest(objects(*SEVEN), largest=2) == 5


def test_it_gives_up_where_there_is_too_much_to_try() -> None:
    with pytest.raises(TooManyError):
        Jointly(Cells.of(State.of(objects(*SEVEN))), limit=10).lowest()


AS_LOW = [211, 226, 291, 357, 374]
"""Seeds of clusters in which joint moves lower the excess."""
HIGHER = [75, 117, 136, 150, 190, 208]
"""In some of these luck is needed to get lower; in others, a set before the single moves are all made."""


@pytest.mark.parametrize("seed", AS_LOW)
def test_a_plan_ends_as_low_as_anything_can(seed: int) -> None:
    listed = tangled(seed)
    alone = plan(decoded(listed), PlanOptions(policy=JOINT.policy)).residual_excess
    residual = plan(decoded(listed), JOINT).residual_excess
    assert residual == lowest(listed) < alone


@pytest.mark.parametrize("seed", HIGHER)
def test_no_plan_ends_lower_than_anything_can(seed: int) -> None:
    listed = tangled(seed)
    assert plan(decoded(listed), JOINT).residual_excess >= lowest(listed)
