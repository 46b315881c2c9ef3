"""How many evictions there were of each owner: what is left of entries that the ledger has no room for.

Caps over an hour or a day must not forget an eviction because there were many: only time makes them forget.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from math import ceil
from typing import Annotated

from msgspec import Meta, Struct

HOUR, DAY = 3600.0, 86_400.0
_TOGETHER = 600
"""Seconds: evictions of one owner within ten minutes are counted together, by the last of them."""
_LENGTH = 10


class Count(Struct, frozen=True, array_like=True):
    """So many evictions, the last of them at `at` (epoch seconds, rounded up)."""

    at: Annotated[int, Meta(ge=0, lt=253_370_764_800)]
    evictions: Annotated[int, Meta(ge=0)]


Tally = Mapping[str, tuple[Count, ...]]
"""By `owner_id`, the oldest first."""


def owner_id(owner: str) -> str:
    """A short name for an owner (Kind/namespace/name)."""
    return sha256(owner.encode()).hexdigest()[:_LENGTH]


def added(tally: Tally, evictions: Iterable[tuple[str, float]]) -> dict[str, tuple[Count, ...]]:
    """The tally with more evictions: owner and time of each."""
    more: dict[str, dict[int, Count]] = defaultdict(dict)
    for owner, at in evictions:
        of_owner, last = more[owner_id(owner)], ceil(at)
        before = of_owner.get(last // _TOGETHER, Count(last, 0))
        of_owner[last // _TOGETHER] = Count(max(last, before.at), before.evictions + 1)
    found = dict(tally)
    for owner, counts in more.items():
        merged = {c.at // _TOGETHER: c for c in tally.get(owner, ())}
        for slot, count in counts.items():
            before = merged.get(slot, Count(count.at, 0))
            merged[slot] = Count(max(count.at, before.at), before.evictions + count.evictions)
        found[owner] = tuple(merged[slot] for slot in sorted(merged))
    return found


def stricter(one: Tally, other: Tally) -> dict[str, tuple[Count, ...]]:
    """Two accounts of the same evictions as one that has the higher count of each."""
    found = dict(one)
    for owner, counts in other.items():
        merged = {c.at // _TOGETHER: c for c in one.get(owner, ())}
        for c in counts:
            before = merged.get(c.at // _TOGETHER, c)
            merged[c.at // _TOGETHER] = Count(max(c.at, before.at), max(c.evictions, before.evictions))
        found[owner] = tuple(merged[slot] for slot in sorted(merged))
    return found


def not_after(tally: Tally, now: float) -> dict[str, tuple[Count, ...]]:
    """The tally with all that is later than now, by a clock that was ahead, as of now."""
    found = dict(tally)
    for owner, counts in tally.items():
        if any(c.at > now for c in counts):
            merged: dict[int, Count] = {}
            for c in counts:
                at = min(c.at, ceil(now))
                before = merged.get(at // _TOGETHER, Count(at, 0))
                merged[at // _TOGETHER] = Count(max(at, before.at), before.evictions + c.evictions)
            found[owner] = tuple(merged[slot] for slot in sorted(merged))
    return found


def recent(tally: Tally, now: float) -> dict[str, tuple[Count, ...]]:
    """What still counts for a cap."""
    kept = {owner: tuple(c for c in counts if now - c.at < DAY) for owner, counts in tally.items()}
    return {owner: counts for owner, counts in kept.items() if counts}
