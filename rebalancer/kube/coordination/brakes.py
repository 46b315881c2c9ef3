"""Where people pause evictions: an annotation of one ConfigMap for all, of a namespace for its pods.

Both are read right before each eviction. What cannot be seen counts as paused: a brake that somebody took
away, or whose rights are missing, must not let go of evictions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import DEFAULT_BACKOFF, Backoff, Wait, retry
from rebalancer.kube.coordination.ledger import CONFIG_MAPS
from rebalancer.kube.coordination.place import Place, labels_of
from rebalancer.kube.errors import (
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    Target,
)
from rebalancer.kube.resources import RESOURCES, Resource
from rebalancer.model.object_meta import ObjectMeta
from rebalancer.policy.annotations import PAUSE

log = logging.getLogger(__name__)

_TIMEOUT = 10.0
_REFUSALS = 3
"""An API server that has just been started refuses everything for a moment."""
_TRIES = 5
"""Of a change that somebody else's change came before."""


class _Object(Struct, frozen=True):
    metadata: ObjectMeta


class Brakes:
    """Reads the objects whose annotations pause, fresh each time."""

    def __init__(self, connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> None:
        self._connection = connection
        self._wait = wait
        self._backoff = backoff

    def everything(self, place: Place) -> Mapping[str, str]:
        """Annotations of the ConfigMap that pauses everything.

        Raises KubeError: NotFoundError if it is missing, ForbiddenError if it may not be read.
        """
        return self._metadata(CONFIG_MAPS, place.namespace, place.name).annotations

    def namespace(self, name: str) -> ObjectMeta | None:
        """Metadata of a namespace; None if it is gone. Raises KubeError."""
        try:
            return self._metadata(RESOURCES["Namespace"], "", name)
        except NotFoundError:
            return None

    def _metadata(self, resource: Resource, namespace: str, name: str, tried: int = 1) -> ObjectMeta:
        target = Target("get", resource, namespace, name)

        def ask() -> bytes:
            path = resource.path(namespace, name)
            return self._connection.request("GET", path, target, read_timeout=_TIMEOUT).body

        try:
            body = retry(ask, wait=self._wait, backoff=self._backoff)
            return msgspec.json.decode(body, type=_Object).metadata
        except ForbiddenError as e:
            if tried >= _REFUSALS or self._wait(self._backoff.delay(tried, e.retry_after)):
                raise
            return self._metadata(resource, namespace, name, tried + 1)
        except msgspec.DecodeError as e:
            raise ResponseError(f"{target}: cannot be read: {e}", target=target, code=200) from e


def set_brake(connection: Connection, place: Place, value: str | None) -> str | None:
    """Pauses everything with this value of the annotation, or ends the pause with None.

    Creates the ConfigMap if it is missing. Returns the value that was there before. Raises KubeError.
    """
    tried = 0
    while True:
        tried += 1
        try:
            return _set(connection, place, value)
        except ConflictError:
            if tried >= _TRIES:
                raise


def server_time(connection: Connection) -> float | None:
    """What the API server's clock shows, in epoch seconds; None if it does not say."""
    try:
        answer = connection.request(
            "GET", "/version", Target("get", say="get /version"), read_timeout=_TIMEOUT
        )
        return parsedate_to_datetime(answer.headers.get("Date", "")).timestamp()
    except (KubeError, ValueError) as e:
        log.info("the API server does not tell the time: %s", e)
        return None


def exists(connection: Connection, place: Place) -> bool:
    """Whether the ConfigMap is there. Raises KubeError, ForbiddenError if it may not be read."""
    path = CONFIG_MAPS.path(place.namespace, place.name)
    try:
        connection.request("GET", path, _target("get", place), read_timeout=_TIMEOUT)
    except NotFoundError:
        return False
    return True


def create_brake(connection: Connection, place: Place) -> None:
    """Creates the ConfigMap, which pauses nothing yet. Raises KubeError, ConflictError if it is there."""
    _create(connection, place, None)


def _create(connection: Connection, place: Place, value: str | None) -> None:
    made: dict[str, Any] = {"name": place.name, "namespace": place.namespace, "labels": labels_of("brake")}
    if value is not None:
        made["annotations"] = {PAUSE: value}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": made}
    where = CONFIG_MAPS.path(place.namespace)
    connection.request("POST", where, _target("create", place), body=body, read_timeout=_TIMEOUT)


def _set(connection: Connection, place: Place, value: str | None) -> str | None:
    path, target = CONFIG_MAPS.path(place.namespace, place.name), _target("get", place)
    try:
        answer = connection.request("GET", path, target, read_timeout=_TIMEOUT)
    except NotFoundError:
        _create(connection, place, value)
        return None
    whole = msgspec.json.decode(answer.body)
    annotations = dict(whole["metadata"].get("annotations") or {})
    before: str | None = annotations.pop(PAUSE, None)
    if value is not None:
        annotations[PAUSE] = value
    if before != value:
        body = {**whole, "metadata": {**whole["metadata"], "annotations": annotations}}
        connection.request("PUT", path, _target("update", place), body=body, read_timeout=_TIMEOUT)
    return before


def _target(verb: str, place: Place) -> Target:
    return Target(verb, CONFIG_MAPS, place.namespace, place.name)
