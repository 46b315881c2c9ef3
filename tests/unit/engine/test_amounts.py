"""Amounts beyond all measure: legal in the API, more than 64 bits hold once they are added up."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.quantity import MOST, resource_list
from rebalancer.planner import plan
from tests.support.build import decoded, node, nodes, objects, pod, workload
from tests.unit.engine.judge import Asked

HUGE = ("1Ei", "7Ei", "8Ei", "100Ei", "9223372036854775807", "1e30")


def uneven() -> Any:
    return workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1})


@pytest.mark.parametrize("memory", HUGE)
def test_pods_of_any_size_are_planned_around(memory: str) -> None:
    """Two of them wait, two are nominated, and one has a node, of which it leaves nothing."""
    waiting = [pod(f"p{i}").requests(memory=memory) for i in range(2)]
    for promised in (False, True):
        listed = objects(nodes(a=1, b=1), uneven(), waiting)
        for o in listed[-2:]:
            o["status"] |= {"nominatedNodeName": "a-0"} if promised else {}
        assert len(plan(decoded(listed)).moves) == 1
    placed = pod("p").on("b-0").requests(memory=memory)
    assert plan(decoded(objects(nodes(a=1, b=1), uneven(), placed))).residual_excess == 1
    owned = uneven().requests(memory=memory)
    assert plan(decoded(objects(nodes(a=1, b=1), owned))).moves == ()


def test_a_node_of_any_size_takes_what_can_be_measured_and_nothing_beyond() -> None:
    large = node("a-0").zone("a").room(memory="100Ei", cpu="1e30")
    assert Asked(large, pod("new").requests(memory="1Pi")).fits == ["a-0"]
    assert Asked(large, pod("new").requests(memory="8Pi")).fits == []
    assert Asked(large, pod("new").requests(cpu="1e30")).fits == []


def test_many_such_pods_on_a_node_stay_within_64_bits() -> None:
    crowd = [pod(f"p{i}").on("a-0").requests(memory="100Ei", cpu="1e30") for i in range(200)]
    asked = Asked(nodes(a=1, b=1), crowd, pod("new"))
    assert asked.fits == ["b-0"]
    assert int(asked.state.requested["memory"][0]) == 200 * MOST
    assert asked.score("NodeResourcesFit") != {}


def test_amounts_are_bounded_both_ways() -> None:
    assert resource_list({"a": "1e30", "b": "-1e30", "cpu": "1e30", "c": "8Pi", "d": 3}) == {
        "a": MOST,
        "b": -MOST,
        "cpu": MOST,
        "c": MOST,
        "d": 3,
    }
