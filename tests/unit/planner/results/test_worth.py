"""What a repair buys for its evictions, and what is left out because it buys too little."""

from __future__ import annotations

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Plan
from rebalancer.policy.options import PolicyOptions
from tests.support.build import nodes, snapshot, workload

LITTLE = workload("little").spread("zone", 1).placed({"a-0": 4, "b-0": 4, "c-0": 1})
MUCH = workload("much").spread("zone", 1).placed({"a-0": 5, "b-0": 1, "c-0": 0})


def planned(least: float) -> Plan:
    policy = PolicyOptions(min_worth=least)
    return plan(snapshot(*nodes(a=1, b=1, c=1), LITTLE, MUCH), PlanOptions(policy=policy))


def test_each_move_says_what_it_buys() -> None:
    assert {(m.owner.name, m.worth) for m in planned(0.0).moves} == {("little", 0.5), ("much", 1.0)}


def test_a_repair_that_is_worth_less_than_wanted_is_left_out_as_a_whole_and_its_excess_stays() -> None:
    made = planned(0.6)
    assert {m.owner.name for m in made.moves} == {"much"}
    (left,) = [c for c in made.constraints if c.residual_excess]
    assert (left.workloads, left.residual_excess, left.status) == (("ReplicaSet/little",), 2, "unfixable")
    (why,) = left.reasons
    assert why.code is ReasonCode.NOT_WORTH_IT
    assert why.message.endswith(
        "mending it evicts 2 of its pods and saves 1 where the fullest domain fails: 0.5 for each eviction, "
        "and evictions.minWorth is 0.6"
    )


@pytest.mark.parametrize("least", [0.0, 0.5])
def test_what_is_worth_as_much_as_wanted_is_planned(least: float) -> None:
    assert planned(least).residual_excess == 0
