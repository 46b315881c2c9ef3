"""What a soft constraint still needs, and what a move makes of that."""

from __future__ import annotations

import pytest

from rebalancer.planner.cluster.components import Component, components
from rebalancer.planner.cluster.groups import Groups
from rebalancer.planner.cluster.pod_classes import Classes
from rebalancer.planner.cluster.waiting import Waiting
from rebalancer.planner.constraints import View
from rebalancer.planner.moves import Judge, victim_order
from rebalancer.planner.plan import PlanOptions
from rebalancer.planner.soft import Needs
from tests.support.build import nodes, snapshot, workload


def needs(placed: dict[str, int]) -> tuple[Needs, Component]:
    zones = nodes(a=1, b=1, c=1, d=1)
    view = View(snapshot(zones, workload("web").spread("zone", soft=True).placed(placed)), PlanOptions())
    groups = Groups(view.simulation.state, (p.template for p in view.live), soft=True)
    order = victim_order(view.snapshot, view.evictable.budgets)
    classes = Classes(view.simulation, groups, view.evictable, view.live, order)
    ((own, members),) = components(groups.all, classes.all)
    component = Component(own, members, view.simulation)
    waiting = Waiting(view.simulation, groups, ())
    judge = Judge(view.simulation, classes, order, waiting, "certain")
    return Needs(view.simulation, component, judge), component


EFFECTS: list[tuple[str, dict[str, int], set[str], set[str]]] = [
    (
        "[4,2,1,1]: the excess falls wherever it goes",
        {"a-0": 4, "b-0": 2, "c-0": 1, "d-0": 1},
        {"b", "c", "d"},
        set(),
    ),
    ("[4,4,0,0]: no excess falls, but less remains to be done", {"a-0": 4, "b-0": 4}, {"c", "d"}, {"b"}),
    ("[2,1,1,1]: nothing is left to be done", {"a-0": 2, "b-0": 1, "c-0": 1, "d-0": 1}, set(), set()),
]


@pytest.mark.parametrize(("placed", "better", "worse"), [pytest.param(*rest, id=s) for s, *rest in EFFECTS])
def test_what_a_pod_that_leaves_zone_a_makes_of_it(
    placed: dict[str, int], better: set[str], worse: set[str]
) -> None:
    found, component = needs(placed)
    (group,) = component.groups
    effect = found.effect(group, 0)
    assert {group.names[d] for d in range(group.size) if effect.better[d]} == better
    assert {group.names[d] for d in range(group.size) if effect.worse[d]} == worse
    assert not effect.better[-1], "to be counted nowhere is no better place"


def test_nodes_of_one_cell_are_those_that_the_constraints_cannot_tell_apart() -> None:
    found, _ = needs({"a-0": 4, "b-0": 4})
    assert found.bucket(0) == found.bucket(1) != found.bucket(2) == found.bucket(3)
    assert found.soft_excess() == 3
