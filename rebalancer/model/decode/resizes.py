"""What a pod takes of its node, where its status says something else than its spec: while it is resized in
place, and where pod-level status counts its overhead in.

Rule: k8s.io/component-helpers/resource, ``PodRequests`` with `UseStatusResources`. Its releases reckon
differently, so a template gets what each makes of it (`Held`), and the engine takes that of its version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from msgspec import Raw, Struct
from msgspec.structs import replace

from rebalancer.model.amounts.pod_requests import (
    DEFAULT_CPU,
    DEFAULT_MEMORY,
    Requests,
    add,
    at_least,
    of_the_whole_pod,
    pod_requests,
)
from rebalancer.model.amounts.quantity import bounded, resource_list
from rebalancer.model.decode.pod_json import ContainerStatusJson, Quantities, absent, part
from rebalancer.model.node import Condition
from rebalancer.model.pod import Container, Held, PodTemplate, Taken

RESIZE_PENDING = "PodResizePending"
_Key = tuple[int, str, bytes]


class _Given(Struct, frozen=True):
    """What a status says: `allocated` by the kubelet, `enacted` by the runtime; {} where it does not say.

    `enacted` None: it has no `resources` at all.
    """

    allocated: Requests = {}
    enacted: Requests | None = None

    @staticmethod
    def of(allocated: Raw | bytes, resources: Raw | bytes, path: str) -> _Given:
        """From the two fields."""
        said = part(allocated, dict[str, str | int | float], f"{path}.allocatedResources") or {}
        enacted = part(resources, Quantities, f"{path}.resources")
        return _Given(
            resource_list(said, f"{path}.allocatedResources"),
            resource_list(enacted.requests or {}, f"{path}.resources.requests") if enacted else None,
        )


class Resized:
    """The templates of pods whose status says what they take, by what they are made of; equal ones are one
    object."""

    def __init__(self) -> None:
        self._known: dict[_Key, tuple[PodTemplate, PodTemplate]] = {}

    @property
    def entries(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def keep(self, used: Collection[int]) -> set[int]:
        """Forgets all except those with these ids. Returns the ids of those that they came from."""
        self._known = {k: v for k, v in self._known.items() if id(v[1]) in used}
        return {id(was) for was, _ in self._known.values()}

    def of(
        self,
        template: PodTemplate,
        statuses: Collection[ContainerStatusJson],
        allocated: Raw,
        resources: Raw,
        conditions: Collection[Condition],
    ) -> PodTemplate:
        """The template with what the pod takes, by its status; itself where that is what its spec says."""
        if not statuses and absent(allocated) and absent(resources):
            return template
        pending = ""
        for c in conditions:
            if c.type == RESIZE_PENDING:
                pending = c.reason
                break
        # As few steps as possible: this is done for each of 150,000 pods.
        said: list[Raw] = [allocated, resources]
        for s in statuses:
            said += s.name, s.allocated_resources, s.resources
        key = id(template), pending, b"\0".join(said)
        known = self._known.get(key)
        if known is None:
            containers = {
                part(s.name, str, "status.containerStatuses[].name"): _Given.of(
                    s.allocated_resources, s.resources, "status.containerStatuses[]"
                )
                for s in statuses
            }
            whole = _Given.of(allocated, resources, "status")
            known = self._known[key] = template, _holding(template, _Status(containers, whole, pending))
        return known[1]


class _Status(Struct, frozen=True):
    containers: Mapping[str, _Given]
    whole: _Given
    pending: str

    @property
    def infeasible(self) -> bool:
        """Whether the node can never give what is asked for."""
        return self.pending == "Infeasible"


Ways = Callable[[PodTemplate, _Status, Mapping[str, int] | None], Requests]


def _holding(template: PodTemplate, status: _Status) -> PodTemplate:
    held = Held(
        by_container=_taken(partial(_by_container, as_enacted=False), template, status),
        with_whole=_taken(partial(_by_container, as_enacted=True), template, status),
        by_sums=_taken(_by_sums, template, status),
        waits=status.pending not in ("", "Infeasible"),
    )
    spec = Taken(template.requests, template.nonzero_cpu, template.nonzero_memory)
    if held == Held(by_container=spec, with_whole=spec, by_sums=spec):
        return template
    return replace(template, held=held, by_spec=template)


def _taken(way: Ways, template: PodTemplate, status: _Status) -> Taken:
    requests = way(template, status, None)
    defaults = {"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY}
    if template.pod_level:
        defaults = {name: v for name, v in defaults.items() if not requests.get(name)}
    scored = way(template, status, defaults)
    return Taken(requests, scored.get("cpu", 0), scored.get("memory", 0))


def _by_container(
    template: PodTemplate, status: _Status, defaults: Mapping[str, int] | None, *, as_enacted: bool
) -> Requests:
    """Up to 1.36: each container with the largest of what is asked for, enacted and allocated.

    `as_enacted`: pod-level resources too, from 1.36 on, where the gate
    InPlacePodLevelResourcesVerticalScaling is on; they have the overhead in, which is added once more.
    """

    def largest(asked: Requests, given: _Given) -> Requests:
        return _largest({} if status.infeasible else asked, given.enacted or {}, given.allocated)

    def of(c: Container) -> Requests:
        given = status.containers.get(c.name)
        return c.requests if given is None or given.enacted is None else largest(c.requests, given)

    whole = dict(template.pod_level)
    if as_enacted and status.whole.enacted is not None:
        found = largest(whole, status.whole)
        whole = {name: found.get(name, 0) for name in whole}
    return pod_requests(
        [replace(c, requests=of(c)) for c in template.containers],
        # In-place resizes are of containers and sidecars.
        [replace(c, requests=of(c)) if c.sidecar else c for c in template.init_containers],
        template.overhead,
        whole,
        defaults=defaults,
    )


def _by_sums(template: PodTemplate, status: _Status, defaults: Mapping[str, int] | None) -> Requests:
    """From 1.37: the largest of the sums of what is asked for, allocated and enacted.

    Pod-level status takes the place of the last two sums if it has both. It has the overhead in, which is
    added once more (#139627).
    """

    def sum_of(way: Callable[[Container], Requests]) -> Requests:
        return pod_requests(
            [replace(c, requests=way(c)) for c in template.containers],
            [replace(c, requests=way(c)) for c in template.init_containers],
            {},
            {},
            defaults=defaults,
        )

    def asked(c: Container) -> Requests:
        return {} if status.infeasible else c.requests

    def allocated(c: Container) -> Requests:
        given = status.containers.get(c.name, _Given())
        return given.allocated or asked(c)

    def enacted(c: Container) -> Requests:
        given = status.containers.get(c.name, _Given())
        return given.enacted or allocated(c)

    whole = status.whole
    if whole.allocated and whole.enacted:
        given = [whole.allocated, whole.enacted]
    else:
        given = [sum_of(allocated), sum_of(enacted)]
    total = _largest(*given) if status.infeasible else _largest(sum_of(lambda c: c.requests), *given)
    if template.pod_level:
        level = dict(template.pod_level)
        if whole.enacted is not None:
            level = _largest({} if status.infeasible else level, whole.enacted, whole.allocated)
        total |= of_the_whole_pod(level)
    add(total, template.overhead)
    return {name: bounded(value) for name, value in total.items()}


def _largest(*lists: Requests) -> Requests:
    found: Requests = {}
    for amounts in lists:
        at_least(found, amounts)
    return {name: found.get(name, 0) for amounts in lists for name in amounts}
