"""Pods that belong together stay, and count like everybody."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.planner.options import PlanOptions
from rebalancer.policy.gangs import ANNOTATIONS, LABELS
from rebalancer.policy.options import PolicyOptions
from tests.support.build import nodes, objects, snapshot, workload


def world(change: Any) -> Any:
    """Nine pods in one of three zones; `change` is applied to each pod and its owner."""
    made = objects(nodes(a=1, b=1, c=1), workload("web").spread("zone", 1).placed({"a-0": 9}))
    for o in made:
        change(o)
    return snapshot(*made)


def in_pods(part: str, key: str, value: Any) -> Any:
    def change(o: dict[str, Any]) -> None:
        if o["kind"] == "Pod":
            where = o["spec"] if part == "spec" else o["metadata"].setdefault(part, {})
            where[key] = value

    return change


def owned(kind: str) -> Any:
    def change(o: dict[str, Any]) -> None:
        if o["kind"] == "ReplicaSet":
            ref = {
                "apiVersion": "example.com/v1",
                "kind": kind,
                "name": "top",
                "uid": "t",
                "controller": True,
            }
            o["metadata"]["ownerReferences"] = [ref]

    return change


GANGS = [
    *((f"label {key}", in_pods("labels", key, "ring")) for key in LABELS),
    *((f"annotation {key}", in_pods("annotations", key, "ring")) for key in ANNOTATIONS),
    ("schedulingGroup", in_pods("spec", "schedulingGroup", {"podGroupName": "ring"})),
    ("workloadRef", in_pods("spec", "workloadRef", {"name": "ring", "podGroup": "workers"})),
]


@pytest.mark.parametrize("change", [g[1] for g in GANGS], ids=[g[0] for g in GANGS])
def test_a_member_of_a_group_stays_and_counts_unless_policy_names_the_group(change: Any) -> None:
    made = plan(world(change))
    assert made.moves == ()
    assert {b.reason.code for b in made.blocked} == {ReasonCode.GANG}
    assert made.constraints[0].domains == {"a": 9, "b": 0, "c": 0}
    # kube-scheduler places a PodGroup as a whole, so that no move of its pods is certain.
    opened = PlanOptions(policy=PolicyOptions(gangs_allow=("ring",)), certainty="likely")
    assert len(plan(world(change), opened).moves) == 6


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("Pod", ReasonCode.GANG),
        ("LeaderWorkerSet", ReasonCode.GANG),
        ("JobSet", ReasonCode.GANG),
        ("RayCluster", ReasonCode.GANG),
        ("Elasticsearch", ReasonCode.OWNER_UNKNOWN),
    ],
)
def test_an_owner_under_another_controller_stays_unless_policy_allows_its_kind(
    kind: str, code: ReasonCode
) -> None:
    made = plan(world(owned(kind)))
    assert (made.moves, {b.reason.code for b in made.blocked}) == ((), {code})
    opened = PlanOptions(policy=PolicyOptions(owner_kinds_allow=(kind,)))
    assert len(plan(world(owned(kind)), opened).moves) == 6
