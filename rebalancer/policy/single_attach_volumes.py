"""Volumes that can be attached to one node at a time, where several running pods share one.

Rule: kubernetes pkg/volume/util, ``IsMultiAttachAllowed``. The access modes of the *volume* decide: one mode
that allows several nodes is enough. The scheduler does not check this. It may place a replacement on another
node, where the pod waits for the volume as long as the other pods run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot

_MANY = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class SingleAttachVolumes:
    """How many running pods of a snapshot use each claim."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._users: Counter[str] = Counter()
        for group in snapshot.live:
            if group.template.volumes:
                running = sum(bool(p.node_name) for p in group.pods)
                self._users.update(dict.fromkeys(_claims(group.one), running))

    def why_not(self, pod: Pod) -> Reason | None:
        """Why the pod has to stay on the node of the others that mount its claim; None if it need not.

        A claim that is not in the snapshot is not judged here: the scheduler's own rules reject such a pod.
        """
        for claim in sorted(_claims(pod)):
            others = self._users[claim] - 1
            if others > 0 and self._one_node(claim):
                who = "another pod" if others == 1 else f"{others} other pods"
                return Reason(
                    ReasonCode.PINNED_BY_VOLUME,
                    f"shares claim {claim} with {who}, and its volume is attached to one node at a time: a "
                    "replacement on another node would never start",
                    {"others": others},
                    "use a ReadWriteMany volume, or give each pod its own (volumeClaimTemplates)",
                )
        return None

    def _one_node(self, claim: str) -> bool:
        """Whether the claim's volume can be attached to one node only; without a volume, the claim's modes
        decide."""
        asked = self._snapshot.claims.get(claim)
        if asked is None:
            return False
        volume = self._snapshot.volumes.get(asked.spec.volume_name)
        modes = volume.spec.access_modes if volume is not None else asked.spec.access_modes
        if volume is not None and volume.spec.csi is not None:
            driver = self._snapshot.csi_drivers.get(volume.spec.csi.driver)
            if driver is not None and not driver.spec.attach_required:
                return False  # nothing is attached, so nothing stands in the way
        return bool(modes) and _MANY.isdisjoint(modes)


def _claims(pod: Pod) -> Iterator[str]:
    """namespace/name of the claims that a pod may share. The claim of an ephemeral volume belongs to one
    pod."""
    seen = {v.claim for v in pod.template.volumes if v.kind == "persistentVolumeClaim" and v.claim}
    return (f"{pod.namespace}/{name}" for name in seen)
