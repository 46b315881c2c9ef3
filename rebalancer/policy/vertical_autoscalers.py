"""What vertical autoscalers make of a new pod: requests that its template and its predecessor lack.

A VerticalPodAutoscaler sets the requests of every pod that is made, in an admission webhook, to what it
recommends at that moment; in every mode but Off. Whether it evicts pods for it is another question. A boost
of the cpu for the time of the start comes on top of that, in every mode.

Rule: kubernetes/autoscaler, vertical-pod-autoscaler/pkg/admission-controller/resource/pod/patch.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec.structs import replace

from rebalancer.model.pod import Container, PodTemplate, Requests, at_least, with_containers
from rebalancer.model.quantity import resource_list
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import VerticalPodAutoscaler, Workload

_NEVER = "Off"


class VerticalAutoscalers:
    """The vertical autoscalers of a snapshot, as far as they set requests."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._targets: dict[tuple[str, str, str], list[VerticalPodAutoscaler]] = defaultdict(list)
        for v in snapshot.vertical_autoscalers:
            ref, off = v.spec.target_ref, v.spec.update_policy.update_mode == _NEVER
            if ref is not None and (not off or any(v.spec.boosts)):
                self._targets[v.metadata.namespace, ref.kind, ref.name].append(v)

    def applied(
        self, template: PodTemplate, owner: Workload, above: Workload | None, *, exactly: bool = False
    ) -> PodTemplate:
        """The template with what is recommended where that is more; the same where nobody sets requests.
        `above`: the owner's own controller, where that is known.

        What becomes less is not relied on, unless `exactly` that is asked for: the recommendation changes,
        too.
        """
        targets = self._of(owner, above)
        if not targets:
            return template
        # The pod itself may have been boosted: what it asks for without that stands in the owner's template.
        asked = {c.name: c for c in owner.template.containers} if owner.template is not None else {}
        containers = tuple(_set(c, asked.get(c.name, c), targets, exactly) for c in template.containers)
        return replace(with_containers(template, containers, template.init_containers), autosized=True)

    def _of(self, owner: Workload, above: Workload | None) -> list[VerticalPodAutoscaler]:
        """Of the owner and of what controls it, up to a custom resource over a Deployment."""
        if not self._targets:
            return []
        chain = [(w.kind, w.metadata.name, w.owner) for w in (owner, above) if w is not None]
        named = [(kind, name) for kind, name, _ in chain]
        named += [(o.kind, o.name) for *_, o in chain if o is not None]
        every = (self._targets.get((owner.namespace, *each), ()) for each in dict.fromkeys(named))
        return [v for found in every for v in found]


def _set(
    container: Container, asked: Container, targets: list[VerticalPodAutoscaler], exactly: bool
) -> Container:
    """The container with the largest requests of all."""
    wanted: Requests = {}
    for v in targets:
        at_least(wanted, _set_by(v, asked))
    requests = {**container.requests, **wanted}
    if not exactly:
        at_least(requests, container.requests)
    unchanged = all(container.requests.get(r, 0) == n for r, n in requests.items())
    return container if unchanged else replace(container, requests=requests)


def _set_by(autoscaler: VerticalPodAutoscaler, asked: Container) -> Requests:
    """What one of them makes of the requests of a container that its owner's template asks for."""
    spec, requests = autoscaler.spec, dict[str, int]()
    if spec.update_policy.update_mode != _NEVER:
        wanted = autoscaler.status.recommendation.container_recommendations
        for c in wanted:
            if c.container_name == asked.name:
                at_least(requests, resource_list(c.target))
    policy = spec.resource_policy.of(asked.name)
    boost = (policy.startup_boost or spec.startup_boost).cpu
    if boost is None or policy.mode == _NEVER:
        return requests
    base = requests.get("cpu") or asked.requests.get("cpu", 0)
    plus = resource_list({"cpu": boost.quantity or 0})["cpu"]
    boosted = base * max(1, boost.factor or 1) + plus
    if policy.controlled_values == "RequestsOnly":
        boosted = min(boosted, asked.limits.get("cpu", boosted))
    return {**requests, "cpu": max(base, boosted)}
