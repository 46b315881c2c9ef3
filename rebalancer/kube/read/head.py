"""What can be read of any object, whatever its kind and however malformed the rest of it."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from rebalancer.model.decode import MALFORMED

_MOST_NAMED = 5
"""Malformed objects of a kind that are named one by one; the rest is counted."""


class HeadMeta(Struct, frozen=True, rename="camel"):
    """The part of metadata that names an object and its version."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Head(Struct, frozen=True):
    """An object's metadata."""

    metadata: HeadMeta = HeadMeta()


_DECODER = msgspec.json.Decoder(Head)


def head(raw: bytes | Raw) -> HeadMeta:
    """The metadata. Raises msgspec.DecodeError."""
    return _DECODER.decode(raw).metadata


def malformed(kind: str, raw: bytes | Raw, why: Exception) -> str:
    """The sentence about an object that is left out."""
    try:
        meta = head(raw)
    except MALFORMED:
        meta = HeadMeta()
    name = "/".join(p for p in (meta.namespace, meta.name) if p) or "without a name"
    return f"{kind} {name} is malformed and left out: {why}"


def first_of(broken: list[str]) -> tuple[str, ...]:
    """The first few sentences, and how many more there are."""
    rest = len(broken) - _MOST_NAMED
    return (
        *broken[:_MOST_NAMED],
        *((f"… and {rest} more malformed objects of that kind",) if rest > 0 else ()),
    )
