"""Moves tried one sequence after the other leave the simulation as a fresh start would."""

from __future__ import annotations

from rebalancer.planner.cluster.simulation import Tried
from rebalancer.planner.hard import Search
from tests.support.build import nodes, workload
from tests.unit.planner.posed import Posed


def test_each_sequence_stands_alone_and_in_the_end_nothing_is_left() -> None:
    web = workload("web").spread("zone").placed({"a-0": 6, "b-0": 1})
    posed = Posed(nodes(a=1, b=1), web)
    one, two = Search(posed.simulation, posed.components[0], posed.judge, 2000).run().moves
    before, at_first = posed.standing(), set(posed.simulation.state.pods)
    tried = Tried(posed.simulation)
    with tried.kept():
        for moves in ((one,), (one, two), (two,), (), (two, one)):
            with tried.after(moves):
                found = set(posed.simulation.state.pods)
            assert found ^ at_first == {
                key
                for m in moves
                for key in (m.pod.uid or m.pod.key, ("replacement", m.pod.uid or m.pod.key))
            }
    assert posed.standing() == before


def test_alone_a_sequence_is_undone_at_once() -> None:
    web = workload("web").spread("zone").placed({"a-0": 3, "b-0": 1})
    posed = Posed(nodes(a=1, b=1), web)
    moves = Search(posed.simulation, posed.components[0], posed.judge, 2000).run().moves
    before, tried = posed.standing(), Tried(posed.simulation)
    with tried.after(moves):
        assert posed.standing() != before
    assert posed.standing() == before
