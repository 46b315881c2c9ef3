"""The exhaustive search: hand-counted optima, and agreement with the judge and the integer program."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given

from tests.support.build import node, nodes, objects, stateful_set, workload
from tests.support.clusters.hand_counted import HAND_COUNTED
from tests.support.clusters.random_clusters import clusters
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.judge.bound import bound
from tests.support.judge.cells import Cells, moved
from tests.support.judge.exhaustive import adaptive, fixed
from tests.support.judge.flight import Step
from tests.support.judge.walk import play
from tests.support.scheduler.owners import evictable, evicted, replacement, waits_for_end
from tests.support.scheduler.plain import Json, node_of
from tests.support.scheduler.state import State, feasible, total_excess


def cells_of(*things: Any) -> Cells:
    return Cells.of(State.of(objects(*things)))


CASES: list[tuple[str, list[Any], tuple[int, int]]] = [
    *HAND_COUNTED,
    (
        "one selector under maxSkew 1 and 3: the loose pods alone end at a skew of 3",
        [
            nodes(a=1, b=1),
            workload("strict", "Bare").labels(app="web").spread("zone", 1).placed({"a-0": 3}),
            workload("loose").labels(app="web").spread("zone", 3).placed({"a-0": 2}),
        ],
        (2, 1),
    ),
    (
        "room for one",
        [
            node("a-0").zone("a"),
            node("b-0").zone("b").pods(1),
            workload("web").spread("zone").placed({"a-0": 4}),
        ],
        (1, 1),
    ),
    (
        "two full nodes and two workloads that lean to opposite sides",
        [
            [node("a-0").zone("a").pods(4), node("b-0").zone("b").pods(4)],
            workload("web").spread("zone").placed({"a-0": 3, "b-0": 1}),
            workload("api").spread("zone").placed({"a-0": 1, "b-0": 3}),
        ],
        (2, 0),
    ),
    (
        "the same, placed when the victim is gone, has no room either: it is the other's node that is full",
        [
            [node("a-0").zone("a").pods(4), node("b-0").zone("b").pods(4)],
            stateful_set("web").spread("zone").placed({"a-0": 3, "b-0": 1}),
            stateful_set("api").spread("zone").placed({"a-0": 1, "b-0": 3}),
        ],
        (2, 0),
    ),
    (
        "only the carrier may go",
        [
            nodes(a=1, b=1, c=1),
            workload("web").spread("zone").placed({"a-0": 2}),
            workload("rest").labels(app="web").placed({"a-0": 2, "b-0": 1, "c-0": 1}),
        ],
        (0, 2),
    ),
]


@pytest.mark.parametrize(("sentence", "things", "expected"), CASES, ids=[c[0] for c in CASES])
def test_fewest_evictions(sentence: str, things: list[Any], expected: tuple[int, int]) -> None:
    cells = cells_of(*things)
    found = fixed(cells)
    assert found.complete
    assert found.value == expected, sentence
    assert adaptive(cells).value <= expected


@pytest.mark.parametrize(
    "name", ["scale_down", "protected_pods", "noncarrier", "swap_full", "one_slot", "zonal_volumes"]
)
def test_small_scenarios(name: str) -> None:
    cells, figures = Cells.of(State.of(scenario(name))), SCENARIOS[name]
    assert fixed(cells, figures.residual).value == (figures.residual, figures.evictions)


def test_a_move_that_is_needed_after_one_landing_only_is_for_the_adaptive_planner() -> None:
    """[5,2,1] under maxSkew 2: landing on c satisfies it, landing on b leaves one more to do."""
    cells = cells_of(
        nodes(a=1, b=1, c=1), workload("web").spread("zone", 2).placed({"a-0": 5, "b-0": 2, "c-0": 1})
    )
    assert fixed(cells).value == (1, 1)
    assert adaptive(cells).value == (0, 2)


@given(clusters("tiny"))
def test_landings_are_the_nodes_that_the_judge_leaves(objects: list[Json]) -> None:
    state = State.of(objects)
    cells = Cells.of(state)
    assert cells.total_excess(cells.start) == total_excess(state)
    for key, kind in cells.kind_of.items():
        pod = state.pods[key]
        if not evictable(state, pod):
            continue
        gone = state.without([key]) if waits_for_end(pod) else state.with_pods([evicted(pod)])
        after = moved(cells.start, kind, cells.nodes.index(node_of(pod)), None)
        holding = cells.start if cells.kinds[kind].holds_room else after
        left = [cells.nodes[n] for n in cells.feasible(after, kind, holding)]
        assert left == feasible(gone, replacement(gone, pod))


@given(clusters("tiny"))
def test_the_search_is_never_below_the_bound_and_its_victims_can_be_walked(objects: list[Json]) -> None:
    state = State.of(objects)
    cells = Cells.of(state)
    goal = bound(cells)
    best = fixed(cells, goal.excess)
    assert (goal.excess, goal.evictions) <= best.value
    assert adaptive(cells, goal.excess).value <= best.value
    waves, left = [], dict(cells.kind_of)
    for kind, place in best.victims:
        key = next(k for k in left if left[k] == kind and node_of(state.pods[k]) == cells.nodes[place])
        del left[key]
        waves.append([Step(key)])
    for seed in range(3):
        end = play(state, waves, Random(seed))
        assert end.problems == ()
        assert total_excess(end.state) <= best.excess
