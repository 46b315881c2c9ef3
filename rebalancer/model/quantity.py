"""Kubernetes quantities ("500m", "1Gi", "2e3") as exact integers; times of the API as seconds.

Rule: k8s.io/apimachinery/pkg/api/resource, ``Value`` and ``MilliValue`` (both round away from zero).

Own code, because parse_quantity of the Kubernetes client accepts what the API server does not (NaN, 1_000)
and 1e9999999, which takes minutes to convert to an integer. It also takes 1 µs, against 0.05 µs with the memo
here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import ROUND_UP, Decimal, InvalidOperation
from functools import lru_cache

_FORM = re.compile(r"^([+-]?[0-9]*\.?[0-9]*)(?:([eE][+-]?[0-9]+)|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E))?$")
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

_MOST = 30
"""Largest power of ten that is parsed. The API server keeps no amount above 2^63-1. A larger one is a mistake
or an attack: 1e999999 has a million digits to compute with."""


MOST = 1 << 53
"""Amounts above this (8 Pi) are taken to be this. No cluster has as much, and sums over the pods of a node
stay within 64 bits, also when scores multiply them by 100."""


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity; the message quotes it."""


@lru_cache(maxsize=8192)
def parse(text: str) -> Decimal:
    """The exact value of a quantity in base units. Raises QuantityError."""
    match = _FORM.match(text.strip())
    if match is None or match.group(1) in ("", "+", "-", "."):
        raise QuantityError(f"{text!r} is not a quantity such as 500m, 1Gi or 2")
    number, exponent, suffix = match.groups()
    try:
        value = Decimal(number + (exponent or ""))
    except InvalidOperation as e:
        raise QuantityError(f"{text!r} is not a quantity such as 500m, 1Gi or 2") from e
    if value.adjusted() > _MOST:
        raise QuantityError(f"{text[:20]!r} is more than there can be of anything")
    if suffix in _BINARY:
        return value * _BINARY[suffix]
    if suffix:
        return value.scaleb(_DECIMAL[suffix])
    return value


@lru_cache(maxsize=8192)
def units(text: str) -> int:
    """Whole base units, rounded up: bytes for memory and storage, pieces for extended resources."""
    return int(parse(text).to_integral_value(ROUND_UP))


@lru_cache(maxsize=8192)
def milli(text: str) -> int:
    """Thousandths, rounded up: millicores for cpu."""
    return int((parse(text) * 1000).to_integral_value(ROUND_UP))


def amount(resource: str, text: str) -> int:
    """The integer in which the scheduler counts `resource`: milli-units for cpu, base units otherwise."""
    return milli(text) if resource == "cpu" else units(text)


def bounded(value: int) -> int:
    """The value, at least -`MOST` and at most `MOST`."""
    return max(-MOST, min(MOST, value))


def resource_list(quantities: dict[str, str | int | float] | None, path: str | None = None) -> dict[str, int]:
    """A ResourceList with each quantity as the scheduler's integer (`amount`), at most `MOST`.

    Raises QuantityError. If `path` is given (where the list stands in the object; "" for the object itself),
    the message ends with the place of the quantity, as in msgspec's own errors.
    """
    amounts: dict[str, int] = {}
    for name, quantity in (quantities or {}).items():
        try:
            amounts[name] = bounded(amount(name, str(quantity)))
        except QuantityError as e:
            if path is None:
                raise
            raise QuantityError(f"{e} - at `$.{path}.{name}`".replace("$..", "$.")) from e
    return amounts


def epoch(time: str | None) -> float | None:
    """A time in RFC 3339 as seconds since the epoch; None for what is none, or beyond what UTC can show."""
    try:
        return datetime.fromisoformat(time or "").astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch in UTC, as whole seconds."""
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"


def micro_time(seconds: float) -> str:
    """Seconds since the epoch in UTC, as leases and events have them."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
