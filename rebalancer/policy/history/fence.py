"""The ledger as a fence: everybody who writes it claims it, and two claims of one term stop both.

A term is the number of times that the lease changed hands. Who has a higher one came later by the lease, so
the former holder stops. The same term from two holders means that they do not share a lease; then nobody acts
until one claim is withdrawn or has run out.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rebalancer.model.reason import Reason, ReasonCode


class Claim(Struct, frozen=True, omit_defaults=True):
    """`term`: the lease's transitions when it was made. `made`, `until`: epoch seconds; without another one
    by then, its holder is gone."""

    until: float
    term: int = 0
    made: float = 0.0


def rival(claims: Mapping[str, Claim], me: str, term: int, now: float) -> Reason | None:
    """Why `me` must not act in this term: somebody else claims it, or a later one."""
    others = {n: c for n, c in claims.items() if n != me and c.until > now and c.term >= term}
    if not others:
        return None
    name, claim = max(others.items(), key=lambda o: (o[1].term, o[0]))
    numbers = {"term": claim.term, "until": int(claim.until)}
    if claim.term > term:
        return Reason(ReasonCode.RIVAL, f"{name} has taken over: it acts on the same ledger", numbers)
    return Reason(
        ReasonCode.RIVAL,
        f"{name} acts on the same ledger without the same lease: nobody evicts until one of the two is gone",
        numbers,
        "end one of them, or give both the same leaderElection.name and namespace",
    )


def claimed(claims: Mapping[str, Claim], me: str, mine: Claim, now: float) -> dict[str, Claim]:
    """The claims with that of `me`, without those that ran out or are of an earlier term."""
    others = {n: c for n, c in claims.items() if n != me and c.until > now and c.term >= mine.term}
    return {**others, me: mine}
