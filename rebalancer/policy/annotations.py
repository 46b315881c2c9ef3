"""Annotations by which people forbid, allow or prefer evictions, on a pod, its owner or its namespace."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from rebalancer.model.reason import Reason, ReasonCode

EVICT = "rebalancer.io/evict"
"""Own key, on pod, owner or namespace: "true" (or "prefer") allows, "false" (or "never") forbids."""
PREFER = "prefer"
"""Value of EVICT that makes a pod the first choice among equals."""
REFUSE = "avoid"
"""Value of EVICT that makes a pod the last choice among equals, without forbidding it."""
PAUSE = "rebalancer.io/pause"
"""Own key, on a namespace or on the lease: no evictions, there or anywhere. The value is until when
(RFC 3339), or whatever people want to say about it; "" and "false" mean no pause."""

_YES = frozenset({"true", "allow", PREFER, REFUSE})
_NO = frozenset({"false", "never", "deny"})


def verdict(annotations: Mapping[str, str], foreign: tuple[str, ...]) -> tuple[bool, str] | None:
    """(allowed?, the annotation that says so), or None where no annotation speaks. Own keys win."""
    own = annotations.get(EVICT, "").lower()
    if own in _NO:
        return False, f"{EVICT}={own}"
    if own in _YES:
        return True, f"{EVICT}={own}"
    for source, key, forbids in (
        ("cluster-autoscaler", "cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
        ("karpenter", "karpenter.sh/do-not-disrupt", "true"),
        ("karpenter", "karpenter.sh/do-not-evict", "true"),
    ):
        if source in foreign and annotations.get(key, "").lower() == forbids:
            return False, f"{key}={annotations[key]}"
    if "descheduler" in foreign:
        prefer = annotations.get("descheduler.alpha.kubernetes.io/prefer-no-eviction")
        if prefer is not None and prefer.lower() == "true":
            return False, f"descheduler.alpha.kubernetes.io/prefer-no-eviction={prefer}"
        if "descheduler.alpha.kubernetes.io/evict" in annotations:
            return True, "descheduler.alpha.kubernetes.io/evict"
    return None


def preference(annotations: Mapping[str, str]) -> int:
    """-1 preferred as a victim, 1 rather not, 0 otherwise."""
    value = annotations.get(EVICT, "").lower()
    return -1 if value == PREFER else 1 if value == REFUSE else 0


def paused(what: str, annotations: Mapping[str, str], now: float) -> Reason | None:
    """Why nothing may be evicted under an object `what` with these annotations, if PAUSE says so.

    A value that looks like a time but is none pauses: somebody meant to.
    """
    said = annotations.get(PAUSE, "").strip()
    if not said or said.lower() == "false":
        return None
    try:
        time = datetime.fromisoformat(said)
    except ValueError:
        numbers = {}
    else:
        until = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        if until <= now:
            return None
        numbers = {"until": int(until)}
    return Reason(
        ReasonCode.PAUSED_BY_ANNOTATION,
        f"{what} is paused: {PAUSE}={said[:200]}",
        numbers,
        f"remove the annotation: kubectl annotate {what} {PAUSE}-",
    )
