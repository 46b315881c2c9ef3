"""Times of the ledger that lie in the future count as now.

A clock that was ahead has written them: that of a node without time synchronisation, or one that was set
wrongly. They must not lift a cap, have an owner rest or a claim hold for as long as that clock was ahead.
"""

from __future__ import annotations

from msgspec.structs import replace

from rebalancer.policy.history.fence import Claim
from rebalancer.policy.history.ledger import Entry, Ledger
from rebalancer.policy.history.tally import HOUR, not_after

_SKEW = 5.0
"""Seconds that the clocks of two machines may well differ."""


def as_of(ledger: Ledger, now: float, silent: float, *, earliest: float | None = None) -> Ledger:
    """The ledger without times in the future. `silent`: for how long a claim lasts that does not say so.
    `earliest`: what another clock shows; what was to end by now ends when it is over by that one too."""
    latest = now + _SKEW
    unread, circuit = min(ledger.unread, now + HOUR), ledger.circuit
    return replace(
        ledger,
        unread=unread if unread > (now if earliest is None else earliest) else 0.0,
        circuit=replace(circuit, opened=now) if circuit.opened > latest else circuit,
        entries=tuple(_entry(e, now, latest) for e in ledger.entries),
        counted=not_after(ledger.counted, latest),
        violated={k: now if at > latest else at for k, at in ledger.violated.items()},
        irreplaceable={k: now if at > latest else at for k, at in ledger.irreplaceable.items() if at > 0},
        looked=now if ledger.looked > latest else ledger.looked,
        claims={n: _claim(c, now, latest, silent) for n, c in ledger.claims.items()},
    )


def _entry(e: Entry, now: float, latest: float) -> Entry:
    if e.at <= latest and e.removed <= latest:
        return e
    return replace(e, at=min(e.at, now), removed=min(e.removed, now))


def _claim(claim: Claim, now: float, latest: float, silent: float) -> Claim:
    """A claim that was made in the future lasts from now on."""
    made = claim.made or claim.until - silent
    return replace(claim, made=now, until=now + claim.until - made) if made > latest else claim
