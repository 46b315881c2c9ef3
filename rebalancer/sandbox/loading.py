"""Loading: objects as they are into a store, before all history."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rebalancer.sandbox import events
from rebalancer.sandbox.defaults import default
from rebalancer.sandbox.history import Record
from rebalancer.sandbox.objects import Object, copied, key_of, new_uid
from rebalancer.sandbox.resources import EVENTS, NAMESPACES, PRIORITY_CLASSES, Resource, of_object

if TYPE_CHECKING:
    from rebalancer.sandbox.store import Store

_BORN = ("default", "kube-node-lease", "kube-public", "kube-system")


def load(store: Store, objects: Iterable[Object]) -> list[str]:
    """As `Store.load`; the lock is held."""
    skipped: dict[str, None] = {}
    batches: dict[Resource, list[Record]] = {}
    known = set(store.collection(NAMESPACES).records)
    namespaces = dict.fromkeys(name for name in _BORN if name not in known)
    with _no_collector():
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
            batches.setdefault(stored, []).append(_adopted(store, resource, obj))
    for name in sorted(set(namespaces) - known):
        space: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        default(space)
        batches.setdefault(NAMESPACES, []).append(_adopted(store, NAMESPACES, space))
    have = {*store.collection(PRIORITY_CLASSES).records}
    have |= {record.key for record in batches.get(PRIORITY_CLASSES, ())}
    for born in _priority_classes():
        if born["metadata"]["name"] not in have:
            batches.setdefault(PRIORITY_CLASSES, []).append(_adopted(store, PRIORITY_CLASSES, born))
    # What has a version first, so that what gets one is newer than all of it.
    for versioned in (True, False):
        for resource, batch in batches.items():
            store.settle(resource, [record for record in batch if bool(record.rv) is versioned])
    return list(skipped)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Thousands of objects that all stay: Python's cycle collector would double the time for nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _adopted(store: Store, resource: Resource, obj: Object) -> Record:
    metadata = obj["metadata"]
    metadata.setdefault("uid", new_uid(store.rng))
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
