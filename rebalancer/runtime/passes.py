"""How one plan was executed, and what follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.runtime.outcome import End, MoveStatus, Outcome
from rebalancer.runtime.wave import Flown

_MOVED = frozenset(
    {
        ReasonCode.NODES_CHANGED,
        ReasonCode.CHANGED_SINCE_PLAN,
        ReasonCode.WOULD_WORSEN,
        ReasonCode.TERMINATING,
        ReasonCode.PAUSED_BY_ANNOTATION,
    }
)
"""Reasons after which another plan can come out differently although nobody was evicted."""
_GOES_ON = frozenset({ReasonCode.CYCLE_TIME})
"""Reasons that end this cycle and not the next."""


class Pass(Struct, frozen=True, eq=False):
    """`again`: why a new plan is needed, `counted` against the re-plans of a cycle; `moved`: the cluster has
    changed, so that it may come out differently. `end` with `message` and perhaps `reason`: the cycle is
    over; `trips`: and the circuit breaker opens."""

    again: str = ""
    counted: bool = False
    moved: bool = False
    end: End | None = None
    message: str = ""
    reason: Reason | None = None
    trips: bool = False


STOPPED = Pass(end=End.STOPPED, message="a stop was asked for")


def held(reason: Reason) -> Pass:
    """Evicting is not allowed now."""
    end = End.CAPPED if reason.code in _GOES_ON else End.HELD
    return Pass(end=end, message=reason.message, reason=reason)


def after(
    flown: Flown,
    landed: Sequence[Outcome],
    mine: Sequence[Outcome],
    every: Sequence[Outcome],
    *,
    max_failed: int,
    stopping: bool,
    dry: bool,
) -> Pass | None:
    """What follows a wave; None: the next one. `mine`: the outcomes of this plan, `every`: of the cycle."""
    failed = [o for o in every if o.evicted and o.status is MoveStatus.FAILED]
    if flown.fatal:
        return Pass(end=End.ABORTED, message=flown.fatal, trips=flown.unwell)
    if len(failed) > max_failed:
        say = f"{len(failed)} replacements failed; the last: {failed[-1].message}"
        return Pass(end=End.ABORTED, message=say, trips=True)
    if stopping:
        return STOPPED
    if flown.held is not None:
        return held(flown.held)
    if flown.capped is not None:
        return Pass(end=End.CAPPED, message=flown.capped.message, reason=flown.capped)
    strays = Counter(o.move.owner.key for o in every if o.expected is False)
    if strays and (worst := strays.most_common(1)[0])[1] > 1:
        say = f"{worst[1]} replacements of {worst[0]} landed where the plan did not expect them"
        return Pass(end=End.UNSTABLE, message=say)
    unplanned = [o for o in landed if o.status is MoveStatus.FAILED or o.expected is not True]
    if unplanned:
        return Pass(again=unplanned[0].message, counted=True)
    if flown.trouble:
        if dry or any(o.status is MoveStatus.RECORDED for o in mine):
            return None  # nothing changes by a dry run: the rest of the plan is still worth showing
        moved = any(o.reason is not None and o.reason.code in _MOVED for o in mine)
        return Pass(again=flown.trouble, counted=True, moved=moved)
    elsewhere = next((o for o in landed if not o.as_planned), None)
    return Pass(again=elsewhere.message) if elsewhere is not None else None
