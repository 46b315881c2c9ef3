"""What follows the pods of the watch cache in a thread of its own, beside the cycle."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import Self

from rebalancer.kube.watch.cache import WatchCache

log = logging.getLogger(__name__)


class Follower(ABC):
    """Looks every `poll` seconds at what has happened, between `start` and `stop`.

    No eviction depends on it: an error is logged, and what is known is forgotten.
    """

    def __init__(self, cache: WatchCache, *, name: str, poll: float) -> None:
        self._cache = cache
        self._feed = cache.follow_pods()
        self._name, self._poll = name, poll
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        """Begins."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends within a moment."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        self._cache.forget(self._feed)

    @abstractmethod
    def look(self) -> None:
        """Takes over what has happened since the last look."""

    @abstractmethod
    def _forget(self) -> None:
        """Begins anew at the next look."""

    def _run(self) -> None:
        while not self._stop.wait(self._poll):
            try:
                self.look()
            except Exception:
                # A figure that is missing must not end the process.
                log.exception("what the thread %s follows could not be followed", self._name)
                self._forget()
