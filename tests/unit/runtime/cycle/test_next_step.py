"""What follows a plan of which nothing more can go, by what became of its moves."""

from __future__ import annotations

import pytest

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome import End, Outcome
from rebalancer.runtime.cycle.carrying_out import Obstacles
from rebalancer.runtime.cycle.loop import NextStep, after_plan
from tests.unit.runtime.cycle.made import evicted, left, recorded

CLEAR = Obstacles()
WINDOW = Reason(ReasonCode.WINDOW, "closed until six")
TIME = Reason(ReasonCode.CYCLE_TIME, "took too long")


def after(
    *mine: Outcome,
    before: tuple[Outcome, ...] = (),
    obstacles: Obstacles = CLEAR,
    rests: bool = False,
    stopping: bool = False,
    dry: bool = False,
) -> NextStep:
    """What follows these outcomes of a plan, after others of earlier plans of the cycle."""
    every = (*before, *mine)
    return after_plan(obstacles, mine, every, rests=rests, max_failed=1, stopping=stopping, dry=dry)


ENDS: dict[str, tuple[NextStep, End]] = {
    "an API server that is unwell ends the cycle": (after(obstacles=Obstacles(fatal="down")), End.ABORTED),
    "so do more failed replacements than are allowed, of any plan of the cycle": (
        after(evicted(ready=False), before=(evicted("db-00000", ready=False),)),
        End.ABORTED,
    ),
    "a stop that was asked for ends it": (after(stopping=True), End.STOPPED),
    "a gate that closed ends it": (after(obstacles=Obstacles(held=WINDOW)), End.HELD),
    "a cycle that has taken its time goes on with the next one": (
        after(obstacles=Obstacles(held=TIME)),
        End.CAPPED,
    ),
    "two replacements of one owner that landed elsewhere end it": (
        after(evicted("web-00000", on="c-0"), evicted("web-00001", on="c-1")),
        End.UNSTABLE,
    ),
    "a dry run ends where it has recorded its moves": (after(recorded("web-00000")), End.RECORDED),
    "a dry run without moves ends, too": (after(dry=True), End.RECORDED),
    "a stop comes before a gate": (after(stopping=True, obstacles=Obstacles(held=WINDOW)), End.STOPPED),
}

PLANS: dict[str, tuple[NextStep, bool, bool]] = {
    "after moves as planned it is seen whether anything is left": (after(evicted()), False, False),
    "moves that rest on landings are planned anew": (after(evicted(), rests=True), False, False),
    "one replacement that failed counts as a plan that did not hold": (
        after(evicted(ready=False)),
        True,
        False,
    ),
    "so does one that landed elsewhere": (after(evicted(on="c-0")), True, False),
    "so does one that nobody saw": (after(evicted(on="")), True, False),
    "elsewhere twice, of different owners, is no pattern": (
        after(evicted("web-00000", on="c-0"), evicted("db-00000", on="c-0")),
        True,
        False,
    ),
    "after a refusal because the cluster has changed, the next plan may differ": (
        after(left("web-00000", ReasonCode.CHANGED_SINCE_PLAN)),
        True,
        True,
    ),
    "after a refusal for a budget, the next plan would be the same": (
        after(left("web-00000", ReasonCode.PDB_EXHAUSTED)),
        True,
        False,
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_cycle_ends(case: str) -> None:
    step, end = ENDS[case]
    assert (step.end, step.again) == (end, "")
    assert step.message


@pytest.mark.parametrize("case", PLANS)
def test_a_new_plan_follows(case: str) -> None:
    step, counted, moved = PLANS[case]
    assert step.end is None
    assert step.again
    assert (step.counted, step.moved) == (counted, moved)


def test_the_breaker_opens_where_the_cluster_is_unwell_and_not_where_a_right_is_missing() -> None:
    assert after(obstacles=Obstacles(fatal="down", unwell=True)).trips
    assert not after(obstacles=Obstacles(fatal="evicting is forbidden")).trips
    failed = (evicted("web-00000", ready=False), evicted("db-00000", ready=False))
    assert after(*failed).trips


def test_what_is_said_names_the_last_failure_or_the_owner() -> None:
    failed = (evicted("web-00000", ready=False), evicted("db-00000", ready=False))
    assert after(*failed).message == "2 replacements failed; the last: db-00000 went to b-0"
    elsewhere = (evicted("web-00000", on="c-0"), evicted("web-00001", on="c-1"))
    assert after(*elsewhere).message == (
        "2 replacements of ReplicaSet/default/web did not go as planned; the last: web-00001 went to c-1"
    )
