"""Is there a scheduler that works? Without one, every replacement would stay Pending.

A scheduler that has looked at a pod says so in the pod's condition PodScheduled, whatever came of it. So pods
without one for half a minute mean that nobody looks at them, or that the queue is as long as that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode

PATIENCE = 30.0
"""Seconds that a scheduler may take to look at a pod for the first time."""
_SCHEDULED = frozenset(
    {
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("", "ReplicationController"),
        ("batch", "Job"),
    }
)
"""API group and kind of the owners whose pods are bound by a scheduler. Kubernetes' own DaemonSets have left
that to it since 1.12. Whoever makes pods by hand or by a controller of an add-on often names the node."""


def overlooked(pods: Iterable[Pod], now: float) -> Mapping[str, Sequence[Pod]]:
    """Name of a scheduler → its pods that it should have looked at by now."""
    found: dict[str, list[Pod]] = defaultdict(list)
    for p in pods:
        if p.node_name or p.judged or p.created is None or now - p.created < PATIENCE:
            continue
        if p.waits and not _held_back(p):
            found[p.template.scheduler_name].append(p)
    return found


def judged_since(pods: Iterable[Pod], time: float) -> bool:
    """Whether a scheduler has looked at one of these pods, which was created after that time.

    A pod on a node does not tell by itself who put it there: a kubelet says PodScheduled too, of its own
    (static) pods and of those whose maker named the node, as `kubectl debug node/…` does.
    """
    return any(
        p.created is not None
        and p.created > time
        and (bool(p.unschedulable) or (bool(p.node_name) and _by_scheduler(p)))
        for p in pods
    )


def silent(scheduler: str, pods: Sequence[Pod]) -> Reason:
    """Why nothing is evicted while these pods of a scheduler are overlooked."""
    first = min(pods, key=lambda p: (p.created or 0.0, p.key))
    many = f"{len(pods)} pods wait" if len(pods) > 1 else "a pod waits"
    return Reason(
        ReasonCode.SCHEDULER_SILENT,
        f"{many} for scheduler {scheduler}, which has not looked at {first.key} for {PATIENCE:.0f} s or more",
        {"pods": len(pods)},
        f"look whether scheduler {scheduler} runs, what it logs, and how long its queue is",
    )


def expired(lease: str, holder: str, renewed: str) -> Reason:
    """Why nothing is evicted while nobody renews the scheduler's lease."""
    return Reason(
        ReasonCode.SCHEDULER_SILENT,
        f"no scheduler works: nobody renews lease {lease}, last {holder or 'nobody'}, {renewed or 'never'}",
        {},
        "look whether kube-scheduler runs; a lease that it does not use any more counts until a pod that is "
        "younger and not made by hand has been scheduled: delete it",
    )


def _by_scheduler(pod: Pod) -> bool:
    """Whether pods of such an owner get their node from a scheduler."""
    if pod.owner is None:
        return False
    group = pod.owner.api_version.rpartition("/")[0]
    return (group, pod.owner.kind) in _SCHEDULED


def _held_back(pod: Pod) -> bool:
    """Whether a plugin may keep it out of the queue, of which no condition tells."""
    return pod.template.resource_claims or bool(pod.template.scheduling_group)
