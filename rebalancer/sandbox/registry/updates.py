"""What an update stores: the fields that clients may set, and those that the server keeps."""

from __future__ import annotations

from rebalancer.sandbox.api.objects import Object, copied
from rebalancer.sandbox.api.resources import EVENTS, Resource
from rebalancer.sandbox.registry.defaults import defaulted_spec
from rebalancer.sandbox.registry.ownership import tracked
from rebalancer.sandbox.registry.validation import check_pod_update, validate

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
    resource: Resource, old: Object, new: Object, subresource: str, manager: str = ""
) -> tuple[Object, bool]:
    """(what to store, whether it differs). `new` is the caller's to give away; ApiError 422.

    `manager`: the client that writes, for managedFields.

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
    if managed := tracked(old["metadata"], metadata, manager):
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
        if resource.storage != EVENTS.storage:
            validate(new, resource)
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
