"""What an eviction asks of the API server, whatever the size of the owner."""

from __future__ import annotations

from collections.abc import Iterator

from tests.perf import Figure
from tests.support.runs.eviction_cost import EVICTIONS, cost


def run() -> Iterator[Figure]:
    """Requests and bytes for owners of ten and of a thousand pods."""
    for pods in (10, 1_000):
        found = cost(pods)
        yield Figure(
            f"requests per eviction, owner of {pods:,} pods", found.requests.total() / EVICTIONS, "", 12, True
        )
        yield Figure(f"bytes per eviction, owner of {pods:,} pods", found.size / EVICTIONS, "B")
