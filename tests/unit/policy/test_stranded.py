"""Pods on nodes that were deleted: Ready as they were, until the garbage collector of pods takes them.

kubernetes pkg/controller/podgc/gc_controller.go, ``gcOrphaned``: 40 s after the node is gone, every 20 s.
"""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from rebalancer.policy.budgets import Budgets, Shares
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.policy.owners import Owners
from tests.support.build import nodes, pdb, snapshot, workload
from tests.unit.planner.cluster.test_waiting import DRAINED
from tests.unit.policy.judged import code, judged, pods

KINDS = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")


@pytest.mark.parametrize("kind", KINDS)
def test_none_is_evicted_for_a_place_that_the_lost_pod_takes_by_itself(kind: str) -> None:
    web = workload("web", kind).parallel().spread("zone", 1).placed({"a-0": 20, "b-0": 20, "gone-c": 1})
    made = plan(snapshot(nodes(a=1, b=1, c=1), web))
    assert not made.moves
    assert {b.reason.code for b in made.blocked} == {ReasonCode.OWNER_SCALING}
    assert all("wants 41 pods and has 40, beside 1 on nodes that are gone" in b.reason.message
               for b in made.blocked)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_one_of_those_that_are_away(kind: str) -> None:
    found = snapshot(nodes(a=1), workload("web", kind).placed({"a-0": 39, "gone": 1}))
    options = PolicyOptions(in_flight_per_owner=Limit(percent=10))
    shares = Shares(found, options, Owners(found, options))
    there = next(p for p in found.pods if p.node_name == "a-0")
    top = shares.top(there)
    assert top is not None
    assert shares.of(top) == 3
    found = snapshot(nodes(a=1), workload("web", kind).placed({"a-0": 4, "gone": 1}))
    reason = Shares(found, options, Owners(found, options)).why_not(found.pods[0])
    assert reason is not None
    assert reason.code is ReasonCode.OWNER_DEGRADED
    assert "1 not Ready (web" in reason.message


def test_a_kind_whose_number_is_not_known_has_lost_it_too() -> None:
    other = PolicyOptions(owner_kinds_allow=("CloneSet",))
    web = workload("web", "CloneSet").placed({"a-0": 2, "gone": 1})
    assert code(web, options=other) is ReasonCode.OWNER_DEGRADED


@pytest.mark.parametrize("budget", [{"max_unavailable": 1}, {"min_available": 5}], ids=str)
def test_its_budget_counts_it_as_healthy_and_allows_one_less(budget: dict[str, Any]) -> None:
    web = workload("web").placed({"a-0": 4})
    everybody = pdb("b", {}, **budget)
    assert code(web, workload("other").placed({"b-0": 2}), everybody) is None
    reason = judged(web, workload("other").placed({"b-0": 1, "gone": 1}), everybody)
    assert reason is not None
    assert reason.code is ReasonCode.PDB_EXHAUSTED
    assert "5 of 6 pods healthy" in reason.message
    # Counted is what the controller counts: one that was not Ready there is none of those.
    unready = snapshot(nodes(a=1, b=1), web, workload("o").placed({"gone": 1}).unready(0), everybody)
    (found,) = Budgets(unready).of(pods(unready, "web")[0])
    assert found.allowed == found.budget.status.disruptions_allowed


@pytest.mark.parametrize(
    ("kind", "wanted", "moves"), [("StatefulSet", 1, 0), ("ReplicaSet", 1, 0), ("ReplicaSet", 0, 1)]
)
def test_the_last_room_is_left_to_it_if_it_is_made_again(kind: str, wanted: int, moves: int) -> None:
    web = workload("web", "StatefulSet").requests(cpu=1).spread("zone", 1).placed({"a-0": 2})
    lost = workload("u", kind).replicas(wanted).requests(cpu=1).placed({"gone": 1})
    made = plan(snapshot(*DRAINED, web, lost))
    assert len(made.moves) == moves
    said = {r.message for c in made.constraints for r in c.reasons}
    assert moves or any("ends and is made again, and may take what the" in m for m in said), said
