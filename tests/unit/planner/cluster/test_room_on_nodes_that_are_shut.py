"""Pods to come to which most nodes are shut, whatever room these have."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner import plan
from rebalancer.planner.cluster.bystanders import SpokenFor
from tests.support.build import deployment, node, pod, snapshot

LEAVES = "ToBeDeletedByClusterAutoscaler"
MANY = 18
"""Nodes with room, more than are asked about one by one."""


def many(zone: str = "c") -> list[Any]:
    return [node(f"{zone}-{i + 10}").zone(zone).cpu(4) for i in range(MANY)]


def one_on_each(**more: int) -> dict[str, int]:
    return {f"c-{i + 10}": 1 for i in range(MANY)} | more


@pytest.mark.parametrize(("taints", "moves"), [("Ignore", 0), ("Honor", 1)])
def test_a_drained_pod_needs_the_one_node_without_a_pod_of_its_own(taints: str, moves: int) -> None:
    """c-10 has two of web, c-2 has to go: until it has gone it counts as an empty node, and web's next pod
    can go to an empty one alone."""
    new, drained = node("c-3").zone("c").cpu(4), node("c-2").zone("c").cpu(4).taint(LEAVES)

    def web(**placed: int) -> Any:
        spread = deployment("web").requests(cpu="500m").spread("hostname", 1, taints_policy=taints)
        return spread.placed(one_on_each(**{"c-10": 2, **placed}))

    assert len(plan(snapshot(*many(), new, drained, web(**{"c-2": 1}))).moves) == moves
    assert plan(snapshot(*many(), new, web())).moves, "without the drain"


def beside(*others: Any) -> list[Any]:
    """web's replacement can go to b-4 alone, which has room for one more pod."""
    web = deployment("web").requests(cpu="250m").spread("zone", 1).placed({"a-3": 2, "c-5": 1})
    full = deployment("full").requests(cpu="1500m").placed({"a-3": 1, "b-4": 1})
    return [
        node("a-3").zone("a").cpu(2),
        node("b-4").zone("b").cpu(2),
        node("c-5").zone("c").cpu("250m"),
        *many(),
        web,
        full,
        *others,
    ]


def leaves(api: Any) -> list[Any]:
    return [node("c-2").zone("c").cpu(2).taint(LEAVES), api.placed({"c-2": 1})]


SHUT: dict[str, tuple[list[Any], int]] = {
    "nobody comes": ([], 1),
    "one comes that all nodes take": (leaves(deployment("api").requests(cpu="500m")), 1),
    "by counts": (
        [
            node("c-2").zone("c").cpu(2).taint(LEAVES),
            deployment("api").requests(cpu="400m").spread("hostname", 1).placed(one_on_each(**{"c-2": 1})),
        ],
        0,
    ),
    "by others that keep it off": (
        [
            deployment("far").requests(cpu="100m").away_from("hostname", app="api").placed(one_on_each()),
            *leaves(deployment("api").requests(cpu="500m")),
        ],
        0,
    ),
    "by one that keeps it off the zone": (
        [
            deployment("far").requests(cpu="100m").away_from("zone", app="api").placed({"c-10": 1}),
            *leaves(deployment("api").requests(cpu="500m")),
        ],
        0,
    ),
}


@pytest.mark.parametrize(("others", "moves"), SHUT.values(), ids=SHUT)
def test_the_last_node_that_is_open_to_it_is_left_to_it(others: list[Any], moves: int) -> None:
    made = plan(snapshot(*beside(*others)))
    assert len(made.moves) == moves, [b.reason.message for b in made.blocked]


def test_a_zone_whose_only_node_is_drained_counts_as_an_empty_one() -> None:
    """The next pod of c-0 can go to b alone, until its replacement has come there."""
    drained = node("c-0").zone("c").cpu(4).taint(LEAVES)
    web = deployment("web").requests(cpu="500m").spread("zone", 1).placed({"a-10": 1, "a-11": 1, "c-0": 1})
    assert not plan(snapshot(many("a"), many("b"), drained, web)).moves
    assert plan(snapshot(many("a"), many("b"), node("c-0").zone("c").cpu(4), web)).moves, "without the drain"


