"""When cycles start: on the scheduler itself, with a clock that the test moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import cycle, pairwise
from typing import Any

import pytest
from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers import base
from apscheduler.schedulers.base import BaseScheduler

from rebalancer.outcome import Observer
from rebalancer.runtime.daemon.schedule import Daemon, IntervalTrigger, trigger_of
from rebalancer.settings import load_settings


class ByHand(BaseScheduler):  # type: ignore[misc]
    """The scheduler without its thread: it looks for what is due when it is told to."""

    def wakeup(self) -> None:
        """Nobody sleeps."""

    def shutdown(self, wait: bool = True) -> None:
        """As the other schedulers."""
        super().shutdown(wait)


class Days:
    """A daemon's job on a scheduler, and the clock of both; `ran`: when cycles started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now: str, **schedule: Any) -> None:
        self.now = datetime.fromisoformat(now)
        days = self

        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Any:
                return days.now.astimezone(tz)

        monkeypatch.setattr(base, "datetime", Clock)
        self.ran: list[datetime] = []
        settings = load_settings(env={}, flags={"schedule": schedule})
        self.daemon = Daemon(
            lambda _: self.ran.append(self.now),
            stop=threading.Event(),
            observer=Observer(),
            trigger=trigger_of(settings),
            at_once=False,
        )
        self.scheduler = ByHand(timezone=UTC, executors={"default": DebugExecutor()})
        self.daemon.schedule_on(self.scheduler)
        self.scheduler.start()

    @property
    def due(self) -> datetime:
        """When the next cycle is due."""
        due = self.daemon.next_run()
        assert due is not None
        return datetime.fromtimestamp(due, UTC)

    def until(self, to: datetime) -> None:
        """Nobody looks before that time: what was due meanwhile has been missed."""
        self.now = to
        self.scheduler._process_jobs()

    def next(self, n: int) -> list[str]:
        """Looks whenever something is due; the next n starts."""
        before = len(self.ran)
        while len(self.ran) < before + n:
            self.until(self.due)
        return [t.strftime("%a %d %b %H:%M:%S") for t in self.ran[before:]]


