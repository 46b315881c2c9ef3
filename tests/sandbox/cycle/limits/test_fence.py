"""The ledger as a fence: of two rebalancers on one ledger, that of the later term acts, or neither does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rebalancer.kube.config_maps import Ledgers, Place
from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.ledger import Circuit, Claim, Ledger
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.places import Places, elector_of
from rebalancer.settings import Settings
from tests.support.runs.machine import BRAKE, PLACE, Machine
from tests.support.runs.one_cycle import EXECUTE, Run
from tests.support.sandbox import Reply
from tests.support.servers.api import QUICK, connected
from tests.support.waiting import until

ONE = replace(EXECUTE, planning=PlanOptions(policy=PolicyOptions(max_total=Limit(number=1))))
SILENT = 600.0


class Rebalancer:
    """A process with a memory that lasts, and one eviction a cycle."""

    def __init__(self, machine: Machine, name: str, term: int = 0) -> None:
        self.machine, self.term = machine, term
        self._connected = connected(machine.server)
        connection = self._connected.__enter__()
        self.memory = Memory(
            machine.time,
            HistoryRules(),
            store=Ledgers(connection, PLACE, writer=name, wait=machine.time.wait, backoff=QUICK),
            limits=CircuitLimits(),
            writer=name,
            term=lambda: self.term,
            silent=SILENT,
        )

    def cycle(self) -> Run:
        m = self.machine
        m.time.during = lambda _: None
        return Run(m.server, ONE, hands=m.hands, time=m.time, around=Surroundings(memory=self.memory))

    def end(self) -> None:
        self.memory.leave()
        self.close()

    def close(self) -> None:
        self._connected.__exit__(None, None, None)


def test_two_in_the_same_term_stop_both_until_one_is_gone() -> None:
    with Machine() as m:
        a, b = Rebalancer(m, "a"), Rebalancer(m, "b")
        assert a.cycle().report.evicted == 1
        ends = [r.cycle().report for r in (b, a, b, a)]
        assert [e.end for e in ends] == [End.HELD] * 4
        assert {e.reason.code for e in ends if e.reason} == {ReasonCode.RIVAL}
        assert ends[0].message.startswith("a acts on the same ledger without the same lease")
        assert ends[1].message.startswith("b acts on the same ledger without the same lease")
        b.end()
        assert a.cycle().report.evicted == 1
        a.close()


def test_one_that_was_killed_is_waited_for_as_long_as_it_may_be_silent() -> None:
    with Machine() as m:
        a, b = Rebalancer(m, "a"), Rebalancer(m, "b")
        a.cycle()
        a.close()
        assert b.cycle().report.end is End.HELD
        m.time.at += SILENT
        assert b.cycle().report.evicted == 1
        b.close()


def test_a_higher_term_is_a_handover_and_the_former_leader_stops() -> None:
    with Machine() as m:
        old, new = Rebalancer(m, "old", 4), Rebalancer(m, "new", 5)
        assert old.cycle().report.evicted == 1
        assert new.cycle().report.evicted == 1
        held = old.cycle().report
        assert held.end is End.HELD
        assert held.message == "new has taken over: it acts on the same ledger"
        assert new.cycle().report.evicted == 1
        old.close()
        new.close()


def test_a_second_one_that_comes_in_the_middle_of_a_cycle_stops_the_next_eviction() -> None:
    with Machine() as m:
        a, b = Rebalancer(m, "a"), Rebalancer(m, "b")
        seen: list[Run] = []

        def during(_: float) -> None:
            if any(x.subresource == "eviction" for x in m.server.accesses) and not seen:
                b.memory.begin()
                b.memory.end(well=True)
                seen.append(None)  # type: ignore[arg-type]

        m.time.during = during
        run = Run(m.server, EXECUTE, hands=m.hands, time=m.time, around=Surroundings(memory=a.memory))
        assert run.report.evicted == run.evictions() == 1
        assert run.report.end is End.ABORTED
        assert "it cannot be written down: b acts on the same ledger" in run.report.message
        a.close()
        b.close()


def test_what_one_wrote_about_the_breaker_survives_what_the_other_writes() -> None:
    with Machine() as m:
        a, b = Rebalancer(m, "a"), Rebalancer(m, "b", 1)
        a.memory.begin()
        b.memory.begin()
        until = m.time.at + 900
        b.memory.ledger = replace(b.memory.ledger, circuit=Circuit(until=until, trips=2, reason="unwell"))
        b.memory.end(well=False)
        a.memory.ledger = replace(a.memory.ledger, circuit=Circuit(until=until - 600, trips=1, reason="less"))
        a.memory.end(well=False)
        assert m.ledger().circuit == Circuit(until=until, trips=2, reason="unwell")
        a.close()
        b.close()


def test_a_claim_by_a_clock_that_was_ahead_lasts_as_long_as_any_other() -> None:
    with Machine() as m:
        right = m.time.at
        killed = Rebalancer(m, "killed")
        m.time.at += 100 * 86_400
        killed.cycle()
        killed.close()
        m.time.at = right
        other = Rebalancer(m, "other")
        assert other.cycle().report.end is End.HELD
        m.time.at = right + SILENT + 60
        assert other.cycle().report.evicted == 1
        other.close()


SOON = {"leaseDuration": "2s", "renewDeadline": "1s", "retryPeriod": "200ms"}


@pytest.mark.parametrize(
    ("before", "faults"),
    [(None, 0), (3, 0), (None, 3)],
    ids=["deleted", "set back", "deleted, and the ledger cannot be read for a while"],
)
def test_who_takes_a_lease_that_begins_anew_is_later_than_all_who_have_acted(
    before: int | None, faults: int
) -> None:
    with Machine() as m, connected(m.server) as c:
        m.keep(Ledger(claims={"dead": Claim(until=m.time.at + 86_400, term=7, made=m.time.at)}))
        if before is not None:
            spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": before}
            meta = {"name": "rebalancer", "namespace": "default"}
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            m.server.store.create({**kind, "metadata": meta, "spec": spec})
        if faults:
            m.server.faults.add(Reply(500), verb="get", resource="configmaps", times=faults)
        places = Places(brake=BRAKE, ledger=PLACE, lease=Place("default", "rebalancer"))
        elector = elector_of(
            Settings.model_validate({"leaderElection": SOON}), c, places, identity="new"
        ).start()
        try:
            until(elector.still_leading)
            term = elector.status().transitions
        finally:
            elector.stop()
        new = Rebalancer(m, "new", term)
        assert new.cycle().report.evicted == 1
        new.close()


def test_a_dry_run_beside_one_that_acts_stops_nobody_and_does_not_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Machine() as m:
        a, looks = Rebalancer(m, "a"), Rebalancer(m, "b")
        looks.memory.read_only = True
        assert a.cycle().report.evicted == 1
        looks.memory.load()
        assert "without the same lease" not in caplog.text
        assert a.cycle().report.evicted == 1
        a.close()
        looks.close()
