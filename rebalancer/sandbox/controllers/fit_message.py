"""Why a pod stays Pending, in the words of its condition and of the FailedScheduling event.

Rule: pkg/scheduler/framework/types.go (``FitError.Error``); preemption/preemption.go.
"""

from __future__ import annotations

from collections import Counter

from rebalancer.engine.framework import Diagnosis
from rebalancer.engine.plugin import UNSCHEDULABLE

_NONE = "No preemption victims found for incoming pod"
_HELPLESS = "Preemption is not helpful for scheduling"


def fit_message(diagnosis: Diagnosis, nodes: int) -> str:
    """`nodes`: how many the cluster has. The sandbox preempts nobody."""
    if nodes == 0:
        return "no nodes available to schedule pods"
    message = f"0/{nodes} nodes are available:"
    if diagnosis.prefilter is not None:
        message += f" {', '.join(diagnosis.prefilter.reasons)}."
        helpful = Counter({_HELPLESS: nodes})
    else:
        rejections = [r for r in diagnosis.nodes if r is not None]
        reasons = Counter(reason for r in rejections for reason in r.reasons)
        message += f" {_listed(reasons)}."
        helpful = Counter(_NONE if r.code == UNSCHEDULABLE else _HELPLESS for r in rejections)
    return f"{message} preemption: 0/{nodes} nodes are available: {_listed(helpful)}."


def _listed(histogram: Counter[str]) -> str:
    return ", ".join(sorted(f"{number} {reason}" for reason, number in histogram.items()))
