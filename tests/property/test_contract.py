"""The plan's contract (design, section 3) on random clusters, judged by tests/support alone.

Small clusters are judged through every landing and every order of a wave, larger ones through some.
"""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from functools import partial
from pathlib import Path
from random import Random
from tempfile import gettempdir
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import plan
from rebalancer.planner.plan import Plan, PlanOptions
from rebalancer.policy.options import Limit, PolicyOptions
from tests.perf.clusters.tight import items, small
from tests.support.build import decoded, node, node_pool, objects
from tests.support.build.base import KEYS
from tests.support.clusters.crowded import crowded, crowded_cluster
from tests.support.clusters.random_clusters import clusters, released
from tests.support.judge.flight import ANY
from tests.support.judge.plans import told, waves_of
from tests.support.judge.verdict import Verdict, judge_plan
from tests.support.judge.walk import play, play_all
from tests.support.scheduler.owners import released as released_pod
from tests.support.scheduler.owners import replacement
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State, feasible

NEVER_WORSE = {"raised", "pending", "budget", "protected", "adopted", "exception"}
HELPS = {"elsewhere", "astray", "returned", "not-kept-out", "aimless"}
FEWEST = {
    "residual",
    "evictions",
    "false-optimal",
    "false-bound",
    "beats-search",
    "misreported",
}
QUIET = {"not-idempotent", "not-deterministic"}
CYCLES = {"cycle-raised", "cycle-pending", "cycle-residual", "cycle-evictions", "cycle-endless"}

tiny = clusters("tiny")
one_key = clusters("small", keys=1)
several_keys = clusters("small")
waiting = clusters("tiny", pending=True)


LITTLE = {"plays": 2, "again": False, "compare": False, "cycles": False}
"""What a test does not ask for is not done."""


def verdict(objects: list[Json], how: PlanOptions | None = None, **options: Any) -> Verdict:
    found = judge_plan(objects, lambda s: plan(s, how), **{**LITTLE, **options})
    found.listed = objects
    assert found.plan is not None, found.findings
    return found


