"""Decisions of a scheduler newer than all known rules, counted as they come, from any thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.engine.version import ServerVersion
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.history.agreed import ENOUGH, Agreed

_TOLD = {Result.AGREES: True, Result.DISAGREES: False}
"""The results that say something about where pods land."""


class Verdicts:
    """Those that have not been counted yet. More than `ENOUGH` of them are never of use."""

    def __init__(self) -> None:
        self._new: deque[bool] = deque(maxlen=2 * ENOUGH)
        self._listening = False

    def listen(self) -> Callable[[Comparison], None]:
        """What to call with each comparison. From then on these alone count."""
        self._listening = True
        return self._compared

    def landed(self, *, agrees: bool) -> None:
        """A replacement runs on a planned node, or on another. Where somebody compares all pods, it is among
        those."""
        if not self._listening:
            self._new.append(agrees)

    def counted(self, agreed: Agreed) -> Agreed:
        """With those that have come since the last time."""
        while self._new:
            agreed = agreed.after(agrees=self._new.popleft())
        return agreed

    def _compared(self, comparison: Comparison) -> None:
        agrees = _TOLD.get(comparison.result)
        if agrees is not None and comparison.certain:
            self._new.append(agrees)


def release_beyond(snapshot: Snapshot) -> str:
    """The server's minor release, as "1.37", if it is newer than all known rules, else ""."""
    version = ServerVersion.parse(snapshot.server_version)
    return f"{version.minor[0]}.{version.minor[1]}" if version.newer_by else ""
