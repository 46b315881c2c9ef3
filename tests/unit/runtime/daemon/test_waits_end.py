"""A wait that ends by the clock starts a cycle at that time, once."""

from __future__ import annotations

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner import plan
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.options import PolicyOptions
from rebalancer.runtime.daemon.events import WaitsEnd
from tests.support.build import NOW, nodes, snapshot, workload

CLUSTER = snapshot(*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))


def resting(code: ReasonCode, seconds: int) -> PlanOptions:
    reason = Reason(code, "it rests", {"seconds": seconds})
    return PlanOptions(policy=PolicyOptions(resting={"ReplicaSet/default/web": reason}))


def test_it_is_told_when_the_wait_is_over() -> None:
    now = [NOW]
    events = WaitsEnd(lambda: now[0])
    events.on_plan(CLUSTER, plan(CLUSTER, resting(ReasonCode.STABILIZING, 60)))
    assert list(events.news(0.0)) == []
    now[0] = NOW + 61
    assert len(list(events.news(0.0))) == 1
    assert list(events.news(0.0)) == []


def test_a_plan_that_waits_for_nothing_ends_what_the_one_before_waited_for() -> None:
    events = WaitsEnd(lambda: NOW + 61)
    events.on_plan(CLUSTER, plan(CLUSTER, resting(ReasonCode.COOL_DOWN, 60)))
    events.on_plan(CLUSTER, plan(CLUSTER))
    assert list(events.news(0.0)) == []
