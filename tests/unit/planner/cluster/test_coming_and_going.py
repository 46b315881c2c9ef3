"""Which nodes come, go, or may go, by what their autoscaler says of them."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.node import is_failing, is_leaving, is_starting
from rebalancer.model.snapshot import candidates
from rebalancer.planner import plan
from tests.support.build import node, node_claim, nodes, snapshot, workload

POOL = ("karpenter.sh/nodepool", "default")
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"


def made(*, taint: str = "", **labels: str) -> Any:
    builder = node("n")
    for key, value in labels.items():
        builder = builder.label(f"karpenter.sh/{key}", value)
    return snapshot(builder.taint(taint) if taint else builder).nodes[0]


def deleted() -> Any:
    (found,) = node("n").build()
    found["metadata"]["deletionTimestamp"] = "2026-11-23T08:00:00Z"
    return snapshot(found).nodes[0]


def conditioned(type_: str, status: str) -> Any:
    (found,) = node("n").build()
    found["status"]["conditions"] = [{"type": type_, "status": status}]
    return snapshot(found).nodes[0]


TABLE = [
    ("an ordinary node", made(), (False, False)),
    ("Karpenter removes it", made(taint="karpenter.sh/disrupted"), (True, False)),
    ("cluster-autoscaler removes it", made(taint="ToBeDeletedByClusterAutoscaler"), (True, False)),
    ("Karpenter has not registered it", made(taint="karpenter.sh/unregistered"), (False, True)),
    ("Karpenter has not initialized it", made(nodepool="default"), (False, True)),
    ("Karpenter has", made(nodepool="default", initialized="true"), (False, False)),
    ("its cloud has not set it up", made(taint="node.cloudprovider.kubernetes.io/uninitialized"),
     (False, True)),
    ("a startup taint", made(taint="startup-taint.cluster-autoscaler.kubernetes.io/gpu"),
     (False, True)),
    ("it is drained", conditioned("DrainInProgress", "True"), (True, False)),
    ("its maintenance is planned", conditioned("MaintenancePlanned", "True"), (True, False)),
    ("its maintenance is over", conditioned("MaintenanceInProgress", "False"), (False, False)),
    ("it is being deleted", deleted(), (True, False)),
    ("it was put out of service", made(taint="node.kubernetes.io/out-of-service"), (True, False)),
    ("it may be removed unless pods come", made(taint=CANDIDATE), (False, False)),
]  # fmt: skip


@pytest.mark.parametrize(("it", "is_"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])
def test_a_node(it: Any, is_: tuple[bool, bool]) -> None:
    assert (is_leaving(it), is_starting(it)) == is_


FAILING = [
    ("an ordinary node", made(), False),
    ("it is not Ready", conditioned("Ready", "Unknown"), True),
    ("its disk is full", conditioned("DiskPressure", "True"), True),
    ("it has no network", conditioned("NetworkUnavailable", "True"), True),
    (
        "its memory is short, which pods with requests may use all the same",
        conditioned("MemoryPressure", "True"),
        False,
    ),
]


@pytest.mark.parametrize(("it", "failing"), [f[1:] for f in FAILING], ids=[f[0] for f in FAILING])
def test_nothing_starts_on(it: Any, failing: bool) -> None:
    assert is_failing(it) is failing


@pytest.mark.parametrize(("type_", "status"), [("Ready", "Unknown"), ("NetworkUnavailable", "True")])
def test_no_pod_that_tolerates_everything_is_sent_to_a_node_where_nothing_starts(
    type_: str, status: str
) -> None:
    (empty,) = node("b-0").zone("b").build()
    empty["status"]["conditions"] = [{"type": type_, "status": status}]
    web = workload("web").spread("zone", 1).tolerates("").placed({"a-0": 3})
    made = plan(snapshot(node("a-0").zone("a"), empty, web))
    assert made.excess == 2
    assert not made.moves
    assert {b.reason.code.value for b in made.blocked} == {"node-not-ready"}


CLAIMS: dict[str, tuple[list[Any], set[str]]] = {
    "Karpenter may consolidate it": ([node_claim("c", "n", Consolidatable="True")], {"n"}),
    "it may not": ([node_claim("c", "n", Consolidatable="False")], set()),
    "whether it may is not known": ([node_claim("c", "n", Consolidatable="Unknown")], set()),
    "it says nothing of that": ([node_claim("c", "n", Ready="True")], set()),
    "its node has not registered": ([node_claim("c", Consolidatable="True")], {""}),
    "its node is gone": ([node_claim("c", "gone", Consolidatable="True")], {"gone"}),
    "two claims say they are of one node": (
        [node_claim("c", "n", Consolidatable="False"), node_claim("d", "n", Consolidatable="True")],
        {"n"},
    ),
    "there is no status yet": ([{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                                 "metadata": {"name": "c"}}], set()),
    "everything is null": ([{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                             "metadata": {"name": "c"}, "status": {"nodeName": None, "conditions": None}}],
                           set()),
}  # fmt: skip


@pytest.mark.parametrize(("claims", "found"), CLAIMS.values(), ids=CLAIMS)
def test_what_a_node_claim_says(claims: list[Any], found: set[str]) -> None:
    assert candidates(snapshot(node("n"), *claims)) == found


def test_of_cluster_autoscaler_a_taint_says_so() -> None:
    assert candidates(snapshot(node("n").taint(CANDIDATE, effect="PreferNoSchedule"), node("o"))) == {"n"}


@pytest.mark.parametrize("by", ["cluster-autoscaler", "Karpenter"])
@pytest.mark.parametrize("candidate", ["b-0", "b-1"])
def test_among_equal_nodes_a_candidate_for_removal_is_predicted_last(candidate: str, by: str) -> None:
    things: list[Any] = nodes(a=1, b=2)
    if by == "Karpenter":
        things.append(node_claim("claim", candidate, Consolidatable="True"))
    else:
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


def test_so_is_a_zone_all_of_whose_nodes_karpenter_may_consolidate() -> None:
    things = [*nodes(a=1, b=2), *(node_claim(n, n, Consolidatable="True") for n in ("b-0", "b-1"))]
    made = plan(snapshot(*things, workload("web").spread("zone", 1).placed({"a-0": 4})))
    assert [m.predicted[:2] for m in made.moves] == ["b-", "b-"]
