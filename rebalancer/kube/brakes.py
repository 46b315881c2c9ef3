"""Where people pause evictions: an annotation of one ConfigMap for all, of a namespace for its pods.

Both are read right before each eviction. What cannot be seen counts as paused: a brake that somebody took
away, or whose rights are missing, must not let go of evictions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.kube.connection import DEFAULT_BACKOFF, Backoff, Connection, Wait, retry
from rebalancer.kube.errors import (
    PROXY,
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    Target,
)
from rebalancer.kube.ledger_store import CONFIG_MAPS, Place, labels_of
from rebalancer.kube.resources import RESOURCES, Resource
from rebalancer.model.node import ObjectMeta
from rebalancer.policy.annotations import FOR_RUN, PAUSE, meant_as_pause, paused_domains, pauses_until

log = logging.getLogger(__name__)

_TIMEOUT = 10.0
_REFUSALS = 3
"""An API server that has just been started refuses everything for a moment."""
_TRIES = 5
"""Of a change that somebody else's change came before."""


class Brake(Struct, frozen=True, rename="camel"):
    """An object by which people pause, as far as it is read."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None

    @property
    def slips(self) -> dict[str, str]:
        """What on a brake was meant to pause, in words → the command that removes it."""
        meta = self.metadata
        data = {**(self.data or {}), **(self.binary_data or {})}
        return meant_as_pause(meta.annotations, meta.labels, data)


class Brakes:
    """Reads the objects whose annotations pause, fresh each time."""

    def __init__(self, connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> None:
        self._connection = connection
        self._wait = wait
        self._backoff = backoff

    def everything(self, place: Place) -> Brake:
        """The ConfigMap that pauses everything.

        Raises KubeError: NotFoundError if it is missing, ForbiddenError if it may not be read.
        """
        return self._read(CONFIG_MAPS, place.namespace, place.name)

    def namespace(self, name: str) -> ObjectMeta | None:
        """Metadata of a namespace; None if it is gone. Raises KubeError."""
        try:
            return self._read(RESOURCES["Namespace"], "", name).metadata
        except NotFoundError:
            return None

    def _read(self, resource: Resource, namespace: str, name: str, tried: int = 1) -> Brake:
        target = Target("get", resource, namespace, name)

        def ask() -> bytes:
            path = resource.path(namespace, name)
            return self._connection.request("GET", path, target, read_timeout=_TIMEOUT).body

        try:
            body = retry(ask, wait=self._wait, backoff=self._backoff)
            found = msgspec.json.decode(body, type=Brake)
        except ForbiddenError as e:
            if tried >= _REFUSALS or self._wait(self._backoff.delay(tried, e.retry_after)):
                raise
            return self._read(resource, namespace, name, tried + 1)
        except msgspec.DecodeError as e:
            raise ResponseError(f"{target}: cannot be read: {e}", target=target, code=200) from e
        about = found.metadata
        if (about.namespace, about.name) != (namespace, name):
            say = f"{target}: the answer is about {about.namespace}/{about.name}"
            raise ResponseError(say, PROXY, target=target, code=200)
        return found


class BrakeSet(Struct, frozen=True):
    """What became of a brake: the value that it had `before`, None for none, and its `version` now.
    `stays`: whether it has that value still."""

    before: str | None
    version: str
    stays: bool = False


def set_brake(
    connection: Connection, place: Place, value: str | None, *, key: str = PAUSE, create: bool = True
) -> BrakeSet:
    """Pauses everything with this value of the annotation, or ends the pause with None. `key`: another one,
    that takes a domain out. A pause that somebody else set, and that lasts longer, stays as it is; a shorter
    one stays in the reason, as who ends this one ends both.

    Creates the ConfigMap if it is missing, unless `create` forbids it. Raises KubeError.
    """

    def change(annotations: dict[str, str]) -> str | None:
        before = annotations.pop(key, None)
        if value is not None:
            annotations[key] = value if before is None or before in value else _both(before, value)
        return before

    def _end(said: str) -> float:
        ends = paused_domains({key: said}, 0.0).values() if key != PAUSE else [(said, pauses_until(said))]
        return max(until for _, until in ends)

    def _both(before: str, value: str) -> str:
        if _end(before) >= _end(value):
            return before
        holds = _end(before) > (connection.time() or time.time())
        return f"{value}; before: {before}" if holds else value

    return edit_annotations(connection, place, change, create={} if create else None)


def claim_brake(connection: Connection, place: Place, by: str, *, leads: bool = True) -> None:
    """Makes sure that there is one. `by`: the run that needs it, and takes it away again; "" = it stays.

    One that another run made for itself is this one's from now on if this one `leads`; any other is left as
    it is. Raises KubeError.
    """

    def change(annotations: dict[str, str]) -> None:
        if leads and annotations.pop(FOR_RUN, None) is not None and by:
            annotations[FOR_RUN] = by

    edit_annotations(connection, place, change, create={FOR_RUN: by} if by else {})


def drop_brake(connection: Connection, place: Place, by: str) -> None:
    """Removes the brake that `claim_brake` made for this run, unless somebody has paused with it. Raises
    KubeError."""
    try:
        there = ask_config_map(connection, "GET", "get", place)
    except NotFoundError:
        return
    brake = msgspec.convert(there, Brake)
    if by_run(brake.metadata.annotations) != by or brake.slips:
        return
    conditions = {"resourceVersion": brake.metadata.resource_version}
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
    ask_config_map(connection, "DELETE", "delete", place, body)


def by_run(annotations: Mapping[str, str]) -> str:
    """The run for which a brake with these annotations was made; "" if somebody has set it since, or made it
    an installation's."""
    return annotations[FOR_RUN] if annotations.keys() == {FOR_RUN} else ""


