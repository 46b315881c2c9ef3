"""What vertical autoscalers make of a replacement: requests that its template and its predecessor lack.

A VerticalPodAutoscaler sets the requests of every pod that is made, in an admission webhook, to what it
recommends at that moment; in every mode but Off. Whether it evicts pods for it is another question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from msgspec.structs import replace

from rebalancer.model.amounts.pod_requests import Requests, add, at_least
from rebalancer.model.amounts.quantity import bounded, resource_list
from rebalancer.model.pod import Container, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload

_NEVER = "Off"


class VerticalAutoscalers:
    """Those of a snapshot that set requests."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._targets: dict[tuple[str, str, str], list[Mapping[str, Requests]]] = defaultdict(list)
        for v in snapshot.vertical_autoscalers:
            ref = v.spec.target_ref
            if ref is not None and v.spec.update_policy.update_mode != _NEVER:
                wanted = v.status.recommendation.container_recommendations
                self._targets[v.metadata.namespace, ref.kind, ref.name].append(
                    {c.container_name: resource_list(c.target) for c in wanted}
                )

    def applied(self, template: PodTemplate, owner: Workload) -> PodTemplate:
        """The template with what is recommended where that is more; the same where nobody sets requests.

        What becomes less is not relied on: the recommendation changes, too.
        """
        targets = self._of(owner)
        if not targets:
            return template
        more: Requests = {}
        containers = tuple(_raised(c, targets, more) for c in template.containers)
        return replace(
            template,
            autosized=True,
            containers=containers,
            requests={r: bounded(n) for r, n in _sum(template.requests, more).items()},
            nonzero_cpu=bounded(template.nonzero_cpu + more.get("cpu", 0)),
            nonzero_memory=bounded(template.nonzero_memory + more.get("memory", 0)),
            scored_cpu=bounded(template.scored_cpu + more.get("cpu", 0)),
            scored_memory=bounded(template.scored_memory + more.get("memory", 0)),
        )

    def _of(self, owner: Workload) -> list[Mapping[str, Requests]]:
        """Of the owner itself, and of its own controller: of a Deployment, for its ReplicaSets."""
        if not self._targets:
            return []
        found = list(self._targets.get((owner.namespace, owner.kind, owner.metadata.name), ()))
        if (parent := owner.owner) is not None:
            found += self._targets.get((owner.namespace, parent.kind, parent.name), ())
        return found


def _raised(container: Container, targets: list[Mapping[str, Requests]], more: Requests) -> Container:
    """The container with the largest requests of all; by how much they grow goes into `more`."""
    requests = dict(container.requests)
    for target in targets:
        at_least(requests, target.get(container.name, {}))
    grown = {r: n - container.requests.get(r, 0) for r, n in requests.items()}
    add(more, {r: n for r, n in grown.items() if n > 0})
    return replace(container, requests=requests) if any(grown.values()) else container


def _sum(one: Requests, other: Requests) -> Requests:
    total = dict(one)
    add(total, other)
    return total
