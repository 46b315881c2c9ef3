"""What the scheduler has said lately of pods that it found no node for: its FailedScheduling events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec import Struct

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import Wait
from rebalancer.kube.read.pager import pages
from rebalancer.kube.resources import Resource

_EVENTS = Resource("Event", "", "v1", "events")
_REASON = "FailedScheduling"


class FailedScheduling(Struct, frozen=True):
    """The last such event of a pod. `uid` "" where the event does not name it; `at`: seconds of the epoch."""

    namespace: str
    pod: str
    uid: str
    message: str
    at: float


class _Object(Struct, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Series(Struct, frozen=True, rename="camel"):
    last_observed_time: datetime | None = None


class _Meta(Struct, frozen=True, rename="camel"):
    creation_timestamp: datetime | None = None


class _Event(Struct, frozen=True, rename="camel"):
    metadata: _Meta = _Meta()
    involved_object: _Object = _Object()
    reason: str = ""
    message: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: _Series | None = None

    @property
    def at(self) -> float:
        """When it was last seen: an event that goes on keeps its name and gets a later time."""
        series = self.series.last_observed_time if self.series is not None else None
        seen = [t for t in (series, self.last_timestamp, self.event_time) if t is not None]
        at = max(seen, default=self.metadata.creation_timestamp)
        return at.timestamp() if at is not None else 0.0


_decode = msgspec.json.Decoder(_Event).decode


def refusals(connection: Connection, *, since: float, wait: Wait) -> list[FailedScheduling]:
    """The refusals at or after a time, in seconds of the epoch; of each pod the last. Raises KubeError."""
    last: dict[tuple[str, str], FailedScheduling] = {}
    for found in _read(connection, wait):
        key = found.namespace, found.pod
        if found.at >= since and (key not in last or found.at > last[key].at):
            last[key] = found
    return [last[key] for key in sorted(last)]


def _read(connection: Connection, wait: Wait) -> Iterator[FailedScheduling]:
    for page in pages(connection, _EVENTS, wait=wait, fields=f"reason={_REASON}"):
        for raw in page.items or ():
            try:
                event = _decode(raw)
            except msgspec.ValidationError:
                continue  # of somebody else's making: the scheduler's own can be read
            about = event.involved_object
            if event.reason == _REASON and about.kind == "Pod":
                yield FailedScheduling(about.namespace, about.name, about.uid, event.message, event.at)
