"""The circuit breaker: when a cluster is too unwell for evictions, and how long they pause then."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.history.ledger import Circuit
from rebalancer.policy.options import Limit

_LONGEST = 8
"""Each further trip in a row doubles the pause, up to this many times the first."""


class CircuitLimits(Struct, frozen=True, kw_only=True):
    """`not_ready`: nodes that may be NotReady; `new_pending`: pods that may become unschedulable during a
    cycle; `pause`: seconds without evictions after the first trip, doubled by each further one in a row."""

    not_ready: Limit = Limit(percent=20)
    new_pending: int = 3
    pause: float = 600.0


class Vitals(Struct, frozen=True):
    """How well a cluster is: nodes in all, nodes that are NotReady, and the unschedulable pods (uid, or
    namespace/name)."""

    nodes: int
    not_ready: int
    unschedulable: frozenset[str]


def vitals(snapshot: Snapshot) -> Vitals:
    """The vitals of a snapshot."""
    return Vitals(
        len(snapshot.nodes),
        sum(not n.ready for n in snapshot.nodes),
        frozenset(p.uid or p.key for p in snapshot.pods if p.unschedulable and not p.node_name),
    )


def unwell(first: Vitals, now: Vitals, limits: CircuitLimits) -> str:
    """Why nothing should be evicted in this state; "" if the cluster is well. `first`: the vitals when the
    cycle began."""
    most = limits.not_ready.of(now.nodes)
    if now.not_ready > most:
        return f"{now.not_ready} of {now.nodes} nodes are NotReady, at most {most} may be"
    new = len(now.unschedulable - first.unschedulable)
    if new > limits.new_pending:
        return f"{new} pods have become Pending since the cycle began, at most {limits.new_pending} may"
    return ""


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
