"""How low harmless moves lead along predicted landings."""

from __future__ import annotations

from rebalancer.planner.search.orders import Beam
from tests.support.build import nodes, workload
from tests.unit.planner.posed import Posed


def test_it_ends_at_the_least_excess_with_the_moves_that_lead_there() -> None:
    web = workload("web").spread("zone").spread("hostname", 2)
    posed = Posed(nodes(a=2, b=2, c=2), web.placed({"a-0": 3, "a-1": 2, "b-0": 1}))
    before = posed.standing()
    problem = posed.problem
    end = Beam(problem).run(0)
    assert end.rank.excess == problem.excess(end.placed) == 0
    assert end.rank.evictions == len(end.moves) == problem.remaining.start_moves(0)
    assert all(m.landed >= 0 and not m.certain for m in end.moves)
    placed = problem.start
    for move in end.moves:
        placed = move.candidate.moved(placed, move.landed)
    assert (placed == end.placed).all()
    assert posed.standing() == before


def test_where_no_move_is_open_it_is_exhausted_at_the_start() -> None:
    posed = Posed(nodes(a=1, b=1), workload("web").spread("zone", min_domains=3).placed({"a-0": 2, "b-0": 1}))
    beam = Beam(posed.problem)
    end = beam.run(0)
    assert end.moves == ()
    assert beam.exhausted


def test_without_effort_it_stays_and_claims_nothing() -> None:
    posed = Posed(nodes(a=1, b=1), workload("web").spread("zone").placed({"a-0": 3, "b-0": 1}), effort=0)
    beam = Beam(posed.problem)
    assert beam.run(0).moves == ()
    assert not beam.exhausted
