"""Cron and maintenance windows: a pure function of time, right across changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from rebalancer.policy.caps import Window, outside, parse_cron
from rebalancer.policy.history.ledger import HOUR

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def window(cron: str, hours: float, zone: ZoneInfo | None = None, action: str = "allow") -> Window:
    return Window(parse_cron(cron), hours * 3600, zone or ZoneInfo("UTC"), action)  # type: ignore[arg-type]


NEXT = [
    ("every night", "0 2 * * *", "2026-06-01T02:00:00Z", "2026-06-02T02:00:00Z"),
    ("every quarter of an hour", "*/15 * * * *", "2026-06-01T02:01:00Z", "2026-06-01T02:15:00Z"),
    ("Sunday is 0", "0 0 * * 0", "2026-06-01T00:00:00Z", "2026-06-07T00:00:00Z"),
    ("Sunday is 7", "0 0 * * 7", "2026-06-01T00:00:00Z", "2026-06-07T00:00:00Z"),
    ("weekdays by name", "0 9 * * MON-FRI", "2026-06-05T10:00:00Z", "2026-06-08T09:00:00Z"),
    ("names in full", "0 9 * * monday", "2026-06-02T00:00:00Z", "2026-06-08T09:00:00Z"),
    ("a range over the week's end", "0 9 * * SAT-MON", "2026-06-02T00:00:00Z", "2026-06-06T09:00:00Z"),
    ("months by name", "0 0 1 jan,JUL *", "2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z"),
    ("either day is enough", "0 0 13 * FRI", "2026-06-01T00:00:00Z", "2026-06-05T00:00:00Z"),
    ("the 29th of February", "0 0 29 2 *", "2026-06-01T00:00:00Z", "2028-02-29T00:00:00Z"),
    ("the month's last day", "0 0 L * *", "2026-02-01T00:00:00Z", "2026-02-28T00:00:00Z"),
    ("the month's first Sunday", "0 0 * * SUN#1", "2026-06-08T00:00:00Z", "2026-07-05T00:00:00Z"),
    ("a range to Sunday", "0 9 * * SAT-SUN", "2026-06-06T10:00:00Z", "2026-06-07T09:00:00Z"),
    ("a short form", "@daily", "2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z"),
]


@pytest.mark.parametrize(("cron", "now", "then"), [n[1:] for n in NEXT], ids=[n[0] for n in NEXT])
def test_the_next_time_of(cron: str, now: str, then: str) -> None:
    assert parse_cron(cron).after(at(now), UTC) == at(then)


def test_the_start_of_a_window_in_the_hour_shown_twice_is_its_last_one() -> None:
    half_past_two = parse_cron("30 2 * * *")
    shown_again, first = at("2026-10-25T02:20:00+01:00"), at("2026-10-25T02:30:00+02:00")
    assert half_past_two.last(HOUR, shown_again, BERLIN) == first
    assert half_past_two.last(49 * 60, shown_again, BERLIN) is None
    assert half_past_two.after(at("2026-10-25T02:20:00+01:00"), BERLIN) == at("2026-10-26T02:30:00+01:00")


def test_what_runs_every_quarter_of_an_hour_goes_on_while_the_clocks_are_put_back() -> None:
    quarters, found = parse_cron("*/15 * * * *"), [at("2026-10-25T02:30:00+02:00")]
    for _ in range(4):
        found.append(quarters.after(found[-1], BERLIN) or 0)
    assert [after - before for before, after in pairwise(found)] == [900.0] * 4


@pytest.mark.parametrize(
    ("cron", "zone", "began"),
    [
        ("*/30 0 * * SUN", "America/Havana", "2026-03-08T01:00:00-04:00"),
        ("*/30 0 * * SUN", "America/Santiago", "2026-09-06T01:00:00-03:00"),
        ("*/15 0 * * *", "Australia/Lord_Howe", "2026-10-04T00:45:00+10:30"),
    ],
)
def test_a_window_is_open_from_its_start_on_where_the_clocks_change(cron: str, zone: str, began: str) -> None:
    window, start = Window(parse_cron(cron), HOUR, ZoneInfo(zone), "deny"), at(began)
    assert window.cron.after(start - 60, window.zone) == start
    assert [window.end(start + s) for s in (0, 1800, 3599, 3600)] == [start + HOUR] * 3 + [None]


WRONG = [
    ("* * * *", "has 4 fields, not the five of cron"),
    ("0 * * * * *", "has 6 fields, not the five of cron"),
    ("60 * * * *", "minute: '60' is not valid; it takes 0-59, as values"),
    ("* * * * FOO", "day of week: 'foo' is not valid; it takes 0-7, SUN-SAT"),
    ("* 5-1 * * *", "hour: '5-1' is not valid; it takes 0-23, as values .1., ascending ranges"),
    ("*/0 * * * *", "minute: '\\*/0' is not valid"),
    ("a+b * * * *", "minute: 'a\\+b' is not valid"),
    ("* * 32 * *", "day of month: '32' is not valid; it takes 1-31"),
    ("* * * 13 *", "month: '13' is not valid; it takes 1-12 or JAN-DEC"),
    ("0 0 30 2 *", "day of month: '30' never comes up in month '2'"),
]


@pytest.mark.parametrize(("cron", "says"), WRONG)
def test_what_is_no_cron(cron: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_cron(cron)


GAP, TWICE = window("30 2 * * *", 1, BERLIN), window("30 2 * * *", 0.5, BERLIN)
NIGHT = window("0 22 * * *", 8, BERLIN)
OPEN = [
    ("just before it opens", NIGHT, "2026-06-01T21:59:59+02:00", False),
    ("as it opens", NIGHT, "2026-06-01T22:00:00+02:00", True),
    ("past midnight", NIGHT, "2026-06-02T05:59:59+02:00", True),
    ("as it closes", NIGHT, "2026-06-02T06:00:00+02:00", False),
    ("in winter, by the wall clock", NIGHT, "2026-12-01T22:00:00+01:00", True),
    ("the night the clocks go forward lasts till 7", NIGHT, "2026-03-29T06:30:00+02:00", True),
    ("the night the clocks go back lasts till 5", NIGHT, "2026-10-25T05:30:00+01:00", False),
    ("before the clocks skip its start it is closed", GAP, "2026-03-29T01:59:00+01:00", False),
    ("a start that is skipped comes right after", GAP, "2026-03-29T03:00:00+02:00", True),
    ("and lasts as long", GAP, "2026-03-29T03:59:00+02:00", True),
    ("and no longer", GAP, "2026-03-29T04:00:00+02:00", False),
    ("a start shown twice counts once", TWICE, "2026-10-25T02:40:00+01:00", False),
    ("the first of them", TWICE, "2026-10-25T02:40:00+02:00", True),
    ("it closes within the hour shown twice", GAP, "2026-10-25T02:20:00+01:00", True),
    ("New York skips too", window("15 2 * * SUN", 1, NEW_YORK), "2026-03-08T03:20:00-04:00", True),
    ("overlapping starts", window("* * * * *", 2), "2026-06-01T00:00:30Z", True),
    ("a whole weekend", window("0 0 * * SAT", 48), "2026-06-07T23:59:00Z", True),
]  # fmt: skip


@pytest.mark.parametrize(("w", "now", "is_open"), [o[1:] for o in OPEN], ids=[o[0] for o in OPEN])
def test_a_window(w: Window, now: str, is_open: bool) -> None:
    assert (outside([w], at(now)) is None) is is_open


def test_without_windows_it_is_always_time() -> None:
    assert outside([], at("2026-06-01T00:00:00Z")) is None


def test_one_of_several_is_enough_and_a_denial_wins() -> None:
    work, lunch = window("0 9 * * MON-FRI", 8), window("0 12 * * *", 1, action="deny")
    night = window("0 22 * * *", 8)
    assert outside([work, night, lunch], at("2026-06-01T10:00:00Z")) is None
    assert outside([work, night, lunch], at("2026-06-01T23:00:00Z")) is None
    denied = outside([work, night, lunch], at("2026-06-01T12:30:00Z"))
    assert denied is not None
    assert denied.numbers == {"until": int(at("2026-06-01T13:00:00Z"))}
    assert "deny '0 12 * * *' UTC for 60 min forbids evictions until 2026-06-01 13:00 UTC" in denied.message


def test_only_denials_leave_the_rest_of_the_time() -> None:
    friday = window("0 12 * * FRI", 60, action="deny")
    assert outside([friday], at("2026-06-04T12:00:00Z")) is None
    assert outside([friday], at("2026-06-07T23:00:00Z")) is not None


def test_a_closed_window_says_when_it_opens() -> None:
    reason = outside([NIGHT], at("2026-06-01T12:00:00Z"))
    assert reason is not None
    assert "at 2026-06-01 22:00 CEST (20:00Z)" in reason.message
