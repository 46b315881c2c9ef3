"""The cluster's objects as the API server keeps them: conflicts, admission, defaults, deletion. Thread-safe.

Every method may be called from any thread. What `list`, `get`, `events` and subscribers hand out is
shared with the store and must not be changed: copy first (`objects.copied`), or use `modify`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from rebalancer.sandbox.api import events
from rebalancer.sandbox.api.errors import conflict, modified
from rebalancer.sandbox.api.objects import Object, copied
from rebalancer.sandbox.api.resources import EVENTS, Resource, of_object, resolve
from rebalancer.sandbox.registry import creation, deletion, loading, updates
from rebalancer.sandbox.storage.history import Record
from rebalancer.sandbox.storage.storage import Kind, Storage

Words = list[str]
"""A name for what `Store.list` would shadow within the class."""


class Store(Storage):
    """Objects by resource, namespace and name, with what the API server asks of each change.

    `seed` makes uids and generated names repeatable; `clock` and `history` as in `Storage`.
    """

    def __init__(
        self,
        objects: Iterable[Object] = (),
        *,
        clock: Callable[[], float] = time.time,
        seed: int | None = None,
        history: int = 10_000,
    ) -> None:
        super().__init__(clock=clock, history=history)
        self._rng = random.Random(seed)
        self.skipped = self.load(objects)

    def load(self, objects: Iterable[Object]) -> Words:
        """Put objects in as they are (names, uids, versions), without events, admission or defaults;
        a List counts as its items. Namespaces that they need come to be. Returns the kinds
        (`apiVersion/kind`) that are not served and were left out."""
        with self.lock:
            skipped = loading.load(self, objects, self._rng)
            for collection in self._collections.values():
                collection.compact(self._revision)
            self.changed.notify_all()
        return skipped

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
            key, new = creation.prepared(self, resource, copied(obj), namespace, self._rng)
            return new if dry_run else self.add(resource, key, new)

    def update(
        self,
        obj: Object,
        *,
        subresource: str = "",
        resource: Resource | None = None,
        dry_run: bool = False,
        manager: str = "",
    ) -> Object:
        """Replace, or with subresource "status" replace the status only; the stored object.

        `manager`: the client that writes, as managedFields name it.

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
            return self._replace(resource, record, new, subresource, dry_run, manager)

    def _replace(
        self,
        resource: Resource,
        record: Record,
        new: Object,
        subresource: str,
        dry_run: bool,
        manager: str = "",
    ) -> Object:
        new, changed = updates.updated(resource, record.obj, new, subresource, manager)
        if not changed:
            return record.obj
        return new if dry_run else deletion.put(self, resource, record, new)

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
            wanted = deletion.Deletion(grace, uid, resource_version, propagation, dry_run)
            return deletion.delete(self, resource, record, wanted)
