"""The circuit breaker: when nothing is evicted because the cluster is unwell, or a cycle ended badly.

What can be looked at is looked at before each eviction, and nothing of it lasts once it is over: nodes that
are NotReady, pods that evictions may have left without a node. What only shows when it is tried (an API
server that fails, replacements that do not become Ready) opens the breaker for a while.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from msgspec import Struct

from rebalancer.model.node import Node
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.history.ledger import Circuit
from rebalancer.policy.options import Limit

_LONGEST = 8
"""Each further trip in a row doubles the pause, up to this many times the first."""
_FEW = 3
"""So many displaced pods are allowed where a percentage of a small cluster would be less."""


class CircuitLimits(Struct, frozen=True, kw_only=True):
    """`not_ready`: nodes that may be NotReady. `displaced`: pods that may be Pending because of evictions; a
    percentage is of the cluster's pods, and means three at least. `pause`: seconds without evictions after
    the first trip, doubled by each further one in a row."""

    not_ready: Limit = Limit(percent=20)
    displaced: Limit = Limit(percent=1)
    pause: float = 600.0

    def most_displaced(self, pods: int) -> int:
        """How many displaced pods a cluster of so many may have."""
        allowed = self.displaced.of(pods)
        return allowed if self.displaced.number is not None else max(_FEW, allowed)


def too_many_not_ready(nodes: Collection[Node], limits: CircuitLimits) -> Reason | None:
    """Why nothing is evicted while so many nodes are NotReady."""
    not_ready, most = sum(not n.ready for n in nodes), limits.not_ready.of(len(nodes))
    if not_ready <= most:
        return None
    return Reason(
        ReasonCode.CLUSTER_UNWELL,
        f"{not_ready} of {len(nodes)} nodes are NotReady, at most {most} may be",
        {"notReady": not_ready, "nodes": len(nodes), "most": most},
        "mend the nodes; the limit is breaker.maxNotReadyNodes",
    )


def too_many_displaced(displaced: Collection[str], most: int) -> Reason | None:
    """Why nothing is evicted while so many pods (namespace/name) may be Pending because of evictions."""
    if len(displaced) <= most:
        return None
    return Reason(
        ReasonCode.CLUSTER_UNWELL,
        f"{len(displaced)} pods are Pending, at most {most} may be, that evictions of the last hour may have "
        f"left without a node: {min(displaced)}, …",
        {"displaced": len(displaced), "most": most},
        "make room for them; it goes on as soon as they run or are gone; the limit is breaker.maxDisplaced",
    )


def tripped(circuit: Circuit, why: str, *, now: float, limits: CircuitLimits) -> Circuit:
    """The circuit after another trip."""
    pause = limits.pause * min(2**circuit.trips, _LONGEST)
    return Circuit(until=now + pause, trips=circuit.trips + 1, reason=why)


def still_open(circuit: Circuit, *, now: float, limits: CircuitLimits) -> Reason | None:
    """Why nothing is evicted yet, and when evicting is tried again; None if the breaker is closed.

    A clock that was set back by more than the longest pause does not keep the breaker open.
    """
    if not circuit.trips or now >= circuit.until or circuit.until - now > _LONGEST * limits.pause:
        return None
    again = datetime.fromtimestamp(circuit.until, UTC)
    return Reason(
        ReasonCode.CIRCUIT_OPEN,
        f"the circuit breaker is open: {circuit.reason}; it is tried again at {again:%H:%M:%S}Z",
        {"until": int(circuit.until), "trips": circuit.trips},
        "mend the cause; `rebalancer once --execute` does not wait",
    )
