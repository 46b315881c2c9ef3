"""Which components one constraint decides, and what then is known without a program."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner.bounds import Effort, bounds_of
from rebalancer.planner.search.orders import GuaranteedMoves
from tests.support.build import nodes, workload
from tests.unit.planner.posed import Posed

SPREAD_OUT = {"a-0": 1, "a-1": 1, "a-2": 1, "a-3": 1}
CASES: list[tuple[str, Any, dict[str, int], str]] = [
    ("zone alone", workload("web").spread("zone"), {"a-0": 4}, "closed form"),
    (
        "hostname holds and has empty nodes for every pod: zone decides",
        workload("web").spread("zone").spread("hostname", 2),
        SPREAD_OUT,
        "closed form",
    ),
    (
        "hostname is violated itself",
        workload("web").spread("zone").spread("hostname"),
        {"a-0": 2, "a-1": 1, "a-2": 1},
        "HiGHS",
    ),
    (
        "so many pods that the last empty node could be filled",
        workload("web").spread("zone").spread("hostname", 2),
        {**SPREAD_OUT, "b-0": 1, "b-1": 1, "b-2": 1},
        "HiGHS",
    ),
    (
        "the same with minDomains out of reach: the minimum stays 0",
        workload("web").spread("zone").spread("hostname", 2, min_domains=99),
        {**SPREAD_OUT, "b-0": 1, "b-1": 1, "b-2": 1},
        "closed form",
    ),
]


@pytest.mark.parametrize(
    ("web", "placed", "solver"), [pytest.param(*rest, id=sentence) for sentence, *rest in CASES]
)
def test_one_constraint_decides(web: Any, placed: dict[str, int], solver: str) -> None:
    posed = Posed(nodes(a=4, b=4, c=4), web.placed(placed))
    assert bounds_of(posed.components[0], Effort(0)).solver == solver


def test_a_node_takes_no_more_than_hostname_allows() -> None:
    web = workload("web").spread("zone").spread("hostname", 1)
    posed = Posed(nodes(a=9, b=1), web.placed({f"a-{i}": 1 for i in range(4)}))
    remaining = bounds_of(posed.components[0], Effort(0))
    assert remaining.solver == "closed form"
    assert (remaining.start_least(), remaining.start_moves(1)) == (1, 1), (
        "b has one node, and it takes one pod"
    )


def test_landings_on_nodes_of_one_zone_are_one() -> None:
    """As placements kept apart by node they would be too many, and the moves not certain."""
    web = workload("web").spread("zone").spread("hostname", 2)
    placed = {f"{zone}-{i}": 1 for zone, pods in (("a", 60), ("b", 60), ("c", 6)) for i in range(pods)}
    posed = Posed(nodes(a=90, b=90, c=90), web.placed(placed))
    found = GuaranteedMoves(posed.problem, 0).guaranteed()
    assert found is not None
    assert len(found) == 36
    assert all(m.certain for m in found)
    assert {m.closed for m in found} == set(range(36)), "each may have closed the node that it landed on"
