"""A scheduler newer than all known rules: moves are likely, or none is made; nothing unknown is claimed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.engine.config import Witness, parse_config
from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.findings import plan_with_findings
from rebalancer.model.reason import ReasonCode
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from tests.support.build import nodes, pod, snapshot, workload

LIKELY, REFUSE = PlanOptions(), PlanOptions(newer_versions="refuse")


def planned(version: str, options: PlanOptions = LIKELY) -> Plan:
    things: tuple[Any, ...] = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    return plan_with_findings(snapshot(*things, server_version=version), options)


TABLE = [
    ("the last known release: certain", "v1.37.0", LIKELY, 2, True),
    ("the last known release, newer ones refused: certain", "v1.37.0", REFUSE, 2, True),
    ("one minor ahead: the same moves, and likely", "v1.38.0", LIKELY, 2, False),
    ("one minor ahead, of a vendor", "1.38+", LIKELY, 2, False),
    ("one minor ahead, refused by policy", "v1.38.0", REFUSE, 0, None),
    ("many minors ahead", "v1.47.0", LIKELY, 2, False),
    ("many minors ahead, under likely moves", "v1.47.0", PlanOptions(certainty="likely"), 2, False),
    ("another major release", "v2.0.0", LIKELY, 2, False),
    ("another major release, refused by policy", "v2.0.0", REFUSE, 0, None),
    ("an unknown version is taken for the last known", "", LIKELY, 2, True),
]


@pytest.mark.parametrize(("version", "options", "moves", "certain"), [t[1:] for t in TABLE],
                         ids=[t[0] for t in TABLE])  # fmt: skip
def test_what_is_planned(version: str, options: PlanOptions, moves: int, certain: bool | None) -> None:
    plan = planned(version, options)
    assert len(plan.moves) == moves
    assert {m.certain for m in plan.moves} == ({certain} if moves else set())
    assert plan.optimal is (certain is True)


def test_the_moves_one_minor_ahead_are_those_of_the_last_known_release() -> None:
    known, newer = planned("v1.37.0"), planned("v1.38.0")
    assert [(m.pod.key, m.destinations, m.wave) for m in newer.moves] == [
        (m.pod.key, m.destinations, m.wave) for m in known.moves
    ]


def test_a_pod_that_stays_says_which_version_is_in_the_way_and_what_to_do() -> None:
    [result] = planned("v1.38.1", REFUSE).constraints
    [reason] = result.reasons
    assert reason.code is ReasonCode.NEWER_VERSION
    assert "v1.38.1 is newer than 1.37" in reason.message
    assert "upgrade the rebalancer" in reason.remedy
    assert "planner.newerVersions: likely" in reason.remedy


@pytest.mark.parametrize(
    ("version", "options"), [("v1.38.0", LIKELY), ("v1.38.0", REFUSE), ("v1.39.0", LIKELY)]
)
def test_a_finding_is_loud_and_no_rule_of_that_version_is_claimed(version: str, options: PlanOptions) -> None:
    plan = planned(version, options)
    [finding] = [f for f in plan.findings if f.code == "newer-version"]
    assert (finding.severity, finding.object) == ("error", f"Kubernetes/{version}")
    assert "whose rules are known" in finding.message
    said = " ".join(plan.assumptions)
    assert "rules of kube-scheduler" not in said
    assert f"{version} is newer than 1.37, the last whose rules are known" in said


def test_a_known_version_has_no_such_finding() -> None:
    plan = planned("v1.36.0")
    assert not [f for f in plan.findings if f.code == "newer-version"]
    assert "server version v1.36.0: rules of kube-scheduler 1.36" in plan.assumptions


def doubting(branch: str) -> PlanOptions:
    """As after a decision that was not as predicted."""
    return PlanOptions(witness=Witness({("default-scheduler", branch): "it did otherwise"}))


SPREADS = "PodTopologySpread rejects: In"


@pytest.mark.parametrize(
    ("version", "branch", "moves", "certain"),
    [
        ("v1.38.0", "NodePorts rejects: ports of sidecars", 2, False),
        ("v1.38.0", SPREADS, 0, None),
        ("v1.36.2", "NodePorts rejects: ports of sidecars", 2, True),
        ("v1.36.2", SPREADS, 0, None),
        ("v1.36.2", "PodTopologySpread rejects: In, several keys", 0, None),
        ("v1.36.2", "TaintToleration rejects", 0, None),
    ],
    ids=[
        "elsewhere, newer",
        "here, newer",
        "elsewhere",
        "here",
        "where one more thing was read",
        "where nothing of the pod was read",
    ],
)
def test_a_decision_that_was_not_as_predicted_makes_what_rests_on_it_likely(
    version: str, branch: str, moves: int, certain: bool | None
) -> None:
    plan = planned(version, doubting(branch))
    assert {m.certain for m in plan.moves} == ({certain} if moves else set())
    assert len(plan.moves) == moves
    assert plan.optimal is (certain is True)


@pytest.mark.parametrize("branch", [SPREADS, "PodTopologySpread takes: In"])
def test_what_reads_more_than_a_decision_that_was_not_as_predicted_rests_on_it_too(branch: str) -> None:
    web = workload("web").spread("zone", 1).spread("hostname", 9).placed({"a-0": 4})
    cluster = snapshot(*nodes(a=1, b=1), web, server_version="v1.36.2")
    assert len(plan_with_findings(cluster).moves) == 2
    assert not plan_with_findings(cluster, doubting(branch)).moves


def test_another_configuration_of_the_scheduler_is_another_rule() -> None:
    group = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    one, same, other = (parse_config({**group, "percentageOfNodesToScore": n}) for n in (40, 40, 50))
    web = workload("web").spread("zone", 1).placed({"a-0": 4})
    cluster = snapshot(*nodes(a=1, b=1), web, server_version="v1.36.2")
    for config, stays in ((None, True), (one, False)):
        options = replace(doubting(SPREADS), scheduler=config)
        assert bool(plan_with_findings(cluster, options).moves) is not stays
    named = {c.profile("default-scheduler").known_as for c in (one, same, other)}
    assert len(named) == 2
    assert all(name.startswith("default-scheduler ") for name in named)


def test_a_rule_that_reads_nothing_of_the_pod_is_in_doubt_for_all_of_them() -> None:
    new = pod("new")
    new._spec["tolerations"] = [{"key": "x", "operator": "Exists"}]
    state = ClusterState.of(snapshot(*nodes(a=1), new))
    state.witness = doubting("TaintToleration rejects").witness
    assert "it did otherwise" in Framework(state).uncertainties(state.snapshot.pods[0].template)
