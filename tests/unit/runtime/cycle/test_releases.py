"""Released pods, as far as it takes no API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rebalancer.model.pod import DELETION_COST, Pod
from rebalancer.model.snapshot import Identity
from rebalancer.planner import plan
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.release import COST_BEFORE
from rebalancer.runtime.cycle.carrying_out import releases_of
from rebalancer.runtime.cycle.clock import RateLimit, SystemClock
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.releases import ReleaseParts, restore
from rebalancer.runtime.cycle.replacements import ReplacementWatch
from tests.support.build import deployment, nodes, pdb, snapshot


class Recorded:
    """What was to be changed of annotations."""

    def __init__(self) -> None:
        self.changes: list[Mapping[str, str | None]] = []

    def annotate(self, _: Pod, changes: Mapping[str, str | None], __: Callable[[], bool]) -> None:
        self.changes.append(changes)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("-8", {DELETION_COST: "7", COST_BEFORE: None}),
        ("500", {COST_BEFORE: None}),
        ("", {COST_BEFORE: None}),
    ],
    ids=["as the undo left it", "a user has changed it since", "a user has taken it away"],
)
def test_a_cost_is_as_it_was_unless_somebody_has_changed_it_since(now: str, expected: Any) -> None:
    there = {COST_BEFORE: "-8 7", **({DELETION_COST: now} if now else {})}
    (pod, *_) = snapshot(nodes(a=1), deployment("web").placed({"a-0": 1})).pods
    patches = Recorded()
    restore(
        [cast("Pod", SimpleNamespace(annotations=there, key=pod.key))], cast("Any", patches), lambda: True
    )
    assert patches.changes == [expected]


def test_who_is_released_is_looked_up_once_a_turn() -> None:
    """However many moves wait for it: the cluster may have 150,000 pods."""
    seen = snapshot(
        nodes(a=1, b=1),
        deployment("web").spread("zone", 1).placed({"a-0": 6}),
        pdb("web", {"owner": "web"}, max_unavailable=0),
    )
    moves = plan(seen, PlanOptions(policy=PolicyOptions(method="auto"))).moves
    asked = []

    def pods() -> dict[Identity, Pod]:
        asked.append(1)
        return {(p.namespace, p.name): p for p in seen.pods}

    clock = SystemClock()
    needs = ReleaseParts(
        reads=cast("Any", None),
        watched=cast("Any", SimpleNamespace(pods=pods)),
        patches=cast("Any", None),
        by="",
        closed=lambda: None,
    )
    parts = cast("Any", SimpleNamespace(evictor=None, clock=clock, pace=RateLimit(clock), observer=None))
    releases = releases_of(parts, needs, Memory(clock, HistoryRules()), ReplacementWatch(None, seen, clock))
    releases.look()
    assert [releases.full(m) for m in moves] == [None] * 3
    assert [releases.may_begin(m) for m in moves] == [True] * 3
    assert len(asked) == 1
