"""What the scheduler never exceeds, and what is therefore proved of a plan."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rebalancer.planner import Plan, plan
from rebalancer.planner.plan import Cause
from tests.support.build import node, pod, snapshot, workload
from tests.support.build.owners import OwnerBuilder


def _web() -> OwnerBuilder:
    return workload("web")


def _between(made: Plan) -> dict[Cause, int]:
    return {b.cause: b.excess for b in made.between}


def beside_a_cordoned_node() -> Plan:
    machines = [node("a-0"), node("a-1"), node("a-2").cordoned()]
    return plan(snapshot(machines, _web().spread("hostname", 1).placed({"a-0": 4, "a-1": 1})))


def too_few_zones() -> Plan:
    machines = [node("a-0").zone("a"), node("b-0").zone("b")]
    web = _web().spread("zone", 2, min_domains=3).placed({"a-0": 5, "b-0": 3})
    return plan(snapshot(machines, web))


def a_zone_with_few_nodes() -> Plan:
    """Zone b has one node, which may hold one pod: so no zone takes more than two, and these hold more."""
    machines = [
        *(node(f"a-{i}").zone("a") for i in range(4)),
        node("b-0").zone("b"),
        *(node(f"c-{i}").zone("c") for i in range(4)),
    ]
    placed = {"a-0": 1, "a-1": 1, "a-2": 1, "b-0": 1, "c-0": 2, "c-1": 1, "c-2": 1}
    return plan(snapshot(machines, _web().spread("zone", 1).spread("hostname", 1).placed(placed)))


def racks_that_hold_no_third_pod() -> Plan:
    """Six pods on three nodes, each a rack: a third pod comes only to a rack while each other has two."""
    machines = [
        node("a-0").zone("a").label("rack", "r0"),
        node("a-1").zone("a").label("rack", "r1").cordoned(),
        node("b-0").zone("b").label("rack", "r2"),
    ]
    web = _web().spread("zone", 1).spread("hostname", 2).spread("rack", 1).placed({"a-1": 4, "b-0": 2})
    return plan(snapshot(machines, web))


@pytest.mark.parametrize(
    "made", [beside_a_cordoned_node, too_few_zones, a_zone_with_few_nodes, racks_that_hold_no_third_pod]
)
def test_what_the_scheduler_never_comes_to_is_proved(made: Callable[[], Plan]) -> None:
    found = made()
    assert found.residual_excess > found.least_excess
    assert _between(found) == {Cause.NOT_PLACED: found.residual_excess - found.least_excess}
    assert not any(r.code == "simulation-limit" for c in found.constraints for r in c.reasons)


def test_a_pod_that_waits_may_raise_the_minimum() -> None:
    """With a pod that waits for a node nothing is known of the lowest count: nothing is claimed."""
    machines = [node("a-0"), node("a-1"), node("a-2").cordoned()]
    web = _web().spread("hostname", 1).placed({"a-0": 4, "a-1": 1})
    waits = pod("web-new").labels(app="web").requests(cpu="900")
    assert Cause.NOT_PLACED not in _between(plan(snapshot(machines, web, waits)))


def test_pods_that_do_not_carry_the_constraint_come_anyway() -> None:
    machines = [node("a-0").zone("a"), node("b-0").zone("b")]
    web = _web().spread("zone", 1).placed({"a-0": 3})
    others = workload("other").labels(app="web").spread("hostname", 5).placed({"a-0": 2})
    made = plan(snapshot(machines, web, others))
    assert Cause.NOT_PLACED not in _between(made)
