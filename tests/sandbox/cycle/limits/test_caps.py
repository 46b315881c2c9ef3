"""Caps that span cycles: the ledger counts, and only time makes it forget."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome.cycle import End
from rebalancer.planner.options import PlanOptions
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.runtime.live.assembly import LiveOptions
from tests.support.build import node, objects
from tests.support.runs.machine import Machine
from tests.support.servers.api import QUICK


def capped(**caps: Any) -> LiveOptions:
    return LiveOptions(execute=True, backoff=QUICK, planning=PlanOptions(policy=PolicyOptions(**caps)))


SPANNING = [
    ("of a day", capped(max_per_owner_per_day=Limit(percent=50)), 86_400.0, 3),
    ("of an hour", capped(max_total_per_hour=Limit(number=2)), 3600.0, 2),
]


@pytest.mark.parametrize(("options", "span", "most"), [c[1:] for c in SPANNING], ids=[c[0] for c in SPANNING])
def test_a_cap_holds_over_cycles_processes_and_changes_until_its_time_is_over(
    options: LiveOptions, span: float, most: int
) -> None:
    """Six pods in one zone of three: four evictions are planned."""
    with Machine() as m:
        first = m.cycle(options=options)
        began = m.time.at
        assert (first.report.end, first.report.evicted) == (End.CAPPED, most)
        made = objects(node("new-0").zone("a"))[0]
        made["metadata"].pop("resourceVersion", None)
        m.server.store.create(made)
        again = m.cycle(options=options)
        assert (again.report.end, again.report.evicted) == (End.CAPPED, 0)
        assert again.report.reason is not None
        assert again.report.reason.code is ReasonCode.CAP
        assert [p.waits is not None for p in again.story.plans[-1].moves] == [True] * (4 - most)
        m.time.at = began + span + 1
        last = m.cycle(options=options)
        assert (last.report.end, last.report.evicted) == (End.COMPLETE, 4 - most)


def test_a_cap_leaves_the_plan_whole() -> None:
    with Machine() as m:
        run = m.cycle(options=capped(max_total=Limit(number=1)))
    first = run.story.plans[0]
    assert (len(first.moves), len(first.allowed), run.report.evicted) == (4, 1, 1)
    assert first.residual_excess == 0
