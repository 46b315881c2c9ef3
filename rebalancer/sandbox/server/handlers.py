"""What answers each verb on a resource: from a parsed request to a code and a body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rebalancer.sandbox.api.errors import (
    ApiError,
    bad_request,
    invalid,
    method_not_allowed,
    success,
    unknown_path,
)
from rebalancer.sandbox.api.objects import Object, wrong
from rebalancer.sandbox.api.resources import Resource
from rebalancer.sandbox.registry import binding, eviction, scale
from rebalancer.sandbox.registry.deletion import Deletion
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.server import listing
from rebalancer.sandbox.server.bodies import check_kind, check_place, decoded
from rebalancer.sandbox.server.forms import Form, encode
from rebalancer.sandbox.server.listing import Page
from rebalancer.sandbox.server.requests import RequestPath
from rebalancer.sandbox.server.watch import Bell, stream
from rebalancer.sandbox.storage.history import Record

# Kinds whose deletion answers with the object, where others answer with a Status.
_RETURNED = frozenset(
    {
        "Pod",
        "PodTemplate",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "ResourceQuota",
        "ServiceAccount",
        "Service",
    }
)
# AllowCreateOnUpdate of their strategies.
_PUT_CREATES = frozenset({"Event"})
# Not AllowUnconditionalUpdate: a PUT must say which version it replaces.
_CONDITIONAL = frozenset({"Lease"})
Answer = tuple[int, bytes]


@dataclass(slots=True)
class Call:
    """One request on a resource that is served."""

    store: Store
    resource: Resource
    target: RequestPath
    query: Mapping[str, str]
    form: Form
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def namespace(self) -> str | None:
        return self.target.namespace or None if self.resource.namespaced else None

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def dry_run(self) -> bool:
        value = self.query.get("dryRun", "")
        if value not in ("", "All"):
            raise bad_request(f'invalid dryRun "{value}": supported values: "All"')
        return value == "All"

    def options(self) -> listing.Options:
        return listing.parse(self.query, self.resource)

    def is_ahead(self) -> bool:
        return listing.too_new(self.store, self.options())

    def decoded(self, kind: str = "") -> Object:
        return decoded(self.body, self.content_type, kind or self.resource.kind)


Handler = Callable[[Call], Answer]


def watch(
    call: Call, bell: Bell | None, *, bookmark_every: float, progress_notify: bool
) -> AsyncIterator[bytes]:
    if "watch" not in call.resource.verbs or bell is None:
        raise method_not_allowed(call.resource, "")
    options = call.options()
    return stream(
        call.store,
        bell,
        call.resource,
        call.namespace,
        options,
        call.form,
        bookmark_every=bookmark_every,
        progress_notify=progress_notify,
    )


def _list(call: Call) -> Answer:
    return 200, call.form.page(listing.page(call.store, call.resource, call.namespace, call.options()))


def _get(call: Call) -> Answer:
    record = call.store.record(call.resource, call.name, call.namespace)
    if call.target.subresource == "scale":
        return 200, encode(scale.scale_of(record.obj))
    return 200, call.form.one(record)


def stored(call: Call, code: int, obj: Object) -> Answer:
    """Answer with an object that was just written (or, dry, would have been)."""
    return code, call.form.one(Record("", obj, 0))


def _create(call: Call) -> Answer:
    match call.target.subresource:
        case "eviction":
            body = call.decoded("Eviction")
            if body.get("kind", "Eviction") != "Eviction":
                raise bad_request(f"not a Eviction object: {body.get('kind')}")
            status = eviction.evict(call.store, call.target.namespace, call.name, body, dry_run=call.dry_run)
            return 201, encode(status)
        case "binding":
            body = call.decoded("Binding")
            node = (body.get("target") or {}).get("name", "")
            binding.bind(call.store, call.target.namespace, call.name, node, dry_run=call.dry_run)
            return 201, encode(success(201))
    obj = call.decoded()
    check_kind(obj, call.resource)
    check_place(obj, "", call.namespace or "")
    made = call.store.create(obj, namespace=call.namespace, resource=call.resource, dry_run=call.dry_run)
    return stored(call, 201, made)


def _update(call: Call) -> Answer:
    if call.target.subresource == "scale":
        body = call.decoded("Scale")
        check_place(body, call.name, call.namespace or "")
        return 200, encode(scale.set_scale(call.store, call.resource, body, dry_run=call.dry_run))
    obj = call.decoded()
    check_kind(obj, call.resource)
    check_place(obj, call.name, call.namespace or "")
    if call.resource.kind in _CONDITIONAL and not obj["metadata"].get("resourceVersion"):
        call.store.record(call.resource, call.name, call.namespace)
        cause = wrong("metadata.resourceVersion", "0", "must be specified for an update")
        raise invalid(call.resource.plural, call.resource.group, call.name, [cause])
    if call.resource.kind in _PUT_CREATES and not call.target.subresource:
        with call.store.lock:
            if call.store.find(call.resource, call.name, call.namespace) is None:
                obj["metadata"].pop("resourceVersion", None)
                made = call.store.create(
                    obj, namespace=call.namespace, resource=call.resource, dry_run=call.dry_run
                )
                return stored(call, 201, made)
    sub = call.target.subresource
    return stored(
        call, 200, call.store.update(obj, subresource=sub, resource=call.resource, dry_run=call.dry_run)
    )


def _deletion(call: Call) -> Deletion:
    options: dict[str, Any] = {}
    if call.body.strip():
        options = call.decoded("DeleteOptions")
    for name in ("gracePeriodSeconds", "propagationPolicy", "orphanDependents"):
        if (text := call.query.get(name)) is not None and name not in options:
            options[name] = int(text) if text.isdigit() else text if name[0] == "p" else text == "true"
    return eviction.deletion(options, dry_run=call.dry_run)


def _delete(call: Call) -> Answer:
    wanted, resource = _deletion(call), call.resource
    obj, gone = call.store.delete(
        resource,
        call.name,
        call.namespace,
        grace=wanted.grace,
        uid=wanted.uid,
        resource_version=wanted.resource_version,
        propagation=wanted.propagation,
        dry_run=wanted.dry_run,
    )
    if not gone or resource.kind in _RETURNED:
        return stored(call, 200, obj)
    details: dict[str, Any] = {"name": call.name}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "uid": obj["metadata"].get("uid", "")}
    return 200, encode(success(details=details))


def _delete_collection(call: Call) -> Answer:
    wanted = _deletion(call)
    with call.store.lock:
        page = listing.page(call.store, call.resource, call.namespace, call.options())
        for record in page.records:
            metadata = record.obj["metadata"]
            try:
                call.store.delete(
                    call.resource,
                    metadata["name"],
                    metadata.get("namespace"),
                    grace=wanted.grace,
                    propagation=wanted.propagation,
                    dry_run=wanted.dry_run,
                )
            except ApiError as error:
                if error.code != 404:  # gone with its owner
                    raise
    return 200, call.form.page(Page(page.records, page.metadata))


VERBS: Mapping[str, Handler] = {
    "get": _get,
    "list": _list,
    "create": _create,
    "update": _update,
    "delete": _delete,
    "deletecollection": _delete_collection,
}
"""What answers to each of the authorizer's verbs; a watch is a stream, and no answer."""


def handle(call: Call, verbs: Mapping[str, Handler] = VERBS) -> Answer:
    """The answer to one request. Raises ApiError for all refusals."""
    target, resource = call.target, call.resource
    sub = resource.sub(target.subresource) if target.subresource else None
    if target.subresource and sub is None:
        raise unknown_path()
    allowed = sub.verbs if sub else resource.verbs
    misplaced = target.verb in ("create", "update", "patch") and resource.namespaced and not target.namespace
    handler = verbs.get(target.verb) if target.verb in allowed else None
    if handler is None or misplaced or (target.verb == "create" and target.name and not sub):
        raise method_not_allowed(resource, "")
    return handler(call)
