"""Where a restart is told as a remedy, and where not."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.month import RestartCode, restart_findings
from rebalancer.planner import PlanOptions, plan
from tests.support.build import deployment, node, nodes, pdb, snapshot

MACHINES = nodes(a=1, b=1, c=1)


def told(*things: Any) -> list[str]:
    cluster = snapshot(*things)
    return [f.object for f in restart_findings(cluster, PlanOptions(), plan(cluster))]


def web() -> Any:
    return deployment("web").spread("zone").placed({"a-0": 3, "b-0": 0, "c-0": 0})


def test_a_budget_that_is_exhausted_is_no_matter_to_a_rollout() -> None:
    cluster = snapshot(MACHINES, web(), pdb("web", {"app": "web"}, max_unavailable=0))
    made = plan(cluster)
    assert made.residual_excess
    (found,) = restart_findings(cluster, PlanOptions(), made)
    assert (found.code, found.object) == (RestartCode.WOULD_HELP, "Deployment/default/web")
    assert "rebalancer simulate --restart default/web" in found.remedy
    assert found.numbers["after_restart"] < found.numbers["after_evictions"]


def test_a_pod_whose_node_is_gone_comes_again_with_the_others() -> None:
    lost = deployment("web").spread("zone").placed({"a-0": 3, "b-0": 0, "c-0": 0, "gone": 1})
    assert told(MACHINES, lost, pdb("web", {"app": "web"}, max_unavailable=0)) == ["Deployment/default/web"]


def test_not_where_evictions_do_it() -> None:
    assert told(MACHINES, web()) == []


def test_not_where_nothing_would_be_better() -> None:
    full = nodes(a=1), [n.pods(0) for n in nodes(b=1, c=1)]
    assert told(*full, web(), pdb("web", {"app": "web"}, max_unavailable=0)) == []


@pytest.mark.parametrize(
    "unfit",
    [
        lambda c: c.label("kubernetes.io/arch", "arm64"),
        lambda c: c.taint("maintenance", effect="NoExecute"),
        lambda c: c.taint("ToBeDeletedByClusterAutoscaler"),
        None,
    ],
    ids=["another platform", "left again", "about to be removed", "fit"],
)
def test_not_where_the_new_pods_would_land_on_nodes_that_no_move_may_go_to(unfit: Any) -> None:
    amd = [
        n.label("kubernetes.io/arch", "amd64") for n in (node("a-0").zone("a"), node("b-0").zone("b").pods(1))
    ]
    c = node("c-0").zone("c").label("kubernetes.io/arch", "amd64")
    stuck = deployment("web").spread("zone").placed({"a-0": 3, "b-0": 1}).tolerates("maintenance", seconds=60)
    stuck = stuck.tolerates("ToBeDeletedByClusterAutoscaler")
    full = pdb("web", {"app": "web"}, max_unavailable=0)
    assert told(amd, unfit(c) if unfit else c, stuck, full) == ([] if unfit else ["Deployment/default/web"])
