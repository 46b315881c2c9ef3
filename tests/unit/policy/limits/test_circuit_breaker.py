"""From how many nodes, Pending pods and late replacements on nothing is evicted; and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.circuit_breaker import (
    CircuitLimits,
    all_astray,
    too_many_displaced,
    too_many_late,
    too_many_not_ready,
    tripped,
)
from rebalancer.policy.history.ledger import Circuit, Entry, Fate, Ledger
from rebalancer.policy.options import Limit
from tests.support.build import node, nodes, snapshot

CLUSTER = snapshot(nodes(a=8), node("b-0").not_ready(), node("b-1").not_ready())
"""Two of ten nodes are NotReady."""


def names(many: int) -> dict[str, str]:
    return {f"shop/web-{i}": "ImagePullBackOff" for i in range(many)}


def not_ready(limit: Limit) -> Reason | None:
    return too_many_not_ready(CLUSTER.nodes, CircuitLimits(not_ready=limit))


# What is found, what it says; None: evicting goes on.
FOUND: dict[str, tuple[Reason | None, str | None]] = {
    "as many NotReady nodes as may be": (not_ready(Limit(percent=20)), None),
    "more of them": (not_ready(Limit(percent=10)), "2 of 10 nodes are NotReady, at most 1 may be"),
    "a zone of three with two nodes each": (
        too_many_not_ready(
            snapshot(nodes(a=2, b=2), *(node(n).not_ready() for n in ("c-0", "c-1"))).nodes,
            CircuitLimits(not_ready=Limit(percent=20)),
        ),
        "2 of 6 nodes are NotReady, at most 1 may be",
    ),
    "by number": (not_ready(Limit(number=1)), "2 of 10 nodes are NotReady"),
    "as many displaced pods as may be": (too_many_displaced(names(3), 3), None),
    "more of them, the first by name": (too_many_displaced(names(4), 3), "4 pods are Pending, at most 3"),
    "fewer late replacements than stop it": (too_many_late(names(2), 3), None),
    "as many": (
        too_many_late(names(3), 3),
        "do not start in time: shop/web-0 (ImagePullBackOff), shop/web-1",
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_so_many_are_too_many(case: str) -> None:
    reason, says = FOUND[case]
    if says is None:
        assert reason is None
    else:
        assert reason is not None
        assert reason.code is ReasonCode.CLUSTER_UNWELL
        assert says in reason.message
        assert len(reason.remedy) > 20
        assert reason.numbers["most"] <= max(reason.numbers.values())


@pytest.mark.parametrize(
    ("limit", "pods", "most"),
    [
        (Limit(percent=1), 1000, 10),
        (Limit(percent=1), 100, 3),
        (Limit(number=1), 1000, 1),
        (Limit(number=0), 9, 0),
    ],
    ids=str,
)
def test_a_percentage_of_a_small_cluster_means_three_displaced_pods(
    limit: Limit, pods: int, most: int
) -> None:
    assert CircuitLimits(displaced=limit).most_displaced(pods) == most


@pytest.mark.parametrize(("trips", "seconds"), [(0, 60), (1, 60), (2, 120), (3, 240), (4, 480), (5, 480)])
def test_the_pause_doubles_three_times(trips: int, seconds: float) -> None:
    assert CircuitLimits(pause=60.0).pause_after(trips) == seconds


def test_a_further_trip_shortens_no_pause_before_it() -> None:
    """A person's run may have a shorter `breaker.pause`."""
    long = tripped(Circuit(), "nodes", now=0.0, limits=CircuitLimits(pause=3600.0))
    assert tripped(long, "again", now=10.0, limits=CircuitLimits(pause=5.0)).until == long.until


@pytest.mark.parametrize(
    ("before", "by", "scope"),
    [
        (Circuit(), (), ()),
        (Circuit(), ("shop",), ("shop",)),
        (Circuit(trips=1, scope=("shop",)), ("pay",), ("pay", "shop")),
        (Circuit(trips=1, scope=("shop",)), (), ()),
        (Circuit(trips=1), ("shop",), ()),
    ],
)
def test_a_breaker_is_open_for_all_that_those_who_tripped_it_looked_at(
    before: Circuit, by: tuple[str, ...], scope: tuple[str, ...]
) -> None:
    assert tripped(before, "x", now=0.0, limits=CircuitLimits(scope=by)).scope == scope


def ended(owner: str, fate: Fate = Fate.ELSEWHERE, *, cycle: str = "now", **more: Any) -> Entry:
    return Entry(
        at=1.0,
        cycle=cycle,
        namespace="shop",
        pod=owner,
        uid=owner,
        owner=f"Deployment/shop/{owner}",
        node="a-0",
        predicted="b-0",
        fate=fate,
        message=f"{owner} went to c-0",
        **more,
    )


# How evictions ended, the last one last; which owner the message names, "" = the breaker stays closed.
ENDED: dict[str, tuple[list[Entry], str]] = {
    "two owners": ([ended("x"), ended("y")], ""),
    "three owners": ([ended("x"), ended("y"), ended("z")], "z"),
    "three over three cycles": ([ended("x", cycle="1"), ended("y", cycle="2"), ended("z")], "z"),
    "one owner again and again": ([*(ended("x", cycle=f"{i}") for i in range(3)), ended("x")], ""),
    "one again and again, and two more": (
        [*(ended("x", cycle="1") for _ in range(3)), ended("y"), ended("z")], "z",
    ),
    "one as predicted before the last": ([ended("x"), ended("y"), ended("w", Fate.DONE), ended("z")], ""),
    "what is not known in between": ([ended("x"), ended("y"), ended("w", Fate.UNSEEN), ended("z")], "z"),
    "three that were likely": ([ended(owner, likely=True) for owner in "xyz"], ""),
    "likely ones in between": ([ended("x"), ended("w", likely=True), ended("y"), ended("z")], "z"),
    "a likely one as predicted": (
        [ended("x"), ended("y"), ended("w", Fate.DONE, likely=True), ended("z")], "",
    ),
    "three of former cycles, and a likely one": (
        [*(ended(owner, cycle="1") for owner in "xyz"), ended("w", likely=True)], "",
    ),
    "three of former cycles, and one not Ready": (
        [*(ended(owner, cycle="1") for owner in "xyz"), ended("w", Fate.FAILED)], "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "last"), ENDED.values(), ids=ENDED)
def test_three_owners_in_a_row_whose_replacements_went_elsewhere_open_it(
    entries: list[Entry], last: str
) -> None:
    says = all_astray(Ledger(entries=tuple(entries)), "now")
    expected = f"none of the last 3 owners' replacements went as predicted; the last: {last} went to c-0"
    assert says == (expected if last else "")
