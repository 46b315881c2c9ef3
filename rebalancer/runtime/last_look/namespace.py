"""Does the victim's namespace still let its pods go?"""

from __future__ import annotations

from rebalancer.model.object_meta import ObjectMeta
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.annotations import paused, steering


def why_not(name: str, planned: ObjectMeta | None, live: ObjectMeta | None, now: float) -> Reason | None:
    """Why a namespace, read now, holds its pods back; None if it does not.

    `planned`: as it was planned with, None where that is not known; `live`: None if there is none. Its labels
    may take it out of the scope, or change whom an affinity means.
    """
    if live is None:
        return _changed(f"namespace {name} is gone") if planned is not None else None
    if (reason := paused(f"namespace {name}", live.annotations, now)) is not None:
        return reason
    if live.deletion_timestamp is not None:
        say = f"namespace {name} is being deleted: nothing is made in it"
        return Reason(ReasonCode.OWNER_TERMINATING, say)
    if planned is None:
        return None
    for what, differs in (
        ("annotations", steering(live.annotations) != steering(planned.annotations)),
        ("labels", live.labels != planned.labels),
    ):
        if differs:
            return _changed(f"namespace {name} has changed since the plan: its {what}")
    return None


def _changed(message: str) -> Reason:
    return Reason(ReasonCode.CHANGED_SINCE_PLAN, message)
