"""Objects in memory under one resourceVersion, with their history and its subscribers. Thread-safe.

What etcd is to the API server: no rule about what an object may be (that is `registry.store.Store`). Every
method may be called from any thread. What is handed out is shared and must not be changed.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from rebalancer.model.quantity import rfc3339
from rebalancer.sandbox.objects import LabelSelector, Object, key_of, matches
from rebalancer.sandbox.resources import RESOURCES, Resource, not_found, resolve

# One resource's objects and the changes they went through, as lists and watches need them.

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


# Which objects name which owners, so that dependents are found without a search.


class OwnerIndex:
    """Which objects name a uid among their owners."""

    def __init__(self) -> None:
        self._dependents: dict[str, set[tuple[Resource, str]]] = {}

    def of(self, uid: str) -> list[tuple[Resource, str]]:
        """Resource and key of each dependent, by key."""
        return sorted(self._dependents.get(uid, ()), key=lambda found: found[1])

    def note(self, resource: Resource, new: Record | None, old: Record | None) -> None:
        """A change from `old` to `new`; None for what is not there."""
        before, after = _owners(old), _owners(new)
        if old is not None:
            for uid in before - after:
                found = self._dependents[uid]
                found.discard((resource, old.key))
                if not found:
                    del self._dependents[uid]
        if new is not None:
            for uid in after - before:
                self._dependents.setdefault(uid, set()).add((resource, new.key))


def _owners(record: Record | None) -> set[str]:
    if record is None:
        return set()
    return {owner["uid"] for owner in record.obj["metadata"].get("ownerReferences") or () if "uid" in owner}


Kind = str | Resource
Subscriber = Callable[[Event], None]
# Names for what `Storage.list` would shadow within the class.
Objects = list[Object]
Owned = list[tuple[Resource, Object]]


class Storage:
    """Objects by resource, namespace and name.

    `clock` gives seconds of the epoch; `history` is how many changes per resource can be watched back.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, history: int = 10_000) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        self._owners = OwnerIndex()
        self._revision = 1
        self._collections: dict[str, Collection] = {}
        self._subscribers: list[Subscriber] = []
        for resource in RESOURCES:
            if resource.storage not in self._collections:
                self._collections[resource.storage] = Collection(resource, 1, history)

    # -- reading

    @property
    def revision(self) -> int:
        """The resourceVersion of the last change."""
        return self._revision

    def now(self) -> str:
        return rfc3339(self.clock())

    def collection(self, kind: Kind) -> Collection:
        return self._collections[resolve(kind).storage]

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        selector: LabelSelector = (),
        where: Callable[[Object], bool] | None = None,
    ) -> Objects:
        """In order of namespace and name; events in their core shape."""
        with self.lock:
            found = [record.obj for record in self.collection(kind).scan(namespace)]
        if selector:
            found = [obj for obj in found if matches(selector, obj["metadata"].get("labels"))]
        return [obj for obj in found if where(obj)] if where else found

    def find(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        """As `get`, None where there is none."""
        record = self.collection(kind).records.get(key_of(namespace, name))
        return record.obj if record else None

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """ApiError 404 where there is none."""
        return self.record(resolve(kind), name, namespace).obj

    def record(self, resource: Resource, name: str, namespace: str | None) -> Record:
        record = self._collections[resource.storage].records.get(key_of(namespace, name))
        if record is None:
            raise not_found(resource, name)
        return record

    def owned(self, uid: str) -> Owned:
        """Objects that name this uid among their owners."""
        with self.lock:
            return [
                (resource, self._collections[resource.storage].records[key].obj)
                for resource, key in self._owners.of(uid)
            ]

    # -- waiting

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` for every change, in order, under the lock: it must be quick, must not
        block, and must not write (others would see the changes out of order): wake a thread that does.
        Returns what ends the subscription."""
        with self.lock:
            self._subscribers.append(subscriber)

        def end() -> None:
            with self.lock, suppress(ValueError):
                self._subscribers.remove(subscriber)

        return end

    def compact(self, rv: int | None = None) -> None:
        """Forget history up to `rv` (all of it by default): older watches and pages get 410."""
        with self.lock:
            upto = self._revision if rv is None else rv
            for collection in self._collections.values():
                collection.compact(upto)

    # -- writing

    def settle(self, resource: Resource, records: Iterable[Record]) -> None:
        """Take over loaded records, versions above all of them: those without one get the next."""
        batch = [*records]
        self._revision = max(self._revision, *(record.rv for record in batch), 0)
        collection = self._collections[resource.storage]
        for record in batch:
            if not record.rv:
                self._revision += 1
                record.rv = self._revision
                record.obj["metadata"]["resourceVersion"] = str(record.rv)
            self._owners.note(resource, record, collection.records.get(record.key))
        collection.load(batch)

    def add(self, resource: Resource, key: str, obj: Object) -> Object:
        """Store a new object; with its version. The lock is held."""
        return self._change("ADDED", resource, key, obj, None)

    def commit(self, resource: Resource, record: Record, new: Object) -> Object:
        """Store a changed copy of a record; with its version. The lock is held."""
        return self._change("MODIFIED", resource, record.key, new, record)

    def remove(self, resource: Resource, record: Record, last: Object) -> Object:
        """Take a record out; `last`, its last state, with the version of the change. The lock is held."""
        return self._change("DELETED", resource, record.key, last, record)

    def _change(
        self, kind: EventType, resource: Resource, key: str, obj: Object, old: Record | None
    ) -> Object:
        collection = self._collections[resource.storage]
        self._revision += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._revision)}}
        record = Record(key, obj, self._revision)
        if kind == "DELETED":
            collection.remove(key)
            self._owners.note(collection.resource, None, old)
        else:
            collection.put(record)
            self._owners.note(collection.resource, record, old)
        event = Event(self._revision, kind, collection.resource, record, old)
        collection.log(event)
        for subscriber in tuple(self._subscribers):
            subscriber(event)
        return obj
