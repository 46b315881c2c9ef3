"""PodDisruptionBudgets: whom they cover, and how many evictions one wave may have."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.model.pod import Pod
from rebalancer.model.reason import ReasonCode
from rebalancer.policy.budgets import Allowance, Budgets
from tests.support.build import pdb, workload
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import cluster, code, judged, patched, pods, web

EXHAUSTED, STALE, SEVERAL = ReasonCode.PDB_EXHAUSTED, ReasonCode.PDB_STALE, ReasonCode.MULTIPLE_PDBS
WEB = {"app": "web"}


def stale(*things: Any) -> list[Json]:
    """Budgets that changed after their status was written."""
    return patched("PodDisruptionBudget", {"metadata": {"generation": 2}}, *things)


def broken() -> Any:
    """web, its first two pods not Ready."""
    return web().unready(0, 1)


CASES: list[tuple[str, Any, ReasonCode | None]] = [
    ("no budget", web(), None),
    ("one may be unavailable", [web(), pdb("b", WEB, max_unavailable=1)], None),
    ("none may be unavailable", [web(), pdb("b", WEB, max_unavailable=0)], EXHAUSTED),
    ("two of three must be available", [web(), pdb("b", WEB, min_available=2)], None),
    ("three of three must be available", [web(), pdb("b", WEB, min_available=3)], EXHAUSTED),
    ("a third may be unavailable", [web(), pdb("b", WEB, max_unavailable="33%")], None),
    ("no percent may be unavailable", [web(), pdb("b", WEB, max_unavailable="0%")], EXHAUSTED),
    ("half must be available", [web(), pdb("b", WEB, min_available="50%")], None),
    ("all must be available", [web(), pdb("b", WEB, min_available="100%")], EXHAUSTED),
    ("one may be, and one is", [web().unready(2), pdb("b", WEB, max_unavailable=1)], EXHAUSTED),
    # Whom it covers.
    ("an absent selector covers nobody", [web(), pdb("b", None, max_unavailable=0)], None),
    ("an empty selector covers the namespace", [web(), pdb("b", {}, max_unavailable=0)], EXHAUSTED),
    ("another selector", [web(), pdb("b", {"app": "api"}, max_unavailable=0)], None),
    ("another namespace", [web(), pdb("b", {}, max_unavailable=0, namespace="shop")], None),
    (
        "two budgets, both generous",
        [web(), pdb("b", WEB, max_unavailable=2), pdb("c", {}, max_unavailable=2)],
        SEVERAL,
    ),
    (
        "two budgets, one of them without a selector",
        [web(), pdb("b", WEB, max_unavailable=2), pdb("c", None, max_unavailable=2)],
        None,
    ),
    # A status that is older than the spec.
    ("a stale status that allows", stale(web(), pdb("b", WEB, max_unavailable=2)), STALE),
    ("a stale status that does not", stale(web(), pdb("b", WEB, max_unavailable=0)), STALE),
    ("a stale status of another's budget", stale(web(), pdb("b", {"app": "api"}, max_unavailable=0)), None),
    # The first pod is not Ready: what that costs.
    ("not Ready, a budget that is met", [web().unready(0), pdb("b", WEB, min_available=2)], None),
    ("not Ready, a budget that is not met", [broken(), pdb("b", WEB, min_available=2)], EXHAUSTED),
    (
        "not Ready, not met, always allowed",
        [broken(), pdb("b", WEB, min_available=2, unhealthy="AlwaysAllow")],
        None,
    ),
    (
        "not Ready, met, if the budget is healthy",
        [web().unready(0), pdb("b", WEB, min_available=2, unhealthy="IfHealthyBudget")],
        None,
    ),
    (
        "not Ready, not met, if the budget is healthy",
        [broken(), pdb("b", WEB, min_available=2, unhealthy="IfHealthyBudget")],
        EXHAUSTED,
    ),
    (
        "Ready, always allowed is for the others",
        [web(), pdb("b", WEB, max_unavailable=0, unhealthy="AlwaysAllow")],
        EXHAUSTED,
    ),
    ("not Ready, and nothing is needed healthy", [broken(), pdb("b", WEB, max_unavailable=3)], None),
]


@pytest.mark.parametrize(("things", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_budget_lets_go_or_not(things: Any, expected: ReasonCode | None) -> None:
    assert code(things) == expected


def test_the_reason_has_the_budgets_figures() -> None:
    reason = judged(web(), pdb("b", WEB, min_available=3))
    assert reason is not None
    assert reason.numbers == {"healthy": 3, "needed": 3}
    assert "default/b" in reason.message


def taken(things: Any) -> list[str]:
    """The pods that one wave takes, in order of name, as far as budgets go."""
    snapshot = cluster(things)
    allowance = Allowance(Budgets(snapshot))

    def take(p: Pod) -> bool:
        fits = allowance.fits(p)
        if fits:
            allowance.spend(p)
        return fits

    return [p.name for p in pods(snapshot) if take(p)]


FOUR = {"a-0": 4}


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        ([workload("web").placed(FOUR)], 4),
        ([workload("web").placed(FOUR), pdb("b", WEB, max_unavailable=2)], 2),
        ([workload("web").placed(FOUR), pdb("b", WEB, max_unavailable="50%")], 2),
        ([workload("web").placed(FOUR), pdb("b", WEB, max_unavailable=0)], 0),
        ([workload("web").placed(FOUR), workload("api").placed(FOUR), pdb("b", WEB, max_unavailable=1)], 5),
        ([workload("web").placed(FOUR), workload("api").placed(FOUR), pdb("b", {}, min_available=5)], 3),
        ([workload("web").placed(FOUR).unready(0), pdb("b", WEB, min_available=2)], 2),
        (stale(workload("web").placed(FOUR), pdb("b", WEB, max_unavailable=2)), 0),
    ],
    ids=[
        "without a budget all",
        "a budget of two",
        "a budget of half",
        "a budget of none",
        "a budget of one owner leaves the other's pods",
        "owners share a budget",
        "a pod that is not Ready costs nothing",
        "a stale status allows none",
    ],
)
def test_a_wave_keeps_the_allowance(things: Any, expected: int) -> None:
    assert len(taken(things)) == expected


@pytest.mark.parametrize(
    ("most", "drained", "left"),
    [(3, [], 3), (3, ["default/b"], 2), (1, ["default/b"], 1), (3, ["default/c"], 3)],
)
def test_the_last_disruption_is_left_to_a_drain(most: int, drained: list[str], left: int) -> None:
    snapshot = cluster(workload("web").placed(FOUR), pdb("b", WEB, max_unavailable=most))
    allowance = Allowance(Budgets(snapshot), drained)
    assert allowance.at_most(pods(snapshot)[0]) == left
