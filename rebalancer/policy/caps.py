"""Caps on evictions: of one cycle, in all and per node, namespace, owner and domain; of an hour and a day.
Maintenance windows."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import takewhile
from typing import Literal

from cronsim import CronSim, CronSimError
from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.history.ledger import DAY, HOUR, owner_id
from rebalancer.policy.history.waits import one_run, spread_keys, wait
from rebalancer.policy.options import Evicted, Limit, PolicyOptions
from rebalancer.policy.owners import Owners

_Key = tuple[str, str]
"""A cap, as its sentence names it, and what it is counted for."""
_TOTAL, _NODE, _NAMESPACE = "in total and cycle", "per node and cycle", "per namespace and cycle"
_OWNER, _DOMAIN = "per owner and cycle", "per domain and cycle"
_HOUR, _DAY = "in total and hour", "per owner and day"
PER_DAY = "perDay"
"""The figure that a reason has if it is the cap of an owner's day."""
_LONG = {_HOUR: (HOUR, "maxTotalPerHour"), _DAY: (DAY, "maxPerOwnerPerDay")}
"""Caps that the next cycle does not lift: for how long an eviction counts, and the setting."""


class Caps:
    """Counts evictions against the caps; those of `options.earlier` are counted already.

    A cap in percent is of the replicas for a cap per owner, else of the pods that run there: of the node's
    pods for the cap per node, and so on. What this cycle has evicted from a node or a domain counts as if it
    still ran there, and its replacements there do not, so that a cap neither shrinks nor grows while it is
    used.
    """

    def __init__(self, options: PolicyOptions, snapshot: Snapshot, owners: Owners) -> None:
        limits = {
            _TOTAL: options.max_total,
            _NODE: options.max_per_node,
            _NAMESPACE: options.max_per_namespace,
            _OWNER: options.max_per_owner,
            _DOMAIN: options.max_per_domain,
            _HOUR: options.max_total_per_hour,
            _DAY: options.max_per_owner_per_day,
        }
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        self._snapshot = snapshot
        self._owners = owners
        self._live: Counter[_Key] | None = None
        self._labels = {n.name: n.labels for n in snapshot.nodes}
        self._domains: dict[str, int] = {}
        earlier = options.earlier
        # Which is asked of every pod, so only where it matters.
        pods = snapshot.pods if options.max_per_domain is not None else ()
        self._keys = sorted(spread_keys({id(p.template): p.template for p in pods}.values()))
        self._gone = Counter(key for e in earlier.this_cycle for key in self._of_cycle(e))
        landed = (Evicted("", "", e.landed, ()) for e in earlier.this_cycle)
        self._came = Counter(key for e in landed for key in self._of_cycle(e))
        self._spent = Counter(self._gone)
        self._times = {(_HOUR, ""): earlier.last_hour}
        self._times |= {(_DAY, owner): times for owner, times in earlier.last_day.items()}
        self._spent |= Counter({key: sum(n for _, n in times) for key, times in self._times.items()})

    def spend(self, pod: Pod, domains: Iterable[str]) -> Reason | None:
        """Counts an eviction and returns None, or returns which cap forbids it and counts nothing.

        `domains`: those (key=value) of which the move mends a constraint.
        """
        top, keys = self._counted(pod, domains)
        for key in keys:
            limit = self._limits.get(key[0])
            if limit is None:
                continue
            most = limit.number if limit.number is not None else limit.of(self._base(key, pod))
            if self._spent[key] >= most:
                return self._reached(key, top, limit, most)
        self._spent.update(keys)
        return None

    def count(self, pod: Pod, domains: Iterable[str]) -> None:
        """Counts an eviction that has been sent, whatever the caps say of it."""
        self._spent.update(self._counted(pod, domains)[1])

    def _counted(self, pod: Pod, domains: Iterable[str]) -> tuple[str, list[_Key]]:
        """Its topmost owner (Kind/namespace/name), and all that it is counted for."""
        owner = self._owners.of(pod)
        top = self._owners.top(owner).counted_as if owner is not None else ""
        evicted = Evicted(top, pod.namespace, pod.node_name, tuple(domains))
        return top, [*self._of_cycle(evicted), (_HOUR, ""), (_DAY, owner_id(top))]

    def _of_cycle(self, e: Evicted) -> Iterable[_Key]:
        """Its domains are all of the node, whichever of them the move is about; those it is about are known
        where the node is gone, too, and by default constraints."""
        yield from ((_TOTAL, ""), (_NODE, e.node), (_NAMESPACE, e.namespace), (_OWNER, e.owner))
        labels = self._labels.get(e.node, {})
        here = (f"{key}={labels[key]}" for key in self._keys if key in labels)
        yield from ((_DOMAIN, d) for d in dict.fromkeys((*e.domains, *here)))

    def _reached(self, key: _Key, top: str, limit: Limit, most: int) -> Reason:
        what, name = key
        named = f" ({top})" if what == _DAY else f" ({name})" if name else ""
        say = f"the cap of {limit} evictions {what}{named} is reached"
        if what not in _LONG:
            return Reason(ReasonCode.CAP, say, {"cap": most}, "the next cycle goes on")
        span, setting = _LONG[what]
        remedy = f"wait, or raise evictions.{setting}; {one_run(setting, 'none')}"
        numbers = {"cap": most, **({PER_DAY: 1} if what == _DAY else {})}
        if not most:
            return Reason(ReasonCode.CAP, say, numbers, remedy)
        # When so many are old enough that one more may go; moves of this plan count from now on.
        now, left = self._snapshot.now, self._spent[key] - most
        since = now
        for at, evictions in sorted(self._times.get(key, ())):
            if (left := left - evictions) < 0:
                since = at
                break
        return wait(ReasonCode.CAP, say, since + span, now, remedy, **numbers)

    def _base(self, key: _Key, pod: Pod) -> int:
        """How many pods a percentage is of."""
        what, name = key
        if what in (_OWNER, _DAY):
            owner = self._owners.of(pod)
            # Of a kind that is not read, only the pods are known.
            return max(self._owners.top(owner).replicas, len(self._owners.active(owner))) if owner else 1
        if what == _HOUR:
            return self._running()[_TOTAL, ""]
        if what != _DOMAIN:
            return self._running()[key] + (self._gone[key] - self._came[key] if what == _NODE else 0)
        if name not in self._domains:
            label, _, value = name.partition("=")
            here = (node for node, labels in self._labels.items() if labels.get(label) == value)
            running = sum(self._running()[_NODE, node] for node in here)
            self._domains[name] = running + self._gone[key] - self._came[key]
        return self._domains[name]

    def _running(self) -> Counter[_Key]:
        """The running pods in all, by node and by namespace."""
        if self._live is None:
            self._live = Counter()
            for pod in self._snapshot.pods:
                if pod.node_name and not pod.finished and not pod.terminating:
                    self._live.update(((_TOTAL, ""), (_NODE, pod.node_name), (_NAMESPACE, pod.namespace)))
        return self._live


