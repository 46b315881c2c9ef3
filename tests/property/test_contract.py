"""The plan's contract (design, section 3) on random clusters, judged by tests/support alone.

Small clusters are judged through every landing and every order of a wave, larger ones through some.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from rebalancer.planner import plan
from tests.support.plain import Json
from tests.support.plans import told
from tests.support.random_clusters import clusters
from tests.support.verdict import Verdict, judge_plan

NEVER_WORSE = {"raised", "pending", "budget", "protected"}
HELPS = {"elsewhere", "astray", "returned", "not-kept-out", "aimless"}
FEWEST = {
    "residual",
    "evictions",
    "false-optimal",
    "false-bound",
    "beats-search",
    "misreported",
    "landing-dependent",
}
QUIET = {"not-idempotent", "not-deterministic"}

tiny = clusters("tiny")
one_key = clusters("small", keys=1)
several_keys = clusters("small")
waiting = clusters("tiny", pending=True)


def verdict(objects: list[Json], **options: Any) -> Verdict:
    found = judge_plan(objects, plan, **options)
    assert found.plan is not None, found.findings
    return found


def holds(found: Verdict, categories: set[str]) -> None:
    """No finding of these categories, on the predicted path or off it."""
    against = [
        f"{category}: {text}"
        for category, text in found.findings
        if category.removeprefix("predicted-") in categories
    ]
    if against:
        pytest.fail("\n".join([*against, told(found.plan) if found.plan else ""]))


@given(tiny)
def test_clause_2_never_worse_through_every_landing(objects: list[Json]) -> None:
    holds(verdict(objects, compare=False), NEVER_WORSE)


@given(several_keys)
def test_clause_2_never_worse_on_larger_clusters(objects: list[Json]) -> None:
    holds(verdict(objects, compare=False), NEVER_WORSE)


@given(waiting)
def test_clause_2_never_worse_with_pods_pending(objects: list[Json]) -> None:
    holds(verdict(objects, compare=False), NEVER_WORSE)


@given(tiny)
def test_clause_3_every_move_must_help_through_every_landing(objects: list[Json]) -> None:
    holds(verdict(objects, compare=False), HELPS)


@given(several_keys)
def test_clause_3_every_move_must_help_on_larger_clusters(objects: list[Json]) -> None:
    holds(verdict(objects, compare=False), HELPS)


@given(tiny)
def test_clause_5_fewest_as_the_exhaustive_search_has_it(objects: list[Json]) -> None:
    holds(verdict(objects), FEWEST)


@given(one_key)
def test_clause_5_fewest_as_the_integer_program_has_it(objects: list[Json]) -> None:
    holds(verdict(objects), FEWEST)


@given(tiny)
def test_clause_7_quiet_after_one_pass_and_the_same_each_time(objects: list[Json]) -> None:
    holds(verdict(objects, compare=False), QUIET)


@given(several_keys)
def test_clause_7_quiet_after_one_pass_on_larger_clusters(objects: list[Json]) -> None:
    holds(verdict(objects, compare=False), QUIET)
