"""How many pods of one owner may be away together."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.policy.limits.in_flight import InFlight, Shares
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.policy.owners import Owners
from tests.support.build import deployment, node, replica_set, snapshot


def share(owner: Any, limit: Limit) -> int:
    found = snapshot(node("a"), owner)
    options = PolicyOptions(in_flight_per_owner=limit)
    shares = Shares(found, options, Owners(found, options))
    top = shares.top(found.pods[0])
    assert top is not None
    return shares.of(top)


def percent(n: int) -> Limit:
    return Limit(percent=n)


@pytest.mark.parametrize(
    ("pods", "limit", "expected"),
    [
        (100, percent(10), 10),
        (19, percent(10), 1),
        (3, percent(10), 1),
        (100, percent(25), 25),
        (100, Limit(number=7), 7),
        (100, Limit(number=0), 1),
    ],
    ids=str,
)
def test_a_share_is_rounded_down_and_at_least_one(pods: int, limit: Limit, expected: int) -> None:
    assert share(replica_set("web").placed({"a": pods}), limit) == expected


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({}, 10),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}, 3),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}, 4),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}, 1),
        ({"type": "Recreate"}, 1),
    ],
    ids=str,
)
def test_a_deployment_gives_no_more_than_its_rolling_update(strategy: dict[str, Any], expected: int) -> None:
    web = deployment("web").placed({"a": 40}).build()
    web[0]["spec"]["strategy"] = strategy
    assert share(web, percent(50)) == expected


def test_pods_that_are_unavailable_already_count() -> None:
    assert share(replica_set("web").placed({"a": 40}).unready(0, 1, 2), percent(25)) == 7
    assert share(replica_set("web").placed({"a": 40}).unready(*range(20)), percent(25)) == 1


def test_a_wave_takes_no_more_than_the_share() -> None:
    found = snapshot(node("a"), replica_set("web").placed({"a": 30}))
    options = PolicyOptions()
    wave = InFlight(Shares(found, options, Owners(found, options)))
    taken = 0
    for pod in found.pods:
        if wave.fits(pod):
            wave.spend(pod)
            taken += 1
    assert taken == 3
