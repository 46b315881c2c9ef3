"""A machine's clock and the API server's disagree: each rule takes the more cautious time, and it is said."""

from __future__ import annotations

import time as real
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube import connection
from rebalancer.kube.config_maps import Ledgers
from rebalancer.kube.connection import ServerTime
from rebalancer.kube.errors import Target
from rebalancer.model.quantity import rfc3339
from rebalancer.policy.annotations import PAUSE
from rebalancer.policy.caps import Window, parse_cron
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.ledger import Ledger
from rebalancer.policy.history.ledgers_merged import as_of
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.checks import CycleChecks
from rebalancer.runtime.live.configured import LiveOptions
from tests.sandbox.cycle.limits.test_caps import capped
from tests.support.build import objects
from tests.support.processes.command import call, moving
from tests.support.processes.daemon_process import evictions
from tests.support.runs.machine import PLACE, Machine
from tests.support.runs.one_cycle import PATIENT, SKEWED
from tests.support.sandbox import ApiServer
from tests.support.servers.api import QUICK, FakeTime, connected
from tests.unit.planner.cluster import test_kubelets as kubelets
from tests.unit.policy.history.test_stabilization import NOW

HOUR = 3600.0
FAR = 50 * HOUR
WHOSE = pytest.mark.parametrize(
    "ahead", [-3 * HOUR, 3 * HOUR], ids=["this one is ahead", "this one is behind"]
)


def pause(server: ApiServer, kind: str, name: str, namespace: str | None, hours: float) -> None:
    """Until so many hours from now, by this machine's clock."""
    until = f"{datetime.now(UTC) + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"
    server.store.modify(
        kind, name, namespace, lambda o: o["metadata"].update(annotations={PAUSE: f"{until} incident"})
    )


def evicted(server: ApiServer, folder: Path, settings: str = "{}") -> tuple[int, str]:
    """What a single cycle from the command line evicts, and what it says."""
    (folder / "settings.yaml").write_text(settings)
    with moving(server):
        done = call(server, folder, "once", "--execute", "--config", str(folder / "settings.yaml"))
    return evictions(server), done.stdout + done.stderr


@WHOSE
@pytest.mark.parametrize(
    "what", [("ConfigMap", "rebalancer-brake", "default"), ("Namespace", "default", None)]
)
def test_a_pause_lasts_until_it_is_over_by_both_clocks(
    what: tuple[str, str, str | None], ahead: float, tmp_path: Path
) -> None:
    with ApiServer(objects(*SKEWED), ahead=ahead) as server:
        pause(server, *what, hours=-1 if ahead < 0 else 1)
        count, said = evicted(server, tmp_path)
    assert count == 0
    assert f"180 min {'ahead of' if ahead < 0 else 'behind'} the API server's" in " ".join(said.split())


def test_an_age_is_the_younger_one(tmp_path: Path) -> None:
    """The pods were made this moment, by the server's clock."""
    made = objects(*SKEWED)
    for pod in (o for o in made if o["kind"] == "Pod"):
        pod["metadata"]["creationTimestamp"] = f"{datetime.now(UTC) - timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}"
    with ApiServer(made, ahead=-2 * HOUR) as server:
        assert evicted(server, tmp_path, "policy: {minPodAge: 1h}")[0] == 0
        server.ahead = 0.0
        assert evicted(server, tmp_path, "policy: {minPodAge: 1h}")[0] == 4


@WHOSE
def test_a_node_is_sick_once_it_is_so_by_one_of_them(ahead: float, tmp_path: Path, monkeypatch: Any) -> None:
    """Pods of three owners came there an hour ago, and are not Ready."""
    monkeypatch.setattr(kubelets, "ago", lambda s: rfc3339(real.time() - s))
    made = [*kubelets.web(), *kubelets.sick(3, 3600)]
    with ApiServer(made, ahead=ahead) as server:
        assert evicted(server, tmp_path)[0] == 0


SMALL: list[tuple[float | None, str]] = [(0.0, ""), (-50.0, ""), (50.0, ""), (None, "answers have no Date")]


