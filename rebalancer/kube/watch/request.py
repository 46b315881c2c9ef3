"""One WATCH: a request, and its lines as events.

Rule: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes; the shapes
are those of apimachinery's pkg/apis/meta/v1/watch.go. A streaming list (KEP-3157) is a watch that first sends
every object as ADDED, then a bookmark with an annotation of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import Backoff
from rebalancer.kube.client.status import error_of, quoted
from rebalancer.kube.client.stream import Stream
from rebalancer.kube.errors import ResponseError, StatusError, Target
from rebalancer.kube.read.head import head
from rebalancer.kube.read.pager import pages
from rebalancer.kube.resources import Resource

INITIAL_END = "k8s.io/initial-events-end"


class WatchEvent(Struct, frozen=True, eq=False):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; `object` keeps the line's bytes alive."""

    type: str
    object: Raw


class _Code(Struct, frozen=True):
    code: int = 500


_EVENT = msgspec.json.Decoder(WatchEvent)
_CODE = msgspec.json.Decoder(_Code)
_ONCE = Backoff(tries=1)
_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class Watch:
    """An open watch of one kind, over all namespaces or within one.

    `version`: events after it; "" asks for a streaming list. `timeout`: seconds after which the server ends
    it. `silence`: seconds without a byte after which the connection is taken for dead. Opening and reading
    raise KubeError; a server without streaming lists refuses one with a StatusError of code 422 (or 400).
    """

    def __init__(
        self, connection: Connection, resource: Resource, version: str, *, timeout: int, silence: float
    ) -> None:
        self._connection = connection
        self.target = Target("watch", resource, resource.within)
        query: dict[str, str | int] = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": timeout,
        }
        if version:
            query["resourceVersion"] = version
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        self._stream: Stream = connection.stream(
            resource.path(), self.target, query=query, accept=resource.watch_accept, read_timeout=silence
        )

    def batches(self) -> Iterator[list[WatchEvent]]:
        """Events as they come, several at a time; ends with the body.

        An ERROR event is raised as the error that its Status means, what came before it is handed out first.
        """
        for lines in self._stream.batches():
            batch: list[WatchEvent] = []
            failure: Exception | None = None
            for line in lines:
                try:
                    batch.append(self._event(line))
                except (StatusError, ResponseError) as e:
                    failure = e
                    break
            if batch:
                yield batch
            if failure is not None:
                raise failure

    def close(self) -> None:
        """Ends it from this side."""
        self._stream.close()

    def abort(self) -> None:
        """Ends it from another thread: reading it raises KubeError."""
        self._stream.abort()

    def _event(self, line: bytes) -> WatchEvent:
        try:
            event = _EVENT.decode(line)
        except msgspec.DecodeError as e:
            raise self.garbage(f"{e}: {quoted(line)}") from e
        if event.type in _CHANGES:
            return event
        if event.type == "ERROR":
            try:
                code = _CODE.decode(event.object).code
            except msgspec.DecodeError:
                code = 500
            raise error_of(code, {}, bytes(event.object), self.target, who=self._connection.who)
        raise self.garbage(f"an event of type {event.type!r}")

    def garbage(self, what: str) -> ResponseError:
        """A line that is no event."""
        return ResponseError(
            f"{self.target}: a line that is no event: {what}",
            f"is {self._connection.who} really an API server, with no proxy in between that changes bodies?",
            target=self.target,
            code=200,
        )


def version_known(connection: Connection, resource: Resource, version: str) -> bool:
    """Whether the server's history has come as far as this version.

    A server that lost history (etcd restored from a backup) is behind it, and answers a watch from there with
    silence. A consistent list of one object tells. It is not asked for a list "not older than" the version: a
    server before 1.31 whose cache of a quiet kind is older than that refuses it (ResourceVersionTooLarge),
    although nothing is lost. A recent one brings that cache up to date for it, and so has news for the watch
    that follows (cacher.go, RequestWatchProgress). Versions are compared as numbers (KEP-5504).
    Raises KubeError.
    """
    page = next(pages(connection, resource, wait=lambda _: True, limit=1, backoff=_ONCE))
    return as_far(page.metadata.resource_version, version)


def as_far(known: str, version: str) -> bool:
    """Whether a version is not older than another one. Of what are no numbers nothing can be said against
    it."""
    return not (known.isdigit() and version.isdigit()) or int(known) >= int(version)


def initial_end(event: WatchEvent) -> bool:
    """Whether a bookmark ends the first part of a streaming list."""
    return event.type == "BOOKMARK" and INITIAL_END in (head(event.object).annotations or {})
