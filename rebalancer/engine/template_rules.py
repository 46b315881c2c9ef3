"""What the scheduler reads out of a pod's template, where its versions differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from rebalancer.engine.config import Profile
from rebalancer.engine.version import (
    INIT_IMAGES,
    POD_LEVEL_RESOURCES,
    RESIZES,
    RESIZES_OF_PODS,
    SIDECAR_PORTS,
    SIDECARS_IN_SCORES,
    SUMS_OF_RESIZES,
    Change,
    ServerVersion,
)
from rebalancer.model.pod import DEFAULT_CPU, DEFAULT_MEMORY, HostPort, PodTemplate, Taken
from rebalancer.spread.arrays import int64

# Which resources the scheduler counts.
#
# Rule: framework.Resource.Add and pkg/apis/core/v1/helper (``IsScalarResourceName``,
# ``IsExtendedResourceName``).

PODS = "pods"
"""How many pods a node takes, among its resources; a request of this name is not counted."""
NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})


def is_extended(name: str) -> bool:
    """A resource of somebody else's domain, such as example.com/gpu."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def is_scalar(name: str) -> bool:
    """Counted in whole pieces: extended, hugepages, attachable volumes, kubernetes.io/…"""
    return (
        is_extended(name)
        or "kubernetes.io/" in name
        or name.startswith(("hugepages-", "attachable-volumes-"))
    )


@lru_cache(1024)
def is_counted(name: str) -> bool:
    """Whether requests of the resource are counted at all."""
    return name in NATIVE or is_scalar(name)


Amounts = tuple[tuple[str, int], ...]
"""(resource, amount); one of `PODS` is the pod itself."""
_FIT = "NodeResourcesFit"


def host_ports(template: PodTemplate, version: ServerVersion) -> tuple[HostPort, ...]:
    """The host ports that count. Rule: schedutil.GetHostPorts; before, those of the containers alone."""
    if not template.host_ports or version.has(SIDECAR_PORTS):
        return template.host_ports
    return _ports_of_containers(template)


def taken(template: PodTemplate, has: Callable[[Change], bool]) -> Taken:
    """What a pod takes of its node, by the changes that the scheduler has."""
    held = template.held
    if held is None or not has(RESIZES):
        return Taken(template.requests, template.nonzero_cpu, template.nonzero_memory)
    if has(SUMS_OF_RESIZES):
        return held.by_sums
    return held.with_whole if has(RESIZES_OF_PODS) else held.by_container


def held_requests(template: PodTemplate, version: ServerVersion) -> Amounts:
    """What a pod takes of its node, whoever asks for it there."""
    return _counted(taken(template, version.has).requests)


def otherwise_held(template: PodTemplate, version: ServerVersion, change: Change) -> Amounts:
    """What more than `held_requests` the pod takes if the scheduler has the change, or has not, against what
    its version says; pseudo-resources of the name `otherwise`."""
    if template.held is None:
        return ()
    here = dict(held_requests(template, version))
    other = dict(_counted(taken(template, lambda c: version.has(c) != (c is change)).requests))
    more = {r: other.get(r, 0) - here.get(r, 0) for r in {**here, **other}}
    return tuple((otherwise(change, r), amount) for r, amount in more.items() if amount)


def otherwise(change: Change, resource: str) -> str:
    """The pseudo-resource that says how much more of a resource is taken if a change is not as assumed."""
    return f"{resource} otherwise by {change.source}"


WAITING_RESIZES = "pods whose resize waits"
"""The pseudo-resource that says how many pods of a node wait to be resized there."""
_RESIZED, _WHOLE, _OVERHEAD, _PORTS = (
    "resized pods",
    "pods with pod-level requests",
    "pods with overhead",
    "sidecars with host ports",
)
BESIDE = {"NodeResourcesFit": (_RESIZED, WAITING_RESIZES, _WHOLE, _OVERHEAD), "NodePorts": (_PORTS,)}
"""By plugin, what of the pods on a node its verdict may hang on: pseudo-resources that count such pods."""


def beside(template: PodTemplate) -> Amounts:
    """What a pod adds to the counts of `BESIDE`: nothing, for most."""
    found = {
        _RESIZED: template.held is not None,
        WAITING_RESIZES: template.held is not None and template.held.waits,
        _WHOLE: bool(template.pod_level),
        _OVERHEAD: bool(template.overhead),
        _PORTS: SIDECAR_PORTS in peculiarities(template),
    }
    return tuple((name, 1) for name, there in found.items() if there)


def _counted(requests: Mapping[str, int]) -> Amounts:
    """Resources that the scheduler does not know are left out. Rule: framework.Resource.Add."""
    counted = ((name, int64(v)) for name, v in requests.items() if v and is_counted(name))
    return (*counted, (PODS, 1))


def asked_requests(template: PodTemplate, profile: Profile) -> Amounts:
    """What the profile's filter wants a node to have left for the pod: what it asks for less what is ignored.

    Rule: plugins/noderesources/fit.go, ``fitsRequest``; a profile without that filter wants nothing.
    """
    if _FIT not in profile.filters:
        return ()
    return tuple((r, v) for r, v in _counted(template.requests) if v > 0 and not _ignored(r, profile))


def _ignored(resource: str, profile: Profile) -> bool:
    """Only resources of others can be ignored."""
    group = resource.split("/", 1)[0]
    named = resource in profile.ignored_resources or group in profile.ignored_groups
    return named and is_extended(resource)


def scored_requests(template: PodTemplate, version: ServerVersion) -> tuple[int, int]:
    """Millicores and bytes that a placed pod takes up for the resource scores, defaults included.

    Rule: framework/types.go, ``calculateResource``. Before 1.32 a sidecar was taken for an init container.
    """
    if version.has(SIDECARS_IN_SCORES) or not any(c.sidecar for c in template.init_containers):
        found = taken(template, version.has)
        return found.nonzero_cpu, found.nonzero_memory
    return _largest(template, "cpu", DEFAULT_CPU), _largest(template, "memory", DEFAULT_MEMORY)


def container_images(template: PodTemplate, version: ServerVersion) -> tuple[str, ...]:
    """The images of the pod's containers, as written. Rule: ImageLocality.Score."""
    counted = template.containers
    if version.has(INIT_IMAGES):
        counted = (*template.init_containers, *template.containers)
    return tuple(c.image for c in counted)


def peculiarities(template: PodTemplate) -> frozenset[Change]:
    """The changes that decide what else fits beside a pod of this template."""
    found: set[Change] = set()
    if template.pod_level:
        found.add(POD_LEVEL_RESOURCES)
    if template.host_ports and len(_ports_of_containers(template)) != len(template.host_ports):
        found.add(SIDECAR_PORTS)
    return frozenset(found)


def _ports_of_containers(template: PodTemplate) -> tuple[HostPort, ...]:
    return tuple(dict.fromkeys(p for c in template.containers for p in c.host_ports))


def _largest(template: PodTemplate, resource: str, default: int) -> int:
    """The sum of the containers, or the most that runs while the pod starts if that is more; plus overhead.

    The default stands in once for an init container and all sidecars beside it.
    """
    most = sum(c.requests.get(resource, default) for c in template.containers)
    sidecars: list[int] = []
    for container in template.init_containers:
        own = [container.requests[resource]] if resource in container.requests else []
        most = max(most, sum((*sidecars, *own)) if sidecars or own else default)
        if container.sidecar:
            sidecars += own
    return most + template.overhead.get(resource, 0)
