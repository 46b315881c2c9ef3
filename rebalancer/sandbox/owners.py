"""Garbage collection along ownerReferences, at once and in the same call as the owner's end.

An owner that never was in the store collects nobody: a snapshot may come without its owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rebalancer.sandbox.history import Record
from rebalancer.sandbox.objects import Object, copied
from rebalancer.sandbox.resources import BY_KIND, Resource

if TYPE_CHECKING:
    from rebalancer.sandbox.store import Store

FOREGROUND = "foregroundDeletion"


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


def before_delete(store: Store, resource: Resource, record: Record, propagation: str) -> None:
    """Foreground: hold the owner until its dependents are gone. Orphan: let the dependents go."""
    uid = record.obj["metadata"].get("uid", "")
    if propagation == "Orphan":
        for inner, obj in store.owned(uid):
            _disown(store, inner, obj, uid)
        return
    blocking = [pair for pair in store.owned(uid) if _blocks(pair[1], uid)]
    if blocking and FOREGROUND not in (record.obj["metadata"].get("finalizers") or ()):
        new = copied(record.obj)
        new["metadata"].setdefault("finalizers", []).append(FOREGROUND)
        store.commit(resource, record, new)
    for inner, obj in store.owned(uid):
        # A dependent that others own too only loses this owner.
        metadata = obj["metadata"]
        if store.find(inner, metadata["name"], metadata.get("namespace")) is not None:
            _collect(store, inner, obj, uid, "Foreground")


def cascade(store: Store, gone: Object) -> None:
    """After an object ended: its dependents, and owners that only waited for it."""
    uid = gone["metadata"].get("uid", "")
    for inner, obj in store.owned(uid):
        metadata = obj["metadata"]
        if store.find(inner, metadata["name"], metadata.get("namespace")) is not None:
            _collect(store, inner, obj, uid, "Background")
    for owner in gone["metadata"].get("ownerReferences") or ():
        _release(store, owner, gone["metadata"].get("namespace"))


def _collect(store: Store, resource: Resource, obj: Object, uid: str, propagation: str) -> None:
    metadata = obj["metadata"]
    others = [o for o in metadata.get("ownerReferences") or () if o.get("uid") != uid]
    if others:
        _disown(store, resource, obj, uid)
        return
    store.delete(resource, metadata["name"], metadata.get("namespace"), propagation=propagation)


def _disown(store: Store, resource: Resource, obj: Object, uid: str) -> None:
    def change(new: Object) -> None:
        owners = [o for o in new["metadata"].get("ownerReferences") or () if o.get("uid") != uid]
        new["metadata"]["ownerReferences"] = owners
        if not owners:
            del new["metadata"]["ownerReferences"]

    store.modify(resource, obj["metadata"]["name"], obj["metadata"].get("namespace"), change)


def _blocks(obj: Object, uid: str) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(o.get("uid") == uid and o.get("blockOwnerDeletion") for o in owners)


def _release(store: Store, owner: Object, namespace: str | None) -> None:
    resource = BY_KIND.get((owner.get("apiVersion", ""), owner.get("kind", "")))
    if resource is None:
        return
    found = store.find(resource, owner.get("name", ""), namespace if resource.namespaced else None)
    if found is None or found["metadata"].get("uid") != owner.get("uid"):
        return
    if FOREGROUND not in (found["metadata"].get("finalizers") or ()):
        return
    if any(_blocks(obj, owner["uid"]) for _, obj in store.owned(owner["uid"])):
        return

    def change(new: Object) -> None:
        new["metadata"]["finalizers"] = [f for f in new["metadata"]["finalizers"] if f != FOREGROUND]
        if not new["metadata"]["finalizers"]:
            del new["metadata"]["finalizers"]

    store.modify(resource, found["metadata"]["name"], found["metadata"].get("namespace"), change)
