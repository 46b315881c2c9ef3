"""Is the pod still the planned victim?"""

from __future__ import annotations

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.annotations import steering


def why_not(planned: Pod, live: Pod | None) -> Reason | None:
    """Why a pod, read now, is no longer the planned victim; None if it is.

    Annotations that no rule reads may change at any time: operators keep their own books in them.
    """
    if live is None or live.uid != planned.uid:
        return _changed(f"pod {planned.key} is gone" + (", replaced by another of its name" if live else ""))
    if live.terminating:
        return Reason(ReasonCode.TERMINATING, f"pod {live.key} is being deleted already")
    if live.phase != "Running":
        return Reason(
            ReasonCode.NOT_RUNNING, f"pod {live.key} is {live.phase}: evicting it would bypass its budget"
        )
    for what, differs in (
        ("node", live.node_name != planned.node_name),
        ("labels", live.template.labels != planned.template.labels),
        ("requests", live.template.requests != planned.template.requests),
        ("tolerations", live.template.tolerations != planned.template.tolerations),
        ("annotations", steering(live.annotations) != steering(planned.annotations)),
        ("owner", _uid(live) != _uid(planned)),
    ):
        if differs:
            return _changed(f"pod {live.key} has changed since the plan: its {what}")
    if planned.ready and not live.ready:
        return _changed(f"pod {live.key} has become unready since the plan")
    return None


def _uid(pod: Pod) -> str:
    return pod.owner.uid if pod.owner is not None else ""


def _changed(message: str) -> Reason:
    return Reason(ReasonCode.CHANGED_SINCE_PLAN, message)
