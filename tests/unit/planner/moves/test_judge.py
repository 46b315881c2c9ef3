"""One candidate move, judged: what lets it pass, and each reason against it."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner.moves import JudgedMove
from rebalancer.planner.plan import PlanOptions
from tests.support.build import node, nodes, pod, workload
from tests.unit.planner.posed import Posed

THREE = nodes(a=1, b=1, c=1)
web = workload("web").spread("zone").placed({"a-0": 3, "b-0": 1, "c-0": 1})


def judged(posed: Posed, on: str = "a-0") -> JudgedMove | None:
    found = posed.judge.best(posed.components[0].start, posed.on(on))
    return found if found is not None and found.helps else None


def test_a_move_that_the_own_constraint_keeps_out_of_its_zone_passes_and_is_certain() -> None:
    posed = Posed(THREE, web)
    move = judged(posed)
    assert move is not None
    assert move.certain
    assert posed.names(move.destinations) == ["b-0", "c-0"]
    assert [g.constraint.topology_key for g in move.fixes] == ["topology.kubernetes.io/zone"]
    assert move.landed == -1, "where it lands is for the search to predict"
    assert posed.judge.why_not(posed.components[0].start, posed.on("a-0")) is None


REFUSED: list[tuple[str, list[Any], str, ReasonCode]] = [
    (
        "no other zone has room",
        [
            node("a-0").zone("a"),
            node("b-0").zone("b").pods(1),
            workload("web").spread("zone").placed({"a-0": 3, "b-0": 1}),
        ],
        "a-0",
        ReasonCode.NO_FEASIBLE_NODE,
    ),
    (
        "a node in question is cordoned, and the pod tolerates that",
        [
            nodes(a=1, b=1),
            node("c-0").zone("c").cordoned(),
            workload("web")
            .spread("zone")
            .tolerates("node.kubernetes.io/unschedulable")
            .placed({"a-0": 3, "b-0": 1}),
        ],
        "a-0",
        ReasonCode.NODE_LEAVING,
    ),
    (
        "a node in question is about to go, and the pod tolerates that",
        [
            nodes(a=1, b=1),
            node("c-0").zone("c").taint("karpenter.sh/disrupted"),
            workload("web").spread("zone").tolerates("karpenter.sh/disrupted").placed({"a-0": 3, "b-0": 1}),
        ],
        "a-0",
        ReasonCode.NODE_LEAVING,
    ),
    (
        "a node in question is not registered yet, and the pod tolerates that",
        [
            nodes(a=1, b=1),
            node("c-0").zone("c").taint("karpenter.sh/unregistered", effect="NoExecute"),
            workload("web")
            .spread("zone")
            .tolerates("karpenter.sh/unregistered", effect="NoExecute")
            .placed({"a-0": 3, "b-0": 1}),
        ],
        "a-0",
        ReasonCode.NODE_STARTING,
    ),
    (
        "Karpenter has not initialized a node in question",
        [
            nodes(a=1, b=1),
            node("c-0").zone("c").label("karpenter.sh/nodepool", "default"),
            workload("web").spread("zone").placed({"a-0": 3, "b-0": 1}),
        ],
        "a-0",
        ReasonCode.NODE_STARTING,
    ),
    (
        "it may come back to the emptier zone that it leaves",
        [THREE, web],
        "b-0",
        ReasonCode.WOULD_RETURN,
    ),
]


@pytest.mark.parametrize(
    ("things", "on", "code"), [pytest.param(*rest, id=sentence) for sentence, *rest in REFUSED]
)
def test_refused(things: list[Any], on: str, code: ReasonCode) -> None:
    posed = Posed(*things)
    before = posed.standing()
    reason = posed.judge.why_not(posed.components[0].start, posed.on(on))
    assert reason is not None
    assert reason.code is code
    assert judged(posed, on) is None
    assert posed.standing() == before


def test_a_move_that_would_raise_the_excess_of_a_constraint_not_carried_is_refused() -> None:
    both = {"team": "x"}
    posed = Posed(
        nodes(a=1, b=1),
        workload("web").labels(**both).spread("zone", selector={"app": "web"}).placed({"a-0": 3, "b-0": 0}),
        workload("db").labels(**both).spread("zone", selector=both).placed({"b-0": 4}),
    )
    reason = posed.judge.why_not(posed.components[0].start, posed.candidate("web"))
    assert reason is not None
    assert reason.code is ReasonCode.WOULD_WORSEN


def test_what_an_unknown_scheduler_does_is_not_certain() -> None:
    foreign = workload("web").spread("zone").placed({"a-0": 3, "b-0": 1}).build()
    for item in foreign:
        spec = item["spec"] if item["kind"] == "Pod" else item["spec"]["template"]["spec"]
        spec["schedulerName"] = "some-scheduler"
    posed = Posed(nodes(a=1, b=1), foreign)
    reason = posed.judge.why_not(posed.components[0].start, posed.on("a-0"))
    assert reason is not None
    assert reason.code is ReasonCode.NOT_CERTAIN
    likely = Posed(nodes(a=1, b=1), foreign, options=PlanOptions(certainty="likely"))
    move = judged(likely)
    assert move is not None
    assert not move.certain


def test_a_counted_pod_that_waits_for_the_room_forbids_the_move() -> None:
    # It does not carry the constraint: it would take the victim's room, and the count would be as before.
    posed = Posed(
        node("a-0").zone("a").label("slot", "last").pods(3),
        node("b-0").zone("b"),
        workload("web").spread("zone").placed({"a-0": 3, "b-0": 1}),
        pod("late").labels(app="web").selects(slot="last"),
    )
    reason = posed.judge.why_not(posed.components[0].start, posed.on("a-0"))
    assert reason is not None
    assert reason.code is ReasonCode.PENDING_PODS
    assert reason.message == "default/late waits for a node, and may take what the replacement needs"
