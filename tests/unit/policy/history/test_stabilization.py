"""Violations that need not last: those by a domain that came back, once its nodes have settled."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rebalancer.model.node import Condition, Node, NodeStatus, ObjectMeta
from rebalancer.policy.waits import HistoryRules, came_back, end_of, stabilizing

NOW = 10_000.0
RULES = HistoryRules(stabilization=180, settle=10)


def node(ready_for: float | None, status: str = "True") -> Node:
    at = datetime.fromtimestamp(NOW - ready_for, UTC) if ready_for is not None else None
    ready = Condition(type="Ready", status=status, last_transition_time=at)
    return Node(metadata=ObjectMeta(name="n"), status=NodeStatus(conditions=(ready,)))


@pytest.mark.parametrize(
    ("sentence", "nodes", "back"),
    [
        ("all its nodes are Ready for half a minute", [node(30), node(40)], True),
        ("one of them is Ready for five seconds only", [node(30), node(5)], False),
        ("one of them has been Ready all the time", [node(30), node(5000)], False),
        ("one of them is not Ready", [node(30), node(60, "False")], False),
        ("since when they are Ready is not known", [node(None)], False),
        ("it has no nodes", [], False),
    ],
)
def test_a_domain_came_back(sentence: str, nodes: list[Node], back: bool) -> None:
    del sentence
    assert (came_back(nodes, RULES, NOW) <= NOW) is back


def test_a_wait_ends_when_the_nodes_that_came_back_have_settled_and_says_so() -> None:
    settled = came_back([node(30), node(5)], RULES, NOW)
    assert settled == NOW + 5
    reason = stabilizing(NOW, RULES, NOW, settled)
    assert reason is not None
    assert (end_of(reason), "schedule.nodeSettle" in reason.remedy) == (settled, True)
    lasting = stabilizing(NOW - 178, RULES, NOW, settled)
    assert lasting is not None
    assert (end_of(lasting), "evictions.stabilization" in lasting.remedy) == (NOW + 2, True)
    assert stabilizing(NOW, RULES, NOW, NOW) is None