# Maintenance windows: when evicting is allowed, as a pure function of time.
#
# A window begins at each time of its cron expression, in the local time of its zone, and lasts for a number
# of elapsed seconds. An open deny window forbids evictions. Otherwise, if there are allow windows, one of
# them must be open.

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

    def last(self, seconds: float, at: float, zone: tzinfo) -> float | None:
        """The last time in the `seconds` up to `at`; epoch seconds. None if there was none."""
        span = 0.0
        while span < seconds:
            span = min(seconds, 8 * span or 3600.0)
            times = deque(takewhile(at.__ge__, self._after(at - span, zone)), maxlen=1)
            if times:
                return times[0]
        return None

    def after(self, at: float, zone: tzinfo) -> float | None:
        """The first time later than `at`; epoch seconds. None if there is none within 50 years."""
        return next(self._after(at, zone), None)

    def _after(self, at: float, zone: tzinfo) -> Iterator[float]:
        # From an earlier time on: one that begins in an hour that is shown twice takes both for a time. Never
        # backwards: cronsim passes over some times where the clocks change.
        start = datetime.fromtimestamp(at - _PUT_BACK, zone)
        times = (t.timestamp() for t in CronSim(self.expression, start))
        return (t for t in times if t > at)


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
    if day.isascii() and day.isdecimal():
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
        began = self.cron.last(self.duration, at, self.zone)
        return began + self.duration if began is not None else None

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
