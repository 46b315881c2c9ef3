"""What is remembered across cycles and restarts, as plain values: evictions, totals, when violations began.

The format is versioned: a reader refuses what a newer version wrote. It is bounded by entries and bytes; the
oldest go first.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import Struct

VERSION = 1
MOST_ENTRIES = 1000
MOST_BYTES = 512 * 1024
"""Half of what a ConfigMap may hold."""
MOST_VIOLATIONS = 2000


class Fate(StrEnum):
    """What became of an eviction."""

    INTENDED = "intended"
    """Written before it is sent; one that stays so was cut off: the next cycle finds out from the pod."""
    UNKNOWN = "unknown"
    """The pod is gone; whether by this eviction, and where its replacement went, nobody saw."""
    DONE = "done"
    """Its replacement is Ready on one of the nodes of the plan."""
    ASTRAY = "astray"
    """Its replacement runs on another node."""
    FAILED = "failed"
    """Its replacement did not become Ready in time."""
    UNSEEN = "unseen"
    """Evicted, and not waited for."""


class Entry(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One eviction. `at`: epoch seconds. `owner`: Kind/namespace/name of the topmost owner.

    `excess`: constraint id → its excess when this was planned, of the constraints it was to mend. `leaves`:
    the domains (key=value) that it left. `cycle` names the cycle, unique across restarts. `cluster`: the
    fingerprint of what it rested on.
    """

    at: float
    cycle: str
    namespace: str
    pod: str
    uid: str
    owner: str
    node: str
    predicted: str
    fate: Fate = Fate.INTENDED
    certain: bool = True
    destinations: int = 1
    replacement: str = ""
    landed: str = ""
    seconds: float = 0.0
    excess: dict[str, int] = {}
    leaves: tuple[str, ...] = ()
    cluster: str = ""
    reason: str = ""
    message: str = ""

    @property
    def key(self) -> str:
        """namespace/name of the pod."""
        return f"{self.namespace}/{self.pod}"


class Circuit(Struct, frozen=True, omit_defaults=True):
    """The circuit breaker: no evictions before `until` (epoch seconds); `trips` in a row."""

    until: float = 0.0
    trips: int = 0
    reason: str = ""


class Totals(Struct, frozen=True, omit_defaults=True):
    """Since the ledger began. `in_a_row`: as predicted since the last that was not."""

    evictions: int = 0
    as_predicted: int = 0
    astray: int = 0
    failed: int = 0
    in_a_row: int = 0


class Ledger(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All of it. `violated`: constraint id → since when (epoch seconds). `looked`: the last look, 0 = none.

    `writer` and `serial`: who wrote it, and its how manyeth time, to tell one's own write from another's.
    """

    version: int = VERSION
    writer: str = ""
    serial: int = 0
    looked: float = 0.0
    entries: tuple[Entry, ...] = ()
    violated: dict[str, float] = {}
    totals: Totals = Totals()
    circuit: Circuit = Circuit()


class _Version(Struct):
    version: int = 0


def encode(ledger: Ledger) -> bytes:
    """As JSON, within the bounds."""
    violated = dict(sorted(ledger.violated.items(), key=lambda v: -v[1])[:MOST_VIOLATIONS])
    entries = ledger.entries[-MOST_ENTRIES:]
    while True:
        small = msgspec.structs.replace(ledger, version=VERSION, entries=entries, violated=violated)
        data = msgspec.json.encode(_written(small), order="sorted")
        if len(data) <= MOST_BYTES or not entries:
            return data
        entries = entries[len(entries) // 10 + 1 :]


def decode(data: bytes | str) -> Ledger:
    """Raises ValueError: what is wrong, or that a newer version wrote it (`NewerLedgerError`)."""
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version > VERSION:
            raise NewerLedgerError(f"it is of version {version}, and this program knows up to {VERSION}")
        if version < 1:
            raise ValueError("it has no version")
        return msgspec.json.decode(data, type=Ledger)
    except msgspec.DecodeError as e:
        raise ValueError(f"it cannot be read: {e}") from e


class NewerLedgerError(ValueError):
    """Written by a newer version: to be left as it is."""


def _written(ledger: Ledger) -> dict[str, object]:
    """With its version, which `omit_defaults` would leave out."""
    plain: dict[str, object] = msgspec.to_builtins(ledger)
    return {**plain, "version": ledger.version}
