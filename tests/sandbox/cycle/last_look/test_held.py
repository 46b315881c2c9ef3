"""The right to evict may end at any moment: between the last look and the request, between two tries."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rebalancer.kube.config_maps import Brakes, Place
from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End, Fate
from rebalancer.policy.annotations import PAUSE
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.runtime.cycle.gates import PauseCheck
from rebalancer.runtime.live.assembly import Surroundings
from tests.support.build import objects
from tests.support.runs.machine import BRAKE, Machine
from tests.support.runs.one_cycle import EXECUTE, SKEWED, Run
from tests.support.sandbox import ApiServer, Cut, Reply
from tests.support.servers.api import FakeTime, connected
from tests.support.servers.hands import Hands

BRAKED = replace(EXECUTE, brake=Place("default", "rebalancer-brake"))
LIMITS = CircuitLimits()


def asked(server: ApiServer) -> int:
    """Requests for evictions, answered or not."""
    return sum(a.subresource == "eviction" for a in server.accesses)


@pytest.mark.parametrize("lost_at", [1, 2, 3, 4])
def test_a_lease_that_is_lost_before_a_plan_is_begun_or_while_a_look_is_reading_stops_that_very_eviction(
    lost_at: int,
) -> None:
    """It is asked for twice each time, as what else is asked may take its time."""
    with ApiServer(objects(*SKEWED)) as server:
        asks: list[int] = []

        def leading() -> bool:
            asks.append(asked(server))
            return len(asks) < lost_at

        run = Run(server, BRAKED, around=Surroundings(leading=leading))
        assert asked(server) == 0
    assert run.report.end is End.HELD
    assert run.report.message == "this instance is not the leader any more"


def test_a_stop_while_a_look_is_reading_stops_that_very_eviction() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        time = FakeTime()

        def leading() -> bool:
            time.stop = any(a.resource == "namespaces" and a.verb == "get" for a in server.accesses)
            return True

        run = Run(server, BRAKED, time=time, around=Surroundings(leading=leading))
        assert asked(server) == 0
    assert run.report.end is End.STOPPED


@pytest.mark.parametrize(
    ("kind", "about"),
    [
        ("configmaps", ("another", "default")),
        ("configmaps", ("rebalancer-brake", "another")),
        ("namespaces", ("another", "")),
    ],
)
def test_an_answer_about_another_object_lets_nothing_go(kind: str, about: tuple[str, str]) -> None:
    """A proxy that mixes up its answers: the brake that was asked for may be set."""
    other = {"metadata": {"name": about[0], "namespace": about[1]}}
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(200, other), resource=kind, verb="get")
        run = Run(server, BRAKED)
        assert asked(server) == 0
    assert "the answer is about" in run.report.message


@pytest.mark.parametrize("verbs", [["get"], ["get", "list"], ["get", "list", "watch"]], ids=" ".join)
def test_a_namespace_of_which_something_else_says_that_it_is_none_lets_nothing_go(verbs: list[str]) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        for verb in verbs:
            server.faults.add(Reply(404, b"404 page not found\n"), resource="namespaces", verb=verb)
        run = Run(server)
        assert asked(server) == 0
    assert "is about no object" in run.report.message


@pytest.mark.parametrize("failure", [Cut("before"), Reply(500), Reply(429)], ids=repr)
def test_a_lease_that_is_lost_after_a_try_that_failed_means_no_second_try(failure: Cut | Reply) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(failure, subresource="eviction", times=1)
        run = Run(server, BRAKED, around=Surroundings(leading=lambda: asked(server) == 0))
        assert asked(server) == 1
        assert run.evictions() == 0
    assert run.report.end is End.HELD
    assert run.report.outcomes[0].status is Fate.SKIPPED
    assert "not tried again: this instance is not the leader any more" in run.report.outcomes[0].message


def test_a_namespace_that_is_paused_between_two_tries_gets_no_second_one() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(500), subresource="eviction", times=1)
        time, hands = FakeTime(), Hands(server)

        def pause(_: float) -> None:
            if asked(server):
                server.store.modify(
                    "Namespace", "default", None, lambda o: o["metadata"].update(annotations={PAUSE: "wait"})
                )

        time.during = pause
        run = Run(server, BRAKED, hands=hands, time=time)
        assert asked(server) == 1
    assert run.report.evicted == 0


def test_a_brake_that_cannot_be_read_between_two_tries_ends_the_cycle_as_it_should() -> None:
    """Two evictions are in flight by then: what became of them is still found out and written down. Of the
    third nobody knows whether its 500 was the last word."""
    with Machine() as m:
        m.server.faults.add(Reply(500), subresource="eviction", skip=2, times=1)
        seen: list[int] = []

        def during(_: float) -> None:
            if asked(m.server) == 3 and not seen:
                seen.append(1)
                m.server.faults.add(Reply(500), resource="configmaps", verb="get")

        m.time.during = during
        run = m.cycle(options=BRAKED, limits=LIMITS)
        ledger = m.ledger()
    assert run.report.evicted == run.evictions() == 2
    assert any("whether evictions are paused is not known" in o.message for o in run.report.outcomes)
    assert run.report.end is End.ABORTED
    assert [e.fate for e in ledger.entries] == [Fate.DONE, Fate.DONE, Fate.UNKNOWN]


def test_a_stop_between_two_tries_is_no_reason_to_open_the_breaker() -> None:
    with Machine() as m:
        m.server.faults.add(Reply(429, headers={"Retry-After": "5"}), subresource="eviction", times=1)
        time = FakeTime(at=m.time.at)

        def stop(_: float) -> None:
            time.stop = time.stop or bool(asked(m.server))

        m.time.during = stop
        run = m.cycle(HistoryRules(), BRAKED, time=time, limits=LIMITS)
        ledger = m.ledger()
    assert run.report.end is End.STOPPED
    assert ledger.circuit.trips == 0
    assert run.evictions() == 0


def braked(server: ApiServer, value: str = "incident 4711") -> None:
    """Somebody has put the brake on."""
    server.store.modify(
        "ConfigMap",
        "rebalancer-brake",
        "default",
        lambda o: o["metadata"].update(annotations={PAUSE: value}),
    )


def test_a_brake_that_is_on_holds_although_the_server_refuses_to_show_it_for_a_moment() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        braked(server)
        server.faults.add(Reply(403), resource="configmaps", times=2)
        run = Run(server, BRAKED)
        assert asked(server) == 0
    assert run.report.end is End.HELD
    assert "incident 4711" in run.report.message


def test_a_server_that_refuses_to_show_the_brake_for_a_moment_costs_nothing() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(403), resource="configmaps", times=2)
        run = Run(server, BRAKED)
    assert run.report.end is End.COMPLETE
    assert run.evictions() == 4


@pytest.mark.parametrize("resource", ["configmaps", "namespaces"])
def test_a_brake_that_may_not_be_read_means_that_nothing_is_evicted(resource: str) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(403), resource=resource, verb="get")
        run = Run(server, BRAKED)
        assert asked(server) == 0
    assert run.report.end is not End.COMPLETE
    reasons = [o.reason for o in run.report.outcomes] or [run.report.reason]
    assert {r.code for r in reasons if r} == {ReasonCode.NO_BRAKE}
    assert all("cannot be seen" in r.message for r in reasons if r)


def test_what_was_read_of_the_brake_for_a_look_that_went_no_further_is_not_believed_later() -> None:
    with ApiServer(objects(*SKEWED)) as server, connected(server) as c:
        time = FakeTime()
        check = PauseCheck(Brakes(c, wait=time.wait), BRAKE, time)
        check.begin()
        braked(server)
        time.at += 2
        reason = check.why_not()
    assert reason is not None
    assert reason.code is ReasonCode.PAUSED_BY_ANNOTATION


def test_a_brake_that_is_missing_means_that_nothing_is_evicted() -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server:
        run = Run(server, BRAKED)
        assert asked(server) == 0
    assert run.report.end is End.HELD
    assert "ConfigMap default/rebalancer-brake" in run.report.message
    assert run.report.reason is not None
    assert run.report.reason.remedy == "`rebalancer resume` creates it"


def test_a_brake_that_is_taken_away_in_the_middle_of_a_cycle_stops_the_next_eviction() -> None:
    with Machine() as m:
        m.time.during = lambda _: _deleted(m.server)
        run = m.cycle(options=BRAKED)
    assert run.report.end is End.HELD
    assert run.report.evicted == 1


def _deleted(server: ApiServer) -> None:
    if any(c["metadata"]["name"] == "rebalancer-brake" for c in server.store.list("ConfigMap")):
        server.store.delete("ConfigMap", "rebalancer-brake", "default")


PAUSES = [
    ("2001-09-09T01:46:40Z", True),
    ("2001-09-09T01:46:40Z incident 4711", True),
    ("2001-09-09 incident 4711", True),
    ("1970-01-12T13:46:39Z incident 4711", False),
    ("1970-01-12T13:46:39Z", False),
]


@pytest.mark.parametrize(("value", "holds"), PAUSES)
def test_a_pause_with_a_time_ends_by_itself(value: str, holds: bool) -> None:
    """The test's clock says 1970-01-12T13:46:40Z."""
    with ApiServer(objects(*SKEWED)) as server:
        braked(server, value)
        run = Run(server, BRAKED)
    assert (run.report.end is End.HELD) is holds
    assert (run.evictions() == 0) is holds


def test_the_annotation_of_the_lease_that_paused_in_earlier_versions_still_does() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        run = Run(server, BRAKED, around=Surroundings(lease=lambda: {PAUSE: "incident 4711"}))
        assert asked(server) == 0
    assert run.report.message == "lease is paused: rebalancer.io/pause=incident 4711"