LARGER = settings(max_examples=max(10, settings().max_examples // 4))
"""Fewer of the larger clusters."""


SIDE_BY_SIDE = PlanOptions(policy=PolicyOptions(in_flight_per_owner=Limit(percent=100)))
"""As many moves of one owner in a wave as hold in every interleaving, beside budgets."""


def holds(found: Verdict, categories: set[str], *, in_any_order: bool = False) -> None:
    """No finding of these categories, on the predicted path or off it.

    `in_any_order`: nor where victims go, and replacements arrive, in any order.
    """
    prefixes = ("predicted-", "any-order-") if in_any_order else ("predicted-",)
    against = [
        f"{category}: {text}"
        for category, text in found.findings
        if any(category.removeprefix(prefix) in categories for prefix in prefixes)
    ]
    if against:
        path = Path(gettempdir()) / "contract.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found.listed}))
        pytest.fail("\n".join([*against, told(found.plan) if found.plan else "", f"the cluster: {path}"]))


@given(tiny)
def test_clause_2_never_worse_through_every_landing(objects: list[Json]) -> None:
    holds(verdict(objects), NEVER_WORSE)


@LARGER
@given(several_keys)
def test_clause_2_never_worse_on_larger_clusters(objects: list[Json]) -> None:
    holds(verdict(objects), NEVER_WORSE)


@given(waiting)
def test_clause_2_never_worse_with_pods_pending(objects: list[Json]) -> None:
    holds(verdict(objects), NEVER_WORSE)


@settings(max_examples=4 * settings().max_examples)
@given(crowded())
@example(crowded_cluster(Random(46)))
def test_clause_2_certain_moves_have_room_whenever_pods_that_wait_are_placed(objects: list[Json]) -> None:
    state, made = State.of(objects), plan(decoded(objects), SIDE_BY_SIDE)
    waves = waves_of(made, only_certain=True)
    ends, complete = play_all(state, waves, ANY)
    if not complete:
        ends += [play(state, waves, Random(seed), ANY) for seed in range(50)]
    problems = sorted({problem for end in ends for problem in end.problems})
    found = Verdict(findings=[(f"any-order-{p.kind}", p.text) for p in problems], plan=made, listed=objects)
    holds(found, NEVER_WORSE | HELPS, in_any_order=True)


@given(tiny)
def test_clause_3_every_move_must_help_through_every_landing(objects: list[Json]) -> None:
    holds(verdict(objects), HELPS)


@LARGER
@given(several_keys)
def test_clause_3_every_move_must_help_on_larger_clusters(objects: list[Json]) -> None:
    holds(verdict(objects), HELPS)


@given(tiny)
def test_clause_4_waves_hold_in_every_interleaving(objects: list[Json]) -> None:
    holds(verdict(objects, SIDE_BY_SIDE), NEVER_WORSE | HELPS, in_any_order=True)


@LARGER
@given(several_keys)
def test_clause_4_waves_hold_in_many_interleavings_of_larger_clusters(objects: list[Json]) -> None:
    holds(verdict(objects, SIDE_BY_SIDE, plays=6), NEVER_WORSE | HELPS, in_any_order=True)


@LARGER
@given(several_keys)
def test_what_is_not_worth_it_is_left_out_as_a_whole_and_the_rest_holds(objects: list[Json]) -> None:
    found = verdict(objects, PlanOptions(policy=PolicyOptions(min_worth=1.0)), plays=4)
    holds(found, NEVER_WORSE | HELPS)
    assert found.plan is not None
    assert all(move.worth >= 1.0 for move in found.plan.moves)
    left = {b.pod.owner for b in found.plan.blocked if b.reason.code is ReasonCode.NOT_WORTH_IT}
    assert not left & {move.pod.owner for move in found.plan.moves}
    assert not left or found.plan.residual_excess


@pytest.mark.parametrize(
    "seed", [*range(6), 65, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(6, 15))]
)
def test_clauses_2_to_4_hold_where_nodes_are_full_and_pods_differ_in_size(seed: int) -> None:
    found = verdict(items(small(seed)), SIDE_BY_SIDE if seed % 2 else None, plays=4)
    holds(found, NEVER_WORSE | HELPS, in_any_order=True)


@given(tiny)
def test_clause_5_fewest_as_the_exhaustive_search_has_it(objects: list[Json]) -> None:
    holds(verdict(objects, compare=True), FEWEST)


@given(one_key)
def test_clause_5_fewest_as_the_integer_program_has_it(objects: list[Json]) -> None:
    holds(verdict(objects, compare=True), FEWEST)


@given(tiny)
def test_clause_7_quiet_after_one_pass_and_the_same_each_time(objects: list[Json]) -> None:
    holds(verdict(objects, again=True), QUIET)


@LARGER
@given(several_keys)
def test_clause_7_quiet_after_one_pass_on_larger_clusters(objects: list[Json]) -> None:
    holds(verdict(objects, again=True), QUIET)


@given(tiny)
def test_planning_anew_after_every_wave_ends_at_the_adaptive_optimum(objects: list[Json]) -> None:
    holds(verdict(objects, compare=True, cycles=True), CYCLES)


@given(released("tiny"))
def test_clause_13_replace_first_keeps_clauses_2_3_4_and_7(objects: list[Json]) -> None:
    found = verdict(objects, SIDE_BY_SIDE, again=True)
    holds(found, NEVER_WORSE | HELPS | QUIET | {"misreported"}, in_any_order=True)


@LARGER
@given(released("small"))
def test_clause_13_replace_first_on_larger_clusters(objects: list[Json]) -> None:
    found = verdict(objects, SIDE_BY_SIDE, again=True, plays=4)
    holds(found, NEVER_WORSE | HELPS | QUIET, in_any_order=True)


@LARGER
@given(released("tiny", pending=True))
def test_clause_13_replace_first_with_pods_pending(objects: list[Json]) -> None:
    holds(verdict(objects), NEVER_WORSE | HELPS)


@given(released("tiny"), st.sets(st.sampled_from("abcd"), min_size=1))
def test_clause_13_a_pod_waits_for_a_node_only_where_each_that_could_come_does_no_harm(
    listed: list[Json], zones: set[str]
) -> None:
    """No present node takes its replacement, and by the plain filter each new one alone does as planned."""
    full = tightened(listed)
    pools = objects(node_pool("default", zones=sorted(zones)))
    found = plan(decoded([*full, *pools]), PlanOptions(policy=PolicyOptions(into_new_nodes=True)))
    if not any(m.awaits for m in found.moves):
        return
    ((move,),) = found.waves
    state = State.of(full)
    old = released_pod(state.pods[move.pod.key], move.release_label)
    new = replacement(state, state.pods[move.pod.key])
    assert feasible(state.with_pods([old]), new) == []
    assert not any(
        (p["spec"].get("priority") or 0) < (new["spec"].get("priority") or 0) for p in state.holding()
    )
    for zone in sorted(zones):
        (came,) = objects(node(f"new-{zone}").zone(zone).cpu(64))
        if takes := feasible(State.of([*full, came]).with_pods([old]), new):
            assert takes == [f"new-{zone}"]
            assert f"{KEYS['zone']}={zone}" in move.awaits or KEYS["zone"] not in str(move.awaits)
            there = replace(move, destinations=tuple(takes), predicted=takes[0], certain=True)
            alone = partial(planned_before, replace(found, moves=(there,)))
            judged = judge_plan([*full, came], alone, plays=2, again=False, compare=False, cycles=False)
            judged.listed = full
            holds(judged, NEVER_WORSE | HELPS)


def planned_before(made: Plan, snapshot: Snapshot) -> Plan:  # noqa: ARG001
    return made


def tightened(listed: list[Json]) -> list[Json]:
    """The cluster without further room in the zone of the fewest pods."""
    zone_of = {
        o["metadata"]["name"]: o["metadata"]["labels"].get(KEYS["zone"], "")
        for o in listed
        if o["kind"] == "Node"
    }
    there = Counter(o["spec"].get("nodeName") for o in listed if o["kind"] == "Pod")
    pods = Counter(dict.fromkeys(zone_of.values(), 0))
    for name, number in there.items():
        pods[zone_of.get(name, "")] += number
    fewest = min(sorted(set(zone_of.values())), key=lambda z: pods[z])
    made = deepcopy(listed)
    for o in made:
        if o["kind"] == "Node" and zone_of[o["metadata"]["name"]] == fewest:
            o["status"]["allocatable"]["pods"] = str(there[o["metadata"]["name"]])
    return made
