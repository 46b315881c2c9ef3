"""The walk finds what is wrong with a plan, and nothing else."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.support.build import deployment, node, nodes, objects, pdb, pod, stateful_set, workload
from tests.support.judge.flight import ANY, PLAIN, Step, meaning
from tests.support.judge.walk import play, play_all
from tests.support.scheduler.plain import ZONE
from tests.support.scheduler.state import State, counts, groups, total_excess


def state(*things: Any) -> State:
    return State.of(objects(*things))


def step(name: str, *destinations: str, **more: Any) -> Step:
    return Step(f"default/{name}", frozenset(destinations) if destinations else None, **more)


def problems(of: State, *waves: list[Step], timing: Any = PLAIN) -> set[str]:
    ends, complete = play_all(of, waves, timing)
    assert complete
    played = play(of, waves, Random(1), timing)
    kinds = {p.kind for end in ends for p in end.problems}
    assert {p.kind for p in played.problems} <= kinds, "a play by chance is one of all plays"
    return kinds


def test_a_good_plan_has_no_problems_and_reaches_level_zones() -> None:
    of = state(nodes(a=2, b=1, c=1), workload("web").spread("zone").placed({"a-0": 4, "b-0": 1, "c-0": 1}))
    waves = [[step("web-00000", "b-0", "c-0")], [step("web-00001", "b-0", "c-0")]]
    assert problems(of, *waves) == set()
    end = play(of, waves, Random(7))
    assert counts(end.state, ZONE, app="web") == {"a": 2, "b": 2, "c": 2}


def test_a_replacement_that_may_land_elsewhere_is_found() -> None:
    of = state(nodes(a=1, b=1, c=1), workload("web").spread("zone").placed({"a-0": 4, "b-0": 1, "c-0": 1}))
    assert problems(of, [step("web-00000", "b-0")]) == {"elsewhere"}


def test_the_victim_holds_its_room_while_its_replacement_is_placed() -> None:
    machines = [node("a-0").zone("a").pods(2), node("b-0").zone("b").pods(0)]
    of = state(machines, workload("web").placed({"a-0": 2}))
    assert problems(of, [step("web-00000")]) == {"pending"}


def test_a_stateful_set_replaces_when_the_victim_is_gone() -> None:
    machines = [node("a-0").zone("a").pods(2), node("b-0").zone("b").pods(0)]
    of = state(machines, stateful_set("db").placed({"a-0": 2}))
    assert problems(of, [step("db-0", "a-0")]) == set()


def test_two_replacements_of_one_wave_where_only_one_order_works() -> None:
    """`small` fits either node, `large` only b-0: placed first, `small` may take b-0 from it."""
    machines = [
        node("a-0").zone("a").cpu("2"),
        node("b-0").zone("b").cpu("1"),
        node("c-0").zone("c").cpu("500m"),
    ]
    of = state(
        machines,
        workload("small").requests(cpu="500m").spread("zone").placed({"a-0": 2}),
        workload("large").requests(cpu="1").spread("hostname").placed({"a-0": 1}),
        workload("rest").labels(app="large").requests(cpu="0").placed({"a-0": 1}),
    )
    wave = [step("small-00000"), step("large-00000")]
    assert "pending" in problems(of, wave)
    assert problems(of, [wave[1]], [wave[0]]) == set()


def test_an_excess_that_rises_for_a_pod_that_does_not_carry_the_constraint_is_found() -> None:
    """web leaves a, as its own constraint wants, and fills c, where the constraint of api counts it."""
    of = state(
        nodes(a=1, b=1),
        workload("web").labels(tier="x").spread("zone").placed({"a-0": 3, "b-0": 1}),
        workload("api").labels(tier="x").spread("zone", selector={"tier": "x"}).placed({"b-0": 2}),
    )
    assert total_excess(of) == 1
    assert problems(of, [step("web-00000", "b-0")]) == {"raised"}


def test_a_pod_that_does_not_carry_the_constraint_may_return() -> None:
    of = state(
        nodes(a=1, b=1),
        workload("web").spread("zone").placed({"a-0": 2}),
        workload("other").labels(app="web").placed({"a-0": 1}),
    )
    (group,) = groups(of)
    kinds = problems(of, [step("other-00000", "b-0", fixes=(meaning(group),))])
    assert kinds == {"elsewhere", "not-kept-out", "returned"}


def test_a_move_that_names_no_constraint_is_aimless() -> None:
    of = state(nodes(a=1, b=1), workload("web").spread("zone").placed({"a-0": 3}))
    assert problems(of, [step("web-00000", fixes=())]) == {"aimless"}


def test_a_pod_that_is_not_counted_where_it_is_helps_by_coming_to_the_lowest_domain() -> None:
    of = state(
        nodes(a=1, b=1),
        node("x-0"),
        workload("web").spread("zone").placed({"a-0": 2, "x-0": 1}),
        workload("other").labels(app="web").placed({"x-0": 1}),
    )
    (group,) = groups(of)
    assert problems(of, [step("web-00002", "b-0", fixes=(meaning(group),))]) == set()
    # Nothing keeps this one from the node that it leaves.
    assert "not-kept-out" in problems(of, [step("other-00000", "b-0", fixes=(meaning(group),))])


PROTECTED: list[tuple[str, Any, str]] = [
    ("a bare pod", workload("web", "Bare").placed({"a-0": 3}), "web-00000"),
    ("a DaemonSet's pod", workload("web", "DaemonSet").placed({"a-0": 3}), "web-00000"),
    ("a Job's pod", workload("web", "Job").placed({"a-0": 3}), "web-00000"),
    ("a terminating pod", pod("web").owned_by("ReplicaSet", "web").on("a-0").terminating(), "web"),
    ("a pod whose owner is unknown", pod("web").owned_by("ReplicaSet", "web").on("a-0"), "web"),
    ("a pod that is not there", [], "web"),
    ("a pod of an owner that scales", workload("web").placed({"a-0": 3}).replicas(4), "web-00000"),
    ("a pod of kube-system", workload("web", namespace="kube-system").placed({"a-0": 3}), "web-00000"),
]


@pytest.mark.parametrize(("sentence", "things", "victim"), PROTECTED, ids=[c[0] for c in PROTECTED])
def test_protected(sentence: str, things: Any, victim: str) -> None:
    of = state(nodes(a=1, b=1), things)
    namespace = "kube-system" if "kube-system" in sentence else "default"
    played = play(of, [[Step(f"{namespace}/{victim}")]], Random(0))
    assert "protected" in {p.kind for p in played.problems}, sentence


def test_a_deployment_between_two_revisions_is_protected() -> None:
    things = objects(nodes(a=1, b=1), deployment("web").placed({"a-0": 3}))
    (parent,) = [o for o in things if o["kind"] == "Deployment"]
    parent["status"]["updatedReplicas"] = 1
    (victim, *_) = [o["metadata"]["name"] for o in things if o["kind"] == "Pod"]
    assert problems(State.of(things), [step(victim)]) == {"protected"}


def test_a_budget_bounds_a_wave_and_recovers_for_the_next() -> None:
    of = state(
        nodes(a=1, b=1, c=1),
        workload("web").spread("zone").placed({"a-0": 5, "b-0": 1, "c-0": 1}),
        pdb("web", {"app": "web"}, max_unavailable=1),
    )
    assert problems(of, [step("web-00000"), step("web-00001")]) == {"budget"}
    assert problems(of, [step("web-00000")], [step("web-00001")]) == set()


def test_two_budgets_on_one_pod_forbid_its_eviction() -> None:
    of = state(
        nodes(a=1, b=1),
        workload("web").spread("zone").placed({"a-0": 3}),
        pdb("one", {"app": "web"}, max_unavailable=1),
        pdb("two", {"app": "web"}, max_unavailable=1),
    )
    assert problems(of, [step("web-00000")]) == {"budget"}


def test_an_unready_pod_under_a_healthy_budget_costs_no_allowance() -> None:
    of = state(
        nodes(a=1, b=1),
        workload("web").spread("zone").placed({"a-0": 4}).unready(0),
        pdb("web", {"app": "web"}, min_available=3),
    )
    assert problems(of, [step("web-00000")]) == set()
    assert problems(of, [step("web-00001")]) == {"budget"}


def test_an_ordered_stateful_set_has_one_pod_in_flight() -> None:
    ordered = state(
        nodes(a=1, b=1, c=1), stateful_set("db").spread("zone").placed({"a-0": 5, "b-0": 1, "c-0": 1})
    )
    assert problems(ordered, [step("db-0"), step("db-1")]) == {"budget"}


def test_a_pending_pod_takes_the_slot_that_the_eviction_opens() -> None:
    """`waiting` may go to b only once web has fewer pods in a; then it takes the last room in b."""
    machines = [node("a-0").zone("a"), node("b-0").zone("b").pods(1)]
    of = state(
        machines,
        workload("web").spread("zone").placed({"a-0": 3}),
        workload("waiting").selects(zone="b").spread("zone", 1, selector={"app": "none"}).placed({"": 1}),
    )
    assert "pending" in problems(of, [step("web-00000")])


def test_a_victim_that_is_gone_early_opens_its_node_to_others() -> None:
    machines = [node("a-0").zone("a").pods(2), node("b-0").zone("b"), node("c-0").zone("c").pods(1)]
    of = state(
        machines,
        workload("web").spread("zone").placed({"a-0": 2}),
        workload("api").spread("hostname", 3).placed({"c-0": 1}),
    )
    wave = [step("api-00000", "b-0"), step("web-00000", "b-0")]
    assert problems(of, wave) == set()
    assert "elsewhere" in problems(of, wave, timing=ANY)
