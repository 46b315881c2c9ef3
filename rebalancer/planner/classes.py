"""Pods that are interchangeable for planning: one owner, counted and constrained alike, equal in need.

A plan reasons about counts of such pods per node, never about single pods (16 ms against 4 s); which of
them is evicted is decided by `victims`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.workload import Workload
from rebalancer.planner.groups import Groups
from rebalancer.planner.simulation import Simulation
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.replacement import edited
from rebalancer.spread.arrays import Bools


@dataclass(eq=False)
class PodClass:
    """Interchangeable pods of one owner.

    `template`, `replacement`: of one of them, for all. `counted`: groups that count them; `carried`: groups
    of their own constraints. `static`: bool[N], nodes for their replacements on an empty cluster.
    `by_row[node]`: the pods there, best victim first; `fixed[node]`: how many of them stay for policy's sake.
    """

    index: int
    owner: Workload | None
    template: PodTemplate
    replacement: PodTemplate
    counted: tuple[int, ...]
    carried: tuple[int, ...]
    static: Bools
    by_row: dict[int, list[Pod]] = field(default_factory=dict)
    pinned: dict[int, int] = field(default_factory=dict)

    @property
    def stateful(self) -> bool:
        """Whether the owner waits for the victim's end before it makes the replacement."""
        return self.owner is not None and self.owner.kind == "StatefulSet"

    @property
    def ordered(self) -> bool:
        """Whether the owner makes one pod at a time."""
        return self.owner is not None and self.owner.kind == "StatefulSet" and not self.owner.parallel


class Classes:
    """All classes of a cluster, and why which pod stays."""

    def __init__(
        self,
        simulation: Simulation,
        groups: Groups,
        evictable: Evictable,
        pods: Iterable[Pod],
        order: Callable[[Pod], object],
    ) -> None:
        self.all: list[PodClass] = []
        self.why_not: dict[str, Reason] = {}
        self._replacements = evictable.replacements
        self._index: dict[tuple[object, ...], PodClass] = {}
        self._signatures: dict[tuple[str, int], tuple[object, ...]] = {}
        self._simulation, self._groups, self._evictable = simulation, groups, evictable
        for pod in pods:
            self._add(pod)
        for c in self.all:
            for there in c.by_row.values():
                there.sort(key=order)  # type: ignore[arg-type]

    @property
    def highest_priority(self) -> int:
        """The highest that a replacement can have."""
        return max((c.replacement.priority for c in self.all), default=0)

    def _add(self, pod: Pod) -> None:
        state, groups = self._simulation.state, self._groups
        carried = groups.carried(pod.template)
        counted = groups.counted(pod.template)
        if not carried and not counted:
            return
        row = state.table.index[pod.node_name]
        owner = self._evictable.owners.of(pod)
        replacement = self._replacements.of(pod.template, owner) if owner is not None else pod.template
        signature = (
            owner.key if owner else "",
            *self._signature(pod.template, replacement, carried, counted),
        )
        found = self._index.get(signature)
        if found is None:
            found = PodClass(
                len(self.all),
                owner,
                pod.template,
                replacement,
                counted,
                carried,
                self._simulation.static(replacement),
            )
            self._index[signature] = found
            self.all.append(found)
        reason = self._evictable.why_not(pod) or self._unlike(pod, replacement)
        if reason is not None:
            self.why_not[pod.uid or pod.key] = reason
            found.pinned[row] = found.pinned.get(row, 0) + 1
        found.by_row.setdefault(row, []).append(pod)

    def replacement(self, pod: Pod, pod_class: PodClass) -> PodTemplate:
        """What takes this very pod's place."""
        if pod_class.owner is None:
            return pod.template
        return self._replacements.of(pod.template, pod_class.owner)

    def _unlike(self, pod: Pod, replacement: PodTemplate) -> Reason | None:
        owner = self._evictable.owners.of(pod)
        if owner is not None and owner.template is not None and edited(pod.template, owner.template):
            return Reason(
                ReasonCode.ROLLOUT_IN_PROGRESS,
                "its owner's template was changed after the pod was made: its replacement would differ",
                {},
                "let the owner replace its pods",
            )
        if replacement is pod.template:
            return None
        groups = self._groups
        if groups.carried(replacement) == groups.carried(pod.template) and groups.counted(
            replacement
        ) == groups.counted(pod.template):
            return None
        return Reason(
            ReasonCode.ROLLOUT_IN_PROGRESS,
            "its owner's template differs from the pod in labels or constraints: the replacement would count "
            "elsewhere",
            {},
            "let the owner replace its pods (kubectl rollout restart)",
        )

    def _signature(
        self,
        template: PodTemplate,
        replacement: PodTemplate,
        carried: tuple[int, ...],
        counted: tuple[int, ...],
    ) -> tuple[object, ...]:
        key = (template.namespace, id(template))
        found = self._signatures.get(key)
        if found is None:
            affinity = template.affinity
            found = self._signatures[key] = (
                carried,
                counted,
                tuple(sorted(replacement.requests.items())),
                replacement.host_ports,
                replacement.priority,
                id(affinity) if affinity and (affinity.pod_affinity or affinity.pod_anti_affinity) else 0,
                self._simulation.static(replacement).tobytes(),
            )
        return found
