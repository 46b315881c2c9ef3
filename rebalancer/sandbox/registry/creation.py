"""What a new object is before it is stored: named, admitted, defaulted, validated."""

from __future__ import annotations

import random

from rebalancer.admission.pod import NotAdmittedError, admit_pod
from rebalancer.sandbox.api import events
from rebalancer.sandbox.api.errors import ApiError, already_exists, forbidden, invalid, not_found
from rebalancer.sandbox.api.objects import Object, copied, key_of, new_uid, suffix
from rebalancer.sandbox.api.resources import EVENTS, NAMESPACES, NODES, PRIORITY_CLASSES, Resource
from rebalancer.sandbox.registry import defaults, validation
from rebalancer.sandbox.storage.storage import Storage

_NOT_THE_CLIENTS = (
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
    "generation",
)
_LONGEST_PREFIX = 58  # of generateName: with five characters more it is still a label


def prepared(
    store: Storage, resource: Resource, obj: Object, namespace: str | None, rng: random.Random
) -> tuple[str, Object]:
    """(its key, the object to store); `obj` is the caller's to give away. The lock is held."""
    metadata = obj.setdefault("metadata", {})
    if resource.namespaced:
        metadata["namespace"] = namespace = namespace or metadata.get("namespace") or "default"
    else:
        namespace = None
        metadata.pop("namespace", None)
    generate = metadata.get("generateName", "")
    if generate and not metadata.get("name"):
        metadata["name"] = generate[:_LONGEST_PREFIX] + suffix(rng)
    name = metadata.get("name", "")
    validation.check_name(resource, name, generate)
    if metadata.get("resourceVersion"):
        why = "resourceVersion should not be set on objects to be created"
        details = {"causes": [{"message": why}]}
        raise ApiError(500, "InternalError", f"Internal error occurred: {why}", details)
    if namespace:
        _check_namespace(store, resource, name, namespace)
    key = key_of(namespace, name)
    if key in store.collection(resource).records:
        raise already_exists(resource, name)
    for field in _NOT_THE_CLIENTS:
        metadata.pop(field, None)
    metadata |= {"uid": new_uid(rng), "creationTimestamp": store.now()}
    if resource.generation:
        metadata["generation"] = 1
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    return key, _admitted(store, resource, obj)


def _check_namespace(store: Storage, resource: Resource, name: str, namespace: str) -> None:
    space = store.find(NAMESPACES, namespace)
    if space is None:
        raise not_found(NAMESPACES, namespace)
    if (space.get("status") or {}).get("phase") == "Terminating":
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise forbidden(resource, name, why)


def _admitted(store: Storage, resource: Resource, obj: Object) -> Object:
    if resource.storage == EVENTS.storage:
        obj = events.to_core(obj)
        causes = events.problems(obj, obj["metadata"]["namespace"], new_api=bool(resource.group))
        if causes:
            raise invalid("Event", "", obj["metadata"]["name"], causes)
        return obj
    if resource.kind == "Pod":
        obj.setdefault("spec", {})
        validation.validate(obj, resource)
        classes = {found["metadata"]["name"]: found for found in store.list(PRIORITY_CLASSES)}
        node = store.find(NODES, obj["spec"].get("nodeName", ""))
        try:
            admit_pod(obj, classes, node)
        except NotAdmittedError as error:
            raise forbidden(resource, obj["metadata"].get("name", ""), str(error)) from None
        return obj
    defaults.default(obj)
    validation.validate(obj, resource)
    # A node or a volume may be made with its status; a workload's is the controllers' to tell.
    if resource.has_status and resource.generation and resource.kind != "PodDisruptionBudget":
        obj["status"] = copied(resource.zero.get("status", {}))
    return obj
