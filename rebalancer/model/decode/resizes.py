"""What a pod takes of its node while it is resized in place.

Rule: k8s.io/component-helpers/resource, ``PodRequests`` with `UseStatusResources`, from 1.33 on: the largest
of what its spec asks for, what the kubelet has allocated and what the runtime has enacted; where the resize
is infeasible, of the last two. PodResizePending and PodResizeInProgress say that one is under way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Raw
from msgspec.structs import replace

from rebalancer.model.amounts.pod_requests import DEFAULT_CPU, DEFAULT_MEMORY, Requests, pod_requests
from rebalancer.model.amounts.quantity import resource_list
from rebalancer.model.decode.pod_json import ContainerStatusJson, part
from rebalancer.model.pod import Container, PodTemplate

RESIZE = "PodResize"
"""What the types of both conditions begin with."""
RESIZE_PENDING = "PodResizePending"

Given = Mapping[str, tuple[Requests | None, Requests | None]]
"""Container → what was allocated, what was enacted; None where the status does not say."""


def container_statuses(*fields: Raw | bytes) -> dict[str, tuple[Requests | None, Requests | None]]:
    """What status.containerStatuses and status.initContainerStatuses say."""
    found: dict[str, tuple[Requests | None, Requests | None]] = {}
    for field in fields:
        for s in part(field, tuple[ContainerStatusJson, ...], "status.containerStatuses") or ():
            enacted = s.resources.requests if s.resources is not None else None
            found[s.name] = (
                _amounts(s.allocated_resources, "allocatedResources"),
                _amounts(enacted, "resources.requests"),
            )
    return found


def _amounts(given: dict[str, str | int | float] | None, field: str) -> Requests | None:
    return resource_list(given, f"status.containerStatuses[].{field}") if given is not None else None


class Resized:
    """The templates of pods that are resized, by what they are resized from; equal ones are one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[PodTemplate, PodTemplate]] = {}

    @property
    def entries(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def keep(self, used: Collection[int]) -> set[int]:
        """Forgets all except those with these ids. Returns the ids of those that they came from."""
        self._known = {k: v for k, v in self._known.items() if id(v[1]) in used}
        return {id(was) for was, _ in self._known.values()}

    def of(self, template: PodTemplate, given: Given, *, infeasible: bool) -> PodTemplate:
        """The template with what the pod takes now. Pod-level resources are taken as the spec has them."""
        if template.pod_level:
            return template
        key = id(template), f"{sorted(given.items())}{infeasible}"
        if key not in self._known:
            self._known[key] = template, _taking(template, given, infeasible=infeasible)
        return self._known[key][1]


def _taking(template: PodTemplate, given: Given, *, infeasible: bool) -> PodTemplate:
    def asked(c: Container) -> Requests:
        return {} if infeasible else c.requests

    def in_kubelet(c: Container) -> Requests:
        allocated = given.get(c.name, (None, None))[0]
        return asked(c) if allocated is None else allocated

    def in_runtime(c: Container) -> Requests:
        enacted = given.get(c.name, (None, None))[1]
        return in_kubelet(c) if enacted is None else enacted

    def largest(defaults: Mapping[str, int] | None = None) -> Requests:
        ways = [in_kubelet, in_runtime, *([] if infeasible else [asked])]
        found: Requests = {}
        for way in ways:
            total = pod_requests(
                [replace(c, requests=way(c)) for c in template.containers],
                [replace(c, requests=way(c)) for c in template.init_containers],
                template.overhead,
                {},
                defaults=defaults,
            )
            found = {r: max(found.get(r, 0), total.get(r, 0)) for r in {**found, **total}}
        return found

    requests, scored = largest(), largest({"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY})
    if requests == template.requests:
        return template
    cpu, memory = scored.get("cpu", 0), scored.get("memory", 0)
    return replace(
        template,
        by_spec=template,
        requests=requests,
        nonzero_cpu=cpu,
        nonzero_memory=memory,
        scored_cpu=cpu,
        scored_memory=memory,
    )
