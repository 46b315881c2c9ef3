"""The cluster's objects in memory: versions, conflicts, admission, history. Thread-safe.

Every method may be called from any thread. What `list`, `get`, `events` and subscribers hand out is
shared with the store and must not be changed: copy first (`objects.copied`), or use `modify`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from rebalancer.sandbox import creation, events, lifecycle, loading, owners, updates
from rebalancer.sandbox.errors import (
    ApiError,
    bad_request,
    conflict,
    modified,
    not_found,
)
from rebalancer.sandbox.history import Collection, Event, EventType, Record
from rebalancer.sandbox.objects import Object, copied, key_of, stamp
from rebalancer.sandbox.patch import apply as apply_patch
from rebalancer.sandbox.resources import (
    EVENTS,
    RESOURCES,
    Resource,
    of_object,
    resolve,
)
from rebalancer.sandbox.selectors import LabelSelector, matches

Kind = str | Resource
Subscriber = Callable[[Event], None]
# Names for what `Store.list` would shadow within the class.
Objects = list[Object]
Events = list[Event]
Owned = list[tuple[Resource, Object]]
Words = list[str]


class Store:
    """Objects by resource, namespace and name.

    `clock` gives seconds of the epoch; `seed` makes uids and generated names repeatable;
    `history` is how many changes per resource can be watched back.
    """

    def __init__(
        self,
        objects: Iterable[Object] = (),
        *,
        clock: Callable[[], float] = time.time,
        seed: int | None = None,
        history: int = 10_000,
    ) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.clock = clock
        self.rng = random.Random(seed)
        self._owners = owners.OwnerIndex()
        self._revision = 1
        self._depth = history
        self._collections: dict[str, Collection] = {}
        self._subscribers: list[Subscriber] = []
        for resource in RESOURCES:
            if resource.storage not in self._collections:
                self._collections[resource.storage] = Collection(resource, 1, history)
        self.skipped = self.load(objects)

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

    def load(self, objects: Iterable[Object]) -> Words:
        """Put objects in as they are (names, uids, versions), without events, admission or defaults;
        a List counts as its items. Namespaces that they need come to be. Returns the kinds
        (`apiVersion/kind`) that are not served and were left out."""
        with self.lock:
            skipped = loading.load(self, objects)
            for collection in self._collections.values():
                collection.compact(self._revision)
            self.changed.notify_all()
        return skipped

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

    def create(
        self,
        obj: Object,
        *,
        namespace: str | None = None,
        resource: Resource | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Admit, default and store; the stored object. ApiError 409 where it exists, 404 without its
        namespace, 422 where it is not valid. `namespace` defaults to the object's own, then "default"."""
        if resource is None:
            resource = of_object(obj)
        with self.lock:
            key, new = creation.prepared(self, resource, copied(obj), namespace)
            return self._commit("ADDED", self._collections[resource.storage], key, new, None, dry_run)

    def update(
        self,
        obj: Object,
        *,
        subresource: str = "",
        resource: Resource | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Replace, or with subresource "status" replace the status only; the stored object.

        With a `metadata.resourceVersion` that is not the current one: ApiError 409. Without: last wins.
        """
        if resource is None:
            resource = of_object(obj)
        metadata = obj.get("metadata") or {}
        namespace = metadata.get("namespace") if resource.namespaced else None
        name = metadata.get("name", "")
        with self.lock:
            record = self.record(resource, name, namespace)
            version = str(metadata.get("resourceVersion") or "")
            if version and version != str(record.rv):
                raise modified(resource, name)
            if metadata.get("uid") and metadata["uid"] != record.obj["metadata"].get("uid"):
                wanted, real = metadata["uid"], record.obj["metadata"].get("uid")
                why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {real}"
                raise conflict(resource, name, why)
            new = copied(obj)
            if resource.storage == EVENTS.storage:
                new = events.to_core(new)
            return self._replace(resource, record, new, subresource, dry_run)

    def _replace(
        self, resource: Resource, record: Record, new: Object, subresource: str, dry_run: bool
    ) -> Object:
        new, changed = updates.updated(resource, record.obj, new, subresource)
        if not changed:
            return record.obj
        metadata = new["metadata"]
        collection = self._collections[resource.storage]
        if (
            "deletionTimestamp" in metadata
            and not metadata.get("finalizers")
            and lifecycle.may_end(resource, new)
        ):
            if not dry_run:
                lifecycle.end(self, resource, record, new)
            return new
        return self._commit("MODIFIED", collection, record.key, new, record, dry_run)

    def modify(
        self,
        kind: Kind,
        name: str,
        namespace: str | None,
        change: Callable[[Object], None],
        *,
        subresource: str = "",
    ) -> Object:
        """Copy, let `change` edit the copy in place, store: atomic, never a conflict. ApiError 404."""
        resource = resolve(kind)
        with self.lock:
            record = self.record(resource, name, namespace)
            new = copied(record.obj)
            change(new)
            return self._replace(resource, record, new, subresource, dry_run=False)

    def patch(
        self,
        kind: Kind,
        name: str,
        namespace: str | None,
        patch: Any,
        content_type: str,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Apply a patch of that media type; ApiError 409 where it names another resourceVersion."""
        resource = resolve(kind)
        with self.lock:
            record = self.record(resource, name, namespace)
            before = record.obj
            if resource.group == "events.k8s.io":
                before = events.to_new(before)
            new = apply_patch(content_type, copied(before), patch)
            if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
                raise bad_request("the patch leaves no object")
            if new["metadata"].get("resourceVersion") != before["metadata"].get("resourceVersion"):
                raise modified(resource, name)
            if new["metadata"].get("name") != name:
                raise bad_request(
                    f"the name of the object ({new['metadata'].get('name')}) does not match "
                    f"the name on the URL ({name})"
                )
            if new["metadata"].get("uid") != before["metadata"].get("uid"):
                why = "Precondition failed: UID in precondition: {}, UID in object meta: {}"
                raise conflict(
                    resource, name, why.format(new["metadata"].get("uid"), before["metadata"].get("uid"))
                )
            if resource.storage == EVENTS.storage:
                new = events.to_core(new)
            return self._replace(resource, record, new, subresource, dry_run)

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        grace: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str = "",
        dry_run: bool = False,
    ) -> tuple[Object, bool]:
        """Delete, or begin to: (the object as it is then, whether it is gone).

        `grace` in seconds, for pods (None: their own). `propagation`: Background, Foreground, Orphan.
        ApiError 404, or 409 where a precondition fails.
        """
        resource = resolve(kind)
        with self.lock:
            record = self.record(resource, name, namespace)
            return lifecycle.delete(
                self,
                resource,
                record,
                lifecycle.Deletion(grace, uid, resource_version, propagation, dry_run),
            )

    # -- for this package

    def commit(self, resource: Resource, record: Record, new: Object) -> Object:
        """Store a changed copy of a record without further checks. The lock is held."""
        return self._commit("MODIFIED", self._collections[resource.storage], record.key, new, record, False)

    def remove(self, resource: Resource, record: Record, last: Object) -> Object:
        """Take it out with `last` as its last state; dependents follow. The lock is held."""
        collection = self._collections[resource.storage]
        gone = self._commit("DELETED", collection, record.key, last, record, False)
        owners.cascade(self, gone)
        if resource.namespaced:
            lifecycle.end_namespace(self, gone["metadata"]["namespace"])
        return gone

    def _commit(
        self,
        kind: EventType,
        collection: Collection,
        key: str,
        obj: Object,
        old: Record | None,
        dry_run: bool,
    ) -> Object:
        if dry_run:
            return obj
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
