"""What is remembered across cycles and restarts, as plain values: evictions, totals, and what began when.

The format has a version, and a reader refuses what a newer version wrote. The number of entries and bytes is
limited; the oldest entries are dropped first, and then only counted (`tally`). Before any entry goes, it is
forgotten since when workloads cannot be replaced: cool-downs rest on entries, and only a finding on that.

People can edit a ConfigMap, and anything can be cut. So every part is checked by itself when it is decoded:
what cannot be right is put aside, and the rest is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from rebalancer.policy.history.agreed import Agreed
from rebalancer.policy.history.fence import Claim
from rebalancer.policy.history.tally import Count, added

VERSION = 1
MOST_ENTRIES = 1000
MOST_BYTES = 512 * 1024
"""Of everything but counts: half of what a ConfigMap may hold."""
MOST_VIOLATIONS = 2000
MOST_IRREPLACEABLE = 500
"""Of a name each, which may have 300 bytes."""


Time = Annotated[float, Meta(ge=0, lt=253_370_764_800)]
"""Epoch seconds, before the year 9999: what lies behind it, no page could show."""
Number = Annotated[int, Meta(ge=0)]
OwnerKey = Annotated[str, Meta(pattern=r"^[^/]+/[^/]*/[^/]+$")]


class Fate(StrEnum):
    """What became of an eviction."""

    INTENDED = "intended"
    """Written before the request is sent. If it stays so, the process was killed, and the next cycle finds
    out from the pod what happened."""
    UNKNOWN = "unknown"
    """The pod is gone. Whether this eviction was the cause, and where the replacement went, was not seen."""
    DONE = "done"
    """Its replacement is Ready on one of the planned destinations."""
    ASTRAY = "astray"
    """Its replacement runs on a node that is not a planned destination."""
    FAILED = "failed"
    """Its replacement did not become Ready in time."""
    UNSEEN = "unseen"
    """It was evicted, and nobody waited for the replacement."""


class Entry(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One eviction. `at`: epoch seconds. `owner`: Kind/namespace/name of the topmost owner.

    `excess`: id of each constraint that the move was to mend → its excess when the move was planned.
    `gates`: scheduling gates that the replacement had, and its template has not.
    `leaves`: the domains (key=value) that the pod left; `into`: those of the same keys where the replacement
    landed; `removed`: when its node was first found gone (`undone_moves`), 0 = it was not. `cycle` names the
    cycle, unique across restarts.
    `cluster`: the digest of what the move rested on (`digests.Fingerprints`).
    """

    at: Time
    cycle: str
    namespace: str
    pod: str
    uid: str
    owner: OwnerKey
    node: str
    predicted: str
    fate: Fate = Fate.INTENDED
    certain: bool = True
    destinations: Number = 1
    replacement: str = ""
    landed: str = ""
    seconds: float = 0.0
    excess: dict[str, int] = {}
    leaves: tuple[str, ...] = ()
    into: tuple[str, ...] = ()
    removed: Time = 0.0
    gates: tuple[str, ...] = ()
    cluster: str = ""
    reason: str = ""
    message: str = ""

    @property
    def key(self) -> str:
        """namespace/name of the pod."""
        return f"{self.namespace}/{self.pod}"


class Circuit(Struct, frozen=True, omit_defaults=True):
    """The circuit breaker: no evictions before `until` (epoch seconds); `trips` in a row.

    `sooner`: the end for clocks by which `until` lies further ahead than any trip can mean. 0: none.
    `opened`: when it tripped last. `closed`: when a cycle that ended well closed it for good. 0: never.
    """

    until: Time = 0.0
    trips: Number = 0
    reason: str = ""
    sooner: Time = 0.0
    opened: Time = 0.0
    closed: Time = 0.0


class Totals(Struct, frozen=True, omit_defaults=True):
    """Counts since the ledger began. `in_a_row`: evictions as predicted since the last one that was not."""

    evictions: Number = 0
    as_predicted: Number = 0
    astray: Number = 0
    failed: Number = 0
    in_a_row: Number = 0


