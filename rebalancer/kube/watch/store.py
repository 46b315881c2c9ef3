"""The objects of one kind, as far as its watch has come, and how that watch is doing.

One thread writes, several read. Values are frozen; a reader gets the whole of one moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rebalancer.kube.connection import Backoff, Connection
from rebalancer.kube.errors import (
    KubeError,
    NotFoundError,
    ResponseError,
    StatusError,
    Stream,
    Target,
    error_of,
    quoted,
)
from rebalancer.kube.lists import first_of, head, pages
from rebalancer.kube.resources import Resource
from rebalancer.model.node import ObjectMeta
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Identity, Object

# One WATCH: a request, and its lines as events.
#
# Rule: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes; the
# shapes are those of apimachinery's pkg/apis/meta/v1/watch.go. A streaming list (KEP-3157) is a watch that
# first sends every object as ADDED, then a bookmark with an annotation of its own.

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
    return not (known.isdecimal() and version.isdecimal()) or int(known) >= int(version)


def initial_end(event: WatchEvent) -> bool:
    """Whether a bookmark ends the first part of a streaming list."""
    return event.type == "BOOKMARK" and INITIAL_END in (head(event.object).annotations or {})


Change = tuple[Identity, Object | None, str]
"""An object's new value, None when it is gone; or the sentence about one that cannot be read."""


_MOST_UNREAD = 20_000
"""Changes that are kept for a reader that does not come."""


class KindStatus(Struct, frozen=True, kw_only=True):
    """How the cache of one kind is.

    `synced`: a whole list has been read since the start. `age`: seconds since the last sign of life (an
    event, a bookmark, a list, a watch that the server accepted); None before the first. `as_of`: the objects
    are those that the server had at that time (of the monotonic clock), or later ones; None before the first
    list. `lists` and `watches` count how often each began, `failures` those in a row that ended badly.
    `denied`: the server refuses the kind; `required`: nothing can be decided without it; `add_on`: nothing
    waits for it.
    """

    kind: str
    required: bool
    add_on: bool
    synced: bool
    denied: bool
    age: float | None
    as_of: float | None
    version: str
    objects: int
    malformed: int
    lists: int
    watches: int
    failures: int
    error: KubeError | None

    def why_not(self, stale_after: float) -> str:
        """Why no decision may rest on it, in words; "" if one may."""
        if self.denied:
            return f"{self.kind}: {self.error}" if self.required else ""
        if self.add_on and (self.synced or self.failures):
            return ""
        last = f" ({self.error.message})" if self.error is not None else ""
        if not self.synced or self.age is None:
            return f"{self.kind} not listed yet{last}"
        if self.age > stale_after:
            return f"nothing heard of {self.kind} for {self.age:.0f} s{last}"
        return ""

    def why_behind(self, as_of: float) -> str:
        """Why it may not be as the server had it at that time, in words; "" if it is."""
        last = f" ({self.error.message})" if self.error is not None else ""
        if self.as_of is None:
            return f"{self.kind} not listed yet{last}"
        if self.as_of < as_of:
            return f"what happened to {self.kind} objects in the last seconds is not known{last}"
        return ""


