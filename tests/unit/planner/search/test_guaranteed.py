"""Moves that rest on no prediction."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner.search.orders import GuaranteedMoves
from tests.support.build import nodes, workload
from tests.unit.planner.posed import Posed

SURE: list[tuple[str, Any, int]] = [
    ("[3,1]: one move", {"a-0": 3, "b-0": 1}, 1),
    ("[6,1]: two moves", {"a-0": 6, "b-0": 1}, 2),
    ("[4,0] over two nodes of a zone: two moves", {"a-0": 2, "a-1": 2}, 2),
]


@pytest.mark.parametrize(("placed", "moves"), [pytest.param(*rest, id=s) for s, *rest in SURE])
def test_guaranteed_moves_are_as_few_as_the_bound_and_certain(placed: dict[str, int], moves: int) -> None:
    posed = Posed(nodes(a=2, b=2), workload("web").spread("zone").placed(placed))
    before = posed.standing()
    problem = posed.problem
    found = GuaranteedMoves(problem, 0).guaranteed()
    assert found is not None
    assert len(found) == moves == problem.remaining.start_moves(0)
    assert all(m.certain for m in found)
    assert posed.standing() == before


def test_an_end_that_no_move_leads_to_has_no_guaranteed_moves() -> None:
    posed = Posed(nodes(a=1, b=1), workload("web").spread("zone", min_domains=3).placed({"a-0": 3, "b-0": 1}))
    assert GuaranteedMoves(posed.problem, 0).guaranteed() is None


def test_without_effort_none_are_found() -> None:
    posed = Posed(nodes(a=1, b=1), workload("web").spread("zone").placed({"a-0": 3, "b-0": 1}), effort=0)
    assert GuaranteedMoves(posed.problem, 0).guaranteed() is None


def test_harmless_moves_are_no_more_than_allowed() -> None:
    posed = Posed(nodes(a=2, b=2), workload("web").spread("zone").placed({"a-0": 6, "b-0": 1}))
    search = GuaranteedMoves(posed.problem, 0)
    assert search.harmless(1) is None
    found = search.harmless(2)
    assert found is not None
    assert len(found) == 2


def test_moves_are_marked_certain_up_to_the_first_that_is_not() -> None:
    posed = Posed(nodes(a=2, b=2), workload("web").spread("zone").placed({"a-0": 6, "b-0": 1}))
    search = GuaranteedMoves(posed.problem, 0)
    found = search.guaranteed()
    assert found is not None
    assert [m.certain for m in search.marked(found)] == [True, True]
    twice = (found[0], found[0])
    with pytest.raises(KeyError):
        search.marked(twice)
