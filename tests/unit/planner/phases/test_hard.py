"""The pipeline for hard constraints: turns, ends compared."""

from __future__ import annotations

from typing import Any

from rebalancer.planner.hard import Planned
from tests.support.build import node, nodes, workload
from tests.unit.planner.posed import Posed


def skewed(name: str, pods: int = 3) -> Any:
    return workload(name).spread("zone").placed({"a-0": pods, "b-0": 1})


def planned(posed: Posed) -> Planned:
    before = posed.standing()
    found = posed.hard.plan(posed.judge.waiting)
    assert posed.standing() == before, "a phase leaves the simulation as it was"
    return found


def test_each_component_is_solved_and_its_moves_are_in_waves() -> None:
    posed = Posed(nodes(a=1, b=1), skewed("web", 5), skewed("db"))
    found = planned(posed)
    assert [len(wave) for wave in found.waves] == [2, 1]
    assert found.refused == ()
    assert sorted(s.solution.bound for s in posed.hard.solved.values()) == [1, 2]
    assert all(s.solution.proved for s in posed.hard.solved.values())


def test_a_component_that_cannot_end_better_is_left_with_what_stays() -> None:
    full = [node("a-0").zone("a"), node("b-0").zone("b").pods(1)]
    posed = Posed(full, skewed("web"))
    assert planned(posed).waves == ()
    (solved,) = posed.hard.ended()
    assert (solved.solution.residual, solved.solution.least, solved.solution.proved) == (1, 1, True)


def test_a_second_plan_goes_on_from_the_first() -> None:
    posed = Posed(nodes(a=1, b=1), skewed("web", 5))
    first = planned(posed)
    moves = [m for wave in first.waves for m in wave]
    with posed.simulation.after(moves):
        assert posed.hard.excess() == 0
        assert posed.hard.plan(posed.judge.waiting).waves == ()
        (solved,) = posed.hard.ended()
    assert len(solved.solution.moves) == 2
