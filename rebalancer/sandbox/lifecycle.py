"""How objects end: grace periods, finalizers, preconditions, namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rebalancer.sandbox import owners
from rebalancer.sandbox.errors import conflict
from rebalancer.sandbox.history import Record
from rebalancer.sandbox.objects import Object, copied, seconds_of, stamp
from rebalancer.sandbox.resources import NAMESPACES, RESOURCES, Resource

if TYPE_CHECKING:
    from rebalancer.sandbox.store import Store

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


def delete(store: Store, resource: Resource, record: Record, wanted: Deletion) -> tuple[Object, bool]:
    """(the object as it is then, whether it is gone). The lock is held."""
    check_preconditions(resource, record.obj, wanted)
    if wanted.dry_run:
        return record.obj, resource.kind != "Pod"
    if wanted.propagation in ("Foreground", "Orphan"):
        owners.before_delete(store, resource, record, wanted.propagation)
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
    return store.remove(resource, record, copied(record.obj)), True


def _terminating(store: Store, resource: Resource, obj: Object, grace: int) -> Object:
    new = copied(obj)
    metadata = new["metadata"]
    metadata["deletionTimestamp"] = stamp(store.clock() + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    if resource.generation:
        metadata["generation"] = int(metadata.get("generation", 0)) + 1
    return new  # type: ignore[no-any-return]


def _delete_pod(store: Store, resource: Resource, record: Record, wanted: Deletion) -> tuple[Object, bool]:
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
        return store.remove(resource, current, copied(pod)), True
    return pod, False


def may_end(resource: Resource, obj: Object) -> bool:
    """Whether a terminating object without finalizers is to go now: a pod only after its grace."""
    if resource is NAMESPACES:
        return False
    return resource.kind != "Pod" or not obj["metadata"].get("deletionGracePeriodSeconds")


def end(store: Store, resource: Resource, record: Record, last: Object) -> None:
    store.remove(resource, record, last)


def _delete_namespace(store: Store, record: Record) -> tuple[Object, bool]:
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
    end_namespace(store, name)
    return result, False


def end_namespace(store: Store, name: str) -> None:
    """Take a terminating namespace away once it is empty."""
    record = store.collection(NAMESPACES).records.get(name)
    if record is None or (record.obj.get("status") or {}).get("phase") != "Terminating":
        return
    if any(next(store.collection(resource).scan(name), None) for resource in _CONTENT):
        return
    store.remove(NAMESPACES, record, copied(record.obj))
