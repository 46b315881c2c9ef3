"""Soft constraints by predicted scores: what is moved, what is left alone, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import ConstraintResult, Plan
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import node, nodes, snapshot, stateful_set, workload

PREDICTED = PlanOptions(soft="predicted")
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def web(**placed: int) -> Any:
    """A workload with a soft zone constraint: web(a=3, b=1) has pods on a-0 and b-0."""
    pods = {f"{zone}-0": count for zone, count in placed.items()}
    return workload("web").spread("zone", 1, soft=True).placed(pods)


def planned(*things: Any, options: PlanOptions = PREDICTED, **how: Any) -> Plan:
    return plan(snapshot(*things, **how), options)


def of(found: Plan, key: str = ZONE, owner: str = "web", *, soft: bool = True) -> ConstraintResult:
    (result,) = (
        c
        for c in found.constraints
        if c.constraint.topology_key == key
        and f"ReplicaSet/{owner}" in c.workloads
        and c.constraint.hard is not soft
    )
    return result


def after(found: Plan, key: str = ZONE, owner: str = "web") -> list[int]:
    return list(of(found, key, owner).after.values())


BALANCED: list[tuple[str, list[Any], int, list[int]]] = [
    ("zones [6,0,0]: four moves give [2,2,2]", [nodes(a=1, b=1, c=1), web(a=6)], 4, [2, 2, 2]),
    ("two zones [3,1]: one move gives [2,2]", [nodes(a=1, b=1), web(a=3, b=1)], 1, [2, 2]),
    (
        "[4,4,0,0]: the excess falls only with the second move",
        [nodes(a=2, b=2, c=2, d=2), web(a=4, b=4)],
        4,
        [2, 2, 2, 2],
    ),
    (
        "beyond what policy keeps, all that may go",
        [nodes(a=1, b=1), web(a=3), workload("rest", "Bare").labels(app="web").placed({"a-0": 3})],
        3,
        [3, 3],
    ),
    (
        "as far as there is room",
        [node("a-0").zone("a"), node("b-0").zone("b").pods(1), web(a=6)],
        1,
        [5, 1],
    ),
    (
        "a StatefulSet's, one at a time",
        [nodes(a=1, b=1, c=1), stateful_set("web").spread("zone", 1, soft=True).placed({"a-0": 3})],
        2,
        [1, 1, 1],
    ),
    (
        "to be counted nowhere is no better place, though the scores may prefer it",
        [nodes(a=1, b=1), node("x-0"), web(a=4)],
        2,
        [2, 2],
    ),
]


@pytest.mark.parametrize(("sentence", "things", "moves", "left"), BALANCED, ids=[c[0] for c in BALANCED])
def test_balanced(sentence: str, things: list[Any], moves: int, left: list[int]) -> None:
    found = planned(*things)
    (result,) = (c for c in found.constraints if "web" in str(c.workloads))
    assert (len(found.moves), list(result.after.values())) == (moves, left), sentence
    assert not any(m.certain for m in found.moves), "where they land rests on scores"
    assert not found.optimal
    assert found.lower_bound == 0, "of the hard constraints, of which there are none"
    assert found.excess - found.residual_excess == result.excess - result.residual_excess > 0
    assert result.in_scope


ALONE: list[tuple[str, list[Any], ReasonCode, str]] = [
    (
        "the scores prefer the zone that it left",
        [
            node("a-0").zone("a"),
            node("b-0").zone("b").taint("noisy", effect="PreferNoSchedule"),
            web(a=4, b=1),
        ],
        ReasonCode.WOULD_RETURN,
        "the scheduler's scores prefer a-0",
    ),
    (
        "a hard constraint over web and api would get worse",
        [
            nodes(a=1, b=1, c=1),
            workload("web").labels(tier="x").spread("zone", soft=True).placed({"a-0": 3, "b-0": 1, "c-0": 1}),
            workload("api")
            .spread("zone", selector={"tier": "x"})
            .labels(tier="x")
            .placed({"b-0": 3, "c-0": 3}),
        ],
        ReasonCode.WOULD_WORSEN,
        "could raise the excess of another constraint",
    ),
    (
        "a soft constraint over web and api would get worse",
        [
            nodes(a=1, b=1, c=1),
            workload("web").labels(tier="x").spread("zone", soft=True).placed({"a-0": 3, "b-0": 1, "c-0": 1}),
            workload("api")
            .labels(tier="x")
            .spread("zone", selector={"tier": "x"}, soft=True)
            .placed({"b-0": 3, "c-0": 3}),
        ],
        ReasonCode.WOULD_WORSEN,
        "raise the excess of another constraint",
    ),
    (
        "no room elsewhere",
        [node("a-0").zone("a"), node("b-0").zone("b").pods(0), web(a=3)],
        ReasonCode.NO_FEASIBLE_NODE,
        f"{ZONE}=b: 1 node: 1 Too many pods",
    ),
    (
        "pods that nothing would replace",
        [nodes(a=1, b=1), workload("web", "Bare").spread("zone", soft=True).placed({"a-0": 3})],
        ReasonCode.BARE_POD,
        "nothing would replace it",
    ),
    (
        "what the first move prepares for cannot be made",
        [
            nodes(a=1, b=1, c=1),
            node("d-0").zone("d").pods(0),
            workload("web").spread("zone", 3, soft=True).placed({"a-0": 4}),
            workload("rest", "Bare").labels(app="web").placed({"b-0": 4}),
        ],
        ReasonCode.NOT_NEEDED,
        "no eviction of it alone lowers the excess",
    ),
    (
        "the replacement could land on a node that is about to go",
        [
            node("a-0").zone("a"),
            node("b-0").zone("b").cordoned(),
            workload("web")
            .spread("zone", soft=True)
            .tolerates("node.kubernetes.io/unschedulable")
            .placed({"a-0": 3}),
        ],
        ReasonCode.NODE_LEAVING,
        "cordoned or about to go",
    ),
    (
        "a waiting pod that the constraint counts may come first",
        [
            nodes(a=1, b=2),
            web(a=3),
            workload("more").labels(app="web").selects(zone="b").placed({"": 1}),
        ],
        ReasonCode.PENDING_PODS,
        "default/more-00000 waits for a node, and may take what the replacement needs",
    ),
]


@pytest.mark.parametrize(("sentence", "things", "code", "words"), ALONE, ids=[c[0] for c in ALONE])
def test_left_alone(sentence: str, things: list[Any], code: ReasonCode, words: str) -> None:
    found = planned(*things)
    assert found.moves == (), sentence
    (result,) = (c for c in found.constraints if c.excess and c.constraint.topology_key == ZONE)
    assert result.status == "unfixable"
    assert {r.code for r in result.reasons} >= {code}
    assert any(words in r.message for r in result.reasons if r.code is code), result.reasons
    assert code in {b.reason.code for b in found.blocked}
    assert not found.optimal, "an excess in scope stays, and nothing is proved of it"


def test_pods_that_only_count_stay_where_they_are() -> None:
    rest = workload("rest").labels(app="web").spread("zone", 1, selector={"app": "other"}, soft=True)
    found = planned(nodes(a=1, b=1), web(b=1), rest.placed({"a-0": 3}))
    assert found.moves == ()
    assert [r.code for r in of(found).reasons] == [ReasonCode.NOT_CARRIED]


def test_the_defaults_of_the_system_are_soft_constraints_too() -> None:
    found = planned(nodes(a=2, b=2), workload("web").placed({"a-0": 9}))
    assert max(after(found, HOSTNAME)) - min(after(found, HOSTNAME)) <= 3
    assert max(after(found)) - min(after(found)) <= 5
    assert found.residual_excess == 0


def test_defaults_that_hold_are_not_listed_what_somebody_wrote_is() -> None:
    things = [
        nodes(a=2, b=2),
        workload("api").placed({"a-0": 1}),
        web(a=1, b=1),
        workload("db").placed({"a-1": 5}),
    ]
    found = planned(*things)
    assert [(c.workloads, c.constraint.topology_key) for c in found.constraints] == [
        (("ReplicaSet/db",), HOSTNAME),
        (("ReplicaSet/web",), ZONE),
    ]
    assert {i for m in found.moves for i in m.fixes} == {0}


def test_ignored_they_are_not_in_the_plan() -> None:
    found = planned(nodes(a=1, b=1), web(a=6), options=PlanOptions())
    assert (found.moves, found.constraints, found.excess) == ((), (), 0)
    assert not any("soft" in a for a in found.assumptions)


def test_said_among_the_assumptions() -> None:
    found = planned(nodes(a=1, b=1), web(a=1))
    assert found.moves == ()
    assert found.optimal
    assert "soft constraints (ScheduleAnyway) are in scope" in found.assumptions[-1]


def test_hard_constraints_come_first_and_keep_what_they_reached() -> None:
    spread = workload("web").spread("hostname", 1).spread("zone", 1, soft=True)
    api = workload("api").spread("zone", soft=True).placed({"a-0": 5})
    things = [nodes(a=2, b=2), spread.placed({"a-0": 4, "a-1": 3}), api]
    hard, both = planned(*things, options=PlanOptions()), planned(*things)
    told = [[(m.pod.name, m.predicted, m.wave, m.certain) for m in p.moves] for p in (hard, both)]
    assert told[1][: len(told[0])] == told[0]
    assert of(both, HOSTNAME, soft=False).residual_excess == 0
    assert after(both, owner="api") == [3, 2]
    assert both.lower_bound == hard.lower_bound


def test_what_a_move_says_of_itself() -> None:
    (move,) = planned(nodes(a=1, b=1), web(a=3, b=1)).moves
    assert move.reason == f"{ZONE}: from a to b; rests on the scheduler's scores, as the constraint is soft"
    assert (move.fixes, move.destinations, move.predicted) == ((0,), ("b-0",), "b-0")


def test_where_it_may_land_is_where_it_serves() -> None:
    (move,) = planned(nodes(a=2, b=2), web(a=3, b=1)).moves
    assert move.destinations == ("b-0", "b-1")


def test_a_prediction_that_is_none_is_not_acted_on() -> None:
    things = [nodes(a=1, b=1), web(a=4)]
    found = planned(*things, server_version="v1.28.0")
    assert found.moves == ()
    assert [r.code for r in of(found).reasons] == [ReasonCode.NOT_CERTAIN]
    likely = PlanOptions(soft="predicted", certainty="likely")
    assert len(planned(*things, options=likely, server_version="v1.28.0").moves) == 2


@pytest.mark.parametrize(("zones", "cap", "moves"), [({"a": 6}, 2, 2), ({"a": 4, "b": 4}, 1, 1)])
def test_caps_leave_the_plan_whole_and_the_next_cycle_goes_on(
    zones: dict[str, int], cap: int, moves: int
) -> None:
    """Also where the first move alone does not lower the excess yet."""
    policy = PolicyOptions(max_total=Limit(number=cap))
    found = planned(
        nodes(a=1, b=1, c=1, d=1), web(**zones), options=PlanOptions(soft="predicted", policy=policy)
    )
    assert found.residual_excess == 0
    assert len(found.allowed) == moves
    assert {m.waits.code for m in found.moves[moves:] if m.waits is not None} == {ReasonCode.CAP}


def test_caps_count_hard_and_soft_moves_together() -> None:
    policy = PolicyOptions(max_total=Limit(number=3))
    hard = workload("api").spread("zone", 1).placed({"a-0": 4})
    found = planned(nodes(a=1, b=1), hard, web(a=6), options=PlanOptions(soft="predicted", policy=policy))
    assert [m.owner.name for m in found.allowed] == ["api", "api", "web"]
    assert len(found.moves) > 3


def test_different_workloads_share_waves() -> None:
    many = [workload(f"w{i}").spread("zone", 1, soft=True).placed({"a-0": 4}) for i in range(12)]
    found = planned(nodes(a=2, b=2), many)
    assert [len(w) for w in found.waves] == [12, 12]
    assert found.residual_excess == 0


def test_a_wave_whose_moves_are_in_each_others_way_is_split() -> None:
    """One free place on the only node that helps: the second finds none, and nobody is evicted for it."""
    full = node("b-0").zone("b").pods(1)
    rivals = [workload(n).spread("zone", 1, soft=True).placed({"a-0": 3}) for n in ("one", "two")]
    found = planned(node("a-0").zone("a"), full, *rivals)
    assert [m.owner.name for m in found.moves] == ["one"]
    assert of(found, owner="two").residual_excess == 2


def test_a_soft_constraint_that_a_hard_one_has_made_worse_says_so() -> None:
    """Two hosts of zone a hold the workload; the hard constraint takes a pod to the zone with more."""
    spread = workload("web").spread("hostname", 1).spread("zone", 1, soft=True)
    found = planned(
        node("a-0").zone("a"),
        node("b-0").zone("b"),
        node("b-1").zone("b"),
        spread.placed({"a-0": 4, "b-0": 2, "b-1": 2}),
    )
    result = of(found)
    assert of(found, HOSTNAME, soft=False).residual_excess == 0
    assert list(result.after.values()) == [3, 5]
    assert (result.excess, result.residual_excess, result.status) == (0, 1, "unfixable")
    assert [r.code for r in result.reasons] == [ReasonCode.NO_FEASIBLE_NODE]


@pytest.mark.parametrize(("in_c", "moves"), [(4, 0), (50, 6)], ids=["some searches miss it", "none does"])
def test_a_zone_counts_only_if_every_search_of_the_scheduler_comes_by_one_of_its_nodes(
    in_c: int, moves: int
) -> None:
    """Of more than 100 nodes it scores 100, one of each zone in turn, on from where it last stopped."""
    zones = {"a": 60, "b": 60, "c": in_c}
    there = (node(f"{z}-{i:02}").zone(z) for z, number in zones.items() for i in range(number))
    placed = {f"{z}-{i:02}": 1 for z in "ab" for i in range(9)}
    assert len(planned(*there, workload("web").spread("zone", 1, soft=True).placed(placed)).moves) == moves


def test_the_same_snapshot_gives_the_same_plan() -> None:
    def told() -> list[tuple[str, str, int, tuple[str, ...]]]:
        found = planned(nodes(a=2, b=2, c=2), [web(a=7), workload("api").placed({"a-1": 9})])
        return [(m.pod.name, m.predicted, m.wave, m.destinations) for m in found.moves]

    assert told() == told() != []


def test_a_hard_constraint_of_pods_that_stay_gains_where_those_it_counts_move() -> None:
    """The bare pods carry it and stay; web is counted by it and goes for its own sake."""
    bare = workload("rest", "Bare").labels(tier="x").spread("zone", 1, selector={"tier": "x"})
    moving = workload("web").labels(tier="x").spread("zone", 1, soft=True).placed({"a-0": 4})
    found = planned(nodes(a=1, b=1), bare.placed({"a-0": 1}), moving)
    (hard,) = (c for c in found.constraints if c.constraint.hard)
    assert (hard.excess, hard.residual_excess, hard.status) == (4, 0, "fixable")
    assert after(found) == [2, 2]
