"""A domain that came back is used once its nodes have settled, and a violation that came with it need not
last."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf

import pytest
from msgspec.structs import replace

from rebalancer.model.node import Condition, Node, NodeStatus, ObjectMeta, Taint
from rebalancer.policy.history.ledger import Opening
from rebalancer.policy.history.stabilization import Arrival, arrival, stabilizing
from rebalancer.policy.history.waits import ANY_POD, HistoryRules, end_of

NOW = 10_000.0
RULES = HistoryRules(stabilization=180, settle=10)
OPENED, ALWAYS = {"": Opening(NOW - 30)}, {"": Opening()}


def node(ready_for: float | None, status: str = "True", *, cordoned: bool = False, taint: str = "") -> Node:
    at = datetime.fromtimestamp(NOW - ready_for, UTC) if ready_for is not None else None
    ready = Condition(type="Ready", status=status, last_transition_time=at)
    made = Node(metadata=ObjectMeta(name="n"), status=NodeStatus(conditions=(ready,)))
    taints = (Taint(taint, "NoSchedule"),) if taint else ()
    return replace(made, spec=replace(made.spec, unschedulable=cordoned, taints=taints))


def back(at: float, settled: float) -> Arrival:
    return Arrival(at, settled, settled)


OLD = node(5000)
# Its nodes, what is known of its openings, and what the domain is.
DOMAINS: dict[str, tuple[list[Node], Mapping[str, Opening], Arrival | None]] = {
    "all nodes are Ready for half a minute": ([node(30), node(40)], {}, back(NOW - 40, NOW - 20)),
    "one is Ready for five seconds only": ([node(30), node(5)], {}, back(NOW - 30, NOW + 5)),
    "one was Ready all the time": ([node(30), OLD], {}, None),
    "one that the pod cannot use was": ([node(30), node(5000, taint="x")], {}, back(NOW - 30, NOW - 20)),
    "one that is cordoned was": ([node(30), node(5000, cordoned=True)], {}, back(NOW - 30, NOW - 20)),
    "one is not Ready, as its taint says": (
        [node(30), node(60, "False", taint="node.kubernetes.io/not-ready")],
        {},
        Arrival(NOW - 30, NOW + 150, inf),
    ),
    "none that the pod can use is Ready": ([node(60, "False"), node(5, taint="x")], {}, None),
    "one is not Ready yet": ([node(30), node(60, "False")], {}, Arrival(NOW - 30, NOW + 150, inf)),
    "one has not become Ready for too long": ([node(180), node(60, "False")], {}, None),
    "since when it is Ready is not known": ([node(None)], {}, None),
    "it was opened half a minute ago": ([OLD, OLD], OPENED, Arrival(NOW - 30, -inf, NOW - 20)),
    "it is open in part": ([OLD, node(5000, cordoned=True)], OPENED, Arrival(NOW - 30, -inf, inf)),
    "it has always been open": ([OLD, OLD], ALWAYS, None),
    "it was opened long ago": ([OLD, OLD], {"": Opening(NOW - 180)}, None),
    "a single node was opened": ([OLD], OPENED, None),
    "it is shut again": ([OLD, OLD], {"": Opening(NOW - 30, NOW - 5)}, None),
}


@pytest.mark.parametrize("sentence", DOMAINS)
def test_a_domain_arrives(sentence: str) -> None:
    nodes, openings, expected = DOMAINS[sentence]
    assert arrival(nodes, ANY_POD, openings, RULES, NOW, latest=NOW) == expected


def test_without_stabilization_a_domain_has_to_settle_too() -> None:
    rules = replace(RULES, stabilization=0.0)
    assert arrival([node(5), node(3)], ANY_POD, {}, rules, NOW, latest=NOW) == back(NOW - 5, NOW + 7)
    assert arrival([node(30)], ANY_POD, {}, rules, NOW, latest=NOW) is None


def test_what_the_clock_of_a_node_says_of_the_future_counts_as_now() -> None:
    ahead = [node(-3600)]
    assert arrival(ahead, ANY_POD, {}, RULES, NOW, latest=NOW) == back(NOW, NOW + 10)
    ours_is_behind = arrival(ahead, ANY_POD, {}, RULES, NOW, latest=NOW + 3600)
    assert ours_is_behind == back(NOW + 3600, NOW + 3610)


# Its age, from when on it need not last; until when it waits, and for what.
WAITS: dict[str, tuple[float, float, tuple[float, str] | None]] = {
    "a young one lasts": (2, inf, (178, "evictions.stabilization")),
    "an old one has lasted": (180, inf, None),
    "one that came with a settled domain need not last": (2, NOW - 20, None),
    "one that came with a domain waits until that has settled": (2, NOW + 5, (5, "schedule.nodeSettle")),
    "but not longer than any other": (178, NOW + 5, (2, "evictions.stabilization")),
}


@pytest.mark.parametrize("sentence", WAITS)
def test_how_long_a_violation_is_left_alone(sentence: str) -> None:
    age, settled, expected = WAITS[sentence]
    reason = stabilizing(NOW - age, RULES, NOW, settled)
    if expected is None:
        assert reason is None
    else:
        assert reason is not None
        assert end_of(reason) == NOW + expected[0]
        assert expected[1] in reason.remedy
