"""Cron expressions over local time: five fields, names of months and weekdays, DST as a wall clock has it.

Rule: crontab(5). minute hour day-of-month month day-of-week; `*`, lists, ranges, steps, names (JAN, MON); 0
and 7 are Sunday; where both days are restricted, either is enough; `@hourly`, `@daily`, `@weekly`,
`@monthly`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo

from msgspec import Struct

_MONTHS = {
    n: i
    for i, n in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)  # noqa: SIM905
}
_DAYS = {n: i for i, n in enumerate("sun mon tue wed thu fri sat".split())}  # noqa: SIM905
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
_PART = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/(\d+))?")
_FARTHEST = 366 * 8 + 1
"""Days in which every date that exists comes up, 29 February across a skipped leap year included."""


class Cron(Struct, frozen=True):
    """A parsed expression; sets of the values that match. Weekdays count from Sunday = 0."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Both days are restricted: one that matches is enough."""

    def on(self, day: date) -> bool:
        """Whether it comes up on that day."""
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_month or by_week if self.either_day else by_month and by_week

    def before(self, at: float, zone: tzinfo, since: float) -> float | None:
        """The last time at or before `at`, not earlier than `since`; epoch seconds."""
        first = datetime.fromtimestamp(since, zone).date() - timedelta(days=1)
        day = datetime.fromtimestamp(at, zone).date() + timedelta(days=1)
        while day >= first:
            if self.on(day):
                found = max((t for t in self._times(day, zone) if since <= t <= at), default=None)
                if found is not None:
                    return found
            day -= timedelta(days=1)
        return None

    def after(self, at: float, zone: tzinfo) -> float | None:
        """The first time later than `at`, epoch seconds; None if there is none (30 February)."""
        day = datetime.fromtimestamp(at, zone).date() - timedelta(days=1)
        for _ in range(_FARTHEST):
            if self.on(day):
                found = min((t for t in self._times(day, zone) if t > at), default=None)
                if found is not None:
                    return found
            day += timedelta(days=1)
        return None

    def _times(self, day: date, zone: tzinfo) -> Iterator[float]:
        """Its times of one local day, each once.

        A time that the clocks skip in spring comes as much later as they are put forward; of one that they
        show twice in autumn, the first counts.
        """
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone, fold=0)
                yield local.astimezone(UTC).timestamp()


def parse_cron(text: str) -> Cron:
    """Raises ValueError that names the field."""
    written = _SHORT.get(text.strip().lower(), text).split()
    if len(written) != len(_FIELDS):
        raise ValueError(
            f"{text!r} has {len(written)} fields, not the five of cron: minute hour day month weekday"
        )
    sets = [
        _field(part, *field, text=text)
        for part, field in zip((w.lower() for w in written), _FIELDS, strict=True)
    ]
    minutes, hours, days, months, weekdays = sets
    return Cron(
        text=text,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=frozenset(d % 7 for d in weekdays),
        either_day=not written[2].startswith("*") and not written[4].startswith("*"),
    )


def _field(
    written: str, name: str, low: int, high: int, names: dict[str, int], *, text: str
) -> frozenset[int]:
    found: set[int] = set()
    for part in written.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{text!r}: {name}: {part!r} is no value, range or step")
        first, last, step = match.groups()
        if first == "*":
            start, end = low, high
        else:
            start = _value(first, name, low, high, names, text)
            end = _value(last, name, low, high, names, text) if last else (high if step else start)
        if first == "*" and last:
            raise ValueError(f"{text!r}: {name}: {part!r} is no value, range or step")
        if end < start and name == "day of week":  # SAT-SUN, FRI-MON
            end += 7
        if end < start:
            raise ValueError(f"{text!r}: {name}: {part!r} ends before it begins")
        if step is not None and int(step) == 0:
            raise ValueError(f"{text!r}: {name}: a step of 0")
        found.update(v % 7 if name == "day of week" else v for v in range(start, end + 1, int(step or 1)))
    return frozenset(found)


def _value(written: str, name: str, low: int, high: int, names: dict[str, int], text: str) -> int:
    value = names.get(written, names.get(written[:3], -1) if len(written) > 3 else -1)
    if written.isdigit():
        value = int(written)
    if not low <= value <= high:
        known = f"{low}-{high}" + (f" or {', '.join(names)}" if names else "")
        raise ValueError(f"{text!r}: {name}: {written!r} is not one of {known}")
    return value
