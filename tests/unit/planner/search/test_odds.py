"""What a sequence of moves is worth, over all landings."""

from __future__ import annotations

import pytest

from rebalancer.planner import objective
from rebalancer.planner.search.orders import Odds
from tests.support.build import nodes, workload
from tests.unit.planner.posed import Posed


@pytest.mark.parametrize("thorough", [True, False])
def test_an_end_that_every_landing_leads_to_is_worth_its_evictions(thorough: bool) -> None:
    posed = Posed(nodes(a=2, b=2), workload("web").spread("zone").placed({"a-0": 6, "b-0": 1}))
    before = posed.standing()
    worth, moves = Odds(posed.problem, 0, 3, thorough=thorough).best()
    assert worth == pytest.approx(objective.worth(1.0, 2))
    assert moves is not None
    assert len(moves) == 2
    assert posed.standing() == before


def test_with_too_few_moves_allowed_there_is_no_chance() -> None:
    posed = Posed(nodes(a=2, b=2), workload("web").spread("zone").placed({"a-0": 6, "b-0": 1}))
    odds = Odds(posed.problem, 0, 1, thorough=True)
    assert odds.best() == (0.0, None)
    assert odds.lucky(1) is None


def test_a_lucky_sequence_is_as_short_as_asked_for() -> None:
    posed = Posed(nodes(a=2, b=2), workload("web").spread("zone").placed({"a-0": 6, "b-0": 1}))
    odds = Odds(posed.problem, 0, 3, thorough=True)
    found = odds.lucky(2)
    assert found is not None
    assert len(found) == 2
    assert odds.of(found[0]) == pytest.approx(objective.worth(1.0, 2))
