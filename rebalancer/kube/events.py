"""Events (events.k8s.io/v1) on pods and their owners, written and read back."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rebalancer.kube.connection import Connection, Wait
from rebalancer.kube.errors import ForbiddenError, KubeError, Target
from rebalancer.kube.lists import pages
from rebalancer.kube.resources import Resource

log = logging.getLogger(__name__)

EVENTS = Resource("Event", "events.k8s.io", "v1", "events")
CONTROLLER = "rebalancer.io/rebalancer"
_API = {
    "Pod": "v1",
    "ConfigMap": "v1",
    "ReplicationController": "v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}
_LONGEST_NOTE = 1024
_TIMEOUT = 5.0
"""Seconds; an event is worth no more waiting."""


class Regarding(Struct, frozen=True, rename="camel"):
    """The object that an event is about."""

    kind: str
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventNote(Struct, frozen=True, rename="camel"):
    """An event as it is read back; `event_time` as written, RFC 3339."""

    regarding: Regarding
    reason: str = ""
    action: str = ""
    type: str = ""
    note: str = ""
    event_time: datetime | None = None
    related: Regarding | None = None
    reporting_controller: str = ""


class EventRecorder:
    """Writes events; never raises. A cluster that does not let it is told once and left alone.

    `instance` names this process, `now` is the epoch in seconds. `annotations`, asked for each time, are put
    on the event.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        instance: str,
        now: Callable[[], float],
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._connection = connection
        self._instance = instance[:128]
        self._now = now
        self._annotations = annotations
        self._forbidden: set[str] = set()

    def record(
        self,
        regarding: Regarding,
        *,
        reason: str,
        action: str,
        note: str,
        kind: Literal["Normal", "Warning"] = "Normal",
        related: Regarding | None = None,
    ) -> None:
        """Writes one event in the namespace of the object."""
        if regarding.namespace in self._forbidden:
            return
        target = Target("create", EVENTS, regarding.namespace)
        at = datetime.fromtimestamp(self._now(), UTC)
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding.name[:200]}.{uuid.uuid4().hex[:16]}",
                "namespace": regarding.namespace,
            },
            "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note if len(note) <= _LONGEST_NOTE else note[: _LONGEST_NOTE - 1] + "…",
            "regarding": _reference(regarding),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
        }
        if annotations := dict(self._annotations()):
            body["metadata"]["annotations"] = annotations
        if related is not None:
            body["related"] = _reference(related)
        try:
            self._connection.request(
                "POST", EVENTS.path(regarding.namespace), target, body=body, read_timeout=_TIMEOUT
            )
        except ForbiddenError as e:
            self._forbidden.add(regarding.namespace)
            log.warning("no events are written in %s: %s", regarding.namespace, e)
        except KubeError as e:
            log.info("an event was lost: %s", e.message)


def read_events(connection: Connection, *, wait: Wait, namespace: str = "") -> tuple[EventNote, ...]:
    """The rebalancer's own events, of one namespace or of all. Raises KubeError."""
    found: list[EventNote] = []
    for page in pages(connection, EVENTS, wait=wait, namespace=namespace):
        for raw in page.items or ():
            try:
                event = msgspec.json.decode(raw, type=EventNote)
            except msgspec.DecodeError:
                continue  # somebody else's; ours can be read
            if event.reporting_controller == CONTROLLER:
                found.append(event)
    return tuple(found)


def _reference(regarding: Regarding) -> dict[str, str]:
    plain = {
        "apiVersion": _API.get(regarding.kind, ""),
        "kind": regarding.kind,
        "namespace": regarding.namespace,
        "name": regarding.name,
        "uid": regarding.uid,
    }
    return {k: v for k, v in plain.items() if v}