class Feed:
    """What changed in a store since it was last asked, for one reader.

    Where too much has come, or the whole state was replaced, the changes are lost: the reader begins anew.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._changes: list[Change] = []
        self._lost = False

    def take(self) -> tuple[list[Change], bool]:
        """The changes in their order, and whether earlier ones were lost."""
        with self._lock:
            found = self._changes, self._lost
            self._changes, self._lost = [], False
        return found

    def add(self, changes: list[Change] | None) -> None:
        """By the store, under its lock. None: everything was replaced."""
        if changes is None or len(self._changes) + len(changes) > _MOST_UNREAD:
            self._changes, self._lost = [], True
        else:
            self._changes += changes


class KindStore:
    """`monotonic` in seconds."""

    def __init__(self, resource: Resource, monotonic: Callable[[], float]) -> None:
        self.resource = resource
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._objects: dict[Identity, Object] = {}
        self._broken: dict[Identity, str] = {}
        self._feeds: list[Feed] = []
        self._sorted = True
        self._version = ""
        self._generation = 0
        self._synced = self._denied = False
        self._alive: float | None = None
        self._as_of: float | None = None
        self._lists = self._watches = self._failures = 0
        self._error: KubeError | None = None

    # -- written by the kind's reflector

    def listing(self) -> None:
        """A list begins."""
        with self._lock:
            self._lists += 1

    def watching(self) -> None:
        """A watch was accepted: what happened since the last event comes at once."""
        with self._lock:
            self._watches += 1
            self._alive = self._monotonic()

    def swap(
        self, objects: dict[Identity, Object], broken: dict[Identity, str], version: str, as_of: float
    ) -> None:
        """A whole new state, which takes the place of the old one at once; the list was begun at `as_of`."""
        with self._lock:
            self._as_of = as_of
            self._objects, self._broken, self._sorted = objects, broken, False
            self._generation += 1
            self._synced, self._denied, self._error = True, False, None
            self._feed(None)
            self._seen(version)

    def apply(self, changes: Iterable[Change], version: str) -> None:
        """Changes in their order, as of `version`."""
        listed = list(changes)
        with self._lock:
            self._feed(listed)
            for key, value, broken in listed:
                if broken:
                    self._broken[key] = broken
                elif self._broken:
                    self._broken.pop(key, None)
                if value is None:
                    self._objects.pop(key, None)
                else:
                    self._sorted = self._sorted and key in self._objects
                    self._objects[key] = value
                self._generation += 1
            self._error = None
            self._seen(version)

    def confirmed(self, as_of: float) -> None:
        """A watch that was opened at `as_of` has brought all that the server had by then."""
        with self._lock:
            self._as_of = as_of

    def failed(self, error: KubeError | None, failures: int) -> None:
        """A list or watch ended with this; None: it ended as it should."""
        with self._lock:
            self._failures = failures
            if error is not None:
                self._error = error

    def deny(self, error: KubeError) -> None:
        """The server refuses the kind. What was known of an optional one is not kept: it only gets older."""
        with self._lock:
            again, self._denied, self._error = self._denied, True, error
            if self.resource.without and not again:
                self._objects, self._broken, self._synced = {}, {}, False
                self._as_of = None
                self._generation += 1

    @property
    def _absent(self) -> bool:
        """Whether the cluster does not have the add-on whose kind it is."""
        return self._denied and self.resource.add_on and isinstance(self._error, NotFoundError)

    def _feed(self, changes: list[Change] | None) -> None:
        for feed in self._feeds:
            feed.add(changes)

    def _seen(self, version: str) -> None:
        self._version = version
        self._alive = self._monotonic()

    # -- read by everybody

    def follow(self) -> Feed:
        """What changes from now on, for one more reader."""
        feed = Feed(self._lock)
        with self._lock:
            self._feeds.append(feed)
        return feed

    def forget(self, feed: Feed) -> None:
        """The reader is gone."""
        with self._lock:
            self._feeds.remove(feed)

    def sorted(self) -> tuple[int, Mapping[Identity, Object] | None]:
        """The objects by identity in order, a copy; with a number that differs whenever they do.

        None where they are not known, which is not the same as none.
        """
        with self._lock:
            if not self._synced:
                return self._generation, {} if self.known else None
            if not self._sorted:
                # Nearly sorted: only what was added since is out of its place.
                self._objects = dict(sorted(self._objects.items(), key=itemgetter(0)))
                self._sorted = True
            return self._generation, self._objects.copy()

    @property
    def known(self) -> bool:
        """Whether it can be said which objects there are: of an add-on that is not served, none."""
        return self._synced or self._absent

    @property
    def synced(self) -> bool:
        """Whether the objects are known."""
        return self._synced

    @property
    def generation(self) -> int:
        """A number that differs whenever the objects do."""
        return self._generation

    def has_come_to(self, key: Identity, version: str) -> bool:
        """Whether the watch has brought this version of an object, which was read by itself, or a later one.

        Of an object that is not here, because it was deleted since, the version of the whole kind tells.
        """
        with self._lock:
            found = self._objects.get(key)
            known = version_of(found) if found is not None else self._version
        return as_far(known, version)

    def find(self, key: Identity) -> Object | None:
        """One object."""
        with self._lock:
            return self._objects.get(key)

    def by_identity(self) -> dict[Identity, Any]:
        """All objects, a copy, in any order."""
        with self._lock:
            return self._objects.copy()

    def every(self) -> list[Object]:
        """All objects in any order."""
        with self._lock:
            return list(self._objects.values())

    def warnings(self) -> tuple[str, ...]:
        """What a snapshot has to say about this kind."""
        with self._lock:
            lacking = self._denied or (self.resource.add_on and not self._synced)
            if lacking and self.resource.without:
                return () if self._absent else (self.resource.unknown(self._error or "not listed yet"),)
            return first_of([text for _, text in sorted(self._broken.items())])

    def status(self) -> KindStatus:
        """How the watch of this kind is doing."""
        with self._lock:
            return KindStatus(
                kind=self.resource.kind,
                required=not self.resource.without,
                add_on=self.resource.add_on,
                synced=self._synced,
                denied=self._denied,
                age=None if self._alive is None else self._monotonic() - self._alive,
                as_of=self._as_of,
                version=self._version,
                objects=len(self._objects),
                malformed=len(self._broken),
                lists=self._lists,
                watches=self._watches,
                failures=self._failures,
                error=self._error,
            )


def version_of(o: Object) -> str:
    """Its resourceVersion."""
    return (o if isinstance(o, Pod | ObjectMeta) else o.metadata).resource_version
