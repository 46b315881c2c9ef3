"""What several controllers know of pods and their owners."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rebalancer.sandbox.api.objects import Object, condition, copied, is_ready, seconds_of
from rebalancer.sandbox.api.resources import PODS, of_object
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.storage.history import Event

HASH = "pod-template-hash"
# As Kubernetes encodes hashes: no vowels.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def split(key: str) -> tuple[str, str]:
    """namespace/name → (namespace, name)."""
    namespace, _, name = key.partition("/")
    return namespace, name


def key_of(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def controller_of(obj: Object) -> dict[str, Any] | None:
    """The ownerReference of the controller, if any."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def owner_keys(event: Event, kind: str) -> list[str]:
    """Keys of the controllers of that kind that an object had before or has after a change."""
    found: dict[str, None] = {}
    for record in (event.record, event.old):
        owner = controller_of(record.obj) if record is not None else None
        if owner is not None and owner.get("kind") == kind:
            found[f"{event.obj['metadata']['namespace']}/{owner['name']}"] = None
    return list(found)


def owned_pods(store: Store, owner: Object) -> list[Object]:
    """Pods that the owner controls, in order of their names."""
    uid = owner["metadata"]["uid"]
    return [
        obj
        for resource, obj in store.owned(uid)
        if resource is PODS and (controller_of(obj) or {}).get("uid") == uid
    ]


def terminating(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def active(pod: Object) -> bool:
    """Counts as a replica."""
    return not finished(pod) and not terminating(pod)


def available(pod: Object, min_ready_seconds: int, now: float) -> bool:
    """Ready, and for long enough."""
    if not is_ready(pod):
        return False
    since = (condition(pod, "Ready") or {}).get("lastTransitionTime")
    return not min_ready_seconds or seconds_of(since) + min_ready_seconds <= now


def replicas_of(obj: Object) -> int:
    wanted = (obj.get("spec") or {}).get("replicas")
    return 1 if wanted is None else int(wanted)


def reference(owner: Object) -> dict[str, Any]:
    """The ownerReference that makes `owner` the controller."""
    resource = of_object(owner)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_of(owner: Object, template: Mapping[str, Any], **metadata: Any) -> Object:
    """A new pod of the owner's template; `metadata` has its name or generateName."""
    wanted = copied(dict(template))
    given = wanted.get("metadata") or {}
    kept = {k: given[k] for k in ("labels", "annotations", "finalizers") if given.get(k)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **kept,
            **metadata,
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": [reference(owner)],
        },
        "spec": wanted.get("spec") or {},
    }


def hash_of(value: Any) -> str:
    """Ten characters that stand for a JSON value."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:10])


def scaled(value: int | str | None, total: int, *, up: bool) -> int:
    """A number, or a percentage of `total` rounded up or down, as intstr.GetScaledValueFromIntOrPercent."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        return int(value)
    product = int(value[:-1]) * total
    return -(-product // 100) if up else product // 100
