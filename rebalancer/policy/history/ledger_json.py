"""The ledger as JSON, with as much as a ConfigMap holds, and back.

People can edit a ConfigMap, and anything can be cut. So every part is checked by itself when it is decoded:
what cannot be right is put aside, and the rest is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from rebalancer.policy.history.ledger import (
    DAY,
    HOUR,
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_IRREPLACEABLE,
    MOST_REFUSED,
    MOST_SHOWN,
    MOST_VIOLATIONS,
    OPEN,
    VERSION,
    WEEK,
    Claim,
    Entry,
    Fate,
    Ledger,
    Opening,
    Shown,
    added,
    taints_in,
)
from rebalancer.policy.options import Refused

T = TypeVar("T")

_MOST_FAILED = MOST_ENTRIES // 4


def encode(ledger: Ledger) -> bytes:
    """The ledger as JSON, with the version, which `omit_defaults` would leave out."""
    plain: dict[str, object] = msgspec.to_builtins(ledger)
    return msgspec.json.encode({**plain, "version": ledger.version}, order="sorted")


def within_limits(ledger: Ledger, cycle: str = "") -> Ledger:
    """The ledger with as much as it may have. Of entries that are dropped only a count is kept.

    Counts have the other half of the ConfigMap, and are not limited; nor are entries that have not ended, or
    are of the present `cycle`, whose caps rest on them. Where they are more, the API server refuses it, and
    nothing is evicted that cannot be written down.
    """
    violated = dict(sorted(ledger.violated.items(), key=lambda v: -v[1])[:MOST_VIOLATIONS])
    # Who is left out begins anew: that loses least with those that have just begun.
    irreplaceable = dict(sorted(ledger.irreplaceable.items(), key=lambda i: i[1])[:MOST_IRREPLACEABLE])
    refused = dict(sorted(ledger.refused.items(), key=lambda r: -r[1].at)[:MOST_REFUSED])
    by_age = sorted(ledger.shown.items(), key=lambda s: (not s[1].disagreed, -s[1].at))
    shown = dict(by_age[:MOST_SHOWN])
    small = _without(
        replace(
            ledger,
            version=VERSION,
            violated=violated,
            irreplaceable=irreplaceable,
            refused=refused,
            shown=shown,
        ),
        max(0, len(ledger.entries) - MOST_ENTRIES),
        cycle,
    )
    while (over := len(encode(small)) - len(msgspec.json.encode(small.counted)) - MOST_BYTES) > 0:
        spare = next((name for name in _SPARE if getattr(small, name)), None)
        if spare not in _FIRST and len(msgspec.json.encode(small.entries)) > MOST_BYTES // 2:
            fewer = _without(small, len(small.entries) // 10 + 1, cycle)
            if fewer is not small:
                small = fewer
                continue
        if spare is None:
            break
        part = getattr(small, spare)
        left = _fewer(part, over) if spare == "openings" else _shorter(part, over)
        small = replace(small, **{spare: left})
    return small


_FIRST = ("irreplaceable", "refused")
_SPARE = (*_FIRST, "shown", "openings", "violated")
"""What is given up, in this order: the first before any entry is. Nothing but a finding rests on it; who is
not among the second is asked for once more. The others go when entries have no more than half."""


def _shorter(part: Mapping[str, T], over: int) -> dict[str, T]:
    """Without as many of the last as have so many bytes."""
    kept = dict(part)
    while kept and over > 0:
        over -= len(msgspec.json.encode([*kept.popitem()])) - 1
    return kept


def _fewer(openings: Mapping[str, Mapping[str, Opening]], over: int) -> dict[str, dict[str, Opening]]:
    """Without as much as has so many bytes of what is shut: what was open to the fewest pods first, and then
    the longest. Where nothing is shut, without any: a part of what is open would look as if the rest had been
    opened since."""
    shut = [(o.shut, d, taints) for d, own in openings.items() for taints, o in own.items() if o.shut]
    kept = {d: dict(own) for d, own in openings.items()} if shut else {}
    for _, domain, taints in sorted(shut, key=lambda s: (-taints_in(s[2]), s)):
        if over <= 0:
            break
        over -= len(msgspec.json.encode([taints, kept[domain].pop(taints)])) - 1
    return kept


def _without(ledger: Ledger, number: int, cycle: str) -> Ledger:
    """The ledger without so many entries, which are counted instead."""
    dropped, kept = parted(ledger.entries, number, cycle)
    if not dropped:
        return ledger
    counted = added(ledger.counted, ((e.owner, e.at) for e in dropped))
    return replace(ledger, entries=kept, counted=counted)


def parted(entries: Sequence[Entry], number: int, cycle: str) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """The entries, by age, as so many that go and those that stay: first those for which owners wait least
    long, and last those of an hour, and of a day some that did not go as predicted. What has not ended stays:
    a pod whose release is forgotten would be given back."""
    may_go = [i for i, e in enumerate(entries) if e.fate not in OPEN and not (cycle and e.cycle == cycle)]
    now = entries[-1].at if entries else 0.0
    failed = [i for i in may_go if entries[i].fate is not Fate.DONE and _counts_until(entries[i]) > now]
    last = {i for i in may_go if entries[i].at > now - HOUR}.union(failed[-_MOST_FAILED:])
    may_go.sort(key=lambda i: (i in last, _counts_until(entries[i])))
    go = frozenset(may_go[: max(0, number)])
    gone, stay = ([e for i, e in enumerate(entries) if (i in go) is goes] for goes in (True, False))
    return tuple(gone), tuple(stay)


def _counts_until(e: Entry) -> float:
    """Until when an owner or a namespace may wait for its sake, about."""
    return e.at + (WEEK if e.gates else DAY / 4 if e.fate is Fate.DONE else DAY)


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
    for own in msgspec.structs.fields(Ledger):
        if (raw := parts.get(own.encode_name)) is not None:
            try:
                match own.name:
                    case "entries":
                        each = dict(enumerate(_part(raw, list[Raw])))
                        found["entries"] = tuple(_each("entries", each, Entry, aside).values())
                    case name if (of := _BY_NAME.get(name)) is not None:
                        found[name] = _each(name, _part(raw, dict[str, Raw]), of, aside)
                    case name:
                        found[name] = _part(raw, own.type)
            except ValueError as e:
                aside(own.encode_name, str(e))
    return Ledger(**found)


_BY_NAME: Mapping[str, Any] = {"claims": Claim, "shown": Shown, "refused": Refused}
"""Parts of which one member that cannot be right says nothing against the others."""


def _each(name: str, raw: Mapping[Any, Raw], of: Any, aside: Callable[[str, str], None]) -> dict[Any, Any]:
    """The members that can be right; `aside` is told of the others."""
    found = {}
    for key, one in raw.items():
        try:
            found[key] = _part(one, of)
        except ValueError as e:
            aside(f"{name}[{key}]", str(e))
    return found


def _part(data: bytes | str | Raw, of: Any) -> Any:
    """A value of that type. Raises ValueError, whatever stands there."""
    try:
        return msgspec.json.decode(data, type=of)
    except (msgspec.DecodeError, ArithmeticError, RecursionError) as e:
        raise ValueError(f"it cannot be read: {e}") from e


class NewerLedgerError(ValueError):
    """A newer version wrote the ledger, so it must be left as it is."""
