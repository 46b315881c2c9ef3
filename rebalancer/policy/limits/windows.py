"""Maintenance windows: when evicting is allowed, as a pure function of time.

A window begins at each time of its cron expression, in the local time of its zone, and lasts for a number of
elapsed seconds. An open deny window forbids evictions. Otherwise, if there are allow windows, one of them
must be open.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Literal

from msgspec import Struct

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.limits.cron import Cron


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
