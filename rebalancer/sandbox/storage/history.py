"""One resource's objects and the changes they went through, as lists and watches need them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from rebalancer.sandbox.api.objects import Object
from rebalancer.sandbox.api.resources import Resource

_encode = msgspec.json.Encoder().encode


class Record:
    """One version of one object. Nobody changes `obj` once it is in here; its bytes are kept."""

    __slots__ = ("_item", "key", "obj", "rv")

    def __init__(self, key: str, obj: Object, rv: int) -> None:
        self.key = key
        self.obj = obj
        self.rv = rv
        self._item: bytes | None = None

    def item(self) -> bytes:
        """As an item of a list: without kind and apiVersion."""
        if self._item is None:
            self._item = _encode({k: v for k, v in self.obj.items() if k not in ("kind", "apiVersion")})
        return self._item

    def full(self, resource: Resource) -> bytes:
        """As an answer to a get, or within a watch event."""
        head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
        return head.encode() + self.item()[1:]


EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class Event(NamedTuple):
    """A change at version `rv`; `old` is what it replaced (None for ADDED), `record` what it led to.

    The record of DELETED is the object's last state with the deletion's own version.
    """

    rv: int
    type: EventType
    resource: Resource
    record: Record
    old: Record | None

    @property
    def obj(self) -> Object:
        return self.record.obj


class Collection:
    """The objects of one resource by key, in key order, with a ring of their last changes.

    `floor` is the oldest version from which changes can still be told. `progress` is the version up to which
    a server's cache of this resource would know that it is complete: that of its last change, or of the
    last consistent read, for which the server asks etcd (cacher.go, RequestWatchProgress).
    """

    def __init__(self, resource: Resource, floor: int, depth: int) -> None:
        self.resource = resource
        self.records: dict[str, Record] = {}
        self.floor = self.progress = floor
        self._keys: list[str] = []
        self._events: deque[Event] = deque()
        self._depth = depth

    def put(self, record: Record) -> Record | None:
        old = self.records.get(record.key)
        if old is None:
            insort(self._keys, record.key)
        self.records[record.key] = record
        return old

    def load(self, records: Iterable[Record]) -> None:
        """Many at once, without events: the state before all history."""
        self.records.update((record.key, record) for record in records)
        self._keys = sorted(self.records)

    def remove(self, key: str) -> Record:
        record = self.records.pop(key)
        del self._keys[bisect_left(self._keys, key)]
        return record

    def log(self, event: Event) -> None:
        self._events.append(event)
        self.progress = event.rv
        if len(self._events) > self._depth:
            self.floor = self._events.popleft().rv

    def compact(self, rv: int) -> None:
        """Forget what happened up to `rv`."""
        while self._events and self._events[0].rv <= rv:
            self._events.popleft()
        self.floor = max(self.floor, rv)

    def since(self, rv: int) -> list[Event]:
        """The changes after `rv`, oldest first; the caller has checked `floor`."""
        events = self._events
        if not events or events[-1].rv <= rv:
            return []
        newer = 0
        for event in reversed(events):  # usually few: cheaper than a search in a deque
            if event.rv <= rv:
                break
            newer += 1
        return list(islice(events, len(events) - newer, None))

    def scan(self, namespace: str | None = None, after: str = "") -> Iterator[Record]:
        """In key order, from behind the key `after`; `namespace` None means all."""
        return self._slice(self._keys, self.records, namespace, after)

    def scan_at(self, rv: int, namespace: str | None, after: str = "") -> Iterator[Record]:
        """As `scan`, for the state at an earlier version: the changes since are taken back."""
        undone = self.since(rv)
        if not undone:
            return self.scan(namespace, after)
        records = dict(self.records)
        for event in reversed(undone):
            if event.old is None:
                records.pop(event.record.key, None)
            else:
                records[event.record.key] = event.old
        return self._slice(sorted(records), records, namespace, after)

    @staticmethod
    def _slice(
        keys: list[str], records: dict[str, Record], namespace: str | None, after: str
    ) -> Iterator[Record]:
        start, stop = 0, len(keys)
        if namespace is not None:
            start, stop = bisect_left(keys, f"{namespace}/"), bisect_left(keys, f"{namespace}0")
        if after:
            start = max(start, bisect_right(keys, after))
        # A list of its own: the store may change before the last is taken.
        return iter([records[key] for key in keys[start:stop]])
