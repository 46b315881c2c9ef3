"""What follows when nothing more of a plan can go: a new plan, or the end of the cycle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome.cycle import End, MoveStatus, Outcome
from rebalancer.runtime.cycle.evicting import Obstacles

_MOVED = frozenset(
    {
        ReasonCode.NODES_CHANGED,
        ReasonCode.CHANGED_SINCE_PLAN,
        ReasonCode.NOT_CURRENT,
        ReasonCode.NOT_NEEDED,
        ReasonCode.WOULD_WORSEN,
        ReasonCode.TERMINATING,
        ReasonCode.PAUSED_BY_ANNOTATION,
        ReasonCode.QUOTA,
    }
)
"""Reasons after which another plan can come out differently although nobody was evicted."""
_GOES_ON = frozenset({ReasonCode.CYCLE_TIME})
"""Reasons that end this cycle and not the next."""


class NextStep(Struct, frozen=True, eq=False):
    """A new plan, or the end of the cycle.

    `again`: why a new plan is needed; `counted`: it counts against the re-plans of a cycle; `moved`: the
    cluster has changed, so that the next plan may differ. `end`, with `message` and perhaps `reason`: the
    cycle is over; `trips`: the circuit breaker opens too.
    """

    again: str = ""
    counted: bool = False
    moved: bool = False
    end: End | None = None
    message: str = ""
    reason: Reason | None = None
    trips: bool = False


STOPPED = NextStep(end=End.STOPPED, message="a stop was asked for")


def held(reason: Reason) -> NextStep:
    """Evicting is not allowed now."""
    end = End.CAPPED if reason.code in _GOES_ON else End.HELD
    return NextStep(end=end, message=reason.message, reason=reason)


def capped(reason: Reason) -> NextStep:
    """What is left waits for a later cycle."""
    return NextStep(end=End.CAPPED, message=reason.message, reason=reason)


def after_plan(
    obstacles: Obstacles,
    mine: Sequence[Outcome],
    every: Sequence[Outcome],
    *,
    rests: bool,
    max_failed: int,
    stopping: bool,
    dry: bool,
) -> NextStep:
    """What follows a plan of which nothing is in flight and nothing more can go.

    `mine`: outcomes of this plan, `every`: of the cycle so far. `rests`: some moves rest on where others
    landed.
    """
    failed = [o for o in every if o.evicted and o.status is MoveStatus.FAILED]
    if obstacles.fatal:
        return NextStep(end=End.ABORTED, message=obstacles.fatal, trips=obstacles.unwell)
    if len(failed) > max_failed:
        say = f"{len(failed)} replacements failed; the last: {failed[-1].message}"
        return NextStep(end=End.ABORTED, message=say, trips=True)
    if stopping:
        return STOPPED
    if obstacles.held is not None:
        return held(obstacles.held)
    if (say := strays(every)) != "":
        return NextStep(end=End.UNSTABLE, message=say)
    unplanned = [o for o in mine if o.evicted and (o.status is MoveStatus.FAILED or o.expected is not True)]
    if unplanned:
        return NextStep(again=unplanned[0].message, counted=True)
    recorded = dry or any(o.status is MoveStatus.RECORDED for o in mine)
    refused = [o for o in mine if not o.evicted and o.status is not MoveStatus.RECORDED]
    if refused and not recorded:
        moved = any(o.reason is not None and o.reason.code in _MOVED for o in mine)
        why = refused[0].reason.message if refused[0].reason is not None else refused[0].message
        return NextStep(again=why, counted=True, moved=moved)
    if recorded:
        return NextStep(end=End.RECORDED, message="nothing was evicted: this is what would have been")
    again = "what depends on where replacements landed" if rests else "whether anything is left"
    return NextStep(again=again)


def strays(every: Sequence[Outcome]) -> str:
    """Why no further eviction can be predicted: two replacements of one owner were astray; "" if not so."""
    astray = Counter(o.move.owner.key for o in every if o.expected is False)
    owner, times = astray.most_common(1)[0] if astray else ("", 0)
    return f"{times} replacements of {owner} landed where the plan did not expect them" if times > 1 else ""
