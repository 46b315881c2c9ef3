"""A request's path and verb as the API means them."""

from __future__ import annotations

from typing import NamedTuple

from rebalancer.sandbox.api.resources import BY_PATH, Resource

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
