"""What every object tells of itself: what it is, and when things happened to it."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from rebalancer.model.decode import without_nulls

Time = Annotated[datetime, Meta(tz=True)] | None
"""A time with its zone; one without would be read differently from machine to machine."""


class HeadMeta(Struct, rename="camel", gc=False):
    """Names and times."""

    name: str = ""
    namespace: str = ""
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
    """What every object tells of itself: what it is, and times."""

    kind: str | None = None
    api_version: str | None = None
    metadata: HeadMeta | None = None
    status: _Status | None = None


_decode = msgspec.json.Decoder(Head).decode


def head_of(raw: bytes | Raw) -> Head:
    """The head of an object's JSON; an explicit null means what an absent field means.

    Raises msgspec.ValidationError naming the field, or ValueError for text that is no UTF-8.
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
    """The latest moment that the object tells of, if any."""
    times = []
    if (meta := head.metadata) is not None:
        times.append(meta.creation_timestamp)
        if (deleted := meta.deletion_timestamp) is not None:
            # The API sets it to when the grace period ends, which may be hours ahead.
            grace = meta.deletion_grace_period_seconds or 0
            with suppress(OverflowError):  # a grace period of a billion years tells nothing of now
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
