"""Bounds by programs, and what is known without the effort for one."""

from __future__ import annotations

from rebalancer.planner.bounds import Effort, bounds_of
from tests.support.build import nodes, workload
from tests.unit.planner.posed import Posed


def test_without_effort_only_the_start_is_known() -> None:
    web = workload("web").spread("zone").spread("hostname", 2)
    posed = Posed(nodes(a=2, b=2, c=2), web.placed({"a-0": 2, "a-1": 2, "b-0": 1}))
    remaining = bounds_of(posed.components[0], Effort(0))
    assert (remaining.start_least(), remaining.start_moves(0)) == (0, 2)
    after = posed.on("a-0").moved(posed.components[0].start, posed.node("b-0"))
    assert remaining.moves(after, 0) is None, "out of reach, as it would take a program"
