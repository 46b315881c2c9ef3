"""The head of an object: its kind, its name, and the times in it."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from rebalancer.model.decode import without_nulls

Time = Annotated[datetime, Meta(tz=True)] | None
"""A time with its zone. One without would mean different times on different machines."""


class HeadMeta(Struct, rename="camel", gc=False):
    """The name and the times in the metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: Time = None
    deletion_timestamp: Time = None
    deletion_grace_period_seconds: int | None = None


class _Condition(Struct, rename="camel", gc=False):
    last_transition_time: Time = None
    last_heartbeat_time: Time = None


class _Status(Struct, rename="camel", gc=False):
    start_time: Time = None
    conditions: list[_Condition] | None = None


class Head(Struct, rename="camel", gc=False):
    """Kind, name and times of an object."""

    kind: str | None = None
    api_version: str | None = None
    metadata: HeadMeta | None = None
    status: _Status | None = None


_decode = msgspec.json.Decoder(Head).decode


def head_of(raw: bytes | Raw) -> Head:
    """The head of an object's JSON. An explicit null means the same as an absent field.

    Raises msgspec.ValidationError that names the field, or ValueError if the text is not UTF-8.
    """
    try:
        return _decode(raw)
    except msgspec.ValidationError:
        plain = msgspec.json.decode(raw)
        stripped = without_nulls(plain)
        if stripped == plain:
            raise
        return _decode(msgspec.json.encode(stripped))


def newest(head: Head) -> datetime | None:
    """The latest time in the object at which it was written or changed; None if there is none."""
    times = []
    if (meta := head.metadata) is not None:
        times.append(meta.creation_timestamp)
        if (deleted := meta.deletion_timestamp) is not None:
            # The API server sets it to the end of the grace period, which may be hours ahead.
            grace = meta.deletion_grace_period_seconds or 0
            with suppress(OverflowError):  # a grace period of a billion years
                times.append(deleted - timedelta(seconds=grace))
    if (status := head.status) is not None:
        times.append(status.start_time)
        for condition in status.conditions or ():
            times += (condition.last_transition_time, condition.last_heartbeat_time)
    latest: datetime | None = None
    for time in times:
        if time is not None and (latest is None or time > latest):
            latest = time
    return latest
