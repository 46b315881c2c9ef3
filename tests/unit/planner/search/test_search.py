"""The searches joined: what a search says of itself."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from rebalancer.planner import Plan, PlanOptions, plan
from rebalancer.planner.hard import Search, Solution
from tests.perf.clusters import tight
from tests.support.build import nodes, pdb, snapshot, workload
from tests.unit.planner.posed import Posed


def searched(posed: Posed, effort: int = 2000) -> Solution:
    before = posed.standing()
    found = Search(posed.simulation, posed.components[0], posed.judge, effort).run()
    assert posed.standing() == before
    return found


def test_guaranteed_moves_to_the_bound_are_proved() -> None:
    found = searched(Posed(nodes(a=1, b=1), workload("web").spread("zone").placed({"a-0": 5, "b-0": 1})))
    assert (found.least, found.residual, found.bound, len(found.moves)) == (0, 0, 2, 2)
    assert found.proved
    assert all(m.certain and m.landed >= 0 for m in found.moves)


def test_where_nothing_can_be_gained_no_move_is_proved_to_be_best() -> None:
    stuck = workload("web").spread("zone", min_domains=3).placed({"a-0": 2, "b-0": 1})
    found = searched(Posed(nodes(a=1, b=1), stuck))
    assert (found.moves, found.residual, found.proved) == ((), 1, True)


def test_pods_that_a_budget_keeps_are_part_of_the_bound() -> None:
    web = workload("web").spread("zone").placed({"a-0": 3, "b-0": 1})
    found = searched(Posed(nodes(a=1, b=1), web, pdb("web", {"app": "web"}, max_unavailable=0)))
    assert (found.moves, found.residual) == ((), 1)


def test_without_effort_nothing_is_claimed() -> None:
    web = workload("web").spread("zone").spread("hostname").placed({"a-0": 3, "b-0": 1})
    found = searched(Posed(nodes(a=2, b=2), web), effort=0)
    assert found.moves == ()
    assert not found.proved


def test_the_fewest_moves_to_no_excess_are_optimal_however_they_were_found() -> None:
    web = workload("web").spread("zone")
    cluster = snapshot(nodes(a=2, b=2), web.placed({"a-0": 2, "a-1": 2}))
    with patch.object(Search, "_proved", lambda *_: False):
        made = plan(cluster, PlanOptions())
    assert (len(made.moves), made.lower_bound, made.residual_excess) == (2, 2, 0)
    assert made.optimal


def large(replicas: int, *further: tuple[str, int], effort: int = 2000) -> Plan:
    """A workload with a pod a node, too few of them in one of three zones."""
    web = workload("web").requests(cpu="100m").spread("zone")
    for key, skew in further:
        web = web.spread(key, skew)
    here = {"a": replicas * 5 // 11, "b": replicas * 4 // 11, "c": replicas * 2 // 11}
    placed = {f"{z}-{i}": 1 for z, count in here.items() for i in range(count)}
    cluster = snapshot(nodes(**dict.fromkeys("abc", replicas // 2)), web.placed(placed))
    return plan(cluster, PlanOptions(effort=effort))


def test_of_a_large_workload_the_hundreds_of_moves_are_all_certain() -> None:
    """More than the effort has candidates."""
    made = large(1320, effort=400)
    assert (len(made.moves), made.residual_excess, made.optimal) == (200, 0, True)
    assert all(m.certain for m in made.moves)


def test_where_landings_are_too_many_to_follow_the_moves_before_are_certain() -> None:
    """Each replacement may go to a node of its own or beside another: 32 such ways are followed."""
    made = large(330, ("hostname", 2))
    assert (len(made.moves), made.residual_excess) == (50, 0)
    assert sum(m.certain for m in made.moves) == 31


def test_pods_go_to_empty_nodes_one_by_one_whichever_each_of_them_takes() -> None:
    """No move alone lowers the skew of 2 that twenty new nodes made; with all of them it is 1."""
    web = workload("web").requests(cpu="100m").spread("hostname")
    placed = {f"{z}-{i}": 2 for z in "ab" for i in range(20)}
    made = plan(snapshot(nodes(a=20, b=20, c=20), web.placed(placed)), PlanOptions())
    assert (len(made.moves), made.residual_excess, made.optimal) == (20, 0, True)
    assert all(m.certain for m in made.moves)


@pytest.mark.parametrize(
    "cluster",
    [
        tight.Tight(9, 27, 3, 3, resources=3, seed=1278, own_sizes=True),
        tight.Tight(12, 36, 4, 4, resources=1, seed=916, own_sizes=True),
        tight.Tight(15, 45, 5, 3, resources=1, seed=124, own_sizes=True),
    ],
)
def test_pods_that_move_for_another_component_may_make_room_again_where_they_went(
    cluster: tight.Tight,
) -> None:
    made = plan(tight.snapshot(cluster))
    assert (made.lower_bound, made.residual_excess) == (len(made.moves), 0)
