"""How many moves of one component hold in any interleaving, by counts alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from rebalancer.planner.hard import Search
from rebalancer.planner.moves import JudgedMove
from rebalancer.planner.waves.interleavings import Interleavings, highest_minimum, together
from rebalancer.planner.waves.schedule import Queue
from tests.support.build import node, workload
from tests.support.clusters.scenarios import scenario
from tests.unit.planner.posed import Posed


def posed(per_zone: dict[str, int], *, max_skew: int = 1, each: int = 4, **more: Any) -> Posed:
    """Zones of `each` nodes with so many pods, dealt out one node after the other."""
    nodes = [node(f"{z}-{i}").zone(z).cpu(100) for z in per_zone for i in range(each)]
    web = workload("web").spread("zone", max_skew, **more)
    for zone, pods in per_zone.items():
        web.on_nodes([f"{zone}-{i % each}" for i in range(pods)])
    return Posed(nodes, web)


def searched(found: Posed) -> tuple[JudgedMove, ...]:
    return Search(found.simulation, found.components[0], found.judge, 2000).run().moves


@pytest.mark.parametrize(
    ("zones", "max_skew", "moves", "expected"),
    [
        ({"a": 50, "b": 50, "c": 0}, 1, 33, 33),
        ({"a": 9, "b": 0}, 1, 4, 4),
        ({"a": 9, "b": 0}, 3, 3, 3),
        ({"a": 5, "b": 4, "c": 0}, 1, 3, 3),
        ({"a": 4, "b": 2, "c": 0}, 2, 1, 1),
    ],
    ids=str,
)
def test_moves_from_full_zones_into_the_lowest_go_together(
    zones: dict[str, int], max_skew: int, moves: int, expected: int
) -> None:
    found = searched(posed(zones, max_skew=max_skew))
    assert (len(found), together(found).length) == (moves, expected)


def test_moves_that_are_only_likely_do_not() -> None:
    moves = searched(posed({"a": 9, "b": 0}))
    likely = [replace(m, certain=False) for m in moves]
    assert together(likely).length == 1, "what depends on where the one before landed"


def test_the_highest_minimum_is_what_every_way_of_landing_gives_at_most() -> None:
    for counts in product(range(4), repeat=3):
        for arrivals in range(6):
            best = max(
                min(c + list(where).count(d) for d, c in enumerate(counts))
                for where in product(range(3), repeat=arrivals)
            )
            assert highest_minimum(np.array(counts), arrivals) == best, (counts, arrivals)


def two_keys(a: dict[str, int], b: dict[str, int], c: dict[str, int]) -> Posed:
    nodes = [node(n).zone(z).cpu(100) for z, there in (("a", a), ("b", b), ("c", c)) for n in there]
    web = workload("web").spread("zone", 1).spread("hostname", 1).placed({**a, **b, **c})
    return Posed(nodes, web)


def test_two_keys_that_agree_hold_together_without_trying_orders() -> None:
    found = two_keys({"a-0": 3, "a-1": 3}, {"b-0": 1, "b-1": 1}, {"c-0": 0, "c-1": 0, "c-2": 0})
    moves = searched(found)
    assert len(moves) > 1
    assert together(moves).length == len(moves)


def test_orders_are_tried_where_a_zone_that_gives_may_also_take() -> None:
    found = Posed(*scenario("uneven_zones_two_keys"))
    moves = searched(found)
    tried = Interleavings(found.simulation, moves)
    assert (len(moves), together(moves).length) == (4, 3)
    assert tried.hold(2, 4) is not None
    assert tried.hold(1, 4) is not None


def test_a_pod_that_could_come_back_once_another_has_left_waits() -> None:
    found = two_keys(
        {"a-0": 3, "a-1": 2, "a-2": 0}, {"b-0": 2, "b-1": 0, "b-2": 0}, {"c-0": 0, "c-1": 0, "c-2": 0}
    )
    tried = Interleavings(found.simulation, searched(found))
    assert tried.hold(0, 2) is not None
    assert tried.hold(0, 3) is None


def test_nodes_that_are_alike_are_open_alike_wherever_earlier_replacements_landed() -> None:
    found = two_keys(
        {"a-0": 3, "a-1": 2, "a-2": 0}, {"b-0": 2, "b-1": 0, "b-2": 0}, {"c-0": 0, "c-1": 0, "c-2": 0}
    )
    held = Interleavings(found.simulation, searched(found)).hold(2, 4)
    assert held is not None
    for nodes in held.nodes:
        assert found.names(nodes) == ["a-2", "b-1", "b-2", "c-0", "c-1", "c-2"]
    assert {int(n) for n in held.most[[found.node(c) for c in ("c-0", "c-1", "c-2")]]} == {2}


def test_a_queue_offers_no_more_than_holds_from_where_it_stands() -> None:
    found = two_keys(
        {"a-0": 3, "a-1": 2, "a-2": 0}, {"b-0": 2, "b-1": 0, "b-2": 0}, {"c-0": 0, "c-1": 0, "c-2": 0}
    )
    moves = searched(found)
    queue, tried, made = (
        Queue(found.simulation, moves, lambda _: 50),
        Interleavings(found.simulation, moves),
        0,
    )
    while queue.moves:
        offered, _ = queue.first()
        end = made + len(offered)
        assert len(offered) == 1 or end <= together(moves).length or tried.hold(made, end) is not None
        queue.drop({m.pod.key: m.certain for m in offered})
        made = end