@pytest.mark.parametrize(("ahead", "said"), SMALL, ids=["none", "behind", "ahead", "no Date"])
def test_a_difference_of_less_than_a_minute_is_none(ahead: float | None, said: str, tmp_path: Path) -> None:
    """Without a Date only this machine's clock is left, and the report says so too."""
    with ApiServer(objects(*SKEWED), ahead=ahead) as server:
        report = call(server, tmp_path, "report", "-o", "json").stdout
        count, told = evicted(server, tmp_path)
    assert count == 4
    assert all((said in text) if said else ("clock" not in text) for text in (report, told))


@pytest.mark.parametrize("ahead", [-3 * HOUR, -90.0, -50.0, 50.0, 90.0, 3 * HOUR])
def test_the_earliest_and_the_latest_are_of_both_clocks(ahead: float) -> None:
    clock = SystemClock(server=lambda: real.time() + ahead)
    counts = ahead if abs(ahead) > 60 else 0.0
    assert clock.now() == pytest.approx(real.time() + min(0.0, counts), abs=5)
    assert clock.latest() == pytest.approx(real.time() + max(0.0, counts), abs=5)


@WHOSE
def test_the_report_says_it(ahead: float, tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), ahead=ahead) as server:
        assert "what time it is" in call(server, tmp_path, "report").stdout


BEYOND_A_CYCLE: dict[str, tuple[HistoryRules, Any]] = {
    "cap of an hour": (HistoryRules(), capped(max_total_per_hour=Limit(number=2))),
    "cap of a day": (HistoryRules(), capped(max_per_owner_per_day=Limit(number=2))),
    "cool-down": (HistoryRules(cool_down=HOUR), capped(max_total=Limit(number=2))),
}


@pytest.mark.parametrize("rule", BEYOND_A_CYCLE)
def test_a_clock_that_is_ahead_lifts_nothing(rule: str) -> None:
    rules, options = BEYOND_A_CYCLE[rule]
    with Machine() as m:
        assert m.cycle(rules, options).report.evicted == 2
        later = FakeTime(at=m.time.at + 120, apart=FAR)
        assert m.cycle(rules, options, time=later).report.evicted == 0


@pytest.mark.parametrize("rule", BEYOND_A_CYCLE)
def test_what_a_clock_that_was_behind_has_written_counts_in_full(rule: str) -> None:
    rules, options = BEYOND_A_CYCLE[rule]
    with Machine() as m:
        right = m.time.at
        assert m.cycle(rules, options, time=FakeTime(at=right - FAR, apart=FAR)).report.evicted == 2
        assert m.cycle(rules, options, time=FakeTime(at=right - FAR + 120, apart=FAR)).report.evicted == 0
        m.time.at = right + 240
        assert m.cycle(rules, options).report.evicted == 0
        m.time.at = right + 25 * HOUR
        assert m.cycle(rules, options).report.evicted == 2


def test_a_claim_of_a_clock_that_is_behind_lasts_for_the_others() -> None:
    with Machine() as m:
        right = m.time.at
        m.cycle(time=FakeTime(at=right - FAR, apart=FAR), silent=600.0)
        assert all(c.until >= right + 600 for c in m.ledger().claims.values())


@pytest.mark.parametrize(
    ("trips", "asks"),
    [(FakeTime(NOW - FAR, FAR), FakeTime(NOW + 60)), (FakeTime(NOW), FakeTime(NOW + 60, FAR))],
    ids=["opened by one that is behind", "asked by one that is ahead"],
)
def test_the_breaker_stays_open(trips: FakeTime, asks: FakeTime) -> None:
    first, second = (Memory(t, HistoryRules(), limits=CircuitLimits(pause=600.0)) for t in (trips, asks))
    first.trip("two replacements failed")
    second.ledger = first.ledger
    assert second.circuit_open() is not None


