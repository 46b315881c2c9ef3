"""What a pod requests in all.

Rule: k8s.io/component-helpers/resource, ``PodRequests``. Containers run together. Init containers run one
after the other, each beside the sidecars that were started before it. Pod-level resources replace the sum for
the resources that they name. Overhead is added to the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rebalancer.model.amounts.quantity import bounded
from rebalancer.model.pod import Container

Requests = dict[str, int]

DEFAULT_CPU = 100
"""Millicores that scores assume for a container without a cpu request."""
DEFAULT_MEMORY = 200 * 1024 * 1024
"""Bytes that scores assume for a container without a memory request."""


def add(total: Requests, more: Mapping[str, int]) -> None:
    """Adds `more` to `total`."""
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def at_least(total: Requests, floor: Mapping[str, int]) -> None:
    """Raises `total` to `floor` where it is lower."""
    for name, value in floor.items():
        if value > total.get(name, 0):
            total[name] = value


def of_the_whole_pod(pod_level: Mapping[str, int]) -> Requests:
    """The resources of which a pod as a whole can have some."""
    return {n: v for n, v in pod_level.items() if n in ("cpu", "memory") or n.startswith("hugepages-")}


def pod_requests(
    containers: Iterable[Container],
    init_containers: Iterable[Container],
    overhead: Mapping[str, int],
    pod_level: Mapping[str, int],
    *,
    defaults: Mapping[str, int] | None = None,
) -> Requests:
    """A pod's effective requests, each at most `quantity.MOST`.

    `defaults` are used for resources that a container does not request at all.
    """

    def of(c: Container) -> Mapping[str, int]:
        return {**defaults, **c.requests} if defaults else c.requests

    total: Requests = {}
    for c in containers:
        add(total, of(c))
    sidecars: Requests = {}
    peak: Requests = {}
    for c in init_containers:
        if c.sidecar:
            add(total, of(c))
            add(sidecars, of(c))
            at_least(peak, sidecars)
        else:
            step = dict(sidecars)
            add(step, of(c))
            at_least(peak, step)
    at_least(total, peak)
    total |= of_the_whole_pod(pod_level)
    add(total, overhead)
    return {name: bounded(value) for name, value in total.items()}
