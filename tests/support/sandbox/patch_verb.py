"""PATCH: what kubectl's apply, label, annotate and cordon send."""

from __future__ import annotations

import json
from typing import Any

import yaml

from rebalancer.sandbox import handlers
from rebalancer.sandbox.handlers import MERGE, Answer, Call, media, stored, unsupported
from rebalancer.sandbox.objects import Object
from rebalancer.sandbox.registry import Store
from rebalancer.sandbox.resources import bad_request, resolve
from rebalancer.sandbox.storage import Kind
from tests.support.sandbox.patch import APPLY, JSON, STRATEGIC, apply
from tests.support.sandbox.strict import check_new, check_place, validate


def patch(call: Call) -> Answer:
    """PATCH of an object or of its status. Raises ApiError."""
    kind = media(call.content_type)
    if kind not in (JSON, MERGE, STRATEGIC, APPLY):
        raise unsupported((JSON, MERGE, STRATEGIC, APPLY))
    try:
        change = yaml.safe_load(call.body) if kind == APPLY else json.loads(call.body)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"error decoding patch: {error}") from None
    store, resource, sub = call.store, call.resource, call.target.subresource
    with store.lock:
        if kind == APPLY and store.find(resource, call.name, call.namespace) is None:
            check_place(change, call.name, call.namespace or "")
            check_new(change, resource)
            made = store.create(change, namespace=call.namespace, resource=resource, dry_run=call.dry_run)
            return stored(call, 201, made)
        obj = patched(
            store, resource, call.name, call.namespace, change, kind,
            subresource=sub, dry_run=call.dry_run, manager=call.query.get("fieldManager", ""),
        )  # fmt: skip
    return stored(call, 200, obj)


def patched(
    store: Store,
    kind: Kind,
    name: str,
    namespace: str | None,
    change: Any,
    content_type: str,
    *,
    subresource: str = "",
    dry_run: bool = False,
    manager: str = "",
) -> Object:
    """Apply a patch of that media type; the stored object. Raises ApiError."""
    resource = resolve(kind)

    def changed(before: Object) -> Any:
        after = apply(content_type, before, change)
        if not subresource and isinstance(after, dict) and "metadata" in after:
            validate(after, resource)
        return after

    return handlers.patched(
        store, resource, name, namespace, changed,
        subresource=subresource, dry_run=dry_run, manager=manager,
    )  # fmt: skip
