"""Caps on the evictions of one cycle, an hour and a day."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions, plan
from rebalancer.policy.caps import Caps
from rebalancer.policy.history.ledger import owner_id
from rebalancer.policy.history.waits import end_of, moment
from rebalancer.policy.options import Earlier, Evicted, Limit, PolicyOptions
from rebalancer.policy.owners import Owners
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


def counting(s: Snapshot, options: PolicyOptions) -> Caps:
    return Caps(options, s, Owners(s, options))


def allowed(options: dict[str, Any]) -> list[str]:
    """Who goes when everybody is asked: owner on node, in order of name."""
    s = world()
    caps = counting(s, PolicyOptions(**options))
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


@pytest.mark.parametrize(
    ("of", "pods", "most", "share"),
    [(4.4, 1750, 77, 77), (17.6, 875, 154, 154), (0.001, 20, 1, 1), (2.3, 200, 5, 4)],
)
def test_a_percentage_that_no_float_is_counts_as_it_is_written(
    of: float, pods: int, most: int, share: int
) -> None:
    assert (percent(of).of(pods), percent(of).share(pods)) == (most, share)


def test_what_one_cap_forbids_spends_nothing_of_the_others() -> None:
    s = world()
    caps = counting(s, PolicyOptions(max_total=number(2), max_per_node=number(1)))
    first, second = (p for p in s.pods if p.node_name == "a-0" and p.name in ("web-00000", "web-00001"))
    (other,) = (p for p in s.pods if p.name == "web-00006")
    assert caps.spend(first, []) is None
    assert caps.spend(second, []) is not None
    assert caps.spend(other, []) is None


def evicted(times: int = 1) -> tuple[Evicted, ...]:
    return (Evicted("ReplicaSet/default/web", "default", "a-0", (A,)),) * times


TODAY = ((300.0, 1), (400.0, 1), (100.0, 2), (200.0, 1), (500.0, 1), (600.0, 1))
HOUR, DAY = Earlier(last_hour=TODAY[2:4]), Earlier(last_day={owner_id("ReplicaSet/default/web"): TODAY})


@pytest.mark.parametrize(
    ("earlier", "options", "left"),
    [
        (Earlier(evicted(1)), {"max_total": number(3)}, 2),
        (Earlier(evicted(1)), {"max_per_owner": number(3)}, 2),
        (Earlier(evicted(2)), {"max_per_domain": number(3)}, 1),
        (Earlier(evicted(2)), {"max_per_node": number(3)}, 3),
        (HOUR, {"max_total_per_hour": number(4)}, 1),
        (HOUR, {"max_total_per_hour": number(3)}, 0),
        (HOUR, {"max_total_per_hour": percent(45)}, 2),
        (DAY, {"max_per_owner_per_day": number(8)}, 1),
        (DAY, {"max_per_owner_per_day": percent(100)}, 1),
        (DAY, {"max_per_owner_per_day": percent(50)}, 0),
        (DAY, {"max_per_owner": percent(50), "max_per_owner_per_day": None}, 4),
    ],
)
def test_earlier_evictions_count(earlier: Earlier, options: dict[str, Any], left: int) -> None:
    """Of web's eight pods six run in zone a: four on a-0, two on a-1."""
    s = world()
    caps = counting(s, PolicyOptions(earlier=earlier, **options))
    webs = [p for p in s.pods if p.name.startswith("web") and p.node_name.startswith("a")]
    assert [caps.spend(p, [A]) for p in webs].count(None) == left


def doubled() -> list[Any]:
    """Of each workload two pods run on one node of zone a."""
    return [workload(f"w{i}").placed({f"a-{i}": 2, "b-0": 1, "b-1": 1}).spread("hostname") for i in range(4)]


HOST_AND_ZONE = [w.spread("zone", soft=i > 1) for i, w in enumerate(doubled())]


@pytest.mark.parametrize(
    ("webs", "earlier", "gone"),
    [
        (HOST_AND_ZONE, (), 2),
        (doubled(), (), 2),
        (HOST_AND_ZONE, (Evicted("w", "default", "a-1", ("kubernetes.io/hostname=a-1",)),), 1),
        (HOST_AND_ZONE, (Evicted("w", "default", "gone", (A,)),), 1),
    ],
    ids=["by hostname beside zone", "by hostname alone", "earlier ones, too", "from a node that is gone"],
)
def test_a_cap_per_domain_counts_whatever_leaves_it(
    webs: list[Any], earlier: tuple[Evicted, ...], gone: int
) -> None:
    """All these moves mend a constraint by hostname, and evict from zone a."""
    policy = PolicyOptions(max_per_domain=number(2), earlier=Earlier(earlier))
    found = plan(snapshot(*nodes(a=4, b=2), *webs), PlanOptions(policy=policy))
    assert (len(found.moves), len(found.allowed)) == (4, gone)
    assert {m.waits.code for m in found.moves if m.waits} == {ReasonCode.CAP}


