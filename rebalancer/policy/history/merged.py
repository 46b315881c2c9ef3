"""Two accounts of one ledger as one, where two processes have written."""

from __future__ import annotations

from msgspec.structs import replace

from rebalancer.policy.history.ledger import Ledger, Totals
from rebalancer.policy.history.tally import stricter


def merged(theirs: Ledger, mine: Ledger) -> Ledger:
    """The entries of both, and of everything else what allows less."""
    own = {(e.cycle, e.uid): e for e in mine.entries}
    theirs_left = [e for e in theirs.entries if (e.cycle, e.uid) not in own]
    both = theirs.totals, mine.totals
    return replace(
        mine,
        entries=tuple(sorted((*theirs_left, *mine.entries), key=lambda e: e.at)),
        counted=stricter(theirs.counted, mine.counted),
        # A violation that began later has to last longer.
        violated={k: max(mine.violated.get(k, 0), at) for k, at in theirs.violated.items()}
        | {k: at for k, at in mine.violated.items() if k not in theirs.violated},
        # What cannot be replaced has been so since the first of them saw it.
        irreplaceable=theirs.irreplaceable
        | {k: min(at, theirs.irreplaceable.get(k, at)) for k, at in mine.irreplaceable.items()},
        circuit=max(theirs.circuit, mine.circuit, key=lambda c: (c.until, c.trips, c.sooner)),
        totals=Totals(
            evictions=max(t.evictions for t in both),
            as_predicted=max(t.as_predicted for t in both),
            astray=max(t.astray for t in both),
            failed=max(t.failed for t in both),
            in_a_row=min(t.in_a_row for t in both),
        ),
        agreed=mine.agreed.stricter(theirs.agreed),
        claims=theirs.claims,
    )
