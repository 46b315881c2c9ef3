"""In which order victims are tried."""

from __future__ import annotations

import numpy as np

from tests.support.build import nodes, workload
from tests.unit.planner.posed import Posed


def posed() -> Posed:
    web = workload("web").spread("zone").placed({"a-0": 2, "a-1": 3, "b-0": 1})
    return Posed(nodes(a=2, b=1), web)


def order(p: Posed, gives: dict[str, int] | None = None) -> list[str]:
    problem = p.problem
    wanted = None
    if gives is not None:
        wanted = np.zeros_like(problem.start)
        for node, amount in gives.items():
            wanted[0, p.node(node)] = amount
    found = problem.candidates(problem.remaining.bucket_of(problem.start), wanted)
    return p.names(c.node for c in found)


def test_one_of_each_cell_comes_before_the_others_of_a_cell() -> None:
    # a-0 and a-1 are one cell: only the count of zone a matters.
    assert order(posed())[2:] in (["a-0"], ["a-1"])


def test_where_the_bound_wants_pods_taken_from_comes_first() -> None:
    assert order(posed(), {"b-0": 1})[0] == "b-0"
    assert order(posed(), {"a-1": 2, "a-0": 1})[0] == "a-1"


def test_a_pod_that_is_gone_in_the_simulation_is_no_candidate() -> None:
    p = posed()
    move = p.judge.best(p.problem.start, p.on("a-0"))
    assert move is not None
    with p.simulation.without(move.pod) as terminating:
        terminating.let_go()
        names = [c.pod.name for c in p.problem.candidates(p.problem.remaining.bucket_of(p.problem.start))]
    assert move.pod.name not in names
    assert move.pod.name in [
        c.pod.name for c in p.problem.candidates(p.problem.remaining.bucket_of(p.problem.start))
    ]
