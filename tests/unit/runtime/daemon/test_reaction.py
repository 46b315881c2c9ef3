"""When events start a cycle, and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from rebalancer.model.node import Node
from rebalancer.planner import plan
from rebalancer.runtime.daemon.events import Happening, NodeEvents, Reaction, Source
from tests.support.build import node, snapshot

EMPTY = snapshot()
NOTHING = plan(EMPTY)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def fired(
    source: Source,
    clock: Clock,
    seconds: float,
    *,
    react: float = 10.0,
    planning: float = 0.0,
    step: float = 1.0,
) -> list[float]:
    """At which times a cycle was due, asked every `step` seconds; planning takes so long, in no time."""
    reaction = Reaction([source], monotonic=clock)
    reaction.react = react
    found = []
    for i in range(int(seconds / step)):
        clock.now = i * step
        if reaction.due():
            found.append(clock.now)
            reaction.on_reading()
            clock.now += planning
            reaction.on_plan(EMPTY, NOTHING)
    return found


def three(taint: str = "") -> tuple[Node, ...]:
    made = [node(f"n-{i}").zone("a") for i in range(3)]
    return snapshot(*([n.taint("x", taint) for n in made] if taint else made)).nodes


SAME = three()
DOWN = snapshot(*(node(f"n-{i}").zone("a").not_ready() for i in range(3))).nodes


def of_nodes(at: Callable[[float], tuple[Node, ...]], seconds: float, **how: float) -> list[float]:
    clock = Clock()
    return fired(NodeEvents(lambda: at(clock.now)), clock, seconds, step=0.1, **how)


def test_what_is_there_at_the_start_is_no_event() -> None:
    assert of_nodes(lambda _: SAME, 60) == []


def test_a_zone_that_comes_back_starts_one_cycle_once_its_nodes_have_settled() -> None:
    assert of_nodes(lambda now: DOWN if now < 5 else SAME, 120) == [pytest.approx(15.0)]


def test_ten_changes_of_nodes_a_second_start_a_cycle_at_most_every_so_often() -> None:
    found = of_nodes(lambda now: three(f"{now:.1f}"), 100)
    assert found[0] <= 20.5
    assert all(b - a >= 10 for a, b in pairwise(found))


def test_a_heartbeat_that_changes_nothing_is_no_event() -> None:
    assert of_nodes(lambda _: three(), 60) == []


def test_it_can_be_switched_off() -> None:
    assert of_nodes(lambda now: DOWN if now < 5 else SAME, 60, react=0) == []


class Always:
    """Something happens whenever it is asked about."""

    def __init__(self, key: Callable[[float], Any]) -> None:
        self._key = key

    def news(self, now: float) -> Iterator[Happening]:
        yield Happening(self._key(now), "something")


def test_a_hundred_events_a_second_start_a_cycle_every_react() -> None:
    found = fired(Always(lambda now: now), Clock(), 100)
    assert len(found) == 10
    assert all(b - a >= 10 for a, b in pairwise(found))


def test_what_happens_again_and_again_starts_fewer_and_fewer() -> None:
    found = fired(Always(lambda _: "the same"), Clock(), 3000)
    gaps = [round(b - a) for a, b in pairwise(found)]
    assert gaps[:5] == [20, 40, 80, 160, 320]


def test_what_comes_with_nodes_waits_until_they_have_settled() -> None:
    clock = Clock()
    nodes = NodeEvents(lambda: SAME if clock.now >= 8 else DOWN)
    reaction = Reaction([nodes, Always(lambda now: now)], settling=nodes.settling, monotonic=clock)
    found = []
    for clock.now in (0.0, 8.0, 9.0, 17.0, 18.0, 19.0):
        if reaction.due():
            found.append(clock.now)
    assert found == [0.0, 18.0]


@pytest.mark.parametrize(("planning", "gap"), [(1.0, 10), (5.0, 20), (30.0, 120)])
def test_where_planning_takes_long_it_is_done_less_often(planning: float, gap: float) -> None:
    found = fired(Always(lambda now: now), Clock(), 300, planning=planning)
    assert min(b - a for a, b in pairwise(found)) >= gap
