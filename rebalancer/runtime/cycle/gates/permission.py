"""May a request that can evict a pod be sent now?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from rebalancer.kube.errors import KubeError
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.plan import Move
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.gates.gates import FRESH, Gate

_LOOKS = 4
"""Looks in a row. The first of a cycle waits for the watch, and a network may stutter."""


class FreshLook(Protocol):
    """What is asked before each eviction: `rebalancer.runtime.last_look.look.LastLook`."""

    def why_not(
        self, move: Move, in_flight: int = 0, beside: Callable[[], object] = lambda: None
    ) -> Reason | None:
        """Why the move is no longer valid. `beside` is called in a thread of its own while objects are read.

        Raises KubeError.
        """
        ...

    def destinations(self, move: Move) -> tuple[str, ...]:
        """The nodes that the replacement may go to, as the look found them."""
        ...

    def beside(self, move: Move, others: Sequence[Move], unplaced: Collection[str]) -> bool:
        """Whether the move may be in flight beside others that it was not planned beside.

        `unplaced`: the uids of those victims whose replacements are on no node yet. Raises KubeError.
        """
        ...


class NoLook(FreshLook):
    """For dry runs: where nothing is evicted, nothing is looked at."""

    def why_not(
        self,
        move: Move,  # noqa: ARG002
        in_flight: int = 0,  # noqa: ARG002
        beside: Callable[[], object] = lambda: None,  # noqa: ARG002
    ) -> Reason | None:
        """Nothing."""
        return None

    def destinations(self, move: Move) -> tuple[str, ...]:
        """As planned."""
        return move.destinations

    def beside(self, move: Move, others: Sequence[Move], unplaced: Collection[str]) -> bool:  # noqa: ARG002
        """Nobody is in flight."""
        return True


def _stopping(clock: Clock) -> Reason | None:
    return Reason(ReasonCode.STOPPING, "a stop was asked for") if clock.stopping() else None


def _asked_of(question: Callable[[], Reason | None]) -> Reason | None:
    try:
        return question()
    except KubeError as e:
        say = f"whether evictions are paused is not known: {e.message}"
        raise KubeError(say, e.remedy, target=e.target) from e


class Permission:
    """Asked right before each request that can evict a pod, the first and every further one: may it be sent?

    The whole last look, then the gates, and all of it within a second: if the API server took longer to
    answer, what was seen first is old, and everything is asked again. `in_flight`: how many pods of the same
    owner are on their way. `held`: the gate that closed, of the last time.
    """

    def __init__(self, look: FreshLook, gate: Gate, clock: Clock, move: Move, in_flight: int) -> None:
        self._look = look
        self._gate = gate
        self._clock = clock
        self._move = move
        self._in_flight = in_flight
        self.held: Reason | None = None

    def __call__(self) -> Reason | None:
        """Why it must not be sent; None if it may. Raises KubeError."""
        for _ in range(_LOOKS):
            began = self._clock.monotonic()
            reason = self._ask()
            seconds = self._clock.monotonic() - began
            if reason is not None or seconds <= FRESH:
                return reason
        return Reason(
            ReasonCode.NOT_CURRENT,
            f"the last look at {self._move.pod.key} took {seconds:.1f} s, {_LOOKS} times in a row: what "
            "it saw first was old by then",
            {},
            "look at the latency of the API server",
        )

    def _ask(self) -> Reason | None:
        self.held = None
        if (stopping := _stopping(self._clock)) is not None:
            return stopping
        # What the gates read is read at the same time as what the look reads.
        reason = self._look.why_not(self._move, self._in_flight, self._gate.begin)
        if reason is not None:
            return reason
        self.held = _asked_of(self._gate.closed)
        return self.held or _asked_of(lambda: self._gate.bars(self._move.pod))
