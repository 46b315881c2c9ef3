"""Helpers for API objects, which are plain dicts: copies, names, times, keys, conditions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from rebalancer.sandbox.api.errors import Cause

Object = dict[str, Any]
"""One API object as JSON gives it, with `apiVersion` and `kind`."""

# What generateName appends: no vowels, so that no words form, and nothing that looks like another.
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"

DNS_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation "
    "is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode


def copied(value: Any) -> Any:
    """A deep copy of JSON. Through bytes and back: the quickest way there is in Python."""
    return _from_json(_to_json(value))


def stamp(seconds: float) -> str:
    """Seconds of the epoch as metav1.Time writes them (whole seconds, UTC)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str | None) -> float:
    """The reverse of `stamp`, also for fractions; 0.0 for what is no time."""
    try:
        return datetime.fromisoformat((text or "").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def key_of(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def suffix(rng: random.Random) -> str:
    return "".join(rng.choice(_SUFFIX) for _ in range(5))


def new_uid(rng: random.Random) -> str:
    bits = rng.getrandbits(128) & ~(0xF << 76) | (4 << 76)  # version 4
    text = f"{bits & ~(0x3 << 62) | (0x2 << 62):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def condition(obj: Object, kind: str) -> Object | None:
    """The condition of that type in `status.conditions`, if any."""
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found.get("type") == kind:
            return dict(found)
    return None


def set_condition(obj: Object, new: Mapping[str, Any], now: str) -> None:
    """Set by type, in place. The transition time moves only if the status does."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    for at, old in enumerate(conditions):
        if old.get("type") == new["type"]:
            moved = old.get("status") != new["status"]
            when = now if moved else old.get("lastTransitionTime", now)
            conditions[at] = {**old, **new, "lastTransitionTime": when}
            return
    conditions.append({**new, "lastTransitionTime": now})


def is_ready(pod: Object) -> bool:
    ready = condition(pod, "Ready")
    return ready is not None and ready.get("status") == "True"


def is_subdomain(name: str) -> bool:
    return len(name) <= 253 and all(
        part
        and part[0].isalnum()
        and part[-1].isalnum()
        and all(c in "-abcdefghijklmnopqrstuvwxyz0123456789" for c in part)
        for part in name.split(".")
    )


def required(field: str) -> Cause:
    return Cause("FieldValueRequired", "Required value", field)


def wrong(field: str, value: str, why: str) -> Cause:
    """`value` as Go prints it: strings quoted, numbers bare."""
    return Cause("FieldValueInvalid", f"Invalid value: {value}: {why}", field)
