"""Pods that an admission queue lets in: what an eviction frees goes to the next in the queue, and the
replacement waits with a scheduling gate, maybe for good. docs/compatibility.md lists who sets what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.owners import Owners

QUEUES = {
    "kueue.x-k8s.io/managed": "Kueue",
    "kueue.x-k8s.io/queue-name": "Kueue",
    "scheduling.volcano.sh/queue-name": "Volcano",
    "yunikorn.apache.org/queue": "YuniKorn",
    "yunikorn.apache.org/app-id": "YuniKorn",
    "quota.scheduling.koordinator.sh/name": "Koordinator",
    "kai.scheduler/queue": "KAI",
    "runai/queue": "Run:ai",
}
"""Labels or annotations of pods, owners and Deployments, and whose queue they mean."""
_NOT = frozenset({"", "false"})


def queue_of(*said: Mapping[str, str]) -> str:
    """The first key among these labels and annotations that names a queue; "" if none does."""
    return next((key for key in QUEUES for there in said if there.get(key, "") not in _NOT), "")


def added_gates(pod: PodTemplate, template: PodTemplate | None) -> tuple[str, ...]:
    """The scheduling gates of a pod that the template does not have: something holds it back."""
    known = pod.scheduling_gates if template is None else template.scheduling_gates
    return tuple(g for g in pod.scheduling_gates if g not in known)


def held(whose: str, gates: tuple[str, ...]) -> Reason:
    """Why no pod of a namespace goes in which a pod of `whose` had gates that its template does not have."""
    return Reason(
        ReasonCode.ADMISSION_QUEUE,
        f"new pods of its namespace may be held back: one of {whose} was made with the scheduling gate "
        f"{gates[0]}, which its template does not have",
        {},
        "see who sets that gate",
    )


def held_now(snapshot: Snapshot, templates: Iterable[PodTemplate]) -> Reason | None:
    """Why no pod of a namespace goes, by templates of the pods there. Their owners are in the snapshot."""
    for pod in templates:
        if pod.scheduling_gates and pod.controller is not None:
            _, kind, name = pod.controller
            owner = snapshot.workloads_by_name.get((kind, pod.namespace, name))
            if gates := added_gates(pod, owner.template if owner is not None else None):
                return held(f"{kind} {name}", gates)
    return None


class AdmissionQueues:
    """Asked about the pods of one snapshot."""

    def __init__(self, snapshot: Snapshot, owners: Owners) -> None:
        self._owners = owners
        gated = [group.template for group in snapshot.live if group.template.scheduling_gates]
        self._held = {t.namespace: reason for t in gated if (reason := held_now(snapshot, [t])) is not None}

    def why_not(self, pod: Pod) -> Reason | None:
        """Why a pod that a queue has let in stays."""
        owner = self._owners.of(pod)
        above = (owner, self._owners.parent(owner)) if owner is not None else ()
        metas = [w.metadata for w in above if w is not None]
        key = queue_of(
            pod.template.labels, pod.annotations, *(part for m in metas for part in (m.labels, m.annotations))
        )
        if not key:
            return self._held.get(pod.namespace)
        return Reason(
            ReasonCode.ADMISSION_QUEUE,
            f"was let in by a queue of {QUEUES[key]} ({key}): the replacement would queue again",
            {},
            "scale or restart its workload by the queue's own means, or take it out of the queue",
        )
