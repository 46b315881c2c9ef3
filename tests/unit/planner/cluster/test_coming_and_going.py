"""Which nodes come, go, or may go, by what their autoscaler says of them."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner import plan
from rebalancer.planner.cluster.leaving_nodes import is_candidate, is_leaving, is_starting
from tests.support.build import node, nodes, snapshot, workload

POOL = ("karpenter.sh/nodepool", "default")
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"


def made(*, taint: str = "", **labels: str) -> Any:
    builder = node("n")
    for key, value in labels.items():
        builder = builder.label(f"karpenter.sh/{key}", value)
    return snapshot(builder.taint(taint) if taint else builder).nodes[0]


TABLE = [
    ("an ordinary node", made(), (False, False, False)),
    ("Karpenter removes it", made(taint="karpenter.sh/disrupted"), (True, False, False)),
    ("cluster-autoscaler removes it", made(taint="ToBeDeletedByClusterAutoscaler"), (True, False, False)),
    ("Karpenter has not registered it", made(taint="karpenter.sh/unregistered"), (False, True, False)),
    ("Karpenter has not initialized it", made(nodepool="default"), (False, True, False)),
    ("Karpenter has", made(nodepool="default", initialized="true"), (False, False, False)),
    ("its cloud has not set it up", made(taint="node.cloudprovider.kubernetes.io/uninitialized"),
     (False, True, False)),
    ("a startup taint", made(taint="startup-taint.cluster-autoscaler.kubernetes.io/gpu"),
     (False, True, False)),
    ("it may be removed unless pods come", made(taint=CANDIDATE), (False, False, True)),
]  # fmt: skip


@pytest.mark.parametrize(("it", "is_"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])
def test_a_node(it: Any, is_: tuple[bool, bool, bool]) -> None:
    assert (is_leaving(it), is_starting(it), is_candidate(it)) == is_


@pytest.mark.parametrize("candidate", ["b-0", "b-1"])
def test_among_equal_nodes_a_candidate_for_removal_is_predicted_last(candidate: str) -> None:
    things = nodes(a=1, b=2)
    things[1 if candidate == "b-0" else 2].taint(CANDIDATE, effect="PreferNoSchedule")
    # Who tolerates the taint gets the same score on both.
    web = workload("web").spread("zone", 1).tolerates(CANDIDATE).placed({"a-0": 2})
    made = plan(snapshot(*things, web))
    assert [m.predicted for m in made.moves] == [{"b-0": "b-1", "b-1": "b-0"}[candidate]]


def test_a_zone_that_came_back_empty_is_filled_although_its_nodes_are_candidates() -> None:
    things = nodes(a=1, b=1)
    things[1].taint(CANDIDATE, effect="PreferNoSchedule")
    made = plan(snapshot(*things, workload("web").spread("zone", 1).placed({"a-0": 4})))
    assert [m.predicted for m in made.moves] == ["b-0", "b-0"]