def slips(connection: Connection, place: Place) -> dict[str, str]:
    """What on the brake there was meant to pause, in words → the command that ends it. Raises KubeError."""
    what = f"configmap {place.name} -n {place.namespace}"
    try:
        there = msgspec.convert(ask_config_map(connection, "GET", "get", place), Brake)
    except NotFoundError:
        return {}
    return {said: command.format(what) for said, command in there.slips.items()}


def brake_version(connection: Connection, place: Place, timeout: float) -> str:
    """The ConfigMap's resourceVersion. Raises KubeError."""
    return _version(ask_config_map(connection, "GET", "get", place, timeout=timeout))


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


def edit_annotations(
    connection: Connection,
    place: Place,
    change: Callable[[dict[str, str]], str | None],
    *,
    create: Mapping[str, str] | None,
) -> BrakeSet:
    """Changes annotations, and no version but the one that was read. `create`: those of a new one, before the
    change; None: a missing one is an error."""
    tried = 0
    while True:
        tried += 1
        try:
            return _edit_once(connection, place, change, create)
        except ConflictError:
            if tried >= _TRIES:
                raise


def _edit_once(
    connection: Connection,
    place: Place,
    change: Callable[[dict[str, str]], str | None],
    create: Mapping[str, str] | None,
) -> BrakeSet:
    try:
        whole = ask_config_map(connection, "GET", "get", place)
    except NotFoundError:
        if create is None:
            raise
        annotations = dict(create)
        change(annotations)
        metadata: dict[str, Any] = {"name": place.name, "namespace": place.namespace}
        metadata |= {"labels": labels_of("brake"), "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        return BrakeSet(None, _version(ask_config_map(connection, "POST", "create", place, body)))
    former = whole["metadata"].get("annotations") or {}
    annotations = dict(former)
    before = change(annotations)
    if annotations == former:
        return BrakeSet(before, _version(whole), stays=before is not None)
    body = {**whole, "metadata": {**whole["metadata"], "annotations": annotations}}
    return BrakeSet(before, _version(ask_config_map(connection, "PUT", "update", place, body)))


def ask_config_map(
    connection: Connection,
    method: str,
    verb: str,
    place: Place,
    body: Any = None,
    timeout: float = _TIMEOUT,
) -> dict[str, Any]:
    """The ConfigMap as it is answered; for "delete", what the server says."""
    target = Target(verb, CONFIG_MAPS, place.namespace, place.name)
    path = CONFIG_MAPS.path(place.namespace, "" if method == "POST" else place.name)
    answer = connection.request(method, path, target, body=body, read_timeout=timeout)
    try:
        whole = msgspec.json.decode(answer.body, type=dict[str, Any])
        if verb != "delete":
            msgspec.convert(whole, Brake)
    except msgspec.DecodeError as e:
        raise ResponseError(f"{target}: cannot be read: {e}", target=target, code=answer.code) from e
    return whole


def _version(whole: dict[str, Any]) -> str:
    return str(whole["metadata"].get("resourceVersion", ""))
