"""Through how many placements a move is followed."""

from __future__ import annotations

import numpy as np

from rebalancer.planner.search.problem import Landings, Placement, Placements
from tests.support.build import nodes, workload
from tests.unit.planner.posed import Posed


def landings(posed: Posed, *, nearer: bool = True) -> tuple[Landings, Placements]:
    problem = posed.problem
    distinct = np.zeros(problem.start.shape[1], dtype=np.bool_)
    return Landings(problem, lambda *_: nearer, distinct), Placements((Placement(problem.start),))


def test_nodes_of_one_domain_are_one_landing() -> None:
    posed = Posed(nodes(a=1, b=3), workload("web").spread("zone").placed({"a-0": 4, "b-0": 1}))
    follow, start = landings(posed)
    advance = follow.advance(start, posed.on("a-0"))
    assert advance is not None
    assert len(advance.placements.possible) == 1
    assert posed.names(advance.move.destinations) == ["b-0", "b-1", "b-2"]
    assert advance.move.certain


def test_zones_that_later_moves_can_tell_apart_are_several() -> None:
    posed = Posed(nodes(a=1, b=1, c=1), workload("web").spread("zone").placed({"a-0": 5, "b-0": 1, "c-0": 0}))
    follow, start = landings(posed)
    advance = follow.advance(start, posed.on("a-0"))
    assert advance is not None
    counts = {tuple(p.placed[0].tolist()) for p in advance.placements.possible}
    assert counts <= {(4, 2, 0), (4, 1, 1)}
    assert all(p.placed.sum() == 6 for p in advance.placements.possible)
    predicted = advance.placements.predicted
    assert predicted.made[-1].landed == advance.move.landed


def test_a_move_that_leads_no_nearer_on_some_landing_is_not_certain() -> None:
    posed = Posed(nodes(a=1, b=1), workload("web").spread("zone").placed({"a-0": 3, "b-0": 1}))
    follow, start = landings(posed, nearer=False)
    advance = follow.advance(start, posed.on("a-0"))
    assert advance is not None
    assert not advance.move.certain


def test_a_move_that_could_do_harm_in_one_placement_is_none() -> None:
    posed = Posed(nodes(a=1, b=1), workload("web").spread("zone").placed({"a-0": 3, "b-0": 1}))
    follow, start = landings(posed)
    before = posed.standing()
    there = follow.advance(start, posed.on("a-0"))
    assert there is not None
    # From [2,2] on, a pod that leaves b could come to a, or stay: neither raises the excess, none helps.
    further = follow.advance(there.placements, posed.on("b-0"))
    assert further is None or not further.move.certain
    assert posed.standing() == before
