"""Which resources the scheduler counts.

Rule: framework.Resource.Add and pkg/apis/core/v1/helper (``IsScalarResourceName``,
``IsExtendedResourceName``).
"""

from __future__ import annotations

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


def is_counted(name: str) -> bool:
    """Whether requests of the resource are counted at all."""
    return name in NATIVE or is_scalar(name)
