"""The scheduler's one-line summary of why a pod is Pending.

Rule: pkg/scheduler/framework/types.go, ``FitError.Error``; pkg/scheduler/schedule_one.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rebalancer.engine.framework import NARROWED, Diagnosis
from rebalancer.engine.preemption import Preemption


def summary(diagnosis: Diagnosis, nodes: int, preemption: Preemption | None = None) -> str:
    """The text of the FailedScheduling event; "" if a node takes the pod. `nodes`: how many there are.

    Without `preemption` the part on preemption is left out, and so it is if preemption would help.
    """
    if not nodes:
        return "no nodes available to schedule pods"
    if diagnosis.prefilter is not None:
        text = _available(nodes, ", ".join(diagnosis.prefilter.reasons))
    elif any(r is None for r in diagnosis.nodes):
        return ""
    else:
        left_out = f"node(s) didn't satisfy plugin(s) [{' '.join(diagnosis.narrowed_by)}]"
        reasons = ((left_out,) if r is NARROWED else r.reasons for r in diagnosis.nodes if r is not None)
        text = _available(nodes, _histogram(reasons))
    if preemption is None or preemption.possible:
        return text
    if preemption.ineligible:
        return f"{text} preemption: {preemption.ineligible}"
    return f"{text} preemption: {_available(nodes, _histogram(preemption.reasons.values()))}"


def _available(nodes: int, reasons: str) -> str:
    return f"0/{nodes} nodes are available:" + (f" {reasons}." if reasons else "")


def _histogram(reasons: Iterable[tuple[str, ...]]) -> str:
    """Each reason with the number of its nodes; sorted as text, numbers included, as upstream does."""
    counts = Counter(reason for every in reasons for reason in every)
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
