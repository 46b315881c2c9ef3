"""A plan carried out side by side: what waits for what, how many plans and requests it takes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End, Fate
from tests.support.build import deployment, nodes, objects, pdb, workload
from tests.support.runs.eviction_cost import EVICTIONS, cost
from tests.support.runs.one_cycle import EXECUTE, Run, once
from tests.support.sandbox import ApiServer
from tests.support.scheduler.plain import Json
from tests.support.servers.api import FakeTime
from tests.support.servers.hands import Hands


def skewed(name: str, high: int = 3) -> Any:
    return workload(name).spread("zone", 1).placed({"a-0": high, "b-0": 1})


def never(name: str) -> Any:
    """A scheduler that leaves replacements of this workload Pending."""

    def choose(pod: Json, left: list[str]) -> str | None:
        return None if pod["metadata"]["name"].startswith(name) or not left else left[0]

    return choose


BUDGETED = (*nodes(a=1, b=1), skewed("web", 5), pdb("web", {"app": "web"}, max_unavailable=1))


def use_up(server: ApiServer) -> None:
    """Somebody else drains a pod under web's budget."""

    def change(o: Json) -> None:
        o["status"]["disruptionsAllowed"] = 0

    server.store.modify("PodDisruptionBudget", "web", "default", change, subresource="status")


def test_a_stuck_replacement_holds_back_its_own_workload_only() -> None:
    with ApiServer(objects(*nodes(a=1, b=1), skewed("web", 5), skewed("db", 11))) as server:
        run = Run(server, hands=Hands(server, choose=never("web")))
    first = [o for o in run.story.outcomes if o.evicted][:6]
    assert [o.move.owner.name for o in first] == ["db"] * 5 + ["web"]
    assert first[-1].status is Fate.FAILED


def test_one_plan_lasts_and_one_more_sees_that_nothing_is_left() -> None:
    run = once((*nodes(a=1, b=1, c=1), workload("web").spread("zone", 1).placed({"a-0": 10, "b-0": 8})))
    assert run.report.end is End.COMPLETE
    assert run.report.evicted > 3
    assert run.report.plans == 2
    assert max(run.zones()) - min(run.zones()) <= 1


def test_a_plan_lasts_wherever_on_its_destinations_replacements_land() -> None:
    def last(_: Json, left: list[str]) -> str | None:
        return left[-1] if left else None

    with ApiServer(objects(*nodes(a=1, b=3, c=3), workload("web").spread("zone", 1).placed({"a-0": 9}))) as s:
        run = Run(s, hands=Hands(s, choose=last))
    assert run.report.end is End.COMPLETE
    assert all(o.expected for o in run.report.outcomes)
    certain = all(m.certain for m in run.story.plans[0].moves)
    assert run.report.plans == 2 or not certain


@pytest.mark.parametrize("seconds", [0, 30])
def test_the_next_pod_goes_when_the_replacement_has_been_ready_for_as_long_as_its_owner_asks(
    seconds: int,
) -> None:
    things = objects(*nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 9}))
    for o in things:
        if o["kind"] in ("Deployment", "ReplicaSet"):
            o["spec"]["minReadySeconds"] = seconds
        if o["kind"] == "Deployment":
            o["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    with ApiServer(things) as server:
        run = Run(server, time=FakeTime(at=2e9))
    assert (run.report.end, run.report.evicted) == (End.COMPLETE, 4)
    assert (run.report.seconds >= 4 * 30) is bool(seconds)


def test_a_move_waits_for_its_budget_and_not_for_a_new_plan() -> None:
    web, db = skewed("web", 7), skewed("db", 7)
    both = pdb("both", {"tier": "x"}, max_unavailable=1)
    run = once((*nodes(a=1, b=1), web.labels(tier="x"), db.labels(tier="x"), both))
    assert run.report.end is End.COMPLETE
    assert run.report.plans == 2
    assert run.hands.broken_budgets == []
    assert not [o for o in run.report.outcomes if o.reason is not None]


def test_a_budget_that_somebody_else_uses_up_is_waited_for() -> None:
    with ApiServer(objects(*BUDGETED)) as server:

        def take(number: int) -> None:
            if number == 1:
                use_up(server)

        run = Run(server, hands=Hands(server, budgets_every=4), after_plan=take)
    assert (run.report.end, run.report.plans) == (End.COMPLETE, 2)
    assert [o.status for o in run.report.outcomes] == [Fate.DONE] * 2


def test_a_budget_that_stays_exhausted_is_the_end_and_says_so() -> None:
    with ApiServer(objects(*BUDGETED)) as server:
        run = Run(server, hands=Hands(server, budgets_every=10_000), after_plan=lambda _: use_up(server))
    assert run.report.evicted == 0
    assert {o.reason.code for o in run.report.outcomes if o.reason} == {ReasonCode.PDB_EXHAUSTED}


def test_a_victim_that_may_take_an_hour_to_end_does_not_hold_the_cycle_beyond_its_time() -> None:
    things = objects(*nodes(a=1, b=1), skewed("web", 5))
    for o in things:
        if o["kind"] in ("Pod", "ReplicaSet"):
            spec = o["spec"] if o["kind"] == "Pod" else o["spec"]["template"]["spec"]
            spec["terminationGracePeriodSeconds"] = 4000
    with ApiServer(things) as server:
        time = FakeTime()
        began = time.at
        options = replace(EXECUTE, max_time=60.0)
        run = Run(server, options, hands=Hands(server, ends_after=100_000), time=time)
    assert time.at - began < 70
    assert run.report.end is End.CAPPED
    assert [o.status for o in run.report.outcomes if o.evicted] == [Fate.DONE]
    assert "4000 s to end" in run.report.outcomes[0].message


@pytest.mark.parametrize("slow", [1, 30])
def test_requests_and_bytes_of_an_eviction_do_not_grow_with_its_owner(slow: int) -> None:
    assert cost(10, slow).requests.total() / EVICTIONS <= 16, "of few pods under a selector each is looked at"
    few, many = cost(150, slow), cost(1000, slow)
    # A watch that a slow machine hears of too late is opened anew, by a list.
    assert (many.requests - few.requests).total() <= 1, (few.requests, many.requests)
    assert (few.requests - many.requests).total() <= 1, (few.requests, many.requests)
    # Quotas, LimitRanges and the pod's own node are read too: a hung watch must not hide what refuses.
    assert few.requests.total() / EVICTIONS <= 15, few.requests
    # Numbers have more digits.
    assert abs(many.size - few.size) <= 0.05 * few.size
