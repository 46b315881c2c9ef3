"""The right to evict may end at any moment: between the last look and the request, between two tries."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rebalancer.kube.ledger import Place
from rebalancer.policy.annotations import PAUSE
from rebalancer.policy.circuit import CircuitLimits
from rebalancer.policy.cooldown import MemoryRules
from rebalancer.runtime.live import Surroundings
from rebalancer.runtime.outcome import End, MoveStatus
from rebalancer.sandbox import ApiServer, Cut, Reply
from tests.sandbox.test_cycle_memory import Machine
from tests.sandbox.test_cycle_once import EXECUTE, SKEWED, Run
from tests.support.api import FakeTime
from tests.support.build import objects
from tests.support.hands import Hands

BRAKED = replace(EXECUTE, brakes=True, lease=Place("default", "rebalancer"))
LIMITS = CircuitLimits()


def asked(server: ApiServer) -> int:
    """Requests for evictions, answered or not."""
    return sum(a.subresource == "eviction" for a in server.accesses)


def test_a_lease_that_is_lost_while_a_namespace_is_asked_for_its_brake_stops_that_very_eviction() -> None:
    with ApiServer(objects(*SKEWED)) as server:

        def leading() -> bool:
            return not any(a.resource == "namespaces" and a.verb == "get" for a in server.accesses)

        run = Run(server, BRAKED, around=Surroundings(leading=leading))
        assert asked(server) == 0
    assert run.report.end is End.HELD
    assert run.report.message == "this instance is not the leader any more"


@pytest.mark.parametrize("failure", [Cut("before"), Reply(500), Reply(429)], ids=repr)
def test_a_lease_that_is_lost_after_a_try_that_failed_means_no_second_try(failure: Cut | Reply) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(failure, subresource="eviction", times=1)
        run = Run(server, BRAKED, around=Surroundings(leading=lambda: asked(server) == 0))
        assert asked(server) == 1
        assert run.evictions() == 0
    assert run.report.end is End.HELD
    assert run.report.outcomes[0].status is MoveStatus.SKIPPED
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
    """Two evictions are in flight by then: what became of them is still found out and written down."""
    with Machine() as m:
        m.server.faults.add(Reply(500), subresource="eviction", skip=2, times=1)
        seen: list[int] = []

        def during(_: float) -> None:
            if asked(m.server) == 3 and not seen:
                seen.append(1)
                m.server.faults.add(Reply(500), resource="leases")

        m.time.during = during
        run = m.cycle(options=BRAKED, limits=LIMITS)
        ledger = m.ledger()
    assert run.report.evicted == run.evictions() == 2
    assert any("whether evictions are paused is not known" in o.message for o in run.report.outcomes)
    assert run.report.end is End.ABORTED
    assert len(ledger.entries) == 2
    assert ledger.totals.evictions == 2


def test_a_stop_between_two_tries_is_no_reason_to_open_the_breaker() -> None:
    with Machine() as m:
        m.server.faults.add(Reply(429, headers={"Retry-After": "5"}), subresource="eviction", times=1)
        time = FakeTime(at=m.time.at)

        def stop(_: float) -> None:
            time.stop = time.stop or bool(asked(m.server))

        m.time.during = stop
        run = m.cycle(MemoryRules(), BRAKED, time=time, limits=LIMITS)
        ledger = m.ledger()
    assert run.report.end is End.STOPPED
    assert ledger.circuit.trips == 0
    assert run.evictions() == 0


def paused_lease(server: ApiServer) -> None:
    """Somebody has put the brake on."""
    meta = {"name": "rebalancer", "namespace": "default", "annotations": {PAUSE: "incident 4711"}}
    server.store.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta})


def test_a_brake_that_is_on_holds_although_the_server_refuses_to_show_it_for_a_moment() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        paused_lease(server)
        server.faults.add(Reply(403), resource="leases", times=2)
        run = Run(server, BRAKED)
        assert asked(server) == 0
    assert run.report.end is End.HELD
    assert "incident 4711" in run.report.message


def test_a_brake_that_may_never_be_seen_is_told_once_and_holds_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(403), resource="leases")
        run = Run(server, BRAKED)
        assert run.evictions() == 4
        assert sum(a.resource == "leases" for a in server.accesses) == 3
    assert run.report.end is End.COMPLETE
    assert caplog.text.count("a pause of default/rebalancer cannot be seen") == 1
