"""The integer program: its figures for the known scenarios and for small hard cases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.build import node, nodes, objects, pdb, workload
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.judge.bound import bound
from tests.support.judge.cells import Cells
from tests.support.scheduler.state import State, total_excess


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_figures(name: str) -> None:
    cells = Cells.of(State.of(scenario(name)))
    found = bound(cells)
    assert found.proved
    assert (found.excess, found.evictions) == SCENARIOS[name].bound
    assert cells.total_excess(found.target) == found.excess


CASES: list[tuple[str, list[Any], tuple[int, int]]] = [
    (
        "[4,4,0,0]: four evictions",
        [nodes(a=1, b=1, c=1, d=1), workload("web").spread("zone").placed({"a-0": 4, "b-0": 4})],
        (0, 4),
    ),
    (
        "minDomains above what exists stays",
        [nodes(a=1, b=1), workload("web").spread("zone", min_domains=3).placed({"a-0": 3, "b-0": 1})],
        (1, 1),
    ),
    (
        "no room anywhere",
        [
            node("a-0").zone("a"),
            node("b-0").zone("b").pods(0),
            workload("web").spread("zone").placed({"a-0": 3}),
        ],
        (2, 0),
    ),
    (
        "a budget of nothing",
        [
            nodes(a=1, b=1),
            workload("web").spread("zone").placed({"a-0": 3}),
            pdb("web", {"app": "web"}, max_unavailable=0),
        ],
        (2, 0),
    ),
]


@pytest.mark.parametrize(("sentence", "things", "expected"), CASES, ids=[c[0] for c in CASES])
def test_small_cases(sentence: str, things: list[Any], expected: tuple[int, int]) -> None:
    found = bound(Cells.of(State.of(objects(*things))))
    assert (found.excess, found.evictions) == expected, sentence


@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != "random_cluster"])
def test_cells_count_as_the_judge_does(name: str) -> None:
    state = State.of(scenario(name))
    cells = Cells.of(state)
    assert cells.total_excess(cells.start) == total_excess(state)
