"""How many pods of one owner may be away together, and when its Ready pods stay."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.policy.budgets import InFlight, Shares
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.runtime.last_look.look import short_of_ready
from tests.support.build import (
    ago,
    decoded,
    deployment,
    node,
    nodes,
    objects,
    replica_set,
    snapshot,
    workload,
)
from tests.support.scheduler.plain import Json


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
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "a few"}}, 1),
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


def rolling(most: int | str, things: list[Json]) -> list[Json]:
    """Deployments that allow so many pods to be unavailable."""
    for o in things:
        if o["kind"] == "Deployment":
            o["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": most, "maxSurge": 1}}
    return things


@pytest.mark.parametrize("most", [0, 1, "25%", "34%"])
@pytest.mark.parametrize(
    ("placed", "broken"),
    [
        ({"a-0": 2, "b-0": 1}, (2,)),
        ({"a-0": 3, "b-0": 1, "c-0": 1}, (3, 4)),
        ({"a-0": 3, "b-0": 1}, (3,)),
    ],
    ids=str,
)
def test_no_ready_pod_goes_while_as_many_are_unavailable_as_may_be(
    most: int | str, placed: dict[str, int], broken: tuple[int, ...]
) -> None:
    web = deployment("web").spread("zone", 1).placed(placed).unready(*broken)
    found = plan(decoded(rolling(most, objects(nodes(a=1, b=1, c=1), web))))
    assert found.moves == ()
    assert {b.reason.code for b in found.blocked} == {ReasonCode.OWNER_DEGRADED}


def test_below_that_one_may_go() -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 6, "b-0": 2}).unready(6)
    found = plan(decoded(rolling(2, objects(nodes(a=1, b=1), web))))
    assert [m.pod.ready for m in found.moves] == [True, True]
    assert len({m.wave for m in found.moves}) == 2


@pytest.mark.parametrize(
    ("what", "ages", "silent", "goes"),
    [
        ("the newest is broken", {7: 3600}, False, False),
        ("a Ready one is newer", {7: 3600, 0: 1800}, False, True),
        ("its node is silent", {7: 3600}, True, True),
    ],
)
def test_ready_pods_stay_while_the_newest_one_does_not_start(
    what: str, ages: dict[int, float], silent: bool, goes: bool
) -> None:
    """One that is made now would not start either; on a silent node nobody knows."""
    web = deployment("web").spread("zone", 1).placed({"a-0": 6, "b-0": 1, "b-1": 1}).unready(7)
    last = node("b-1").zone("b")
    things = rolling(3, objects(nodes(a=1, b=1), last.not_ready() if silent else last, web))
    for o in things:
        if o["kind"] == "Pod":
            age = ages.get(int(o["metadata"]["name"].rpartition("-")[2]), 86_400.0)
            o["metadata"]["creationTimestamp"] = ago(age)
    found = plan(decoded(things))
    assert any(m.pod.ready for m in found.moves) is goes, what
    codes = {b.reason.code for b in found.blocked if b.pod.ready}
    assert goes or codes == {ReasonCode.REPLACEMENT_NOT_READY}


def test_a_broken_pod_goes_however_many_are_broken() -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 4, "b-0": 1}).unready(0, 1, 4)
    found = plan(decoded(rolling(1, objects(nodes(a=1, b=1), web))))
    assert [m.pod.ready for m in found.moves] == [False]


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_the_last_ready_pod_stays_while_others_are_broken(kind: str) -> None:
    web = workload("web", kind).parallel().placed({"a-0": 3, "b-0": 1}).unready(0, 1)
    found = decoded(rolling("100%", objects(nodes(a=1, b=1), web)))
    options = PolicyOptions(in_flight_per_owner=percent(100))
    shares = Shares(found, options, Owners(found, options))
    ready = next(p for p in found.pods if p.ready)
    wave = InFlight(shares)
    assert shares.why_not(ready) is None
    assert wave.fits(ready)
    wave.spend(ready)
    assert not wave.fits(ready), "the other one stays until this one's replacement is Ready"
    web = workload("web", kind).parallel().placed({"a-0": 3, "b-0": 1}).unready(0, 1, 2)
    found = decoded(rolling("100%", objects(nodes(a=1, b=1), web)))
    reason = Shares(found, options, Owners(found, options)).why_not(next(p for p in found.pods if p.ready))
    assert reason is not None
    assert reason.code is ReasonCode.OWNER_DEGRADED


def test_the_reason_names_pods_that_the_constraint_itself_keeps_pending() -> None:
    said = "0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints."
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    things = objects(nodes(a=1, b=1), replica_set("web").spread("zone", 1).placed({"a-0": 3, "": 1}))
    for o in things:
        if o["kind"] == "Pod" and not o["spec"].get("nodeName"):
            o["status"]["conditions"] = [waits]
    reason = next(b.reason for b in plan(decoded(things)).blocked if b.pod.ready)
    assert reason.code is ReasonCode.OWNER_DEGRADED
    assert "1 Pending for a spread constraint (web-00003)" in reason.message
    assert reason.remedy.endswith("until then the constraint stays violated")


LIVE: list[tuple[str, dict[str, int], int, bool]] = [
    ("all are Ready", {"ready": 8}, 0, True),
    ("one of two that may be away is", {"ready": 7}, 0, True),
    ("both are", {"ready": 6}, 0, False),
    ("what the wave has evicted was planned", {"ready": 6}, 1, True),
    ("they are Ready, and not available yet", {"ready": 8, "available": 6, "seconds": 30}, 0, False),
    ("they are available, too", {"ready": 8, "available": 8, "seconds": 30}, 0, True),
]


@pytest.mark.parametrize(("counts", "in_flight", "goes"), [x[1:] for x in LIVE], ids=[x[0] for x in LIVE])
def test_at_the_last_look_no_ready_pod_goes_beside_as_many_as_may_be_away(
    counts: dict[str, int], in_flight: int, goes: bool
) -> None:
    (owner,) = snapshot(node("a"), replica_set("web").placed({"a": 8})).workloads
    live = replace(
        owner,
        ready_replicas=counts["ready"],
        available_replicas=counts.get("available", 0),
        min_ready_seconds=counts.get("seconds", 0),
    )
    found = short_of_ready(owner, live, in_flight, Limit(number=2))
    assert (found and found.code) is (None if goes else ReasonCode.OWNER_DEGRADED)
