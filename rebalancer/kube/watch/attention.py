"""Whether a kind is followed closely at present, and the end of a watch that is too long for that."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rebalancer.kube.watch.request import Watch


class Attention:
    """Shared by the reflector of a kind and by those who are about to act on that kind.

    `monotonic`: seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._long: Watch | None = None
        self._cut: Watch | None = None

    def ask(self, seconds: float) -> None:
        """Asks to follow closely for so long; ends a long watch that is open. From any thread."""
        with self._lock:
            self._until = max(self._until, self._monotonic() + seconds)
            self._cut, self._long = self._long or self._cut, None
            cut = self._cut
        if cut is not None:
            cut.abort()

    def close(self) -> bool:
        """Whether to follow closely now."""
        return self._monotonic() < self._until

    def lasting(self, watch: Watch) -> bool:
        """A long watch begins, which `ask` may end; False if it is not to begin, because `ask` was called."""
        with self._lock:
            if self.close():
                return False
            self._long = watch
            return True

    def cut(self, watch: Watch) -> bool:
        """Whether `ask` has ended this watch."""
        return self._cut is watch

    def over(self) -> None:
        """The watch has ended."""
        with self._lock:
            self._long = self._cut = None
