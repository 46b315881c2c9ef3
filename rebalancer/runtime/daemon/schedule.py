"""Runs cycles one after the other, never two at once, until a signal."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta, tzinfo
from queue import SimpleQueue
from types import FrameType, MappingProxyType
from zoneinfo import ZoneInfo

from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.base import BaseTrigger

from rebalancer.outcome import Observer
from rebalancer.policy.caps import Cron, parse_cron
from rebalancer.settings import Settings

# When cycles start: at an interval, or by cron with the same meaning as in maintenance windows.


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


class IntervalTrigger(BaseTrigger):  # type: ignore[misc]
    """Every so many seconds from start to start, plus jitter. Used instead of apscheduler's, which draws the
    jitter of one start twice: after starts that were missed, a shorter second draw makes one of them due
    again."""

    def __init__(self, seconds: float, jitter: float = 0.0) -> None:
        self._seconds = seconds
        self._jitter = jitter

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Always after now: starts that were missed do not come again."""
        start = previous_fire_time or now
        missed = max(0, (now - start) // timedelta(seconds=self._seconds))
        later = random.uniform(0.0, self._jitter) if self._jitter else 0.0
        return start + timedelta(seconds=(missed + 1) * self._seconds + later)


def trigger_of(settings: Settings) -> BaseTrigger:
    """When cycles start."""
    s = settings.schedule
    if s.cron:
        return CronTrigger(parse_cron(s.cron), ZoneInfo(s.time_zone), s.jitter)
    return IntervalTrigger(s.interval, s.jitter)


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


log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_JOB = "cycle"
_SET_BACK = 5.0
"""Seconds by which a wall clock that is set back is noticed; less than that only delays a cycle."""


class Daemon:
    """Runs `cycle(number)` when `trigger` says, or every `interval` seconds from start to start.

    A run that is due while another is at work is dropped. An error ends the cycle, not the daemon. `stop`
    ends the cycle between two evictions; then `run` returns. `on_stop` is called at once, while the cycle may
    still be at work. `idle` is called about once a second by the thread of `run`. `at_once`: the first cycle
    does not wait for the trigger. `wall`: the clock of the triggers, in epoch seconds; if it is set back, the
    next run is computed anew.
    """

    def __init__(
        self,
        cycle: Callable[[int], object],
        *,
        stop: threading.Event,
        observer: Observer,
        interval: float = 300.0,
        trigger: BaseTrigger | None = None,
        at_once: bool = True,
        idle: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._cycle = cycle
        self._trigger = trigger or IntervalTrigger(interval)
        self._at_once = at_once
        self._stop = stop
        self._observer = observer
        self._idle = idle
        self._on_stop = on_stop
        self._wall = wall
        self._wanted = threading.Event()
        self._number = 0
        self._scheduler: BaseScheduler | None = None

    def run(self) -> None:
        """Blocks until `stop` is set."""
        # The scheduler's own lines ("Added job …") mean nothing to operators.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        scheduler = BackgroundScheduler(timezone=UTC)
        self.schedule_on(scheduler)
        scheduler.start()
        ahead = self._wall() - time.monotonic()
        try:
            while not self._stop.wait(1.0):
                before, ahead = ahead, self._wall() - time.monotonic()
                if before - ahead > _SET_BACK:
                    log.warning("the clock was set back by %.0f s", before - ahead)
                    self._due_anew()
                if self._wanted.is_set():
                    self._due_now()
                self._idle()
        finally:
            # Also where this thread fails: the cycle at work concludes what it did.
            self._stop.set()
            self._on_stop()
            # Waits for the cycle at work, which sees `stop` before its next eviction.
            scheduler.shutdown(wait=True)

    def schedule_on(self, scheduler: BaseScheduler) -> None:
        """Adds the one job to the scheduler."""
        self._scheduler = scheduler
        at_once = {"next_run_time": datetime.now(UTC)} if self._at_once else {}
        scheduler.add_job(
            self._run_one,
            self._trigger,
            id=_JOB,
            max_instances=1,
            coalesce=True,
            # The default of one second would drop runs on a busy machine.
            misfire_grace_time=None,
            **at_once,
        )

    def reschedule(self, trigger: BaseTrigger) -> None:
        """Uses another trigger from now on."""
        self._trigger = trigger
        if self._scheduler is not None:
            self._scheduler.reschedule_job(_JOB, trigger=trigger)

    def _due_anew(self) -> None:
        """Computes the next run anew: by the old clock it would come too late by as much as the clock was
        ahead."""
        if isinstance(self._trigger, IntervalTrigger):
            self.run_now()
        else:
            self.reschedule(self._trigger)

    def run_now(self) -> None:
        """Makes the next cycle due at once, or when the one at work is over. From any thread, also before and
        after `run`."""
        self._wanted.set()
        self._due_now()

    def _due_now(self) -> None:
        """The scheduler drops this while a cycle is at work."""
        if self._scheduler is not None and self._scheduler.running:
            with suppress(JobLookupError):
                self._scheduler.modify_job(_JOB, next_run_time=datetime.now(UTC))

    def next_run(self) -> float | None:
        """When the next cycle is due, in epoch seconds; None if not known.

        Must not be called by the cycle's thread: at the end it would wait for the scheduler, which waits for
        the thread.
        """
        job = self._scheduler.get_job(_JOB) if self._scheduler is not None else None
        due = getattr(job, "next_run_time", None)
        return due.timestamp() if due is not None else None

    def _run_one(self) -> None:
        if self._stop.is_set():
            return
        self._wanted.clear()
        self._number += 1
        try:
            self._cycle(self._number)
        except Exception as e:
            self._observer.on_error(e)


@contextmanager
def stop_on_signals(
    stop: threading.Event, *, also: Mapping[int, Callable[[], object]] = MappingProxyType({})
) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`; another one after that ends the process at once. So does SIGHUP, as a
    terminal that is closed sends it, but for ending at once: shell and kernel both send one. Where it is
    ignored, as by nohup, it stays so. `also`: what other signals do, and that one. Main thread only.

    A handler runs between two instructions of the main thread, which may hold a lock of `stop`, or of a log,
    at that moment, and a handler that asks for it would wait for ever. So a thread does what signals ask for.
    """
    came: SimpleQueue[int | None] = SimpleQueue()  # the one queue that a handler may put something in

    def handle(number: int, _: FrameType | None) -> None:
        if number in _SIGNALS and stop.is_set():
            # Not by the signal's default: process 1 of a container, which this mostly is, has none.
            os._exit(128 + number)
        came.put(number)

    def obey() -> None:
        while (number := came.get()) is not None:
            also.get(number, stop.set)()

    thread = threading.Thread(target=obey, name="signals", daemon=True)
    thread.start()
    hangup = set() if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else {signal.SIGHUP}
    before = {s: signal.signal(s, handle) for s in {*_SIGNALS, *hangup, *also}}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
        came.put(None)
        thread.join()
