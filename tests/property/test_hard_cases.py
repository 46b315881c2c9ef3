"""Known hard cases: what the planner makes of them, counted by hand and judged through every landing."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner import plan
from tests.support.build import node, nodes, objects, pdb, stateful_set, workload
from tests.support.clusters.hand_counted import HAND_COUNTED
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.judge.plans import told
from tests.support.judge.verdict import judge_plan
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State, feasible

CASES: list[tuple[str, list[Any], tuple[int, int]]] = [
    *HAND_COUNTED,
    (
        "zones [2,1,1] are satisfied: nothing moves",
        [nodes(a=1, b=1, c=1), workload("web").spread("zone").placed({"a-0": 2, "b-0": 1, "c-0": 1})],
        (0, 0),
    ),
    (
        "of two workloads with the same room to go to, the one that fits only there goes there",
        [
            [
                node("a-0").zone("a").cpu("4"),
                node("b-0").zone("b").cpu("1"),
                node("b-1").zone("b").cpu("500m"),
            ],
            workload("small").requests(cpu="500m").spread("zone").placed({"a-0": 2}),
            workload("large").requests(cpu="1").spread("zone").placed({"a-0": 2}),
        ],
        (0, 2),
    ),
    (
        "a Pending pod would take the place that an eviction frees in a: nothing is won",
        [
            nodes(a=1, b=1),
            workload("web").spread("zone").placed({"a-0": 3}),
            workload("waiting")
            .labels(app="web")
            .selects(zone="a")
            .spread("zone", 3, affinity_policy="Ignore")
            .placed({"": 1}),
        ],
        (2, 0),
    ),
    (
        "a replacement of high priority that would find room only by preemption",
        [
            [node("a-0").zone("a"), node("b-0").zone("b").pods(1)],
            workload("web").priority(1000).spread("zone").placed({"a-0": 3}),
            workload("low").placed({"b-0": 1}),
        ],
        (2, 0),
    ),
    (
        "a zone without a node that takes the pod sets the minimum under taints Ignore",
        [
            [*nodes(a=1, b=1), node("c-0").zone("c").taint("gpu")],
            workload("web").spread("zone").placed({"a-0": 3, "b-0": 1}),
        ],
        (2, 0),
    ),
    (
        "and does not under Honor",
        [
            [*nodes(a=1, b=1), node("c-0").zone("c").taint("gpu")],
            workload("web").spread("zone", taints_policy="Honor").placed({"a-0": 3, "b-0": 1}),
        ],
        (0, 1),
    ),
    (
        "minDomains above what exists: what can be levelled is, the rest stays",
        [nodes(a=1, b=1), workload("web").spread("zone", min_domains=3).placed({"a-0": 3, "b-0": 1})],
        (2, 0),
    ),
    (
        "zonal volumes pin their pods",
        [
            nodes(a=1, b=1),
            stateful_set("db")
            .spread("zone")
            .placed({"a-0": 3, "b-0": 1})
            .zonal_volumes({"a-0": "a", "b-0": "b"}),
        ],
        (1, 0),
    ),
    (
        "a budget that allows one at a time makes waves, not a stop",
        [
            nodes(a=1, b=1),
            workload("web").spread("zone").placed({"a-0": 6}),
            pdb("web", {"app": "web"}, max_unavailable=1),
        ],
        (0, 3),
    ),
    (
        "a budget that allows nothing",
        [
            nodes(a=1, b=1),
            workload("web").spread("zone").placed({"a-0": 6}),
            pdb("web", {"app": "web"}, max_unavailable=0),
        ],
        (5, 0),
    ),
    (
        "hostname and zone together, zones of 2, 1 and 1 nodes",
        [
            nodes(a=2, b=1, c=1),
            workload("web")
            .spread("zone")
            .spread("hostname", 2)
            .placed({"a-0": 3, "a-1": 1, "b-0": 1, "c-0": 1}),
        ],
        (0, 2),
    ),
]


def judged(listed: list[Json], expected: tuple[int, int]) -> None:
    found = judge_plan(listed, plan)
    assert found.plan is not None, found.findings
    serious = [f for f in found.findings if not f[0].startswith("any-order-")]
    assert serious == [], told(found.plan)
    assert (found.plan.residual_excess, len(found.plan.moves)) == expected, told(found.plan)


@pytest.mark.parametrize(("sentence", "things", "expected"), CASES, ids=[c[0] for c in CASES])
def test_hard_case(sentence: str, things: list[Any], expected: tuple[int, int]) -> None:
    del sentence
    judged(objects(*things), expected)


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - {"random_cluster"}))
def test_scenario(name: str) -> None:
    figures = SCENARIOS[name]
    judged(scenario(name), (figures.residual, figures.evictions))


@pytest.mark.nightly
def test_the_large_one() -> None:
    """Its plan is frozen (`tests.golden`), so that it is judged anew each night only."""
    found = judge_plan(scenario("random_cluster"), plan, plays=1, again=False, compare=False, cycles=False)
    assert found.plan is not None
    assert [f for f in found.findings if f[0] != "slow"] == []
    assert (found.plan.residual_excess, found.plan.lower_bound) == (0, 107)
    assert len(found.plan.moves) <= 108


def test_a_node_that_joins_tainted_in_mid_wave_closes_every_zone() -> None:
    """Why the runtime asks again before each wave: the plan was right when it was made."""
    things = [nodes(a=1, b=1), workload("web").spread("zone").placed({"a-0": 4, "b-0": 2})]
    (incoming,) = workload("web").spread("zone").placed({"": 1}).build()[1:]
    assert feasible(State.of(objects(*things)), incoming) == ["b-0"]
    joined = [*things, node("c-0").zone("c").taint("node.kubernetes.io/not-ready")]
    assert feasible(State.of(objects(*joined)), incoming) == []
