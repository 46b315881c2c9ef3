"""What is told where a zone is shut: only changes that were replayed and help, with what they give up."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rebalancer.findings import findings, plan_with_findings
from rebalancer.findings.remedies import applied
from rebalancer.model.pod import TopologySpreadConstraint
from rebalancer.model.reason import Finding, Severity
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.objective import Effort
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from tests.support.build import decoded, node, nodes, objects, pod, workload

SHIFTED = "node.kubernetes.io/unreachable"


def found(snapshot: Snapshot) -> dict[str, Finding]:
    return {f.code: f for f in plan_with_findings(snapshot).findings}


def outage(min_domains: int | None, policy: str = "") -> Snapshot:
    """Zones a, b with two pods each, c tainted, two pods Pending; maxSkew 1."""
    shut = [node(f"c-{i}").zone("c").taint(SHIFTED) for i in range(2)]
    web = workload("web").spread("zone", 1, min_domains=min_domains, taints_policy=policy)
    return decoded(
        objects(nodes(a=2, b=2), shut, web.placed({"a-0": 1, "a-1": 1, "b-0": 1, "b-1": 1, "": 2}))
    )


@pytest.mark.parametrize(
    ("min_domains", "policy", "changed"),
    [
        (None, "", {"nodeTaintsPolicy": "Honor"}),
        (2, "", {"nodeTaintsPolicy": "Honor"}),
        (3, "", {"nodeTaintsPolicy": "Honor", "minDomains": 2}),
        (3, "Honor", {"minDomains": 2}),
    ],
    ids=["no minDomains", "as many as are left", "more than are left", "honored already"],
)
def test_a_zone_is_tainted_and_two_pods_wait(
    min_domains: int | None, policy: str, changed: dict[str, Any]
) -> None:
    cluster = outage(min_domains, policy)
    finding = found(cluster)["cannot-be-replaced"]
    [remedy] = finding.remedies
    before, after = remedy.change.before, remedy.change.after
    assert isinstance(before, TopologySpreadConstraint)
    assert isinstance(after, TopologySpreadConstraint)
    [pasted] = yaml.safe_load(finding.remedy)
    assert {k: v for k, v in pasted.items() if k in changed} == changed
    assert pasted["maxSkew"] == 1
    assert remedy.does.startswith("2 of 2 Pending pods would be placed; 4 of 4 pods")
    assert "may then hold 3 of 6 pods (50 %)" in remedy.gives_up
    for field in changed:
        assert field in remedy.gives_up
    assert remedy.does in finding.remedy
    assert remedy.gives_up in finding.remedy
    assert "cannot-be-replaced" not in found(applied(cluster, remedy.change))


def test_what_does_not_help_is_not_told() -> None:
    """Honor alone, with three domains asked for and two left, changes nothing."""
    every = plan_with_findings(outage(3)).findings
    assert any(f.remedies for f in every)
    for f in every:
        assert all(r.change.after.min_domains == 2 for r in f.remedies), f.remedy  # type: ignore[union-attr]


def test_a_cordoned_zone_is_no_contradiction() -> None:
    """Pods on its nodes count in their zone and on no host: the others cannot be told from that."""
    cordoned = [node(f"c-{i}").zone("c").cordoned() for i in range(3)]
    web = workload("web").spread("zone", 1).spread("hostname", 1, taints_policy="Honor")
    web.placed({"a-0": 3, "a-1": 1, "b-0": 2, "b-1": 1, "b-2": 1, "c-0": 2, "c-1": 1, "c-2": 1})
    made = plan_with_findings(decoded(objects(nodes(a=3, b=3), cordoned, web)))
    assert made.moves
    assert "contradicting-constraints" not in {f.code for f in made.findings}


def test_a_node_that_an_autoscaler_may_add_is_told_and_weighs_less() -> None:
    full: list[Any] = [node("a-0").zone("a"), node("b-0").zone("b").pods(1)]
    full.append(workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}))
    without = found(decoded(objects(*full)))["cannot-be-replaced"]
    assert without.severity is Severity.ERROR
    assert "# one more node like b-0\n# replayed: 3 of 3 pods" in without.remedy
    scaler = pod("scaler").labels(app="cluster-autoscaler").on("a-0")
    bought = found(decoded(objects(*full, scaler)))["cannot-be-replaced"]
    assert bought.severity is Severity.WARNING
    assert "# one more node like b-0, which cluster-autoscaler may add" in bought.remedy


def test_changes_beyond_the_bound_are_counted_and_not_told() -> None:
    cluster = outage(3)
    simulation, evictable = Simulation(cluster, None), Evictable(cluster, PolicyOptions())
    every = findings(simulation, evictable, Effort(0))
    assert sum(f.untried for f in every) >= 3
    assert not any(f.remedies for f in every)
    assert all("not tried" in f.remedy for f in every if f.untried)


def test_manifests_without_nodes_claim_nothing() -> None:
    cluster = decoded(objects(workload("web").spread("zone", 1, min_domains=3).placed({"": 2})))
    assert not any(f.remedies for f in found(cluster).values())
