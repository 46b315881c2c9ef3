"""Annotations by which people forbid, allow or prefer evictions, on a pod, its owner or its namespace."""

from __future__ import annotations

from collections.abc import Mapping

EVICT = "rebalancer.io/evict"
"""Own key, on pod, owner or namespace: "true" (or "prefer") allows, "false" (or "never") forbids."""
PREFER = "prefer"
"""Value of EVICT that makes a pod the first choice among equals."""
REFUSE = "avoid"
"""Value of EVICT that makes a pod the last choice among equals, without forbidding it."""

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
