"""Tight clusters: the plan and its advice end, in counts that no other process disturbs.

Both clusters are instances of the ROADEF/EURO challenge 2012, or like them: nodes full, pods of many sizes, a
location that failed and came back.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from rebalancer.manifests import read_snapshot
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.bounds import added_nodes, program
from rebalancer.planner.plan import Plan
from rebalancer.report.missing_room import headline
from rebalancer.room import room, search
from rebalancer.room import search as searching
from tests.perf.clusters import tight
from tests.perf.clusters.tight import Tight

TIGHT = Path(__file__).parents[2] / "scenarios" / "tight"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "moves", "left", "steps"),
    [pytest.param("a2_5", 53, 7, 9_000, marks=pytest.mark.nightly), ("tangled", 10, 17, 40_000)],
)
def test_the_plan_ends_and_its_advice_takes_a_share_of_it(
    name: str, moves: int, left: int, steps: int
) -> None:
    cluster = read_snapshot([str(TIGHT / f"{name}.json.gz")], now=None)
    made = plan(cluster, PlanOptions())
    assert (len(made.moves), made.residual_excess) == (moves, left)
    assert made.steps <= steps
    asked: list[program.Solved] = []

    def run(posed: program.Program, tree_nodes: int) -> program.Solved:
        asked.append(program.run(posed, tree_nodes))
        return asked[-1]

    plans: list[Plan] = []

    def planned(cluster: Snapshot, options: PlanOptions) -> Plan:
        plans.append(plan(cluster, options))
        return plans[-1]

    with (
        patch.object(added_nodes, "run", run),
        patch.object(search, "plan", planned),
        patch.object(searching, "plan", planned),
    ):
        advice = room(cluster, PlanOptions(), made)
    assert sum(found.steps for found in asked) <= made.steps, "the programs"
    assert len(plans) <= 1, "plans with nodes that could be added"
    assert not advice.searched
    assert not advice.proved
    said = headline(advice)
    assert "not searched to the end" in said or advice.nodes


def test_where_a_placement_has_no_excess_without_further_nodes_none_is_asked_for_with_them() -> None:
    cluster = tight.snapshot(Tight(60, 900, 10, 12, resources=6, seed=15, own_sizes=True))
    made = plan(cluster, PlanOptions())
    assert made.residual_excess
    with patch.object(search, "fewest_nodes", Mock(side_effect=added_nodes.fewest_nodes)) as asked:
        advice = room(cluster, PlanOptions(), made)
    assert asked.call_count == 1
    assert advice.searched
    assert advice.number == 1, "one more node, with which the plan finds a way"
