"""The cluster's objects as the API server keeps them: conflicts, admission, defaults, deletion. Thread-safe.

Every method may be called from any thread. What `list`, `get`, `events` and subscribers hand out is
shared with the store and must not be changed: copy first (`objects.copied`), or use `modify`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Any

from rebalancer.sandbox import creation, events, lifecycle, loading, owners, updates
from rebalancer.sandbox.errors import bad_request, conflict, modified
from rebalancer.sandbox.history import Record
from rebalancer.sandbox.objects import Object, copied
from rebalancer.sandbox.patch import apply as apply_patch
from rebalancer.sandbox.resources import EVENTS, Resource, of_object, resolve
from rebalancer.sandbox.storage import Kind, Storage

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
        self.rng = random.Random(seed)
        self.skipped = self.load(objects)

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
