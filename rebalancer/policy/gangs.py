"""Pods that live and die together: evicting one restarts the others, or stops the work of all.

Known by the pod's own group, or by a controller whose pods wait for each other. A PodGroup's disruption mode
is about preemption, so it is no evidence that one may go. docs/compatibility.md lists who sets what.
"""

from __future__ import annotations

from collections.abc import Collection

from rebalancer.model.object_meta import OwnerReference
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode

LABELS = (
    "kueue.x-k8s.io/pod-group-name",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/name",
    "jobset.sigs.k8s.io/jobset-name",
    "ray.io/cluster",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
)
"""Labels of a pod whose value names its group."""
ANNOTATIONS = (
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "pod-group-name",
    "gang.scheduling.koordinator.sh/name",
)
"""Annotations that do: of Volcano, KAI and Koordinator."""
KINDS = frozenset(
    {
        "Pod",
        "LeaderWorkerSet",
        "JobSet",
        "RayCluster",
        "TrainJob",
        "PyTorchJob",
        "TFJob",
        "XGBoostJob",
        "PaddleJob",
        "JAXJob",
        "MXJob",
        "MPIJob",
        "PodGroup",
    }
)
"""Controllers whose pods restart together. A Pod owns the workers of its group."""
VOLCANO = "batch.volcano.sh/"
"""Volcano's Job has the name of a built-in kind."""


def group_of(pod: Pod) -> str:
    """The name of the group that the pod says it is in; "" if it says none."""
    named = (pod.template.labels.get(key) for key in LABELS)
    noted = (pod.annotations.get(key) for key in ANNOTATIONS)
    return pod.template.scheduling_group or next((n for n in (*named, *noted) if n), "")


def why_not(pod: Pod, allowed: Collection[str]) -> Reason | None:
    """Why a member of a group stays; None if it is in none, or in one that policy opens by name."""
    group = group_of(pod)
    if not group or group in allowed:
        return None
    return Reason(
        ReasonCode.GANG,
        f"is in group {group}: its members may have to start together",
        {},
        "name the group in scope.gangsAllow if its pods can go one by one",
    )


def of_controller(controller: OwnerReference, what: str) -> Reason | None:
    """Why what this controller owns stays, where its pods belong together. `what`: a sentence's beginning."""
    kind, volcano = controller.kind, controller.api_version.startswith(VOLCANO)
    if kind not in KINDS and not volcano:
        return None
    return Reason(
        ReasonCode.GANG,
        f"{what}: one eviction may restart all of its pods",
        {},
        "" if volcano else f"allow {kind} in scope.ownerKindsAllow if its pods can go one by one",
    )
