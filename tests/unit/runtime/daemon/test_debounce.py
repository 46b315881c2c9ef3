"""How often what happens starts a cycle."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import pairwise

import pytest

from rebalancer.runtime.daemon.early import Debounce


def fired(key: Callable[[float], Hashable], seconds: float, *, planning: float = 0.0) -> list[float]:
    """At which times a cycle starts where something happens every second; planning takes so long."""
    debounce, found, now = Debounce(), list[float](), 0.0
    while now < seconds:
        debounce.note(key(now), "something", now)
        if debounce.due(now):
            found.append(now)
            debounce.forget()
            now += planning
            debounce.planning = planning
        now += 1
    return found


def test_an_event_every_second_starts_a_cycle_every_react() -> None:
    found = fired(lambda now: now, 100)
    assert len(found) == 10
    assert all(b - a >= 10 for a, b in pairwise(found))


def test_what_happens_again_and_again_starts_fewer_and_fewer() -> None:
    gaps = [round(b - a) for a, b in pairwise(fired(lambda _: "the same", 3000))]
    assert gaps[:5] == [20, 40, 80, 160, 320]


@pytest.mark.parametrize(("planning", "gap"), [(1.0, 10), (5.0, 20), (30.0, 120)])
def test_where_planning_takes_long_it_is_done_less_often(planning: float, gap: float) -> None:
    found = fired(lambda now: now, 300, planning=planning)
    assert min(b - a for a, b in pairwise(found)) >= gap


def test_what_comes_with_nodes_waits_until_they_have_settled() -> None:
    debounce, found = Debounce(), []
    for now in (0.0, 8.0, 9.0, 17.0, 18.0, 19.0):
        debounce.note(now, "something", now)
        if now == 8.0:
            debounce.note("nodes", "nodes have changed", now, 10.0)
        if debounce.due(now):
            found.append(now)
    assert found == [0.0, 18.0]
