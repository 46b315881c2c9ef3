"""The evictions that caps count: those of the present cycle, of the last hour and of the last day."""

from __future__ import annotations

from collections import Counter

from rebalancer.policy.history.ledger import Ledger
from rebalancer.policy.history.tally import DAY, HOUR, owner_id, recent
from rebalancer.policy.options import Earlier, Evicted


def earlier(ledger: Ledger, *, now: float, cycle: str) -> Earlier:
    """The evictions that count at `now`, whatever became of them; only time makes them count no more."""
    last_day = [e for e in ledger.entries if now - e.at < DAY]
    by_owner, last_hour = Counter(owner_id(e.owner) for e in last_day), 0
    for owner, counts in recent(ledger.counted, now).items():
        by_owner[owner] += sum(c.evictions for c in counts)
        last_hour += sum(c.evictions for c in counts if now - c.at < HOUR)
    return Earlier(
        this_cycle=tuple(
            Evicted(e.owner, e.namespace, e.node, e.leaves) for e in ledger.entries if e.cycle == cycle
        ),
        last_hour=last_hour + sum(now - e.at < HOUR for e in last_day),
        last_day=by_owner,
    )
