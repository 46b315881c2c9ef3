"""The cluster's objects as the API server keeps them: conflicts, admission, defaults, deletion. Thread-safe.

Every method may be called from any thread. What `list`, `get`, `events` and subscribers hand out is
shared with the store and must not be changed: copy first (`objects.copied`), or use `modify`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rebalancer.admission import add_topology_labels
from rebalancer.model.quantity import rfc3339
from rebalancer.sandbox import creation
from rebalancer.sandbox.creation import check_pod_update, defaulted_spec, tracked
from rebalancer.sandbox.objects import (
    Object,
    copied,
    from_object,
    is_ready,
    matches,
    seconds_of,
    set_condition,
    to_core,
)
from rebalancer.sandbox.resources import (
    BY_KIND,
    EVENTS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    RESOURCES,
    ApiError,
    Cause,
    Resource,
    bad_request,
    conflict,
    forbidden,
    modified,
    of_object,
    resolve,
    success,
    too_many_requests,
)
from rebalancer.sandbox.storage import Kind, Record, Storage

# How objects end: grace periods, finalizers, preconditions, namespaces, and what they owned.
#
# Dependents are collected at once, in the same call as their owner's end. An owner that never was in the
# store collects nobody: a snapshot may come without its owners. The lock is held throughout.

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
    metadata["deletionTimestamp"] = rfc3339(store.clock() + grace)
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
        new["metadata"]["deletionTimestamp"] = rfc3339(end)
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


# What an update stores: the fields that clients may set, and those that the server keeps.

# A client's update cannot change these.
_SYSTEM = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "resourceVersion",
)
_NO_SPEC = frozenset({"metadata", "status", "kind", "apiVersion"})


def updated(
    resource: Resource, old: Object, new: Object, subresource: str, manager: str, now: str
) -> tuple[Object, bool]:
    """(what to store, whether it differs). `new` is the caller's to give away; ApiError 422.

    `manager`: the client that writes, for managedFields, at the time `now`.

    Through the main endpoint the status stays, through "status" all else does. The generation counts
    changes of the spec.
    """
    if subresource == "status":
        new = with_status(resource, old, new)
    elif resource.has_status:
        new = {key: value for key, value in new.items() if key != "status"}
        if "status" in old:
            new["status"] = copied(old["status"])
    new["apiVersion"], new["kind"] = old["apiVersion"], old["kind"]
    metadata = new["metadata"]
    metadata.pop("managedFields", None)
    if managed := tracked(old["metadata"], metadata, manager, now):
        metadata["managedFields"] = managed
    for field in _SYSTEM:
        metadata.pop(field, None)
        if field in old["metadata"]:
            metadata[field] = old["metadata"][field]
    if not subresource:
        if resource.kind == "Pod":
            check_pod_update(old, new, resource)
        elif resource.kind != "Namespace":
            # What was loaded came without defaults: that they appear now is no change of its own.
            old, new = defaulted_spec(copied(old)), defaulted_spec(new)
    if new == old:
        return new, False
    if resource.generation and any(old.get(k) != new.get(k) for k in {*old, *new} - _NO_SPEC):
        new["metadata"]["generation"] = int(old["metadata"].get("generation", 0)) + 1
    return new, True


def with_status(resource: Resource, old: Object, new: Object) -> Object:
    """What a write to the status subresource stores: the old object with the new status.

    Pods and nodes also take labels and annotations that way (the kubelet's writes).
    """
    result = copied(old)
    result["metadata"]["resourceVersion"] = (new.get("metadata") or {}).get("resourceVersion")
    if "status" in new:
        result["status"] = new["status"]
    else:
        result.pop("status", None)
    if resource.kind in ("Pod", "Node"):
        for field in ("labels", "annotations"):
            value = (new.get("metadata") or {}).get(field)
            if value:
                result["metadata"][field] = value
            else:
                result["metadata"].pop(field, None)
    return result  # type: ignore[no-any-return]


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
            skipped = creation.load(self, objects, self._rng)
            for collection in self._collections.values():
                collection.compact(self._revision)
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
                new = to_core(new)
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
        new, changed = updated(resource, record.obj, new, subresource, manager, self.now())
        if not changed:
            return record.obj
        return new if dry_run else put(self, resource, record, new)

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
            wanted = Deletion(grace, uid, resource_version, propagation, dry_run)
            return delete(self, resource, record, wanted)


# The binding subresource: a pod gets its node.


def bind(store: Store, namespace: str, name: str, node: str, *, dry_run: bool = False) -> None:
    """What the scheduler does: assign a pod to a node. ApiError 409 where it has one already."""
    with store.lock:
        record = store.record(PODS, name, namespace)
        pod = record.obj
        if not node:
            raise bad_request("must specify the node in target.name")
        if taken := pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{taken}"'
            raise conflict(PODS, name, why, sub="binding")
        if "deletionTimestamp" in pod["metadata"]:
            raise conflict(
                PODS, name, f"pod {name} is being deleted, cannot be assigned to a host", sub="binding"
            )
        if pod["spec"].get("schedulingGates"):
            raise conflict(PODS, name, f"pod {name} has non-empty .spec.schedulingGates", sub="binding")
        new = copied(pod)
        new["spec"]["nodeName"] = node
        add_topology_labels(new, store.find(NODES, node))
        new.setdefault("status", {}).pop("nominatedNodeName", None)
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        for old in new["status"].get("conditions") or ():
            if old.get("type") == "PodScheduled":
                old.pop("reason", None)
                old.pop("message", None)
        set_condition(new, scheduled, store.now())
        if not dry_run:
            store.commit(PODS, record, new)


# The eviction subresource.
#
# It follows pkg/registry/core/pod/storage/eviction.go; everything runs under the store's lock, so
# the conflicts that the server retries cannot happen here.

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_TOO_MANY = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
_MOST_DISRUPTED = 2000


def deletion_options(options: dict[str, Any], *, dry_run: bool = False) -> Deletion:
    """DeleteOptions as read from a body."""
    conditions = options.get("preconditions") or {}
    propagation = options.get("propagationPolicy") or ""
    if options.get("orphanDependents") is not None and not propagation:
        propagation = "Orphan" if options["orphanDependents"] else "Background"
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        raise bad_request(f'invalid propagationPolicy "{propagation}"')
    return Deletion(
        options.get("gracePeriodSeconds"),
        conditions.get("uid"),
        conditions.get("resourceVersion"),
        propagation,
        dry_run or options.get("dryRun") == ["All"],
    )


def evict(store: Store, namespace: str, name: str, eviction: Object, *, dry_run: bool = False) -> Object:
    """The Status to answer with (201); ApiError for what is refused.

    As on the server, the budget is charged *before* the uid precondition is looked at: a wrong uid on a
    guarded pod costs a disruption.
    """
    if (eviction.get("metadata") or {}).get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    wanted = deletion_options(eviction.get("deleteOptions") or {}, dry_run=dry_run)
    with store.lock:
        record = store.record(PODS, name, namespace)
        pod = record.obj
        if not _beyond_budgets(pod):
            budgets = [b for b in store.list(PDBS, namespace) if covers(b, pod)]
            if len(budgets) > 1:
                raise ApiError(500, "", _SEVERAL)
            if budgets and not _unready_may_go(budgets[0], pod):
                _charge(store, budgets[0], name, dry_run=wanted.dry_run)
        check_preconditions(PODS, pod, wanted)
        if wanted.dry_run:
            return success(201)
        marked = copied(pod)
        set_condition(marked, _TARGET, store.now())
        store.commit(PODS, record, marked)
        # The marking itself moved the version on.
        delete(store, PODS, store.record(PODS, name, namespace), wanted._replace(resource_version=None))
        return success(201)


def _beyond_budgets(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def covers(budget: Object, pod: Object) -> bool:
    """Whether the budget's selector means the pod: absent none, empty all."""
    selector = from_object((budget.get("spec") or {}).get("selector"))
    return selector is not None and matches(selector, pod["metadata"].get("labels"))


def _unready_may_go(budget: Object, pod: Object) -> bool:
    """An unready pod is not among the healthy: it goes uncharged if nothing else suffers by it."""
    if is_ready(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = int(status.get("desiredHealthy", 0))
    return int(status.get("currentHealthy", 0)) >= desired > 0


def _charge(store: Store, budget: Object, pod: str, *, dry_run: bool) -> None:
    metadata, status = budget["metadata"], budget.get("status") or {}
    name, allowed = metadata["name"], int(status.get("disruptionsAllowed", 0))
    if int(status.get("observedGeneration", 0)) < int(metadata.get("generation", 0)):
        text = f"The disruption budget {name} is still being processed by the server."
        raise too_many_requests(_REFUSED, Cause("DisruptionBudget", text), retry_after=10)
    if allowed < 0:
        raise forbidden(PDBS, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _MOST_DISRUPTED:
        raise forbidden(PDBS, name, _TOO_MANY)
    if allowed == 0:
        raise too_many_requests(_REFUSED, Cause("DisruptionBudget", _why_exhausted(name, status)))
    if dry_run:
        return

    def charge(new: Object) -> None:
        new["status"]["disruptionsAllowed"] = allowed - 1
        new["status"].setdefault("disruptedPods", {})[pod] = store.now()
        if allowed == 1:
            short = {"type": "DisruptionAllowed", "status": "False",
                     "reason": "InsufficientPods", "message": "",
                     "observedGeneration": status.get("observedGeneration", 0)}  # fmt: skip
            set_condition(new, short, store.now())

    store.modify(PDBS, name, metadata["namespace"], charge, subresource="status")


def _why_exhausted(name: str, status: dict[str, Any]) -> str:
    current, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    failed = [c for c in status.get("conditions") or () if c.get("reason") == "SyncFailed"]
    if current > desired and failed:
        why = failed[0].get("message", "")
        refused = f"The disruption budget {name} does not allow evicting pods currently"
        return f"{refused} because it failed sync: {why}"
    return f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