TABLE: list[tuple[str, dict[str, str], str, list[str]]] = [
    ("weekday 0 is Sunday", {"cron": "0 4 * * 0"}, "2026-06-03T00:00Z",
     ["Sun 07 Jun 04:00:00", "Sun 14 Jun 04:00:00"]),
    ("weekday 7 is Sunday, too", {"cron": "0 4 * * 7"}, "2026-06-03T00:00Z", ["Sun 07 Jun 04:00:00"]),
    ("weekday 1 is Monday", {"cron": "0 4 * * 1"}, "2026-06-03T00:00Z", ["Mon 08 Jun 04:00:00"]),
    ("1-5 are Monday to Friday", {"cron": "0 4 * * 1-5"}, "2026-06-05T00:00Z",
     ["Fri 05 Jun 04:00:00", "Mon 08 Jun 04:00:00", "Tue 09 Jun 04:00:00"]),
    ("names mean the same", {"cron": "0 4 * * MON-FRI"}, "2026-06-05T00:00Z",
     ["Fri 05 Jun 04:00:00", "Mon 08 Jun 04:00:00", "Tue 09 Jun 04:00:00"]),
    ("a range over the week's end", {"cron": "0 4 * * 6-7"}, "2026-06-03T00:00Z",
     ["Sat 06 Jun 04:00:00", "Sun 07 Jun 04:00:00", "Sat 13 Jun 04:00:00"]),
    ("either day is enough", {"cron": "0 4 13 * 5"}, "2026-06-10T00:00Z",
     ["Fri 12 Jun 04:00:00", "Sat 13 Jun 04:00:00", "Fri 19 Jun 04:00:00"]),
    ("by the wall clock of a zone, in summer", {"cron": "0 2 * * *", "timeZone": "Europe/Berlin"},
     "2026-06-03T00:30Z", ["Thu 04 Jun 00:00:00"]),
    ("by the wall clock of a zone, in winter", {"cron": "0 2 * * *", "timeZone": "Europe/Berlin"},
     "2026-12-03T00:30Z", ["Thu 03 Dec 01:00:00"]),
    ("the weekday is the zone's", {"cron": "0 4 * * MON", "timeZone": "Asia/Tokyo"},
     "2026-06-03T00:00Z", ["Sun 07 Jun 19:00:00"]),
    ("a time that spring skips comes right after", {"cron": "30 2 * * *", "timeZone": "Europe/Berlin"},
     "2026-03-28T12:00Z", ["Sun 29 Mar 01:00:00", "Mon 30 Mar 00:30:00"]),
    ("a time that autumn shows twice counts once", {"cron": "30 2 * * *", "timeZone": "Europe/Berlin"},
     "2026-10-24T12:00Z", ["Sun 25 Oct 00:30:00", "Mon 26 Oct 01:30:00"]),
    ("by interval, from start to start", {"interval": "7m"}, "2026-06-03T23:50Z",
     ["Wed 03 Jun 23:57:00", "Thu 04 Jun 00:04:00", "Thu 04 Jun 00:11:00"]),
    ("an interval is the same whatever the clocks do", {"interval": "12h", "timeZone": "Europe/Berlin"},
     "2026-03-28T20:00Z", ["Sun 29 Mar 08:00:00", "Sun 29 Mar 20:00:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "now", "starts"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])
def test_cycles_start(
    schedule: dict[str, str], now: str, starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Days(monkeypatch, now, **schedule).next(len(starts)) == starts


def test_jitter_puts_a_cron_start_off_and_never_forward_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    days = Days(monkeypatch, "2026-06-03T00:30Z", cron="0 * * * *", jitter="5m")
    days.next(200)
    late = [t - t.replace(minute=0, second=0, microsecond=0) for t in days.ran]
    assert all(timedelta(0) <= x <= timedelta(minutes=5) for x in late)
    assert max(late) - min(late) > timedelta(minutes=3), "at random"
    hours = [t.replace(minute=0, second=0, microsecond=0) for t in days.ran]
    assert all(b - a == timedelta(hours=1) for a, b in pairwise(hours)), "none left out, none twice"


def test_jitter_longer_than_the_time_between_two_starts_leaves_some_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days = Days(monkeypatch, "2026-06-03T00:30Z", cron="* * * * *", jitter="3m")
    days.next(100)
    assert all(b > a for a, b in pairwise(days.ran))
    assert days.ran[-1] - days.ran[0] < timedelta(minutes=4 * 100)


def test_jitter_of_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    days = Days(monkeypatch, "2026-06-03T00:00Z", interval="10m", jitter="2m")
    days.next(200)
    gaps = [b - a for a, b in pairwise(days.ran)]
    assert all(timedelta(minutes=10) <= g <= timedelta(minutes=12) for g in gaps)
    assert max(gaps) - min(gaps) > timedelta(minutes=1)


MISSED: list[tuple[dict[str, str], str, str]] = [
    ({"interval": "5m"}, "Thu 04 Jun 12:00:00", "Thu 04 Jun 12:05:00"),
    ({"interval": "5m", "jitter": "10s"}, "Thu 04 Jun 12:00:00", ""),
    ({"cron": "0 * * * *"}, "Thu 04 Jun 12:00:00", "Thu 04 Jun 13:00:00"),
    ({"cron": "30 4 * * *"}, "Thu 04 Jun 12:00:00", "Fri 05 Jun 04:30:00"),
]


@pytest.mark.parametrize(("schedule", "first", "second"), MISSED, ids=[str(m[0]) for m in MISSED])
def test_starts_that_were_missed_are_one_and_then_all_goes_on(
    schedule: dict[str, str], first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine slept for a day and a half."""
    days = Days(monkeypatch, "2026-06-03T00:00Z", **schedule)
    days.until(datetime.fromisoformat("2026-06-04T12:00Z"))
    assert [t.strftime("%a %d %b %H:%M:%S") for t in days.ran] == [first]
    days.until(days.now)
    assert len(days.ran) == 1
    after = days.next(1)
    assert not second or after == [second]


def test_a_missed_start_is_not_due_again_where_jitter_is_drawn_long_and_then_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days = Days(monkeypatch, "2026-06-03T00:00Z", interval="5m", jitter="10s")
    draws = cycle([10.0, 0.0])
    monkeypatch.setattr("random.uniform", lambda _a, _b: next(draws))
    for missed in (1, 2):
        before = len(days.ran)
        days.until(days.due + timedelta(minutes=5 * missed, seconds=5))
        days.until(days.now)
        assert len(days.ran) == before + 1
        assert timedelta(0) < days.due - days.now <= timedelta(minutes=5, seconds=10)


def test_another_schedule_counts_from_when_it_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    days = Days(monkeypatch, "2026-06-03T00:00Z", interval="10m")
    assert days.next(1) == ["Wed 03 Jun 00:10:00"]
    days.now += timedelta(minutes=3)
    flags = {"schedule": {"cron": "0 4 * * 0"}}
    days.daemon.reschedule(trigger_of(load_settings(env={}, flags=flags)))
    assert days.next(2) == ["Sun 07 Jun 04:00:00", "Sun 14 Jun 04:00:00"]
    days.daemon.reschedule(IntervalTrigger(60))
    assert days.next(2) == ["Sun 14 Jun 04:01:00", "Sun 14 Jun 04:02:00"]


class Running:
    """A daemon with its own threads; a cycle lasts until it is let go."""

    def __init__(self, **more: Any) -> None:
        self.stop, self.let_go = threading.Event(), threading.Semaphore(0)
        self.at_work = self.most = self.began = 0
        self.daemon = Daemon(self._cycle, stop=self.stop, observer=Observer(), **more)
        self.thread = threading.Thread(target=self.daemon.run)
        self.thread.start()

    def _cycle(self, _: int) -> None:
        self.at_work += 1
        self.most, self.began = max(self.most, self.at_work), self.began + 1
        assert self.let_go.acquire(timeout=120)
        self.at_work -= 1

    def wait_for(self, began: int, seconds: float = 60.0) -> None:
        """Until so many cycles began."""
        end = time.monotonic() + seconds
        while self.began < began:
            assert time.monotonic() < end
            time.sleep(0.01)

    def end(self) -> None:
        """As by a signal."""
        self.stop.set()
        self.let_go.release(100)
        self.thread.join(120)
        assert not self.thread.is_alive()


@pytest.fixture
def running() -> Iterator[list[Running]]:
    every: list[Running] = []
    yield every
    for r in every:
        r.end()


def test_never_two_at_once_however_often_one_is_due_or_asked_for(running: list[Running]) -> None:
    r = Running(interval=0.02)
    running.append(r)
    r.wait_for(1)
    for _ in range(20):
        r.daemon.run_now()
        time.sleep(0.01)
    assert (r.began, r.most) == (1, 1)
    r.let_go.release()
    r.wait_for(2)
    assert r.most == 1


def test_one_that_is_asked_for_while_one_is_at_work_follows_it_whenever_the_next_is_due(
    running: list[Running],
) -> None:
    """As when the lease is won just while a cycle finds out that this instance does not lead."""
    r = Running(interval=300)
    running.append(r)
    r.wait_for(1)
    r.daemon.run_now()
    time.sleep(0.1)
    r.let_go.release()
    r.wait_for(2)
    r.let_go.release()
    time.sleep(2.2)
    assert (r.began, r.most) == (2, 1)


@pytest.mark.parametrize("by", ["interval", "cron"])
def test_a_clock_that_is_set_back_does_not_put_cycles_off_for_as_long(
    by: str, running: list[Running]
) -> None:
    """Two days ahead at first: what was due by that clock is two days away once it is right."""
    ahead = [172_800.0]
    if by == "interval":
        schedule: dict[str, Any] = {"trigger": IntervalTrigger(300)}
    else:
        yearly = load_settings(env={}, flags={"schedule": {"cron": "0 0 1 1 *"}})
        schedule = {"trigger": trigger_of(yearly), "at_once": False}
    r = Running(wall=lambda: time.time() + ahead[0], **schedule)
    running.append(r)
    if by == "interval":
        r.wait_for(1)
        r.let_go.release()
    due = datetime.now(UTC) + timedelta(days=900)
    while r.daemon.next_run() is None:
        time.sleep(0.01)
    assert r.daemon._scheduler is not None
    r.daemon._scheduler.modify_job("cycle", next_run_time=due)
    time.sleep(0.1)
    ahead[0] = 0.0
    if by == "interval":
        r.wait_for(2)
        return
    end = time.monotonic() + 60
    while (r.daemon.next_run() or 0) > time.time() + 366 * 86_400:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert r.began == 0
