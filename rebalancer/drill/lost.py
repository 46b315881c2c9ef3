"""Which pods go with nodes that fail, and what their owners make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from rebalancer.drill.failure import SILENT, Manner
from rebalancer.findings.subject import REPLICATED
from rebalancer.model.node import Taint, Toleration
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.replacement import Replacements
from rebalancer.policy.vertical_autoscalers import VerticalAutoscalers

_OF_THE_NODE = frozenset({"DaemonSet", "Node"})


class Fate(StrEnum):
    """What becomes of a pod whose node fails."""

    MADE = "made"
    """Its owner makes another one at once."""
    IN_TURN = "in-turn"
    """Its owner makes another one when those before it are Ready (OrderedReady)."""
    HELD = "held"
    """Its owner makes another one only when it is gone, and a silent node never says so (StatefulSet)."""
    GONE = "gone"
    """No owner makes another one, as far as known."""
    STAYS = "stays"
    """It belongs to the node, or tolerates its failure."""


class Lost(Struct, frozen=True, eq=False):
    """A pod that is lost. `workload`: Kind/namespace/name of the topmost owner; `replacement`: what takes its
    place."""

    pod: Pod
    workload: str
    fate: Fate
    replacement: PodTemplate
    owner: Workload | None


class Owned:
    """The pods of a snapshot by what their owners do when a node fails."""

    def __init__(self, snapshot: Snapshot, manner: Manner) -> None:
        self.owners = Owners(snapshot, PolicyOptions())
        self.manner = manner
        self._replacements = Replacements(VerticalAutoscalers(snapshot))
        self._alike: dict[tuple[int, int], tuple[Pod, Fate, str, Workload | None]] = {}
        self._deleted_after: dict[tuple[Toleration, ...], float | None] = {}
        self.running: Counter[str] = Counter()
        self._active: Counter[str] = Counter()
        for pod in snapshot.pods:
            if not pod.finished and not pod.terminating:
                _, workload, owner = self._of(pod)
                self.running[workload] += bool(pod.node_name)
                if owner is not None:
                    self._active[owner.key] += 1

    def runs(self, pod: Pod) -> None:
        """A pod that waited has found a node."""
        self.running[self._of(pod)[1]] += 1

    def lost(self, pods: Iterable[Pod]) -> list[Lost]:
        """Of live pods on nodes that fail those that are lost, in their order."""
        found: list[Lost] = []
        number: Counter[str] = Counter()
        for pod in pods:
            fate, workload, owner = self._of(pod)
            if fate is Fate.STAYS:
                continue
            if owner is not None and fate is Fate.MADE and owner.kind != "StatefulSet":
                # An owner with more pods than it wants makes none for those beyond.
                number[owner.key] += 1
                if number[owner.key] <= self._active[owner.key] - owner.replicas:
                    fate = Fate.GONE
            replacement = self._replacements.of(pod.template, owner) if owner is not None else pod.template
            found.append(Lost(pod, workload, fate, replacement, owner))
        return found

    def _of(self, pod: Pod) -> tuple[Fate, str, Workload | None]:
        """The first pod is kept, so that no other object gets the identity of its owner."""
        key = id(pod.owner), id(pod.template.tolerations)
        found = self._alike.get(key) if pod.owner is not None else None
        if found is None:
            owner = self.owners.of(pod)
            top = self.owners.top(owner) if owner is not None else None
            if top is not None:
                name = top.key
            elif pod.owner is not None:
                name = f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"
            else:
                name = f"Pod/{pod.namespace}/{pod.name}"
            found = self._alike[key] = pod, self._fate(pod, owner), name, owner
        return found[1:]

    def _fate(self, pod: Pod, owner: Workload | None) -> Fate:
        if pod.owner is not None and pod.owner.kind in _OF_THE_NODE:
            return Fate.STAYS
        if self.manner == "silent" and self.deleted_after(pod) is None:
            return Fate.STAYS
        if owner is None or owner.kind not in REPLICATED or owner.metadata.deletion_timestamp is not None:
            return Fate.GONE
        if owner.kind != "StatefulSet":
            return Fate.MADE
        if self.manner == "silent":
            return Fate.HELD
        return Fate.MADE if owner.parallel else Fate.IN_TURN

    def deleted_after(self, pod: Pod) -> float | None:
        """Seconds until it is deleted from a node that falls silent, and counts no longer; None = never. One
        of a DaemonSet never is, unless it lacks what its controller gives it."""
        tolerations = pod.template.tolerations
        if tolerations not in self._deleted_after:
            self._deleted_after[tolerations] = deleted_after(tolerations, SILENT)
        return self._deleted_after[tolerations]


def deleted_after(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> float | None:
    """Seconds until a pod is deleted from a node with these taints; None = never. Rule:
    pkg/controller/tainteviction."""
    least: float | None = None
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        # The first that fits a taint counts, and no other: GetMatchingTolerations.
        first = next((t for t in tolerations if t.tolerates(taint)), None)
        if first is None:
            return 0.0
        if first.toleration_seconds is not None:
            seconds = max(0.0, float(first.toleration_seconds))
            least = seconds if least is None else min(seconds, least)
    return least
