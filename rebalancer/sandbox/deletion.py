"""How objects end: grace periods, finalizers, preconditions, namespaces, and what they owned.

Dependents are collected at once, in the same call as their owner's end. An owner that never was in the store
collects nobody: a snapshot may come without its owners. The lock is held throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rebalancer.sandbox.objects import Object, copied, seconds_of, stamp
from rebalancer.sandbox.resources import BY_KIND, NAMESPACES, RESOURCES, Resource, conflict
from rebalancer.sandbox.storage import Record, Storage

FOREGROUND = "foregroundDeletion"
_CONTENT = tuple({r.storage: r for r in RESOURCES if r.namespaced and "list" in r.verbs}.values())


class Deletion(NamedTuple):
    """DeleteOptions: `grace` seconds or None, preconditions, propagation policy."""

    grace: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str = ""
    dry_run: bool = False


def check_preconditions(resource: Resource, obj: Object, wanted: Deletion) -> None:
    metadata = obj["metadata"]
    name, uid, version = metadata["name"], metadata.get("uid"), metadata.get("resourceVersion")
    if wanted.uid and wanted.uid != uid:
        why = (
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource, name, why, by_kind=True)
    if wanted.resource_version and wanted.resource_version != version:
        why = (
            f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match the "
            f"ResourceVersion in record ({version}). The object might have been modified"
        )
        raise conflict(resource, name, why, by_kind=True)


def delete(store: Storage, resource: Resource, record: Record, wanted: Deletion) -> tuple[Object, bool]:
    """(the object as it is then, whether it is gone). The lock is held."""
    check_preconditions(resource, record.obj, wanted)
    if wanted.dry_run:
        return record.obj, resource.kind != "Pod"
    if wanted.propagation in ("Foreground", "Orphan"):
        _before(store, resource, record, wanted.propagation)
        record = store.record(
            resource, record.obj["metadata"]["name"], record.obj["metadata"].get("namespace")
        )
    if resource.kind == "Pod":
        return _delete_pod(store, resource, record, wanted)
    if resource is NAMESPACES:
        return _delete_namespace(store, record)
    metadata = record.obj["metadata"]
    if metadata.get("finalizers"):
        if "deletionTimestamp" not in metadata:
            return store.commit(resource, record, _terminating(store, resource, record.obj, 0)), False
        return record.obj, False
    return _end(store, resource, record, copied(record.obj)), True


def _terminating(store: Storage, resource: Resource, obj: Object, grace: int) -> Object:
    new = copied(obj)
    metadata = new["metadata"]
    metadata["deletionTimestamp"] = stamp(store.clock() + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    if resource.generation:
        metadata["generation"] = int(metadata.get("generation", 0)) + 1
    return new  # type: ignore[no-any-return]


def _delete_pod(store: Storage, resource: Resource, record: Record, wanted: Deletion) -> tuple[Object, bool]:
    """A bound, living pod stays for its grace period: its kubelet ends it by deleting it with grace 0."""
    pod = record.obj
    spec, phase = pod.get("spec") or {}, (pod.get("status") or {}).get("phase")
    grace = wanted.grace
    if grace is None:
        grace = int(spec.get("terminationGracePeriodSeconds", 30))
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        grace = 0
    grace = max(grace, 0) if grace >= 0 else 1
    old = pod["metadata"].get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in pod["metadata"]:
        new = _terminating(store, resource, pod, grace)
    elif old is not None and (wanted.grace is None or grace >= old) and grace != 0:
        return pod, False  # a grace period may only be shortened
    else:
        new = copied(pod)
        end = seconds_of(pod["metadata"]["deletionTimestamp"]) - (old or 0) + grace
        new["metadata"]["deletionTimestamp"] = stamp(end)
        new["metadata"]["deletionGracePeriodSeconds"] = grace
    if new != pod:
        pod = store.commit(resource, record, new)
    if grace == 0 and not pod["metadata"].get("finalizers"):
        current = store.record(resource, pod["metadata"]["name"], pod["metadata"].get("namespace"))
        return _end(store, resource, current, copied(pod)), True
    return pod, False


def put(store: Storage, resource: Resource, record: Record, new: Object) -> Object:
    """Store a changed object. One that is terminating ends as soon as nothing holds it. The object."""
    metadata = new["metadata"]
    if "deletionTimestamp" in metadata and not metadata.get("finalizers") and _may_end(resource, new):
        _end(store, resource, record, new)
        return new
    return store.commit(resource, record, new)


def _may_end(resource: Resource, obj: Object) -> bool:
    """Whether a terminating object without finalizers is to go now: a pod only after its grace."""
    if resource is NAMESPACES:
        return False
    return resource.kind != "Pod" or not obj["metadata"].get("deletionGracePeriodSeconds")


def _end(store: Storage, resource: Resource, record: Record, last: Object) -> Object:
    """Take it out with `last` as its last state. Its dependents follow, and the namespace that waited."""
    gone = store.remove(resource, record, last)
    _cascade(store, gone)
    if resource.namespaced:
        _end_namespace(store, gone["metadata"]["namespace"])
    return gone


def _delete_namespace(store: Storage, record: Record) -> tuple[Object, bool]:
    space = _terminating(store, NAMESPACES, record.obj, 0)
    space["metadata"].pop("deletionGracePeriodSeconds")
    space["status"] = {**(space.get("status") or {}), "phase": "Terminating"}
    name = space["metadata"]["name"]
    result = store.commit(NAMESPACES, record, space)
    for resource in _CONTENT:
        for inner in list(store.collection(resource).scan(name)):
            if inner.key in store.collection(resource).records:  # not gone with its owner meanwhile
                current = store.collection(resource).records[inner.key]
                delete(store, resource, current, Deletion(propagation="Background"))
    _end_namespace(store, name)
    return result, False


def _end_namespace(store: Storage, name: str) -> None:
    """Take a terminating namespace away once it is empty."""
    record = store.collection(NAMESPACES).records.get(name)
    if record is None or (record.obj.get("status") or {}).get("phase") != "Terminating":
        return
    if any(next(store.collection(resource).scan(name), None) for resource in _CONTENT):
        return
    _end(store, NAMESPACES, record, copied(record.obj))


def _before(store: Storage, resource: Resource, record: Record, propagation: str) -> None:
    """Foreground: hold the owner until its dependents are gone. Orphan: let the dependents go."""
    uid = record.obj["metadata"].get("uid", "")
    if propagation == "Orphan":
        for inner, obj in store.owned(uid):
            disown(store, inner, obj, uid)
        return
    blocking = [pair for pair in store.owned(uid) if _blocks(pair[1], uid)]
    if blocking and FOREGROUND not in (record.obj["metadata"].get("finalizers") or ()):
        new = copied(record.obj)
        new["metadata"].setdefault("finalizers", []).append(FOREGROUND)
        store.commit(resource, record, new)
    _collect_all(store, uid, "Foreground")


def _cascade(store: Storage, gone: Object) -> None:
    """After an object ended: its dependents, and owners that only waited for it."""
    uid = gone["metadata"].get("uid", "")
    _collect_all(store, uid, "Background")
    for owner in gone["metadata"].get("ownerReferences") or ():
        _release(store, owner, gone["metadata"].get("namespace"))


def _collect_all(store: Storage, uid: str, propagation: str) -> None:
    """The dependents that are still there."""
    for inner, obj in store.owned(uid):
        metadata = obj["metadata"]
        if store.find(inner, metadata["name"], metadata.get("namespace")) is not None:
            _collect(store, inner, obj, uid, propagation)


def _collect(store: Storage, resource: Resource, obj: Object, uid: str, propagation: str) -> None:
    metadata = obj["metadata"]
    others = [o for o in metadata.get("ownerReferences") or () if o.get("uid") != uid]
    if others:
        disown(store, resource, obj, uid)
        return
    record = store.record(resource, metadata["name"], metadata.get("namespace"))
    delete(store, resource, record, Deletion(propagation=propagation))


def disown(store: Storage, resource: Resource, obj: Object, uid: str) -> None:
    """Take the reference to the owner of that uid away. The lock is held."""
    record = store.record(resource, obj["metadata"]["name"], obj["metadata"].get("namespace"))
    new = copied(record.obj)
    _keep(new["metadata"], "ownerReferences", lambda owner: owner.get("uid") != uid)
    put(store, resource, record, new)


def _keep(metadata: Object, field: str, wanted: Callable[[Any], bool]) -> None:
    """Narrow a list in place; an empty one goes."""
    metadata[field] = [item for item in metadata.get(field) or () if wanted(item)]
    if not metadata[field]:
        del metadata[field]


def _blocks(obj: Object, uid: str) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(o.get("uid") == uid and o.get("blockOwnerDeletion") for o in owners)


def _release(store: Storage, owner: Object, namespace: str | None) -> None:
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
    record = store.record(resource, found["metadata"]["name"], found["metadata"].get("namespace"))
    new = copied(record.obj)
    _keep(new["metadata"], "finalizers", lambda finalizer: finalizer != FOREGROUND)
    put(store, resource, record, new)