def test_only_pods_that_can_shut_a_node_to_it_count_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 24 has a pod that has to leave, two that are moved, and 31 nodes without a pod of its own: no
    move has to be asked about."""
    asked = []
    monkeypatch.setattr(SpokenFor, "_in_the_way", lambda *question, **_: asked.append(question))
    taken = {f"a-{i + 10}": 1 for i in range(5)} | {"c-2": 1}
    apis = [
        deployment(f"api-{i}").requests(cpu="10m").spread("hostname", 1).spread("zone", 1).placed(taken)
        for i in range(24)
    ]
    drained = node("c-2").zone("c").cpu(4).taint(LEAVES)
    assert len(plan(snapshot(*many("c"), *many("a"), drained, apis)).moves) == 48
    assert not asked


@pytest.mark.parametrize("drained", [[], ["xx"], ["yy"], ["xx", "yy"]], ids="+".join)
def test_who_can_go_anywhere_may_take_one_of_the_two_nodes_of_another(drained: list[str]) -> None:
    """Without the move xx finds one of b-1 and c-1, whichever yy takes. web's replacement goes to b-1."""
    ssd = [node(n).zone(n[0]).cpu(2).label("disk", "ssd") for n in ("a-1", "b-1", "c-1")]
    web = deployment("web").requests(cpu="300m").selects(disk="ssd").spread("zone", 1)
    full = [
        deployment(f"on-{at}").requests(cpu=cpu).placed({at: 1})
        for at, cpu in (("a-1", "1400m"), ("b-1", "1400m"), ("c-1", "1100m"))
    ]
    leave = {
        "xx": deployment("xx").requests(cpu="600m").selects(disk="ssd"),
        "yy": deployment("yy").requests(cpu="300m"),
    }
    going = node("c-2").zone("c").cpu(2).label("disk", "ssd").taint(LEAVES)
    others = [leave[name].placed({"c-2": 1}) for name in drained]
    made = plan(snapshot(*ssd, going, *many(), web.placed({"a-1": 2, "c-1": 1}), full, others))
    assert bool(made.moves) is (len(drained) < 2), [b.reason.message for b in made.blocked]


@pytest.mark.parametrize("low", [0, 1000], ids=["others are lower", "nobody is"])
def test_room_that_others_leave_later_is_none_for_a_pod_that_would_preempt_until_then(low: int) -> None:
    """xx finds room on b-4 now, and elsewhere once the pods of old have ended."""
    rooms = [node("a-3").zone("a").cpu(2), node("b-4").zone("b").cpu(2), node("c-5").zone("c").cpu(2)]
    later = [node(f"c-{i + 10}").zone("c").cpu(2) for i in range(MANY)]
    ends = [
        pod(f"old-{i}").requests(cpu="600m").priority(low).on(f"c-{i + 10}").terminating()
        for i in range(MANY)
    ]
    web = deployment("web").requests(cpu="250m").priority(1000).spread("zone", 1)
    full = [
        deployment(f"on-{at}").requests(cpu=cpu).priority(1000).placed({at: 1})
        for at, cpu in (("a-3", "1400m"), ("b-4", "1400m"), ("c-5", "1600m"))
    ]
    base = deployment("base").requests(cpu="1300m").priority(low).placed(one_on_each())
    xx = deployment("xx").requests(cpu="600m").priority(1000).placed({"c-2": 1})
    going = node("c-2").zone("c").cpu(2).taint(LEAVES)
    made = plan(snapshot(*rooms, *later, going, web.placed({"a-3": 2, "c-5": 1}), full, base, ends, xx))
    assert bool(made.moves) is bool(low), [b.reason.message for b in made.blocked]


KEPT_OFF: dict[str, tuple[Any, list[Any], int]] = {
    "nothing keeps it off": (deployment("only").requests(cpu="1"), [], 0),
    "its own kind does": (deployment("only").requests(cpu="1").away_from("hostname", app="only"), [], 0),
    "its own kind does, and it is small": (
        deployment("only").requests(cpu="700m").away_from("hostname", app="only"),
        [],
        1,
    ),
    "others do, from the other node with room": (
        deployment("only").requests(cpu="1"),
        [
            node("c-3").zone("c").cpu(2).label("disk", "ssd"),
            deployment("far").requests(cpu="100m").away_from("hostname", app="only").placed({"c-3": 1}),
        ],
        0,
    ),
    "others do, from another node": (
        deployment("only").requests(cpu="1"),
        [
            node("c-3").zone("c").cpu(2).label("disk", "ssd"),
            deployment("far").requests(cpu="100m").away_from("hostname", app="only").placed({"c-10": 1}),
        ],
        1,
    ),
}


@pytest.mark.parametrize(("only", "others", "moves"), KEPT_OFF.values(), ids=KEPT_OFF)
def test_who_is_kept_off_others_keeps_its_one_node(only: Any, others: list[Any], moves: int) -> None:
    """b-1 has room for the next pod of only, and for one more: yy's, or web's replacement."""
    ssd = [node(n).zone(n[0]).cpu(2).label("disk", "ssd") for n in ("a-1", "b-1", "c-1")]
    web = deployment("web").requests(cpu="300m").selects(disk="ssd").spread("zone", 1)
    full = [
        deployment(f"on-{at}").requests(cpu=cpu).placed({at: 1})
        for at, cpu in (("a-1", "1400m"), ("b-1", "500m"), ("c-1", "1100m"))
    ]
    only = only.selects(disk="ssd").placed({"c-2": 1})
    yy = deployment("yy").requests(cpu="400m").selects(disk="ssd").placed({"c-2": 1})
    going = node("c-2").zone("c").cpu(2).label("disk", "ssd").taint(LEAVES)
    made = plan(snapshot(*ssd, going, *many(), web.placed({"a-1": 2, "c-1": 1}), full, only, yy, others))
    assert len(made.moves) == moves, [b.reason.message for b in made.blocked]
