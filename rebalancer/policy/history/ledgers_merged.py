"""Two accounts of one ledger as one: what two processes have written, or what a process remembers and what it
finds in the cluster, which somebody may have deleted, cut, edited or restored from a backup."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from rebalancer.policy.history.ledger import (
    HOUR,
    MOST_ENTRIES,
    Circuit,
    Claim,
    Entry,
    Fate,
    Ledger,
    Opening,
    Shown,
    Totals,
    added,
    not_after,
    oldest_first,
    stricter,
)
from rebalancer.policy.history.ledger_json import parted

_KNOWN = (
    *(Fate.INTENDED, Fate.RELEASED, Fate.RECORDED, Fate.SKIPPED, Fate.UNSEEN),
    *(Fate.UNDONE, Fate.UNKNOWN, Fate.DONE, Fate.ELSEWHERE, Fate.FAILED),
)
"""Of two fates of one eviction the later of these holds: it says more, or forbids more."""


def merged(theirs: Ledger, mine: Ledger, cycle: str = "") -> Ledger:
    """The entries of both, and of everything else what allows less. `cycle`: the present one, my own: what it
    intends I know best."""
    there = {(e.cycle, e.uid): e for e in theirs.entries}
    own = {(e.cycle, e.uid) for e in mine.entries}
    entries = oldest_first(
        (
            *(
                e
                for key, e in there.items()
                if key not in own and not (e.cycle == cycle and e.fate is Fate.INTENDED)
            ),
            *(_known(e, there.get((e.cycle, e.uid), e)) for e in mine.entries),
        )
    )
    # Entries that there is no room for: one account may have counted already what the other has as entries.
    dropped, kept = parted(entries, len(entries) - MOST_ENTRIES, cycle)
    counted = stricter(
        added(theirs.counted, ((e.owner, e.at) for e in dropped if (e.cycle, e.uid) in there)),
        added(mine.counted, ((e.owner, e.at) for e in dropped if (e.cycle, e.uid) in own)),
    )
    newer, older = (theirs, mine) if theirs.looked > mine.looked else (mine, theirs)
    both = theirs.totals, mine.totals
    return replace(
        mine,
        entries=kept,
        counted=counted,
        looked=newer.looked,
        # A violation that began later has to last longer; one that was over when last looked for began anew.
        violated={k: max(at, older.violated.get(k, at)) for k, at in newer.violated.items()},
        # What cannot be replaced has been so since the first of them saw it.
        irreplaceable=theirs.irreplaceable
        | {k: min(at, theirs.irreplaceable.get(k, at)) for k, at in mine.irreplaceable.items()},
        refused=theirs.refused
        | {k: max(r, theirs.refused.get(k, r), key=lambda r: r.at) for k, r in mine.refused.items()},
        openings=_openings(theirs.openings, mine.openings),
        circuit=_circuit(theirs.circuit, mine.circuit),
        unread=max(theirs.unread, mine.unread),
        totals=Totals(
            evictions=max(t.evictions for t in both),
            as_predicted=max(t.as_predicted for t in both),
            elsewhere=max(t.elsewhere for t in both),
            failed=max(t.failed for t in both),
            in_a_row=min(t.in_a_row for t in both),
            replaced=min(t.replaced for t in both),
        ),
        doubt=mine.doubt.stricter(theirs.doubt),
        agreed=mine.agreed.stricter(theirs.agreed),
        shown=mine.shown | {k: s.stricter(mine.shown.get(k, Shown())) for k, s in theirs.shown.items()},
        claims=theirs.claims,
    )


def _known(mine: Entry, theirs: Entry) -> Entry:
    """The own entry, with what became of it as far as they know more."""
    mine = replace(
        mine,
        at=max(mine.at, theirs.at),
        over_at=max(mine.over_at, theirs.over_at),
        left=mine.left or theirs.left,
    )
    if theirs.removed and not mine.removed:
        mine = replace(mine, removed=theirs.removed, room=theirs.room, shrank=theirs.shrank)
    elif any(theirs.shrank) and not any(mine.shrank) and theirs.into == mine.into:
        mine = replace(mine, room=theirs.room, shrank=theirs.shrank)
    if _KNOWN.index(theirs.fate) <= _KNOWN.index(mine.fate):
        return mine
    return replace(
        mine,
        fate=theirs.fate,
        replacement=theirs.replacement,
        landed=theirs.landed,
        into=theirs.into,
        room=theirs.room,
        gates=mine.gates or theirs.gates,
        message=theirs.message,
    )


_Doors = Mapping[str, Opening]


def _openings(theirs: Mapping[str, _Doors], mine: Mapping[str, _Doors]) -> dict[str, dict[str, Opening]]:
    """Of each domain what who saw the last change of it knows."""
    found: dict[str, dict[str, Opening]] = {}
    for domain in theirs.keys() | mine.keys():
        both = mine.get(domain, {}), theirs.get(domain, {})
        last = max(both, key=lambda one: max((max(o.opened, o.shut) for o in one.values()), default=-1.0))
        found[domain] = {
            taints: replace(o, several=any(one[taints].several for one in both if taints in one))
            for taints, o in last.items()
        }
    return found


def _circuit(one: Circuit, other: Circuit) -> Circuit:
    """The one that is open longer, unless it has been closed for good since: nobody does before its time."""
    last = max(one, other, key=lambda c: c.closed)
    if last.closed and all(last.closed >= (c.sooner or c.until) for c in (one, other)):
        return last
    return max(one, other, key=lambda c: (c.until, c.trips, c.sooner))


# Times of the ledger that lie in the future count as now.
#
# A clock that was ahead has written them: that of a node without time synchronisation, or one that was set
# wrongly. They must not lift a cap, have an owner rest or a claim hold for as long as that clock was ahead.

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
        # What is to be closed only later has not been closed.
        circuit=replace(
            circuit,
            opened=now if circuit.opened > latest else circuit.opened,
            closed=circuit.closed if circuit.closed <= latest else 0.0,
        ),
        doubt=replace(ledger.doubt, at=min(ledger.doubt.at, now), resumed=min(ledger.doubt.resumed, now)),
        entries=tuple(_entry(e, now, latest) for e in ledger.entries),
        counted=not_after(ledger.counted, latest),
        violated={k: now if at > latest else at for k, at in ledger.violated.items()},
        refused={k: replace(r, at=now) if r.at > latest else r for k, r in ledger.refused.items()},
        irreplaceable={k: now if at > latest else at for k, at in ledger.irreplaceable.items() if at > 0},
        openings={
            domain: {
                k: replace(d, opened=min(d.opened, now), shut=min(d.shut, now)) for k, d in openings.items()
            }
            for domain, openings in ledger.openings.items()
        },
        looked=now if ledger.looked > latest else ledger.looked,
        claims={n: _claim(c, now, latest, silent) for n, c in ledger.claims.items()},
    )


def _entry(e: Entry, now: float, latest: float) -> Entry:
    if max(e.at, e.removed, *e.shrank) <= latest:
        return e
    earlier = tuple(min(at, now) for at in e.shrank)
    return replace(e, at=min(e.at, now), removed=min(e.removed, now), shrank=earlier)


def _claim(claim: Claim, now: float, latest: float, silent: float) -> Claim:
    """A claim that was made in the future lasts from now on."""
    made = claim.made or claim.until - silent
    return replace(claim, made=now, until=now + claim.until - made) if made > latest else claim
