"""A joint move as it is carried out: rehearsed by the server, sent in one go, or broken off."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.kube.evict.eviction import Evictor
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome.cycle import MoveStatus, Outcome
from rebalancer.outcome.eviction import Result
from rebalancer.planner.plan import Move
from rebalancer.runtime.cycle.clock import Clock

_FRESH = 1.0
"""Seconds that the server's dry runs may take before the first eviction."""
_TRIES = 3


def refused_by_server(members: Sequence[Move], rehearsal: Evictor | None, clock: Clock) -> Reason | None:
    """Why the API server would not let one of the pods go; None if it would, as of less than a second ago.

    It judges each eviction by itself: whether budgets have room for all of them is the plan's question, and
    the last look's before each.
    """
    if rehearsal is None:
        return None
    for _ in range(_TRIES):
        began = clock.monotonic()
        for m in members:
            would = rehearsal.evict(m.pod, m.reason)
            if would.result is not Result.WOULD_EVICT:
                return Reason(
                    ReasonCode.JOINT_MOVE,
                    f"the joint move of {_named(members)} is not begun: {would.message}",
                )
        if clock.monotonic() - began <= _FRESH:
            return None
    return Reason(
        ReasonCode.JOINT_MOVE,
        f"the joint move of {_named(members)} is not begun: the API server took more than {_FRESH:.0f} s to "
        "say that it would let them go",
        {},
        "look at the latency of the API server",
    )


def too_many(members: Sequence[Move], most: int) -> Reason:
    """Why a joint move of so many pods is not begun where fewer may go together now."""
    return Reason(
        ReasonCode.JOINT_MOVE,
        f"{_named(members)} go together or not at all, and only {max(0, most)} may go now",
        {"pods": len(members), "most": max(0, most)},
        "the canary (evictions.canary) or the limit of the cycle is over later",
    )


def broken_off(sent: Sequence[Move], why: str) -> Reason:
    """Why the rest of a joint move stays. `sent`: those that went; `why` the next one did
    not, if it is known."""
    left = ""
    if sent and (joint := sent[0].joint) is not None and joint.waiting:
        left = f"; the replacements of {_named(sent)} may wait for a node until a later cycle finds them one"
    return Reason(ReasonCode.JOINT_MOVE, f"its joint move was broken off{': ' if why else ''}{why}{left}")


def unsent(move: Move, why: Reason) -> Outcome:
    """A pod that stays."""
    say = f"{move.pod.key} was not evicted: {why.message}"
    return Outcome(move=move, status=MoveStatus.SKIPPED, message=say, reason=why)


def _named(members: Sequence[Move]) -> str:
    return " and ".join(m.pod.key for m in members)
