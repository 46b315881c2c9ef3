"""Cycles at intervals, never two at once, until a signal ends it."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

from apscheduler.schedulers.background import BackgroundScheduler

from rebalancer.runtime.observer import Observer

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Daemon:
    """Runs `cycle(number)` now and then every `interval` seconds, counted from start to start.

    A run that falls due while one is at work is dropped, not queued. An error ends the cycle, not the daemon.
    `stop` ends it: the cycle at work ends between two evictions, then `run` returns.
    """

    def __init__(
        self,
        cycle: Callable[[int], object],
        *,
        interval: float,
        stop: threading.Event,
        observer: Observer,
    ) -> None:
        self._cycle = cycle
        self._interval = interval
        self._stop = stop
        self._observer = observer
        self._number = 0

    def run(self) -> None:
        """Blocks until `stop` is set."""
        # The scheduler's own lines ("Added job …") mean nothing to operators.
        logging.getLogger("apscheduler").setLevel(logging.WARNING)
        scheduler = BackgroundScheduler(timezone=UTC)
        scheduler.add_job(
            self._run_one,
            "interval",
            seconds=self._interval,
            max_instances=1,
            coalesce=True,
            # The default of one second would drop runs on a busy machine.
            misfire_grace_time=None,
            next_run_time=datetime.now(UTC),
        )
        scheduler.start()
        try:
            self._stop.wait()
        finally:
            # Waits for the cycle at work, which sees `stop` before its next eviction.
            scheduler.shutdown(wait=True)

    def _run_one(self) -> None:
        if self._stop.is_set():
            return
        self._number += 1
        try:
            self._cycle(self._number)
        except Exception as e:
            self._observer.on_error(e)


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`; a second one ends the process at once. Main thread only."""

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    before = {s: signal.signal(s, handle) for s in _SIGNALS}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
