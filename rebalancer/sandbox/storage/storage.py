"""Objects in memory under one resourceVersion, with their history and its subscribers. Thread-safe.

What etcd is to the API server: no rule about what an object may be (that is `registry.store.Store`). Every
method may be called from any thread. What is handed out is shared and must not be changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from rebalancer.sandbox.api.errors import ApiError, not_found
from rebalancer.sandbox.api.objects import Object, key_of, stamp
from rebalancer.sandbox.api.resources import RESOURCES, Resource, resolve
from rebalancer.sandbox.api.selectors import LabelSelector, matches
from rebalancer.sandbox.storage.history import Collection, Event, EventType, Record
from rebalancer.sandbox.storage.owner_index import OwnerIndex

Kind = str | Resource
Subscriber = Callable[[Event], None]
# Names for what `Storage.list` would shadow within the class.
Objects = list[Object]
Events = list[Event]
Owned = list[tuple[Resource, Object]]


class Storage:
    """Objects by resource, namespace and name.

    `clock` gives seconds of the epoch; `history` is how many changes per resource can be watched back.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, history: int = 10_000) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
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
        return stamp(self.clock())

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

    def wait(self, after: int, timeout: float | None = None) -> int:
        """Until something changed after version `after`, or `timeout` seconds; the current version."""
        with self.changed:
            self.changed.wait_for(lambda: self._revision > after, timeout)
            return self._revision

    def events(self, kind: Kind, after: int) -> Events:
        """Changes of one resource after a version. ApiError 410 where they are forgotten."""
        with self.lock:
            collection = self.collection(kind)
            if after < collection.floor:
                raise ApiError(410, "Expired", f"too old resource version: {after} ({collection.floor})")
            return collection.since(after)

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
        self.changed.notify_all()
        return obj
