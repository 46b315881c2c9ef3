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


def test_the_mark_tells_states_apart_and_knows_one_again() -> None:
    web = workload("web").spread("zone").placed({"a-0": 6, "b-0": 1})
    posed = Posed(nodes(a=1, b=1), web)
    state = posed.simulation.state
    one, two = Search(posed.simulation, posed.components[0], posed.judge, 2000).run().moves
    marks: dict[frozenset[str], int] = {}
    for moves in ((), (one,), (two,), (one, two), (two, one)):
        with posed.simulation.after(moves):
            assert marks.setdefault(frozenset(m.pod.key for m in moves), state.mark) == state.mark
    assert len(set(marks.values())) == 4
    before = state.mark
    with posed.simulation.without(one.pod) as leaving:
        terminating = state.mark
        leaving.let_go()
        assert len({before, terminating, state.mark}) == 3
    assert state.mark == before
