"""Maintenance windows: when evicting is allowed, as a pure function of time.

A window begins at each time of its cron expression, in the local time of its zone, and lasts for a number of
elapsed seconds. An open deny window forbids evictions. Otherwise, if there are allow windows, one of them
must be open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Literal

from cronsim import CronSim, CronSimError
from msgspec import Struct

from rebalancer.model.reason import Reason, ReasonCode

# Cron expressions, read by cronsim in the dialect of Debian's crontab(5).
#
# Five fields: minute, hour, day of month, month, day of week. Values, ranges, steps and lists; names such
# as JAN and MON; 0 and 7 are Sunday. Where both days are restricted, one that matches is enough. cronsim
# adds `L` for the last day of the month and `SUN#1` for its first Sunday. This file adds `@daily` and the
# like, names in full, and ranges over the week's end (FRI-MON).
#
# When the clocks change, an expression with fixed hour and minute follows the wall clock: a time that is
# skipped in spring comes when the clocks have been put forward, and of a time that is shown twice in autumn
# the first counts. With `*` as hour or minute it goes on in elapsed time.

_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_FIELDS = {
    "minute": "0-59",
    "hour": "0-23",
    "day of month": "1-31 or L (the last)",
    "month": "1-12 or JAN-DEC",
    "day of week": "0-7, SUN-SAT or SUN#1 (the month's first Sunday)",
}
"""What each field takes."""
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_RANGE = re.compile(r"(\w+)-(\w+)")
_PUT_BACK = 2 * 3600.0
"""Seconds by which clocks are put back at most (Antarctica/Troll)."""


class Cron(Struct, frozen=True):
    """An expression that `parse_cron` has checked: as written, and as cronsim reads it."""

    text: str
    expression: str

    def before(self, at: float, zone: tzinfo) -> float | None:
        """The last time at or before `at`; epoch seconds. None if there was none within 50 years."""
        # From a later time on: in the hour that is shown twice, the wall clock alone would pass over a time.
        start = datetime.fromtimestamp(at // 1 + 1 + _PUT_BACK, zone)
        times = (t.timestamp() for t in CronSim(self.expression, start, reverse=True))
        return next((t for t in times if t <= at), None)

    def after(self, at: float, zone: tzinfo) -> float | None:
        """The first time later than `at`; epoch seconds. None if there is none within 50 years."""
        times = (t.timestamp() for t in CronSim(self.expression, datetime.fromtimestamp(at, zone)))
        return next((t for t in times if t > at), None)


def parse_cron(text: str) -> Cron:
    """Raises ValueError, which names the field and what it takes."""
    fields = _SHORT.get(text.strip().lower(), text).lower().split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            f"{text!r} has {len(fields)} fields, not the five of cron: minute hour day month weekday"
        )
    fields[3] = _short_names(fields[3], _MONTHS)
    fields[4] = ",".join(_ascending(part) for part in _short_names(fields[4], _WEEKDAYS).split(","))
    cron = Cron(text, " ".join(fields))
    try:
        CronSim(cron.expression, datetime.min)
    except CronSimError as e:
        raise ValueError(f"{text!r}: {_mistake(e, fields)}") from e
    return cron


def _mistake(error: CronSimError, fields: list[str]) -> str:
    field = str(error).removeprefix("Bad ").replace("-", " ")
    written = dict(zip(_FIELDS, fields, strict=True))[field]
    if field == "day of month" and re.fullmatch("3[01]", written):
        return f"{field}: {written!r} never comes up in month {fields[3]!r}"
    return (
        f"{field}: {written!r} is not valid; it takes {_FIELDS[field]}, as values (1), "
        "ascending ranges (1-5), steps (*/2) or lists (1,3)"
    )


def _short_names(field: str, names: tuple[str, ...]) -> str:
    return re.sub("[a-z]+", lambda word: word[0][:3] if word[0] in names else word[0], field)


def _ascending(part: str) -> str:
    """A part of the weekday field, in which a range over the week's end becomes two: 5-1 → 5-7,0-1."""
    found = _RANGE.fullmatch(part)
    days = [_day_number(day) for day in found.groups()] if found else []
    if None in days or len(days) != 2 or days[0] <= days[1]:  # type: ignore[operator]
        return part
    return f"{days[0]}-7,0-{days[1]}"


def _day_number(day: str) -> int | None:
    if day.isascii() and day.isdigit():
        return int(day)
    return next((i for i, name in enumerate(_WEEKDAYS) if day == name[:3]), None)


class Window(Struct, frozen=True, eq=False):
    """A recurring span of time; `duration` is in seconds."""

    cron: Cron
    duration: float
    zone: tzinfo
    action: Literal["allow", "deny"] = "allow"

    def end(self, at: float) -> float | None:
        """When it closes, if it is open at `at` (epoch seconds); else None."""
        began = self.cron.before(at, self.zone)
        return began + self.duration if began is not None and at < began + self.duration else None

    def __str__(self) -> str:
        """The window as it was configured."""
        return f"{self.action} {self.cron.text!r} {self.zone} for {self.duration / 60:g} min"


def outside(windows: Sequence[Window], *times: float) -> Reason | None:
    """Why nothing may be evicted at one of these times (epoch seconds), and until when; None if evicting is
    allowed at all of them."""
    return next((why for at in dict.fromkeys(times) if (why := _outside(windows, at)) is not None), None)


def _outside(windows: Sequence[Window], at: float) -> Reason | None:
    for w in windows:
        if w.action == "deny" and (end := w.end(at)) is not None:
            return _closed(f"the window {w} forbids evictions until {_clock(end, w.zone)}", end)
    allowing = [w for w in windows if w.action == "allow"]
    if not allowing or any(w.end(at) is not None for w in allowing):
        return None
    opens = [(t, w) for w in allowing if (t := w.cron.after(at, w.zone)) is not None]
    if not opens:
        return _closed("no maintenance window ever opens", None)
    begin, first = min(opens, key=lambda o: o[0])
    return _closed(f"no maintenance window is open; the next, {first}, at {_clock(begin, first.zone)}", begin)


def _closed(message: str, until: float | None) -> Reason:
    numbers = {"until": int(until)} if until is not None else {}
    return Reason(ReasonCode.WINDOW, message, numbers, "see schedule.windows")


def _clock(at: float, zone: tzinfo) -> str:
    local = datetime.fromtimestamp(at, zone)
    utc = datetime.fromtimestamp(at, UTC)
    return f"{local:%Y-%m-%d %H:%M %Z}" + ("" if local.utcoffset() == utc.utcoffset() else f" ({utc:%H:%M}Z)")
