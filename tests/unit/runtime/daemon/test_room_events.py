"""Room that comes free is worth a cycle where a blocked move fits into it, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.planner import plan
from rebalancer.runtime.daemon.events import RoomEvents
from tests.support.build import node, pod, snapshot, workload
from tests.unit.runtime.daemon.moments import Moments


def cluster(*batch: str, web: str = "1") -> Any:
    """Three of web in zone a, none in the full zone b; batch pods as node:cpu."""
    things: list[Any] = [
        node("a-0").zone("a").cpu(8),
        node("b-0").zone("b").cpu(2),
        node("b-1").zone("b").cpu(2),
        node("other").cpu(8),
        workload("web").spread("zone", 1).requests(cpu=web).placed({"a-0": 3}),
    ]
    for i, text in enumerate(batch):
        where, _, cpu = text.partition(":")
        things.append(pod(f"batch-{i}-{where}-{cpu}").on(where).requests(cpu=cpu))
    return snapshot(*things)


FULL = ("b-0:1", "b-0:1", "b-1:1500m", "b-1:500m", "other:1", "a-0:1")
CASES = [
    ("a pod ends where a move waits, and its room is enough", ("b-0:1", "gone", *FULL[2:]), 1),
    ("its room is not enough", (*FULL[:3], "gone", *FULL[4:]), 0),
    ("it ends on a node that no move waits for", (*FULL[:4], "gone", FULL[5]), 0),
    ("it ends in the zone that is too full", (*FULL[:5], "gone"), 0),
    ("nothing ends", FULL, 0),
]


def without(*batch: str) -> Any:
    """The others keep their names."""
    made = cluster(*(b if b != "gone" else "a-0:1m" for b in batch))
    return replace(made, pods=tuple(p for p in made.pods if not p.name.endswith("-1m")))


@pytest.mark.parametrize(("after", "events"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_pod_that_ends(after: tuple[str, ...], events: int) -> None:
    moments = Moments(cluster(*FULL))
    found = plan(moments.current)
    assert found.residual_excess
    watch = RoomEvents(moments, lambda: None, wall=lambda: 0.0)
    watch.on_plan(moments.current, found)
    assert list(watch.news(0.0)) == []
    moments.show(without(*after))
    assert len(list(watch.news(100.0))) == events
    moments.show(without(*after))
    assert list(watch.news(200.0)) == [], "told once"


def test_where_nothing_waits_for_room_nothing_is_followed() -> None:
    moments = Moments(cluster("a-0:1"))
    watch = RoomEvents(moments, lambda: None, wall=lambda: 0.0)
    watch.on_plan(moments.current, plan(moments.current))
    moments.show(cluster())
    assert list(watch.news(100.0)) == []
