"""Would the owner still make the replacement that was planned with?"""

from __future__ import annotations

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.workload import Workload
from rebalancer.policy.admission_queues import queue_of
from rebalancer.policy.annotations import steering
from rebalancer.policy.limits.in_flight import degraded
from rebalancer.policy.options import Limit
from rebalancer.policy.owners import failing


def short_of_pods(planned: Workload, live: Workload, in_flight: int) -> Reason | None:
    """Why the owner has fewer pods, or fewer Ready ones, than when it was planned.

    `in_flight`: how many of its pods this wave has evicted already; so many may be missing.
    """
    if live.status_replicas < live.replicas - in_flight:
        return Reason(
            ReasonCode.OWNER_SCALING,
            f"{live.kind} {live.name} wants {live.replicas} pods and has {live.status_replicas}",
            {"replicas": live.replicas, "pods": live.status_replicas},
        )
    if live.ready_replicas < planned.ready_replicas - in_flight:
        return Reason(
            ReasonCode.REPLACEMENT_NOT_READY,
            f"{live.kind} {live.name} has {live.ready_replicas} Ready pods, "
            f"{planned.ready_replicas} when it was planned",
            {"ready": live.ready_replicas, "planned": planned.ready_replicas},
        )
    return None


def short_of_ready(top: Workload, live: Workload, in_flight: int, limit: Limit) -> Reason | None:
    """Why a Ready pod of the owner stays: as many are unavailable by now as may be, or it is the last one.

    `top`: its Deployment, if it has one. What this wave has evicted counts as Ready: the wave was planned
    within the limit.
    """
    ready = live.ready_replicas + in_flight
    return degraded(top, ready, live.replicas - ready, limit)


def why_not(planned: Workload, live: Workload | None) -> Reason | None:
    """Why an owner would not make the replacement that was planned with."""
    name = f"{planned.kind} {planned.namespace}/{planned.name}"
    if live is None or live.metadata.uid != planned.metadata.uid:
        return _changed(f"{name} is gone" + (", replaced by another of its name" if live else ""))
    if live.metadata.deletion_timestamp is not None:
        return Reason(ReasonCode.OWNER_TERMINATING, f"{name} is being deleted: no replacement would come")
    if live.replicas != planned.replicas:
        return Reason(
            ReasonCode.OWNER_SCALING,
            f"{name} was scaled from {planned.replicas} to {live.replicas} since the plan",
            {"planned": planned.replicas, "replicas": live.replicas},
        )
    if live.metadata.generation != planned.metadata.generation:
        return _changed(f"{name} has changed since the plan (generation {live.metadata.generation})")
    if live.observed_generation < live.metadata.generation:
        return Reason(ReasonCode.ROLLOUT_IN_PROGRESS, f"{name}: its controller has not seen its last change")
    if (live.current_revision, live.update_revision) != (planned.current_revision, planned.update_revision):
        return Reason(ReasonCode.ROLLOUT_IN_PROGRESS, f"{name} has changed its revision since the plan")
    if steering(live.metadata.annotations) != steering(planned.metadata.annotations):
        return _changed(f"{name} has changed since the plan: its annotations")
    if (reason := failing(live)) is not None:
        return reason
    if key := queue_of(live.metadata.labels, live.metadata.annotations):
        return _changed(f"{name} has changed since the plan: it is in a queue ({key})")
    return None


def _changed(message: str) -> Reason:
    return Reason(ReasonCode.CHANGED_SINCE_PLAN, message)
