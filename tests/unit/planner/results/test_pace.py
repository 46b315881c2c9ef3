"""How long a plan is said to take: workloads side by side, the moves of one after each other."""

from __future__ import annotations

from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.pace import UNKNOWN, Throttle, pace
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import nodes, snapshot, stateful_set, workload

ONE_AT_A_TIME = PlanOptions(policy=PolicyOptions(in_flight_per_owner=Limit(number=1)))


def test_workloads_do_not_wait_for_each_other() -> None:
    things = [workload(f"w{i}").spread("zone", 1).placed({"a-0": 2 * i + 2}) for i in range(3)]
    seen = snapshot(*nodes(a=1, b=1), *things)
    made = plan(seen, ONE_AT_A_TIME)
    assert [len(moves) for moves in made.waves] == [3, 2, 1]
    found = pace(made, seen)
    assert found.seconds == 3 * UNKNOWN
    assert found.longest.startswith("w2 with 1")


def test_a_crowd_takes_its_time() -> None:
    seen = snapshot(
        *nodes(a=1, b=1), *(workload(f"w{i}").spread("zone", 1).placed({"a-0": 2}) for i in range(51))
    )
    assert pace(plan(seen), seen).seconds == 2 * UNKNOWN


def test_a_slow_workload_is_not_waited_for_by_another() -> None:
    slow = stateful_set("slow").grace(60).spread("zone", 1).placed({"a-0": 2})
    seen = snapshot(*nodes(a=1, b=1), slow, workload("quick").spread("zone", 1).placed({"a-0": 6}))
    found = pace(plan(seen, ONE_AT_A_TIME), seen)
    assert [w.seconds for w in found.waves] == [UNKNOWN + 60, UNKNOWN, UNKNOWN]
    assert found.seconds == 3 * UNKNOWN


def test_evictions_per_second_and_the_canary_take_their_time() -> None:
    many = [workload(f"w{i}").spread("zone", 1).placed({"a-0": 2}) for i in range(40)]
    seen = snapshot(*nodes(a=1, b=1), *many)
    made = plan(seen)
    assert pace(made, seen).seconds == UNKNOWN
    first_stay = UNKNOWN + 20 - 5
    assert pace(made, seen, Throttle(per_second=1.0)).seconds == first_stay + 39 + UNKNOWN
    assert pace(made, seen, Throttle(per_second=20.0)).seconds == round(
        UNKNOWN + 1 - 5 / 20 + 39 / 20 + UNKNOWN
    )
    assert pace(made, seen, Throttle(canary=5)).seconds == round(3 * UNKNOWN + UNKNOWN * 35 / 40), (
        "1, 2 and 2 before"
    )


def test_a_plan_without_moves_takes_no_time() -> None:
    seen = snapshot(*nodes(a=1, b=1))
    assert pace(plan(seen), seen, Throttle(per_second=1.0, canary=5)).seconds == 0