class Ledger(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The whole ledger. `entries`: evictions, the oldest first. `violated`: constraint id → when its
    violation began (epoch seconds). `looked`: when violations were last looked for; 0 = never.
    `irreplaceable`: workload (Kind/namespace/name) → when a pod of it was first seen of which no node would
    take the replacement.

    `unread`: until when nothing is evicted, because a ledger that was there could not be read and nobody
    remembered what stood in it. 0: nothing of the kind.

    `counted`: evictions whose entries were dropped (`tally`). `agreed`: how often a scheduler newer than all
    known rules did what was predicted.

    `claims`: who acts on this ledger (`fence`). `writer` and `serial`: which process wrote it, and a number
    that grows with each write. By them a process recognises what it wrote itself.
    """

    version: int = VERSION
    writer: str = ""
    serial: int = 0
    looked: Time = 0.0
    unread: Time = 0.0
    entries: tuple[Entry, ...] = ()
    counted: dict[str, tuple[Count, ...]] = {}
    violated: dict[str, Time] = {}
    irreplaceable: dict[str, float] = {}
    totals: Totals = Totals()
    circuit: Circuit = Circuit()
    agreed: Agreed = Agreed()
    claims: dict[str, Claim] = {}


def cut_off(entries: Iterable[Entry], alive: frozenset[str]) -> tuple[Entry, ...]:
    """The entries, with those settled that an earlier run wrote and then was killed.

    An intended eviction whose pod still exists (`alive`: uids) did not happen and is dropped. If the pod is
    gone, the fate is unknown.
    """
    settled = []
    for e in entries:
        if e.fate is not Fate.INTENDED:
            settled.append(e)
        elif e.uid not in alive:
            settled.append(msgspec.structs.replace(e, fate=Fate.UNKNOWN, message="cut off while evicting"))
    return tuple(settled)


def within_limits(ledger: Ledger) -> Ledger:
    """The ledger with as much as it may have. Of the oldest entries only a count is kept.

    Counts have the other half of the ConfigMap, and are not limited: where they are more, the API server
    refuses it, and nothing is evicted that cannot be written down.
    """
    violated = dict(sorted(ledger.violated.items(), key=lambda v: -v[1])[:MOST_VIOLATIONS])
    # Who is left out begins anew: that loses least with those that have just begun.
    irreplaceable = dict(sorted(ledger.irreplaceable.items(), key=lambda i: i[1])[:MOST_IRREPLACEABLE])
    small = _without(
        msgspec.structs.replace(ledger, version=VERSION, violated=violated, irreplaceable=irreplaceable),
        max(0, len(ledger.entries) - MOST_ENTRIES),
    )
    while True:
        over = len(_json(small)) - len(msgspec.json.encode(small.counted)) - MOST_BYTES
        if over > 0 and small.irreplaceable:
            small = msgspec.structs.replace(small, irreplaceable=_shorter(small.irreplaceable, over))
        elif over > 0 and small.entries:
            small = _without(small, len(small.entries) // 10 + 1)
        else:
            return small


def encode(ledger: Ledger) -> bytes:
    """The ledger as JSON, within the limits."""
    return _json(within_limits(ledger))


def _shorter(irreplaceable: dict[str, float], over: int) -> dict[str, float]:
    """Without as many of the last as have so many bytes."""
    kept = dict(irreplaceable)
    while kept and over > 0:
        over -= len(msgspec.json.encode(dict([kept.popitem()])))
    return kept


def _without(ledger: Ledger, oldest: int) -> Ledger:
    """The ledger without so many of the oldest entries, which are counted instead."""
    if not oldest:
        return ledger
    dropped, kept = ledger.entries[:oldest], ledger.entries[oldest:]
    counted = added(ledger.counted, ((e.owner, e.at) for e in dropped))
    return msgspec.structs.replace(ledger, entries=kept, counted=counted)


def decode(data: bytes | str, aside: Callable[[str, str], None] = lambda _part, _why: None) -> Ledger:
    """A ledger from its JSON. `aside` is told of each part that cannot be right, and why: "entries[3]".

    Raises ValueError where it is no JSON object of a known version, `NewerLedgerError` if a newer version
    wrote it.
    """
    parts = _part(data, dict[str, Raw])
    version = _part(parts.pop("version", b"0"), int)
    if version > VERSION:
        raise NewerLedgerError(f"it is of version {version}, and this program knows up to {VERSION}")
    if version < 1:
        raise ValueError("it has no version")
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(Ledger):
        if (raw := parts.get(field.name)) is not None:
            try:
                found[field.name] = (
                    _entries(raw, aside) if field.name == "entries" else _part(raw, field.type)
                )
            except ValueError as e:
                aside(field.name, str(e))
    return Ledger(**found)


def _entries(raw: bytes | Raw, aside: Callable[[str, str], None]) -> tuple[Entry, ...]:
    found = []
    for n, one in enumerate(_part(raw, list[Raw])):
        try:
            found.append(_part(one, Entry))
        except ValueError as e:
            aside(f"entries[{n}]", str(e))
    return tuple(found)


def _part(data: bytes | str | Raw, of: Any) -> Any:
    """A value of that type. Raises ValueError, whatever stands there."""
    try:
        return msgspec.json.decode(data, type=of)
    except (msgspec.DecodeError, ArithmeticError, RecursionError) as e:
        raise ValueError(f"it cannot be read: {e}") from e


class NewerLedgerError(ValueError):
    """A newer version wrote the ledger, so it must be left as it is."""


def _json(ledger: Ledger) -> bytes:
    """With the version, which `omit_defaults` would leave out."""
    plain: dict[str, object] = msgspec.to_builtins(ledger)
    return msgspec.json.encode({**plain, "version": ledger.version}, order="sorted")
