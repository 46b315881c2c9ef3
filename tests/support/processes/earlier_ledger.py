"""What the version of commit a2894a3 knew of the ledger: names and types as it had them.

Everything else it passed over, and did not write again.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Struct


class EntryOfA2894a3(Struct, omit_defaults=True, kw_only=True):
    """An entry as the version of commit a2894a3 had it."""

    at: float
    cycle: str
    namespace: str
    pod: str
    uid: str
    owner: str
    node: str
    predicted: str
    fate: str = "intended"
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


class LedgerOfA2894a3(Struct, omit_defaults=True, kw_only=True):
    """The ledger of that version."""

    version: int = 1
    writer: str = ""
    serial: int = 0
    looked: float = 0.0
    entries: tuple[EntryOfA2894a3, ...] = ()
    violated: dict[str, float] = {}
    totals: dict[str, int] = {}
    circuit: dict[str, Any] = {}


def as_a2894a3_knows(text: str | bytes) -> dict[str, Any]:
    """A ledger without what that version did not know."""
    taken = msgspec.json.decode(text, type=LedgerOfA2894a3)
    assert taken.version == 1, "it refuses what is newer"
    plain: dict[str, Any] = msgspec.to_builtins(taken)
    return plain | {"version": 1}


def as_a2894a3_writes(text: str) -> str:
    """What that version makes of a ledger that it takes over."""
    known = as_a2894a3_knows(text)
    return json.dumps(known | {"writer": "the earlier one", "serial": known.get("serial", 0) + 1})
