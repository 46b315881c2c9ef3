"""The scheduler's integers as Kubernetes quantities: 500m, 1Gi."""

from __future__ import annotations

from collections.abc import Mapping

_BINARY = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def quantity(resource: str, amount: int) -> str:
    """Millicores of cpu, bytes, or a number: in the largest unit in which it is whole."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for size, unit in _BINARY:
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Of each resource."""
    return {resource: quantity(resource, amount) for resource, amount in amounts.items()}
