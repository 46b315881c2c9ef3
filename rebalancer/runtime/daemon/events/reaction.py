"""Whether what has happened starts a cycle now."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable

from msgspec import Struct

from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import Plan
from rebalancer.runtime.daemon.events.happening import Source

_SHARE = 4
"""Between two cycles that events start lies so many times what the last plan took: on a large cluster with
much going on, planning takes a fifth of the time at most."""
_LONGEST = 600.0
"""Seconds until what was of no use before may start a cycle again; after that it counts as new."""


class Reaction(Observer):
    """Starts at most one cycle every `react` seconds, 0 = none, whatever happens and how often.

    What has started a cycle, and happens again, waits twice as long each time. So what no plan can use (a
    crash loop, say, that looks like the end of a rollout again and again) starts fewer and fewer. `settling`:
    whether more is about to follow, which is waited for.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        *,
        settling: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.react = 10.0
        self._settling = settling
        self._monotonic = monotonic
        self._sources = tuple(sources)
        self._waiting: dict[Hashable, tuple[float, str]] = {}
        self._started: dict[Hashable, _Started] = {}
        self._fired: float | None = None
        self._read = 0.0
        self._planning = 0.0

    def on_reading(self) -> None:
        """All that has happened so far is in the cluster as it is read now."""
        self._waiting = {}
        self._read = self._monotonic()

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        """What reading and planning took says how often it may be done."""
        self._planning = self._monotonic() - self._read

    def due(self) -> str:
        """Why a cycle is due, "" if none is; told once. Raises CacheNotReadyError."""
        now = self._monotonic()
        self._started = {k: s for k, s in self._started.items() if now - s.at < _LONGEST}
        for source in self._sources:
            for happening in source.news(now):
                before = None if happening.steady else self._started.get(happening.key)
                since = now if before is None else max(now, before.at + self._patience(before.times))
                self._waiting.setdefault(happening.key, (since, happening.what))
        if not self.react:
            self._waiting = {}
            return ""
        rest = max(self.react, _SHARE * self._planning)
        due = {key: what for key, (since, what) in self._waiting.items() if since <= now}
        if not due or self._settling() or (self._fired is not None and now - self._fired < rest):
            return ""
        for key in due:
            before = self._started.get(key)
            self._started[key] = _Started(now, before.times + 1 if before is not None else 1)
        self._waiting, self._fired = {}, now
        return "; ".join(list(due.values())[:3])

    def _patience(self, times: int) -> float:
        return min(_LONGEST, self.react * 2.0**times)


class _Started(Struct, frozen=True):
    """When something last started a cycle, and how often in a row."""

    at: float
    times: int
