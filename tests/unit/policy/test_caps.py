"""Caps on the evictions of one cycle."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.caps import Caps
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import nodes, pod, snapshot, workload

A, B = "topology.kubernetes.io/zone=a", "topology.kubernetes.io/zone=b"


def world() -> Snapshot:
    """Zone a: 6 pods of web and 2 of api (in shop), on two nodes; zone b: 2 of web. One more waits."""
    return snapshot(
        nodes(a=2, b=1),
        workload("web").placed({"a-0": 4, "a-1": 2, "b-0": 2}),
        workload("api", namespace="shop").placed({"a-0": 2}),
        pod("waits"),
        pod("over").on("a-0").phase("Succeeded"),
        pod("going").on("a-0").terminating(),
    )


def allowed(options: dict[str, Limit]) -> list[str]:
    """Who goes when everybody is asked: owner on node, in order of name."""
    s = world()
    caps = Caps(PolicyOptions(**options), s)
    gone = []
    for p in s.pods:
        if p.owner is not None and p.node_name:
            zone = A if p.node_name.startswith("a") else B
            if caps.spend(p, [zone]) is None:
                gone.append(f"{p.owner.name} {p.node_name}")
    return gone


def number(n: int) -> Limit:
    return Limit(number=n)


def percent(p: float) -> Limit:
    return Limit(percent=p)


CASES: list[tuple[str, dict[str, Limit], dict[str, int]]] = [
    ("no cap", {}, {"web a-0": 4, "web a-1": 2, "web b-0": 2, "api a-0": 2}),
    ("three in total", {"max_total": number(3)}, {"web a-0": 3}),
    ("none in total", {"max_total": number(0)}, {}),
    ("a fifth of ten in total", {"max_total": percent(20)}, {"web a-0": 2}),
    ("a percentage is rounded up", {"max_total": percent(1)}, {"web a-0": 1}),
    ("no percent is none", {"max_total": percent(0)}, {}),
    ("two per node", {"max_per_node": number(2)}, {"web a-0": 2, "web a-1": 2, "web b-0": 2}),
    (
        "half per node: 3 of 6, 1 of 2",
        {"max_per_node": percent(50)},
        {"web a-0": 3, "web a-1": 1, "web b-0": 1},
    ),
    ("one per namespace", {"max_per_namespace": number(1)}, {"web a-0": 1, "api a-0": 1}),
    ("half per namespace: 4 of 8, 1 of 2", {"max_per_namespace": percent(50)}, {"web a-0": 4, "api a-0": 1}),
    ("three per owner", {"max_per_owner": number(3)}, {"web a-0": 3, "api a-0": 2}),
    ("a quarter per owner: 2 of 8, 1 of 2", {"max_per_owner": percent(25)}, {"web a-0": 2, "api a-0": 1}),
    ("one per domain", {"max_per_domain": number(1)}, {"web a-0": 1, "web b-0": 1}),
    ("half per domain: 4 of 8, 1 of 2", {"max_per_domain": percent(50)}, {"web a-0": 4, "web b-0": 1}),
    (
        "the tightest counts",
        {"max_total": number(9), "max_per_node": number(1), "max_per_owner": number(2)},
        {"web a-0": 1, "web a-1": 1},
    ),
]


@pytest.mark.parametrize(("options", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_cap_ends_a_cycle(options: dict[str, Limit], expected: dict[str, int]) -> None:
    gone = allowed(options)
    assert {who: gone.count(who) for who in gone} == expected


def test_what_one_cap_forbids_spends_nothing_of_the_others() -> None:
    s = world()
    caps = Caps(PolicyOptions(max_total=number(2), max_per_node=number(1)), s)
    first, second = (p for p in s.pods if p.node_name == "a-0" and p.name in ("web-00000", "web-00001"))
    (other,) = (p for p in s.pods if p.name == "web-00006")
    assert caps.spend(first, []) is None
    assert caps.spend(second, []) is not None
    assert caps.spend(other, []) is None


def test_what_is_given_back_can_be_spent_again() -> None:
    s = world()
    caps = Caps(PolicyOptions(max_total=number(1)), s)
    p = next(p for p in s.pods if p.name == "web-00000")
    assert caps.spend(p, [A]) is None
    assert caps.spend(p, [A]) is not None
    caps.give_back(p, [A])
    assert caps.spend(p, [A]) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_total": number(0)}, "the cap of 0 evictions in total and cycle"),
        ({"max_per_node": percent(0)}, "the cap of 0% evictions per node (a-0)"),
        ({"max_per_owner": number(0)}, "the cap of 0 evictions per owner (ReplicaSet/web)"),
        ({"max_per_domain": number(0)}, f"the cap of 0 evictions per domain ({A})"),
    ],
)
def test_the_reason_names_the_cap(options: dict[str, Any], words: str) -> None:
    s = world()
    reason = Caps(PolicyOptions(**options), s).spend(next(p for p in s.pods if p.name == "web-00000"), [A])
    assert reason is not None
    assert reason.code is ReasonCode.CAP
    assert words in reason.message


@pytest.mark.parametrize(
    ("limit", "total", "most"),
    [
        (percent(33), 3, 1),
        (percent(34), 3, 2),
        (percent(100), 7, 7),
        (percent(0.5), 150, 1),
        (number(5), 2, 5),
    ],
)
def test_a_limit_is_a_number_of_pods(limit: Limit, total: int, most: int) -> None:
    assert limit.of(total) == most
