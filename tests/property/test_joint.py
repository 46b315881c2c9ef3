"""Joint moves of random clusters, played in many orders by the plain filter."""

from __future__ import annotations

from random import Random

import pytest

from rebalancer.planner import plan
from tests.property.joint import JOINT, played
from tests.support.build import decoded, objects
from tests.support.clusters.stuck import SEVEN, SWAP
from tests.support.judge.jointly import play, problems, sets_of
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State

CASES = {"two full zones": objects(*SWAP), "seven replicas": objects(*SEVEN)}


@pytest.mark.parametrize("name", CASES)
def test_whatever_order_things_happen_in_the_plan_holds(name: str) -> None:
    listed: list[Json] = CASES[name]
    rng = Random(name)
    found = sets_of(plan(decoded(listed), JOINT), State.of(listed))
    assert len(found) == 1
    for state, joint in found:
        assert [p for _ in range(100) for p in play(state, joint, rng)] == []


def test_the_judge_sees_what_waits_too_long_and_what_comes_back() -> None:
    listed = CASES["two full zones"]
    ((state, joint),) = sets_of(plan(decoded(listed), JOINT), State.of(listed))
    promised = type(joint)(joint.pods, 0, 9, (frozenset(), frozenset()))
    assert any("wait after 1" in p for p in problems(state, promised, 1, Random(0)))
    said = problems(state, promised, 2, Random(0))
    assert any("not planned" in p for p in said)
    assert any("falls by less than 9" in p for p in said)


SHARED_PORTS = 505_435
"""Two pods on a node have one host port."""


@pytest.mark.parametrize("seed", [*range(10), SHARED_PORTS])
def test_joint_moves_of_random_clusters_hold(seed: int) -> None:
    assert played(seed, each=10)[2] == []
