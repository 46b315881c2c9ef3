"""Sets of evictions that are better together: which are found, and which are not."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.planner.plan import Joint, JointMove, Plan, PlanOptions, together
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import decoded, node, pdb, pod, snapshot, workload
from tests.support.clusters.scenarios import scenario
from tests.support.clusters.stuck import FULL, LEFT, RIGHT, SEVEN
from tests.support.clusters.tangled import tangled

HALF = PolicyOptions(in_flight_per_owner=Limit(percent=50))
FORTY_THREE = PolicyOptions(in_flight_per_owner=Limit(percent=43))
WHOLE = PolicyOptions(in_flight_per_owner=Limit(percent=100))


def made(*things: Any, joint: Joint = "exchange", policy: PolicyOptions = HALF) -> Plan:
    return plan(snapshot(*things), PlanOptions(joint=joint, policy=policy))


def sets(found: Plan) -> list[JointMove]:
    return list(dict.fromkeys(m.joint for m in found.moves if m.joint is not None))


def test_two_full_zones_exchange_a_pod_of_each_workload() -> None:
    found = made(FULL, LEFT, RIGHT)
    assert (found.excess, found.residual_excess) == (2, 0)
    (joint,) = sets(found)
    assert (joint.number, len(joint.pods), joint.waiting, joint.gain) == (1, 2, 1, 2)
    assert [m.wave for m in found.moves] == [1, 1]
    assert all(m.certain for m in found.moves)
    assert [m.pod.key for m in together(found, found.moves[1])] == list(joint.pods)
    assert "together with" in found.moves[0].reason
    assert "1 replacement waits" in found.moves[0].reason


def test_the_swap_of_two_full_nodes_needs_two_evictions() -> None:
    assert not plan(decoded(scenario("swap_full"))).moves
    found = plan(decoded(scenario("swap_full")), PlanOptions(joint="exchange"))
    assert (len(found.moves), found.residual_excess, len(sets(found))) == (2, 0, 1)


def test_seven_replicas_that_are_stuck_need_three_at_once() -> None:
    assert made(SEVEN, joint="never").residual_excess == 5
    found = made(SEVEN, joint="all")
    assert found.residual_excess == 0
    (joint,) = sets(found)
    assert (len(joint.pods), joint.waiting) == (3, 2)


DEAD_END = [
    [node(f"{rack[0]}-{rack[1]}").zone(rack[0]).label("rack", rack) for rack in ("a0", "a1", "b0", "c0")],
    workload("web").labels(tier="t").requests(cpu="500m").spread("zone", 1).placed({"a-0": 1, "a-1": 2}),
    workload("free").labels(tier="t").placed({"a-0": 2, "b-0": 1, "c-0": 1}),
    workload("counts")
    .labels(tier="t")
    .spread("hostname", 3, selector={"tier": "t"})
    .spread("rack", 1, selector={"tier": "t"})
    .spread("zone", 2, selector={"tier": "t"}, min_domains=2)
    .placed({"c-0": 3}),
]
"""The one single move that helps leads to where no set helps any more."""


def test_a_set_that_the_share_of_its_owner_forbids_is_named() -> None:
    found = made(SEVEN, joint="all", policy=PolicyOptions())
    assert found.residual_excess == 5
    said = [r for c in found.constraints for r in c.reasons if r.code == ReasonCode.JOINT_MOVE]
    assert said
    assert said[0].message == (
        "3 pods: with 2 others of ReplicaSet web it would lower the excess by 5, but no more than 1 of its 7 "
        "pods may be away together"
    )
    assert said[0].remedy.startswith("evictions.inFlightPerOwner: 43%")
    assert [m.joint for m in made(SEVEN, joint="all", policy=FORTY_THREE).moves if m.joint]


def test_a_set_that_a_budget_forbids_is_not_named() -> None:
    found = made(SEVEN, pdb("web", {"app": "web"}, max_unavailable=2), joint="all", policy=PolicyOptions())
    assert not [r for c in found.constraints for r in c.reasons if r.code == ReasonCode.JOINT_MOVE]


def test_joint_moves_come_first_where_single_ones_lead_to_a_dead_end() -> None:
    single = made(*DEAD_END, joint="never", policy=WHOLE)
    assert ([m.pod.name for m in single.moves], single.residual_excess) == (["counts-00000"], 3)
    found = made(*DEAD_END, policy=WHOLE)
    (joint,) = sets(found)
    assert sorted(joint.pods) == ["default/counts-00000", "default/web-00000"]
    assert (found.residual_excess, found.lower_bound, found.optimal) == (1, 2, False)


@pytest.mark.parametrize("seed", [6167, 6358])
def test_no_pod_of_a_set_is_evicted_for_nothing(seed: int) -> None:
    """In these clusters one pod alone lowers the excess as much as a set with it surely does."""
    listed = tangled(seed)
    single = plan(decoded(listed), PlanOptions(policy=WHOLE))
    assert single.residual_excess
    found = plan(decoded(listed), PlanOptions(joint="all", policy=WHOLE))
    assert [m.pod.key for m in found.moves] == [m.pod.key for m in single.moves]


def test_single_moves_come_first_where_they_end_as_low() -> None:
    found = made(workload("web").spread("zone", 1).placed({"a-0": 5}), FULL, joint="all", policy=WHOLE)
    assert found.residual_excess == 0
    assert sets(found) == []


NOT_MADE: list[tuple[str, list[Any], Joint, PolicyOptions]] = [
    ("policy does not allow joint moves", [FULL, LEFT, RIGHT], "never", HALF),
    ("two pods would wait if it is broken off, and one may", [SEVEN], "exchange", HALF),
    ("fewer of the owner may be away together", [SEVEN], "all", PolicyOptions()),
    ("its budget has room for two", [SEVEN, pdb("web", {"app": "web"}, max_unavailable=2)], "all", HALF),
    (
        "Karpenter is at work, and a waiting pod buys a node",
        [
            [
                n.label("karpenter.sh/nodepool", "x").label("karpenter.sh/initialized", "true")
                for n in (
                    node("a-0").zone("a").pods(8),
                    node("b-0").zone("b").pods(8),
                )
            ],
            LEFT,
            RIGHT,
        ],
        "exchange",
        HALF,
    ),
    (
        "a pod that waits would take the room",
        [FULL, LEFT, RIGHT, pod("waits").phase("Pending")],
        "exchange",
        HALF,
    ),
    (
        "a pod that is ending may leave room at any time",
        [
            FULL,
            LEFT,
            workload("right").spread("zone", 1).placed({"a-0": 3, "b-0": 4}),
            pod("ends").on("b-0").terminating(),
        ],
        "exchange",
        HALF,
    ),
    (
        "a replacement would push out pods of lower priority",
        [
            FULL,
            LEFT,
            workload("right").spread("zone", 1).priority(5).placed({"a-0": 3, "b-0": 5}),
        ],
        "exchange",
        HALF,
    ),
    (
        "a replacement could come back",
        [FULL, LEFT, workload("right").spread("zone", 2).placed({"a-0": 3, "b-0": 5})],
        "exchange",
        HALF,
    ),
]


@pytest.mark.parametrize(
    ("things", "joint", "policy"), [pytest.param(*case[1:], id=case[0]) for case in NOT_MADE]
)
def test_no_joint_move_where(things: list[Any], joint: Joint, policy: PolicyOptions) -> None:
    assert sets(made(*things, joint=joint, policy=policy)) == []


def test_a_cap_leaves_all_of_a_set_to_a_later_cycle() -> None:
    found = made(FULL, LEFT, RIGHT, policy=PolicyOptions(max_total=Limit(number=1)))
    assert len(found.moves) == 2
    assert all(m.waits is not None for m in found.moves)


def test_after_a_joint_move_nothing_is_left_to_do() -> None:
    balanced = [
        w.placed({"a-0": 4, "b-0": 4})
        for w in (workload("left").spread("zone", 1), workload("right").spread("zone", 1))
    ]
    assert not made(FULL, *balanced).moves