@pytest.mark.parametrize(
    ("earlier", "options", "frees"),
    [
        (HOUR, {"max_total_per_hour": number(3)}, 100 + 3600),
        (HOUR, {"max_total_per_hour": number(1)}, 200 + 3600),
        (DAY, {"max_per_owner_per_day": number(7)}, 100 + 86_400),
        (DAY, {"max_per_owner_per_day": number(5)}, 200 + 86_400),
        (DAY, {"max_per_owner_per_day": number(0)}, inf),
    ],
)
def test_a_cap_of_an_hour_or_a_day_says_when_one_more_may_go_and_what_lifts_it(
    earlier: Earlier, options: dict[str, Any], frees: float
) -> None:
    s = replace(world(), now=1000.0)
    caps = counting(s, PolicyOptions(earlier=earlier, **options))
    reason = caps.spend(next(p for p in s.pods if p.name.startswith("web")), [A])
    assert reason is not None
    assert end_of(reason) == frees
    assert frees == inf or f"waits until {moment(frees, 1000.0)}: the cap of" in reason.message
    [setting] = options
    assert f"REBALANCER_EVICTIONS__{setting.upper()}=none rebalancer once --execute" in reason.remedy


def test_moves_of_the_plan_itself_free_a_cap_a_day_later() -> None:
    s = replace(world(), now=1000.0)
    caps = counting(s, PolicyOptions(max_per_owner_per_day=number(2), earlier=Earlier()))
    found = [caps.spend(p, [A]) for p in s.pods if p.name.startswith("web")]
    assert [end_of(r) for r in found if r is not None] == [1000 + 86_400] * (len(found) - 2)


@pytest.mark.parametrize("spent", ["api", "web"])
def test_others_mend_what_an_owner_shares_with_them_that_has_had_its_evictions_of_the_day(spent: str) -> None:
    shared = [
        workload(name).labels(team="shop").spread("zone", selector={"team": "shop"}).placed({"a-0": 2})
        for name in ("api", "web")
    ]
    earlier = Earlier(last_day={owner_id(f"ReplicaSet/default/{spent}"): ((100.0, 4),)})
    policy = PolicyOptions(max_per_owner_per_day=number(4), earlier=earlier)
    found = plan(snapshot(*nodes(a=1, b=1), *shared), PlanOptions(policy=policy))
    assert [m.owner.metadata.name for m in found.allowed] == [{"api": "web", "web": "api"}[spent]] * 2
    alone = plan(
        snapshot(*nodes(a=1, b=1), workload(spent).spread("zone").placed({"a-0": 2})),
        PlanOptions(policy=policy),
    )
    assert [m.waits is not None for m in alone.moves] == [True], "it waits, and the plan says so"


def test_a_cap_does_not_shrink_while_it_is_used() -> None:
    """Half of the eight pods that ran on a-0 before two were evicted."""
    s = world()
    options = PolicyOptions(max_per_node=percent(50), earlier=Earlier(evicted(2)))
    pods = [p for p in s.pods if p.node_name == "a-0" and p.name.startswith("web")]
    caps = counting(s, options)
    assert [caps.spend(p, [A]) for p in pods].count(None) == 2


@pytest.mark.parametrize("cap", ["max_per_node", "max_per_domain"])
def test_nor_does_it_grow_by_replacements_that_land_where_it_holds(cap: str) -> None:
    """Four pods run on a-0, of which one has just come: there were four, as one has gone."""
    came = Evicted("ReplicaSet/default/api", "default", "b-0", (), "a-0")
    s = snapshot(nodes(a=1, b=1), workload("web").placed({"a-0": 4, "b-0": 1}))
    options: dict[str, Any] = {cap: percent(25), "earlier": Earlier((*evicted(1), came))}
    caps = counting(s, PolicyOptions(**options))
    assert caps.spend(next(p for p in s.pods if p.node_name == "a-0"), [A]) is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_total": number(0)}, "the cap of 0 evictions in total and cycle"),
        ({"max_per_node": percent(0)}, "the cap of 0% evictions per node and cycle (a-0)"),
        ({"max_per_owner": number(0)}, "the cap of 0 evictions per owner and cycle (ReplicaSet/default/web)"),
        (
            {"max_per_owner_per_day": percent(0)},
            "0% evictions per owner and day (ReplicaSet/default/web)",
        ),
        ({"max_total_per_hour": number(0)}, "the cap of 0 evictions in total and hour"),
        ({"max_per_domain": number(0)}, f"the cap of 0 evictions per domain and cycle ({A})"),
    ],
)
def test_the_reason_names_the_cap(options: dict[str, Any], words: str) -> None:
    s = world()
    caps = counting(s, PolicyOptions(**options))
    reason = caps.spend(next(p for p in s.pods if p.name == "web-00000"), [A])
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
