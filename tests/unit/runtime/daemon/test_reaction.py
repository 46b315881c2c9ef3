"""When events of nodes start a cycle, and how often."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from rebalancer.model.node import Node
from rebalancer.runtime.daemon.reaction import Pace, Reaction
from tests.support.build import node, snapshot


def three(taint: str = "") -> tuple[Node, ...]:
    made = [node(f"n-{i}").zone("a") for i in range(3)]
    return snapshot(*([n.taint("x", taint) for n in made] if taint else made)).nodes


def fired(reaction: Reaction, at: Callable[[float], tuple[Node, ...]], seconds: float) -> list[float]:
    """At which times a cycle was due, asked ten times a second."""
    times = (i / 10 for i in range(int(seconds * 10)))
    return [now for now in times if reaction.due(at(now), now)]


SAME = three()
DOWN = snapshot(*(node(f"n-{i}").zone("a").not_ready() for i in range(3))).nodes


def test_what_is_there_at_the_start_is_no_event() -> None:
    assert fired(Reaction(Pace()), lambda _: SAME, 60) == []


def test_a_zone_that_comes_back_starts_one_cycle_once_its_nodes_have_settled() -> None:
    assert fired(Reaction(Pace()), lambda now: DOWN if now < 5 else SAME, 120) == [15.0]


def test_ten_changes_a_second_start_a_cycle_at_most_every_so_often() -> None:
    found = fired(Reaction(Pace(react=10, settle=10)), lambda now: three(f"{now:.1f}"), 100)
    assert found[0] <= 20.5
    assert all(b - a >= 10 for a, b in pairwise(found))


def test_a_heartbeat_that_changes_nothing_is_no_event() -> None:
    assert fired(Reaction(Pace()), lambda _: three(), 60) == []


def test_it_can_be_switched_off() -> None:
    assert fired(Reaction(Pace(react=0)), lambda now: DOWN if now < 5 else SAME, 60) == []
