"""Which of two ends of a plan is better."""

from __future__ import annotations

import pytest

from rebalancer.planner import objective
from rebalancer.planner.objective import Rank

BETTER = [
    ("less excess, whatever it takes", Rank(0, 9, 9, 9), Rank(1, 0, 0, 0)),
    ("as little excess with fewer evictions", Rank(1, 2, 2, 2), Rank(1, 3, 0, 1)),
    ("as many evictions, more of them certain", Rank(1, 2, 0, 2), Rank(1, 2, 1, 1)),
    ("all else equal, fewer waves", Rank(1, 2, 1, 1), Rank(1, 2, 1, 2)),
]


@pytest.mark.parametrize(("better", "worse"), [pytest.param(*r, id=s) for s, *r in BETTER])
def test_better(better: Rank, worse: Rank) -> None:
    assert better < worse


def test_in_a_program_no_number_of_evictions_outweighs_one_pod_in_excess() -> None:
    excess, eviction = objective.weights(50)
    assert excess > 50 * eviction


def test_an_eviction_has_to_add_to_the_chance() -> None:
    assert objective.worth(0.9, 2) < objective.worth(0.9, 1)
    assert objective.worth(0.9, 2) < objective.worth(0.84, 0)
    assert objective.unbeaten(objective.worth(1.0, 3), 3)
    assert not objective.unbeaten(objective.worth(0.9, 3), 3)
