"""Loading: objects as they are into a store, before all history."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from rebalancer.bulk_work import bulk_work
from rebalancer.sandbox.api import events
from rebalancer.sandbox.api.objects import Object, copied, key_of, new_uid
from rebalancer.sandbox.api.resources import EVENTS, NAMESPACES, PRIORITY_CLASSES, Resource, of_object
from rebalancer.sandbox.registry.defaults import default
from rebalancer.sandbox.storage.history import Record
from rebalancer.sandbox.storage.storage import Storage

_BORN = ("default", "kube-node-lease", "kube-public", "kube-system")


def load(store: Storage, objects: Iterable[Object], rng: Random) -> list[str]:
    """As `Store.load`; `rng` makes uids. The lock is held."""
    skipped: dict[str, None] = {}
    batches: dict[Resource, list[Record]] = {}
    known = set(store.collection(NAMESPACES).records)
    namespaces = dict.fromkeys(name for name in _BORN if name not in known)
    with bulk_work():
        for obj in _flat(objects):
            try:
                resource = of_object(obj)
            except KeyError:
                skipped[f"{obj.get('apiVersion')}/{obj.get('kind')}"] = None
                continue
            obj = copied(obj)
            metadata = obj.setdefault("metadata", {})
            if resource.namespaced:
                namespaces[metadata.setdefault("namespace", "default")] = None
            elif resource is NAMESPACES:
                known.add(metadata["name"])
            stored = EVENTS if resource.storage == EVENTS.storage else resource
            batches.setdefault(stored, []).append(_adopted(store, resource, obj, rng))
    for name in sorted(set(namespaces) - known):
        space: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        default(space)
        batches.setdefault(NAMESPACES, []).append(_adopted(store, NAMESPACES, space, rng))
    have = {*store.collection(PRIORITY_CLASSES).records}
    have |= {record.key for record in batches.get(PRIORITY_CLASSES, ())}
    for born in _priority_classes():
        if born["metadata"]["name"] not in have:
            batches.setdefault(PRIORITY_CLASSES, []).append(_adopted(store, PRIORITY_CLASSES, born, rng))
    # What has a version first, so that what gets one is newer than all of it.
    for versioned in (True, False):
        for resource, batch in batches.items():
            store.settle(resource, [record for record in batch if bool(record.rv) is versioned])
    return list(skipped)


def _adopted(store: Storage, resource: Resource, obj: Object, rng: Random) -> Record:
    metadata = obj["metadata"]
    metadata.setdefault("uid", new_uid(rng))
    metadata.setdefault("creationTimestamp", store.now())
    observed = (obj.get("status") or {}).get("observedGeneration")
    if resource.generation and observed is not None:
        # Without it, nothing may look as if its controller were behind.
        metadata.setdefault("generation", observed)
    if resource.storage == EVENTS.storage:
        obj = events.to_core(obj)
    version = str(metadata.get("resourceVersion", ""))
    key = key_of(metadata.get("namespace") if resource.namespaced else None, metadata["name"])
    return Record(key, obj, int(version) if version.isdigit() else 0)


def _flat(objects: Iterable[Object]) -> Iterable[Object]:
    for obj in objects:
        items = obj.get("items")
        if isinstance(items, list) and str(obj.get("kind", "")).endswith("List"):
            # Items of a typed list come without their kind.
            kind = {"apiVersion": obj.get("apiVersion"), "kind": str(obj["kind"]).removesuffix("List")}
            yield from _flat(item if "kind" in item else {**kind, **item} for item in items)
        else:
            yield obj


def _priority_classes() -> list[Object]:
    cluster = "but can be moved to another node if necessary."
    rows = (
        (
            "system-cluster-critical",
            2_000_000_000,
            f"Used for system critical pods that must run in the cluster, {cluster}",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    )
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": text,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, value, text in rows
    ]
