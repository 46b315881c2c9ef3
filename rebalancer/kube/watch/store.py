"""The objects of one kind, as far as its watch has come, and how that watch is doing.

One thread writes, several read. Values are frozen; a reader gets the whole of one moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from msgspec import Struct

from rebalancer.kube.errors import KubeError, NotFoundError
from rebalancer.kube.read.head import first_of
from rebalancer.kube.resources import Resource
from rebalancer.kube.watch.request import as_far
from rebalancer.model.kinds import Object
from rebalancer.model.object_meta import ObjectMeta
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Identity

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
                return self._generation, {} if self._absent else None
            if not self._sorted:
                # Nearly sorted: only what was added since is out of its place.
                self._objects = dict(sorted(self._objects.items(), key=itemgetter(0)))
                self._sorted = True
            return self._generation, self._objects.copy()

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
            known = _version(found) if found is not None else self._version
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
        """How it is doing."""
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


def _version(o: Object) -> str:
    return (o if isinstance(o, Pod | ObjectMeta) else o.metadata).resource_version
