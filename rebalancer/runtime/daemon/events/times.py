"""Waits of the last plan that end by the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import Plan
from rebalancer.runtime.daemon.events.happening import Happening

_BY_THE_CLOCK = frozenset({ReasonCode.STABILIZING, ReasonCode.COOL_DOWN})
"""Reasons that say in how many `seconds` they are over."""
_OVER = Happening("times", "what had to be waited for is over", steady=True)
_LATER = 1.0
"""Seconds are told without their fractions."""


class WaitsEnd(Observer):
    """A violation has lasted long enough, or an owner has rested. `wall`: seconds of the epoch."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._until: float | None = None

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """Takes down the first that ends."""
        waits = [
            b.reason.numbers["seconds"]
            for b in plan.blocked
            if b.reason.code in _BY_THE_CLOCK and "seconds" in b.reason.numbers
        ]
        self._until = snapshot.now + min(waits) + _LATER if waits else None

    def news(self, now: float) -> Iterator[Happening]:  # noqa: ARG002
        """At most one for each plan."""
        if self._until is not None and self._wall() >= self._until:
            self._until = None
            yield _OVER
