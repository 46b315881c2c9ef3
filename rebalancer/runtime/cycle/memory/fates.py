"""What the ledger says of an outcome, and how it counts."""

from __future__ import annotations

from rebalancer.outcome.cycle import MoveStatus, Outcome
from rebalancer.outcome.eviction import Result
from rebalancer.policy.history.ledger import Fate, Totals


def fate_of(outcome: Outcome) -> Fate | None:
    """What the ledger says of an outcome; None: nothing was evicted."""
    if not outcome.evicted:
        unknown = outcome.eviction is not None and outcome.eviction.result is Result.UNKNOWN
        return Fate.UNKNOWN if unknown else None
    if outcome.status is MoveStatus.FAILED:
        return Fate.FAILED
    if outcome.expected is None:
        return Fate.UNSEEN
    return Fate.DONE if outcome.expected else Fate.ASTRAY


def counted_in(totals: Totals, fate: Fate) -> Totals:
    """The totals with one more eviction that ended so."""
    done, away, failed = fate is Fate.DONE, fate is Fate.ASTRAY, fate is Fate.FAILED
    return Totals(
        evictions=totals.evictions + 1,
        as_predicted=totals.as_predicted + done,
        astray=totals.astray + away,
        failed=totals.failed + failed,
        in_a_row=0 if away or failed else totals.in_a_row + done,
    )
