"""When cycles start: at an interval, or by cron with the same meaning as in maintenance windows."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

from rebalancer.policy.limits.cron import Cron, parse_cron
from rebalancer.settings import Settings


class CronTrigger(BaseTrigger):  # type: ignore[misc]
    """Used instead of apscheduler's cron, which counts weekdays from Monday and wants both days to match."""

    def __init__(self, cron: Cron, zone: tzinfo, jitter: float = 0.0) -> None:
        self._cron = cron
        self._zone = zone
        self._jitter = jitter

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The next time of the expression, plus jitter. May be asked several times for one run."""
        after = max(previous_fire_time, now) if previous_fire_time is not None else now
        found = self._cron.after(after.timestamp(), self._zone)
        if found is None:
            return None
        later = random.uniform(0.0, self._jitter) if self._jitter else 0.0
        return datetime.fromtimestamp(found, UTC) + timedelta(seconds=later)


def every(seconds: float, jitter: float = 0.0) -> Any:
    """A trigger every so many seconds, from start to start."""
    return IntervalTrigger(seconds=seconds, jitter=jitter or None, timezone=UTC)


def trigger_of(settings: Settings) -> Any:
    """When cycles start."""
    s = settings.schedule
    if s.cron:
        return CronTrigger(parse_cron(s.cron), ZoneInfo(s.time_zone), s.jitter)
    return every(s.interval, s.jitter)


def silence_of(settings: Settings) -> float:
    """For how many seconds a daemon may write nothing to the ledger: two intervals, and its longest cycle."""
    s = settings.schedule
    between = s.interval
    if s.cron:
        cron, zone = parse_cron(s.cron), ZoneInfo(s.time_zone)
        first = cron.after(time.time(), zone)
        second = cron.after(first, zone) if first is not None else None
        if first is not None and second is not None:
            between = second - first
    return 2 * (between + s.jitter) + s.max_cycle_time
