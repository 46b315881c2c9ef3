"""What happens in a month, drawn before it is played: the same for every variant."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from rebalancer.month import rates

_DAY, _WEEK, _MONTH = 24.0, 24.0 * 7, 24.0 * 30


class Kind(StrEnum):
    """What happens."""

    SCALE = "scale"
    ROLLOUT = "rollout"
    REPLACE = "replace-node"
    OUTAGE = "outage"
    RETURN = "return"


class Event(Struct, frozen=True, order=True):
    """At a time in hours. `target`: a workload's key, a node's name, or a zone; `share`: of the replicas."""

    at: float
    kind: Kind
    target: str
    share: float = 1.0


def events(
    draw: Callable[[], float], hours: float, works: Sequence[str], nodes: Sequence[str], zones: Sequence[str]
) -> list[Event]:
    """In order. `draw`: uniform from 0 to below 1."""
    found: list[Event] = []
    least, most = rates.SCALED_TO
    for work in works:
        found += (
            Event(at, Kind.SCALE, work, least + (most - least) * draw())
            for at in _times(draw, rates.SCALINGS_PER_DAY / _DAY, hours)
        )
        found += (
            Event(at, Kind.ROLLOUT, work) for at in _times(draw, rates.ROLLOUTS_PER_WEEK / _WEEK, hours)
        )
    for node in nodes:
        rate = rates.REPLACEMENTS_PER_MONTH / _MONTH
        found += (Event(at, Kind.REPLACE, node) for at in _times(draw, rate, hours))
    for at in _times(draw, rates.OUTAGES_PER_MONTH / _MONTH, hours) if len(zones) > 1 else ():
        zone = zones[int(draw() * len(zones))]
        found += (Event(at, Kind.OUTAGE, zone), Event(at + rates.OUTAGE_HOURS, Kind.RETURN, zone))
    return sorted(e for e in found if e.at < hours)


def _times(draw: Callable[[], float], rate: float, hours: float) -> Iterator[float]:
    at = 0.0
    while True:
        at -= math.log(1.0 - draw()) / rate
        if at >= hours:
            return
        yield at
