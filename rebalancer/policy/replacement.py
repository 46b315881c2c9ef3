"""The pod that an owner makes in place of an evicted one.

It is built from the owner's template, plus what admission had added to the evicted pod (tolerations, merged
selectors, injected containers), and has no node. If nothing differs, it *is* the evicted pod's template, so
that whatever is cached for that template is valid for the replacement too.
"""

from __future__ import annotations

import msgspec

from rebalancer.model.amounts.pod_requests import Requests
from rebalancer.model.pod import Container, PodTemplate
from rebalancer.model.workload import Workload
from rebalancer.policy.vertical_autoscalers import VerticalAutoscalers
from rebalancer.spread.constraint import resolve


class Replacements:
    """Replacement templates, one for each (owner, template). `autoscalers`: what sets requests; None:
    nothing."""

    def __init__(self, autoscalers: VerticalAutoscalers | None = None) -> None:
        self._autoscalers = autoscalers
        self._memo: dict[tuple[str, int], tuple[PodTemplate, PodTemplate]] = {}

    def of(self, template: PodTemplate, owner: Workload) -> PodTemplate:
        """The replacement of a pod of this template under this owner."""
        key = (owner.key, id(template))
        found = self._memo.get(key)
        if found is None:
            # What a resize has it take for now is no part of the new pod.
            built = _build(template.by_spec or template, owner.template)
            if self._autoscalers is not None:
                built = self._autoscalers.applied(built, owner)
            found = self._memo[key] = (template, built)
        return found[1]


def _build(pod: PodTemplate, owner: PodTemplate | None) -> PodTemplate:
    if owner is None or owner is pod:
        return pod
    changes: dict[str, object] = {}
    labels = {**pod.labels, **owner.labels}
    if labels != pod.labels:
        changes["labels"] = labels
    selector = {**pod.node_selector, **owner.node_selector}
    if selector != pod.node_selector:
        changes["node_selector"] = selector
    if (
        owner.affinity is not pod.affinity
        and owner.affinity is not None
        and not _same(owner.affinity, pod.affinity)
    ):
        changes["affinity"] = owner.affinity
    tolerations = tuple(dict.fromkeys((*owner.tolerations, *pod.tolerations)))
    if set(tolerations) != set(pod.tolerations):
        changes["tolerations"] = tolerations
    # The larger of both: an autoscaler may have set the pod's requests, or someone resized it in place.
    requests = _larger(pod.requests, owner.requests)
    if requests != pod.requests:
        changes["requests"] = requests
        for field in ("nonzero_cpu", "nonzero_memory", "scored_cpu", "scored_memory"):
            changes[field] = max(getattr(pod, field), getattr(owner, field))
    if (containers := _joined(pod.containers, owner.containers)) != pod.containers:
        changes["containers"] = containers
    if (inits := _joined(pod.init_containers, owner.init_containers)) != pod.init_containers:
        changes["init_containers"] = inits
    if owner.scheduler_name != pod.scheduler_name:
        changes["scheduler_name"] = owner.scheduler_name
    if owner.spread is not pod.spread and owner.spread:
        relabelled = msgspec.structs.replace(pod, labels=labels)
        mine = tuple(resolve(c, relabelled) for c in pod.spread)
        if tuple(resolve(c, relabelled) for c in owner.spread) != mine:
            changes["spread"] = owner.spread
    return msgspec.structs.replace(pod, **changes) if changes else pod


def edited(pod: PodTemplate, owner: PodTemplate) -> bool:
    """Whether the owner's template differs from the pod in a way that admission cannot have caused.

    That is: constraints or affinity that only the pod has, other scheduling gates, or host ports that only
    the template has.
    """
    return (
        owner.scheduling_gates != pod.scheduling_gates
        or bool(pod.spread and not owner.spread)
        or bool(pod.affinity and not owner.affinity)
        or not set(owner.host_ports) <= set(pod.host_ports)
    )


def _larger(mine: Requests, theirs: Requests) -> Requests:
    return {r: max(mine.get(r, 0), theirs.get(r, 0)) for r in {**mine, **theirs}}


def _joined(mine: tuple[Container, ...], theirs: tuple[Container, ...]) -> tuple[Container, ...]:
    """The pod's containers, each with the larger amounts of the two, then those that only the template has.

    A container in which nothing differs is the same object as the pod's.
    """
    by_name = {c.name: c for c in theirs}
    joined = []
    for c in mine:
        other = by_name.pop(c.name, c)
        requests, limits = _larger(c.requests, other.requests), _larger(c.limits, other.limits)
        alike = requests == c.requests and limits == c.limits
        joined.append(c if alike else msgspec.structs.replace(c, requests=requests, limits=limits))
    return (*joined, *by_name.values())


def _same(a: object, b: object) -> bool:
    return msgspec.json.encode(a) == msgspec.json.encode(b)
