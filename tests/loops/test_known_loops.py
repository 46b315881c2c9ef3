"""Clusters in which descheduler's spread plugin evicted again and again, and what is done in each: nothing.

The numbers are issues and pull requests of kubernetes-sigs/descheduler.
"""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import PlanOptions, plan
from tests.support.build import node, nodes, snapshot, workload

HARD, SOFT = PlanOptions(), PlanOptions(soft="predicted")
FULL, NONE = {ReasonCode.NO_FEASIBLE_NODE}, set[ReasonCode]()


def sized(*rooms: int) -> list[Any]:
    """One zone a node, with room for so many pods."""
    return [node(f"{z}-0").zone(z).pods(room) for z, room in zip("abc", rooms, strict=False)]


CASES: list[tuple[str, list[Any], PlanOptions, set[ReasonCode]]] = [
    (
        "566: the empty node has a taint that the pods do not tolerate",
        [node("a-0").zone("a"), node("b-0").zone("b").taint("dedicated", "db"),
         workload("web").spread("hostname").placed({"a-0": 4})],
        HARD,
        FULL,
    ),
    (
        "604: of 7, 5 and 3 the emptiest has no room",
        [sized(110, 110, 3), workload("web").spread("zone").placed({"a-0": 7, "b-0": 5, "c-0": 3})],
        HARD,
        FULL,
    ),
    (
        "835: of 2, 3 and 4 the emptiest has no room; the middle one is no remedy",
        [sized(2, 110, 110), workload("web").spread("zone").placed({"a-0": 2, "b-0": 3, "c-0": 4})],
        HARD,
        FULL,
    ),
    (
        "785: most nodes are in one zone, and the constraint is soft: the scheduler may put it back",
        [nodes(a=6, b=1), workload("web").spread("zone", soft=True).placed({"a-0": 2, "a-1": 2})],
        HARD,
        NONE,
    ),
    (
        "839: soft, over nodes of which other pools are empty and not for these pods",
        [nodes(a=2), node("infra").zone("a").taint("infra", "yes"), node("cp").zone("a").taint("cp", "yes"),
         workload("web").spread("hostname", soft=True).placed({"a-0": 2, "a-1": 2})],
        SOFT,
        NONE,
    ),
    (
        "948: one node pool a zone by node affinity, balanced; other pools have empty nodes there",
        [*(node(f"{z}-{pool}").zone(z).label("pool", pool) for z in "abc" for pool in ("app", "other")),
         workload("web").spread("zone").spread("hostname", soft=True).needs("pool", "In", "app").placed(
            {"a-app": 2, "b-app": 2, "c-app": 2})],
        SOFT,
        NONE,
    ),
    (
        "1280: node affinity leaves two of four nodes, on which the pods are balanced",
        [*(node(f"{z}-{pool}").zone(z).label("pool", pool) for z in "ab" for pool in ("app", "other")),
         workload("web").spread("hostname").needs("pool", "In", "app").placed({"a-app": 2, "b-app": 2})],
        HARD,
        NONE,
    ),
    (
        "1219: zone and node each ask for another pod to go, and both hold only together",
        [nodes(a=1, b=3),
         workload("web").spread("zone").spread("hostname").placed({"a-0": 3, "b-0": 1, "b-1": 1, "b-2": 1})],
        HARD,
        {ReasonCode.WOULD_WORSEN, ReasonCode.NO_FEASIBLE_NODE},
    ),
    (
        "1918: five nodes in one zone, two in each other: spread over nodes would break that over zones",
        [nodes(a=5, b=2, c=2), workload("web").spread("zone").spread("hostname").placed(
            {"a-0": 1, "a-1": 1, "a-2": 1, "a-3": 1, "b-0": 2, "b-1": 2, "c-0": 2, "c-1": 2})],
        HARD,
        {ReasonCode.WOULD_WORSEN, ReasonCode.NO_FEASIBLE_NODE},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("things", "options", "why"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_nobody_is_evicted_and_the_reason_is_said(
    things: list[Any], options: PlanOptions, why: set[ReasonCode]
) -> None:
    made = plan(snapshot(*things), options)
    assert made.moves == ()
    stays = [c for c in made.constraints if c.constraint.hard and c.residual_excess]
    assert bool(stays) is bool(why)
    for c in stays:
        assert c.reasons, c
        assert {r.code for r in c.reasons} <= why, c.reasons
