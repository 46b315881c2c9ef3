"""Soft constraints by predicted scores, on random clusters, counted by tests/support alone.

Where replacements land is the scheduler's choice, so what is promised of soft constraints is promised for the
predicted landings, and what is promised of hard ones, of room and of budgets for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hypothesis import given, settings

from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Move, Plan
from tests.support.build import NOW, decoded
from tests.support.clusters.soft import domain, soft_clusters, soft_excesses, soft_groups
from tests.support.judge.cycles import after_walk
from tests.support.judge.flight import ANY, PLAIN, PREDICTED, Step, meaning
from tests.support.judge.plans import meaning_of, step_of, told
from tests.support.judge.walk import play
from tests.support.scheduler.plain import Json
from tests.support.scheduler.spread import Group
from tests.support.scheduler.state import State

SOFT = PlanOptions(soft="predicted")
LARGER = settings(max_examples=max(10, settings().max_examples // 2))
tiny, small = soft_clusters("tiny"), soft_clusters("small")
waiting = soft_clusters("tiny", pending=True)


def serves_soft(found: Plan, move: Move) -> bool:
    return not any(found.constraints[i].constraint.hard for i in move.fixes)


def waves(listed: list[Json], found: Plan) -> Iterator[tuple[State, list[Move], list[Step], State]]:
    """Each wave for soft constraints: the state before, its moves, its steps, the predicted state after."""
    state = State.of(listed)
    for wave in found.waves:
        steps = [step_of(found, m) for m in wave]
        if not all(serves_soft(found, m) for m in wave):
            state = play(state, [steps], Random(0), PREDICTED).state
            continue
        steps = [replace(s, fixes=None) for s in steps]
        after = play(state, [steps], Random(0), PREDICTED)
        assert after.problems == (), told(found)
        yield state, list(wave), steps, after.state
        state = after.state


def never_worse_wherever_they_land(listed: list[Json]) -> None:
    found = plan(decoded(listed), SOFT)
    for before, _, steps, _ in waves(listed, found):
        anywhere = [replace(s, destinations=None) for s in steps]
        for timing in (PLAIN, ANY):
            for seed in range(3):
                assert play(before, [anywhere], Random(seed), timing).problems == (), told(found)


@given(tiny)
def test_no_hard_constraint_gets_worse_wherever_replacements_land(listed: list[Json]) -> None:
    never_worse_wherever_they_land(listed)


@LARGER
@given(small)
def test_no_hard_constraint_gets_worse_on_larger_clusters(listed: list[Json]) -> None:
    never_worse_wherever_they_land(listed)


@given(waiting)
def test_nobody_is_left_pending_with_pods_that_wait(listed: list[Json]) -> None:
    never_worse_wherever_they_land(after_walk(State.of(listed)))


def lowers_what_remains(listed: list[Json]) -> None:
    found = plan(decoded(listed), SOFT)
    groups = soft_groups(State.of(listed))
    first: dict[Group, int] | None = None
    last: dict[Group, int] = {}
    for before, moves, _, after in waves(listed, found):
        was, now = soft_excesses(before, groups), soft_excesses(after, groups)
        assert [str(g) for g in groups if now[g] > was[g]] == [], told(found)
        first, last = first or was, now
        for m in moves:
            fixed = [
                g
                for i in m.fixes
                for g in groups
                if meaning(g) == meaning_of(found.constraints[i].constraint)
            ]
            # A pod is worth moving only to where there are at least two fewer.
            assert any(_two_fewer(before, g, m) for g in fixed), (m.pod.name, told(found))
    if first is not None:
        assert sum(last.values()) < sum(first.values()), told(found)


def _two_fewer(state: State, group: Group, move: Move) -> bool:
    counts = group.counts(state.nodes, state.counted())
    left, into = (domain(state, group, n) for n in (move.pod.node_name, move.predicted))
    return into is not None and (left is None or counts[left] >= counts[into] + 2)


@given(tiny)
def test_each_move_lowers_what_remains_and_raises_no_soft_excess(listed: list[Json]) -> None:
    lowers_what_remains(listed)


@LARGER
@given(small)
def test_each_move_lowers_what_remains_on_larger_clusters(listed: list[Json]) -> None:
    lowers_what_remains(listed)


def reported_as_counted_and_quiet_afterwards(listed: list[Json]) -> None:
    found = plan(decoded(listed), SOFT)
    assert told(plan(decoded(listed), SOFT)) == told(found)
    state = State.of(listed)
    groups = soft_groups(state)
    assert sum(soft_excesses(state, groups).values()) == sum(
        c.excess for c in found.constraints if not c.constraint.hard
    )
    assert all(c.reasons for c in found.constraints if c.residual_excess)
    for wave in found.waves:
        state = play(state, [[step_of(found, m) for m in wave]], Random(0), PREDICTED).state
    assert sum(soft_excesses(state, groups).values()) == sum(
        c.residual_excess for c in found.constraints if not c.constraint.hard
    )
    again = plan(decoded(after_walk(state), now=NOW + 3600), SOFT)
    # No plan moves the replacements that it makes: where hard constraints pile some up, the next one does.
    rest = [m for m in again.moves if not m.pod.name.endswith("-next")]
    assert not rest or len(rest) < len(again.moves), f"{told(found)}\n{told(again)}"


@given(tiny)
def test_reported_as_counted_and_quiet_after_one_pass(listed: list[Json]) -> None:
    reported_as_counted_and_quiet_afterwards(listed)


@LARGER
@given(small)
def test_reported_as_counted_and_quiet_on_larger_clusters(listed: list[Json]) -> None:
    reported_as_counted_and_quiet_afterwards(listed)


@given(small)
def test_the_plan_for_hard_constraints_is_the_one_without_soft_ones(listed: list[Json]) -> None:
    without, found = plan(decoded(listed)), plan(decoded(listed), SOFT)
    assert [_seen(m) for m in found.moves[: len(without.moves)]] == [_seen(m) for m in without.moves]
    hard = [c for c in found.constraints if c.constraint.hard]
    assert [c.domains for c in hard] == [c.domains for c in without.constraints]
    left = sum(c.residual_excess for c in hard)
    assert left <= without.residual_excess
    assert all(c.constraint.hard for c in without.constraints)
    # Room that moves for soft constraints made may have been what a hard one lacked.
    assert found.lower_bound == without.lower_bound or left < without.residual_excess
    assert not found.optimal or (without.optimal and len(found.moves) == len(without.moves))


def _seen(m: Move) -> tuple[object, ...]:
    return m.pod.name, m.predicted, m.destinations, m.wave, m.certain, m.fixes, m.reason
