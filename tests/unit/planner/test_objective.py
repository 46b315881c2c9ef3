"""Which of two ends of a plan is better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rebalancer.model.pod import Pod
from rebalancer.planner import objective
from rebalancer.planner.objective import Rank
from tests.support.build import pod, snapshot

BETTER = [
    ("less excess, whatever it takes", Rank(0, 9, 9, 9), Rank(1, 0, 0, 0)),
    ("as little excess with fewer evictions", Rank(1, 2, 2, 2), Rank(1, 3, 0, 1)),
    ("as many evictions, more of them certain", Rank(1, 2, 0, 2), Rank(1, 2, 1, 1)),
    ("all else equal, fewer waves", Rank(1, 2, 1, 1), Rank(1, 2, 1, 2)),
]


@pytest.mark.parametrize(("better", "worse"), [pytest.param(*r, id=s) for s, *r in BETTER])
def test_better(better: Rank, worse: Rank) -> None:
    assert better < worse


@dataclass(frozen=True)
class Move:
    pod: Pod
    certain: bool


def test_a_rank_says_what_remains_what_it_takes_and_how_much_of_it_is_not_certain() -> None:
    (one,) = snapshot(pod("web")).pods
    moves = [Move(one, certain=c) for c in (True, False, True)]
    assert objective.rank(7, moves, 2) == Rank(excess=7, evictions=3, likely=1, waves=2)
    assert objective.rank(7, moves) == Rank(excess=7, evictions=3, likely=1, waves=0)


def test_victims_are_first_where_most_are_wanted_and_else_in_their_order() -> None:
    wanted = [1, 3, 1, 3, 2]
    by_key = sorted(range(5), key=lambda place: objective.victim(wanted[place], (place,)))
    assert objective.victims(np.array(wanted)).tolist() == by_key == [1, 3, 4, 0, 2]


def test_in_a_program_no_number_of_evictions_outweighs_one_pod_in_excess() -> None:
    excess, eviction = objective.weights(50)
    assert excess > 50 * eviction


def test_an_eviction_has_to_add_to_the_chance() -> None:
    assert objective.worth(0.9, 2) < objective.worth(0.9, 1)
    assert objective.worth(0.9, 2) < objective.worth(0.84, 0)
    assert objective.unbeaten(objective.worth(1.0, 3), 3)
    assert not objective.unbeaten(objective.worth(0.9, 3), 3)
