"""The evictions that caps count: those of the present cycle, of the last hour and of the last day."""

from __future__ import annotations

from collections import Counter

from rebalancer.policy.history.ledger import Ledger
from rebalancer.policy.options import Earlier, Evicted

HOUR, DAY = 3600.0, 86_400.0


def earlier(ledger: Ledger, *, now: float, cycle: str) -> Earlier:
    """The evictions that count at `now`, whatever became of them; only time makes them count no more.

    A clock that was set back does not make them count for longer than that.
    """
    last_day = [e for e in ledger.entries if abs(now - e.at) < DAY]
    return Earlier(
        this_cycle=tuple(
            Evicted(e.owner, e.namespace, e.node, e.leaves) for e in ledger.entries if e.cycle == cycle
        ),
        last_hour=sum(abs(now - e.at) < HOUR for e in last_day),
        last_day=Counter(e.owner for e in last_day),
    )
