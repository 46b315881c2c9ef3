"""Pods that are preempted with or without a move, and that the move would keep from another node."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner import plan
from tests.support.build import deployment, node, objects, pod, snapshot, stateful_set

LEAVES = "ToBeDeletedByClusterAutoscaler"


def filled(**cpu: str) -> list[Any]:
    """Pods that nobody preempts, one for each node."""
    return [
        deployment(f"on-{name}").requests(cpu=asked).priority(1000).placed({name.replace("_", "-"): 1})
        for name, asked in cpu.items()
    ]


def rooms(b: int = 2) -> list[Any]:
    """Of zone b web's replacement can go to b-4 alone."""
    return [
        node("a-1").zone("a").cpu(2),
        node("a-3").zone("a").cpu(2),
        node("b-4").zone("b").cpu(b),
        node("c-5").zone("c").cpu(1),
    ]


def web(cpu: str = "250m", priority: int = 0) -> Any:
    spread = deployment("web").spread("zone", 1).requests(cpu=cpu).priority(priority)
    return spread.placed({"a-3": 2, "c-5": 1})


def low(at: str = "a-1", **requests: Any) -> Any:
    return deployment("low").requests(**(requests or {"cpu": "500m"})).placed({at: 1})


def drained(cpu: str = "600m", **selects: str) -> list[Any]:
    leaves = node("c-2").zone("c").cpu(2).taint(LEAVES)
    return [leaves, deployment("xx").requests(cpu=cpu).priority(1000).selects(**selects).placed({"c-2": 1})]


FULL = filled(a_1="1300m", a_3="1500m", b_4="1500m", c_5="750m")


@pytest.mark.parametrize(
    ("more", "moves"),
    [
        ([], 1),
        ([drained()], 0),
        ([drained(), node("a-9").zone("a").cpu(4)], 1),
        ([drained(), node("a-9").zone("a").cpu("450m")], 0),
    ],
    ids=["nobody is", "it has one node", "another node has room", "that is too small"],
)
def test_the_node_is_left_to_it(more: list[Any], moves: int) -> None:
    """xx has to leave, and preempts low on a-1. The node for low is b-4."""
    made = plan(snapshot(*rooms(), web(), low(), FULL, *more))
    assert len(made.moves) == moves
    said = made.blocked[0].reason.message if made.blocked else ""
    assert moves or ("default/low-" in said and "needs, which a pod to come may preempt" in said), said


def test_so_it_is_where_it_preempts_yet_another() -> None:
    """xx preempts mid on a-1, mid low on a-6, and low goes to b-4."""
    ssd = [node("a-1").zone("a").cpu(2).label("disk", "ssd"), node("a-6").zone("a").cpu(2)]
    mid = deployment("mid").requests(cpu="500m").priority(100).placed({"a-1": 1})
    mid_stays = deployment("mid").requests(cpu="500m").priority(0).placed({"a-1": 1})
    full = filled(a_1="1500m", a_6="1500m", a_3="1500m", b_4="1500m", c_5="750m")
    every = [*ssd, *rooms()[1:], low("a-6", cpu="500m"), full, drained("500m", disk="ssd")]
    assert not plan(snapshot(*every, web(priority=1000), mid)).moves
    assert not plan(snapshot(*every, web(priority=1000), mid_stays)).moves, "mid may go to b-4 itself"
    assert plan(snapshot(*every[:-1], web(priority=1000), mid)).moves, "without xx"


def test_so_it_is_where_a_pod_that_has_just_come_preempts_it() -> None:
    """The scheduler has not tried it yet."""
    came, near = (objects(pod("xx").requests(cpu="600m").priority(1000)) for _ in range(2))
    came[0]["status"]["conditions"] = near[0]["status"]["conditions"] = []
    made = plan(snapshot(*rooms(), web(), low(), FULL, came))
    assert not made.moves
    assert all("which a pod to come may preempt" in b.reason.message for b in made.blocked)
    near[0]["spec"]["affinity"] = objects(pod("xx").near("zone", app="gone"))[0]["spec"]["affinity"]
    assert plan(snapshot(*rooms(), web(), low(), FULL, near)).moves, "nor can it preempt"


@pytest.mark.parametrize(("grows", "moves"), [("500m", 1), ("700m", 0)])
def test_so_it_is_where_a_rollout_to_larger_pods_preempts_it(grows: str, moves: int) -> None:
    rolls = objects(stateful_set("xx").requests(cpu="500m").priority(1000).placed({"a-1": 1}))
    rolls[0]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = grows
    rolls[0]["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
    rolls[0]["status"] |= {"updateRevision": "xx-2", "updatedReplicas": 0}
    full = filled(a_1="1", a_3="1500m", b_4="1500m", c_5="750m")
    made = plan(snapshot(*rooms(), web(), low(), full, rolls))
    assert len(made.moves) == moves, [b.reason.message for b in made.blocked]


def test_nor_does_a_move_turn_one_preemption_into_one_of_more_pods() -> None:
    """xx preempts mid on a-1; with web away from a-3 it preempts three of low there, who are less to it."""
    ssd = [node(n).zone("a").cpu(2).label("disk", "ssd") for n in ("a-1", "a-3")]
    mid = deployment("mid").requests(cpu="500m").priority(100).selects(disk="ssd").placed({"a-1": 1})
    three = deployment("low").requests(cpu="100m").selects(disk="ssd").placed({"a-3": 3})
    full = filled(a_1="1500m", a_3="1300m", b_4="1700m", c_5="800m")
    every = [*ssd, *rooms()[2:], web("200m", 1000), mid, three, full]
    assert not plan(snapshot(*every, drained("500m", disk="ssd"))).moves
    assert plan(snapshot(*every)).moves, "without xx"
