"""What answers each verb on a resource: from a parsed request to a code and a body."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from rebalancer.sandbox import listing, registry
from rebalancer.sandbox.listing import Bell, Form, encode, stream
from rebalancer.sandbox.objects import Object, copied, to_new
from rebalancer.sandbox.registry import Deletion, Store
from rebalancer.sandbox.resources import (
    BY_PATH,
    ApiError,
    Resource,
    bad_request,
    conflict,
    method_not_allowed,
    modified,
    success,
    unknown_path,
)
from rebalancer.sandbox.storage import Record

# Request bodies.


def media(content_type: str) -> str:
    return content_type.split(";")[0].strip() or "application/json"


def unsupported(accepted: tuple[str, ...]) -> ApiError:
    words = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {words}"
    return ApiError(415, "UnsupportedMediaType", message, {})


def decoded(data: bytes, kind: str) -> dict[str, Any]:
    """An object of JSON; ApiError 400 for what is none."""
    with suppress(ValueError):
        body = json.loads(data)
        if isinstance(body, dict):
            return body
    raise bad_request(f"the object provided is unrecognized (must be of type {kind})")


# A request's path and verb as the API means them.

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


class RequestPath(NamedTuple):
    """What a path names. `resource` None: no resource path; `served` None: one that is not in the table."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    served: Resource | None = None


def parse(method: str, path: str, *, watch: bool = False) -> RequestPath:
    """`watch` as the query says."""
    verb = _VERBS.get(method, method.lower())
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestPath(verb)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) >= 2:
        namespace = rest[1]  # as RBAC sees a request for a namespace itself
    plural, name, sub = (*rest, "", "")[:3]
    served = BY_PATH.get((group, version, plural))
    if served is not None and not served.namespaced and plural != "namespaces":
        served = served if not namespace else None
    if not name and verb == "get":
        verb = "watch" if watch else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestPath(verb, group, version, plural, sub, namespace, name, served)


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

    def decoded(self, kind: str = "") -> Object:
        return decoded(self.body, kind or self.resource.kind)


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
    return 200, call.form.one(record)


def stored(call: Call, code: int, obj: Object) -> Answer:
    """Answer with an object that was just written (or, dry, would have been)."""
    return code, call.form.one(Record("", obj, 0))


def _create(call: Call) -> Answer:
    match call.target.subresource:
        case "eviction":
            body = call.decoded("Eviction")
            status = registry.evict(call.store, call.target.namespace, call.name, body, dry_run=call.dry_run)
            return 201, encode(status)
        case "binding":
            body = call.decoded("Binding")
            node = (body.get("target") or {}).get("name", "")
            registry.bind(call.store, call.target.namespace, call.name, node, dry_run=call.dry_run)
            return 201, encode(success(201))
    obj = call.decoded()
    made = call.store.create(obj, namespace=call.namespace, resource=call.resource, dry_run=call.dry_run)
    return stored(call, 201, made)


def _update(call: Call) -> Answer:
    obj, sub = call.decoded(), call.target.subresource
    return stored(
        call, 200, call.store.update(obj, subresource=sub, resource=call.resource, dry_run=call.dry_run)
    )


MERGE = "application/merge-patch+json"


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces. Returns a new value."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def patched(
    store: Store,
    resource: Resource,
    name: str,
    namespace: str | None,
    change: Callable[[Object], Any],
    *,
    subresource: str = "",
    dry_run: bool = False,
    manager: str = "",
) -> Object:
    """The stored object after a change of it. Raises ApiError 409 where the change names another
    resourceVersion or uid."""
    with store.lock:
        before = store.get(resource, name, namespace)
        if resource.group == "events.k8s.io":
            before = to_new(before)
        new = change(copied(before))
        if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
            raise bad_request("the patch leaves no object")
        old_metadata, metadata = before["metadata"], new["metadata"]
        if metadata.get("resourceVersion") != old_metadata.get("resourceVersion"):
            raise modified(resource, name)
        if metadata.get("name") != name:
            raise bad_request(
                f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({name})"
            )
        if metadata.get("uid") != old_metadata.get("uid"):
            wanted, real = metadata.get("uid"), old_metadata.get("uid")
            why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {real}"
            raise conflict(resource, name, why)
        return store.update(new, subresource=subresource, resource=resource, dry_run=dry_run, manager=manager)


def _patch(call: Call) -> Answer:
    """Merge patches alone, which are what releases a pod."""
    if media(call.content_type) != MERGE:
        raise unsupported((MERGE,))
    try:
        change = json.loads(call.body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    sub, manager = call.target.subresource, call.query.get("fieldManager", "")
    after = patched(
        call.store, call.resource, call.name, call.namespace, lambda before: merge(before, change),
        subresource=sub, dry_run=call.dry_run, manager=manager,
    )  # fmt: skip
    return stored(call, 200, after)


def _deletion(call: Call) -> Deletion:
    options: dict[str, Any] = {}
    if call.body.strip():
        options = call.decoded("DeleteOptions")
    for name in ("gracePeriodSeconds", "propagationPolicy", "orphanDependents"):
        if (text := call.query.get(name)) is not None and name not in options:
            options[name] = int(text) if text.isdecimal() else text if name[0] == "p" else text == "true"
    return registry.deletion_options(options, dry_run=call.dry_run)


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


VERBS: Mapping[str, Handler] = {
    "get": _get,
    "list": _list,
    "create": _create,
    "update": _update,
    "patch": _patch,
    "delete": _delete,
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