@pytest.mark.parametrize("apart", [0.0, 300.0, 1800.0, FAR])
def test_a_breaker_that_was_closed_by_a_clock_that_is_ahead_can_be_tripped_by_another(apart: float) -> None:
    """One that a clock has opened that is ahead by more than the pause is closed as well."""
    with Machine() as m, connected(m.server, options=PATIENT) as c:
        ahead, right = FakeTime(m.time.at, apart), FakeTime(m.time.at)

        def leads(name: str, time: FakeTime, term: int) -> Memory:
            store = Ledgers(c, PLACE, writer=name, wait=time.wait, backoff=QUICK)
            limits = CircuitLimits(pause=600.0)
            return Memory(time, HistoryRules(), store=store, writer=name, limits=limits, term=lambda: term)

        def later(seconds: float) -> None:
            ahead.at = right.at = right.at + seconds

        one, other = leads("one", ahead, 1), leads("other", right, 2)
        one.begin()
        one.trip("two replacements failed")
        one.end(well=False)
        later(60)
        one.begin()
        assert one.circuit_open() is not None
        one.end(well=False)
        later(660 + (apart if apart < 600 else 0))
        one.begin()
        assert one.circuit_open() is None
        one.end(well=True)
        assert m.ledger().circuit.trips == 0
        later(300)
        other.begin()
        assert other.circuit_open() is None
        other.trip("two more failed")
        other.save()
        later(60)
        one.begin()
        assert one.circuit_open() is not None
        one.end(well=True)
        assert m.ledger().circuit.trips == 1


def test_caution_after_a_ledger_that_could_not_be_read_is_not_cut_short() -> None:
    ledger = Ledger(unread=NOW + HOUR)
    assert as_of(ledger, NOW + FAR, 0.0, earliest=NOW).unread == NOW + HOUR
    assert as_of(ledger, NOW + FAR, 0.0).unread == 0.0


@pytest.mark.parametrize("action", ["allow", "deny"])
def test_a_window_is_asked_by_both_clocks(action: Any) -> None:
    noon = datetime(2026, 5, 4, 12, 30, tzinfo=UTC).timestamp()
    options = LiveOptions(execute=True, windows=(Window(parse_cron("0 12 * * *"), HOUR, UTC, action),))

    for at, apart in ((noon, 3 * HOUR), (noon - 3 * HOUR, 3 * HOUR)):
        assert CycleChecks(options, FakeTime(at, apart)).closed() is not None
    both = noon if action == "allow" else noon + 5 * HOUR
    assert CycleChecks(options, FakeTime(both)).closed() is None


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    at = [0.0]
    monkeypatch.setattr(connection, "steady", lambda: at[0])
    return lambda seconds: at.__setitem__(0, at[0] + seconds)


def test_an_older_date_is_no_step_back_and_none_counts_for_good(steady: Callable[[float], None]) -> None:
    clock = ServerTime()
    assert clock() is None
    for said in (None, "", "yesterday", "Mon, 99 Foo 2026 00:00:00 GMT"):
        clock.heard(said)
    assert clock() is None
    clock.heard(formatdate(NOW, usegmt=True))
    steady(10)
    assert clock() == NOW + 10
    clock.heard(formatdate(NOW - 300, usegmt=True))
    assert clock() == NOW + 10, "another server of the cluster, or an answer out of a cache"
    clock.heard(formatdate(NOW + 86_400, usegmt=True))
    assert clock() == NOW + 86_400
    for _ in range(3):
        steady(601)
        clock.heard(formatdate(NOW + 100, usegmt=True))
    assert clock() == NOW + 100 + 601, "the wrong one is forgotten; the later of the last two counts"


def test_the_machines_clock_may_be_set_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with ApiServer(objects(*SKEWED)) as server, connected(server) as c:
        clock = SystemClock(server=c.time)
        assert "no Date" in clock.doubt()
        c.request("GET", "/version", Target("get", say="get /version"))
        assert clock.doubt() == ""
        assert clock.now() == pytest.approx(real.time(), abs=5)
        right = real.time
        monkeypatch.setattr(real, "time", lambda: right() + 3 * HOUR)
        assert clock.now() == pytest.approx(right(), abs=5)
        assert clock.latest() == pytest.approx(right() + 3 * HOUR, abs=5)
        assert "180 min ahead of" in clock.doubt()
