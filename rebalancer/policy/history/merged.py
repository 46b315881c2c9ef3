"""Two accounts of one ledger as one: what two processes have written, or what a process remembers and what it
finds in the cluster, which somebody may have deleted, cut, edited or restored from a backup."""

from __future__ import annotations

from msgspec.structs import replace

from rebalancer.policy.history.ledger import MOST_ENTRIES, Circuit, Entry, Fate, Ledger, Totals
from rebalancer.policy.history.tally import added, stricter

_KNOWN = (Fate.INTENDED, Fate.UNSEEN, Fate.UNKNOWN, Fate.DONE, Fate.ASTRAY, Fate.FAILED)
"""Of two fates of one eviction the later of these holds: it says more, or forbids more."""


def merged(theirs: Ledger, mine: Ledger) -> Ledger:
    """The entries of both, and of everything else what allows less."""
    there = {(e.cycle, e.uid): e for e in theirs.entries}
    own = {(e.cycle, e.uid) for e in mine.entries}
    entries = sorted(
        (
            *(e for key, e in there.items() if key not in own),
            *(_known(e, there.get((e.cycle, e.uid), e)) for e in mine.entries),
        ),
        key=lambda e: e.at,
    )
    # Entries that there is no room for: one account may have counted already what the other has as entries.
    dropped = entries[: max(0, len(entries) - MOST_ENTRIES)]
    counted = stricter(
        added(theirs.counted, ((e.owner, e.at) for e in dropped if (e.cycle, e.uid) in there)),
        added(mine.counted, ((e.owner, e.at) for e in dropped if (e.cycle, e.uid) in own)),
    )
    newer, older = (theirs, mine) if theirs.looked > mine.looked else (mine, theirs)
    both = theirs.totals, mine.totals
    return replace(
        mine,
        entries=tuple(entries[len(dropped) :]),
        counted=counted,
        looked=newer.looked,
        # A violation that began later has to last longer; one that was over when last looked for began anew.
        violated={k: max(at, older.violated.get(k, at)) for k, at in newer.violated.items()},
        # What cannot be replaced has been so since the first of them saw it.
        irreplaceable=theirs.irreplaceable
        | {k: min(at, theirs.irreplaceable.get(k, at)) for k, at in mine.irreplaceable.items()},
        circuit=_circuit(theirs.circuit, mine.circuit),
        unread=max(theirs.unread, mine.unread),
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


def _known(mine: Entry, theirs: Entry) -> Entry:
    """The own entry, with what became of it as far as they know more."""
    if _KNOWN.index(theirs.fate) <= _KNOWN.index(mine.fate):
        return mine
    return replace(
        mine,
        fate=theirs.fate,
        replacement=theirs.replacement,
        landed=theirs.landed,
        into=theirs.into,
        gates=mine.gates or theirs.gates,
        seconds=theirs.seconds,
        message=theirs.message,
    )


def _circuit(one: Circuit, other: Circuit) -> Circuit:
    """The one that is open longer, unless it has been closed for good since both were opened."""
    last = max(one, other, key=lambda c: c.closed)
    if last.closed and last.closed >= max(one.opened, other.opened):
        return last
    return max(one, other, key=lambda c: (c.until, c.trips, c.sooner))
