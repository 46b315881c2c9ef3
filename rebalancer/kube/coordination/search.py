"""Finds brakes, ledgers and leases of a cluster, in whatever namespace they are, and who was let in.

Whoever may write in some namespace can make objects that look like these. A ClusterRoleBinding is an
administrator's: it says in which namespaces the tool was installed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import msgspec
from msgspec import Struct

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import DEFAULT_BACKOFF, Backoff, Wait, retry
from rebalancer.kube.coordination.lease import LEASES, LeaseSpec
from rebalancer.kube.coordination.ledger import CONFIG_MAPS
from rebalancer.kube.coordination.place import NAME, OURS, Component, Place, selector_of
from rebalancer.kube.errors import NotFoundError, ResponseError, Target
from rebalancer.kube.resources import Resource

T = TypeVar("T")
_TIMEOUT = 15.0
_LONG_AGO = 600.0
"""Seconds since its last renewal after which nobody holds a lease: its holder has ended without a word."""
_BINDINGS = Resource(
    "ClusterRoleBinding", "rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False
)
_ROLES = ("-read", "-evict")
"""How the names of the roles end that every installation has."""


class Found(Struct, frozen=True):
    """An object as it was found. `holder`: of a lease, who renewed it not long ago; "" = nobody."""

    place: Place
    version: str
    annotations: dict[str, str] = {}
    holder: str = ""


class _Meta(Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Item(Struct, frozen=True):
    metadata: _Meta
    spec: LeaseSpec | None = None


class _List(Struct, frozen=True):
    items: list[_Item] = []


class _Role(Struct, frozen=True):
    name: str = ""


class _Subject(Struct, frozen=True):
    kind: str = ""
    namespace: str = ""


class _Binding(Struct, frozen=True, rename="camel"):
    role_ref: _Role = _Role()
    subjects: list[_Subject] | None = None


class _Bindings(Struct, frozen=True):
    items: list[_Binding] = []


def find(
    connection: Connection,
    component: Component,
    name: str,
    namespace: str = "",
    *,
    wait: Wait,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> list[Found]:
    """Each that has the labels, or this name: kubectl sets no labels, and some tools remove them.

    `namespace`: look there only. Raises KubeError: ForbiddenError if they may not be listed.
    """
    resource = LEASES if component == "lease" else CONFIG_MAPS
    found = {
        item.place: item
        for query in ({"labelSelector": selector_of(component)}, {"fieldSelector": f"metadata.name={name}"})
        for item in _list(connection, resource, namespace, query, wait, backoff)
    }
    return [found[place] for place in sorted(found, key=str)]


def find_one(
    connection: Connection,
    component: Component,
    place: Place,
    *,
    wait: Wait,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> Found | None:
    """The one at this place; None if there is none. Raises KubeError."""
    resource = LEASES if component == "lease" else CONFIG_MAPS
    target = Target("get", resource, place.namespace, place.name)

    def ask() -> Found:
        path = resource.path(place.namespace, place.name)
        answer = connection.request("GET", path, target, read_timeout=_TIMEOUT)
        return _found(_decode(answer.body, _Item, target), _now(answer.headers.get("Date", "")))

    try:
        return retry(ask, wait=wait, backoff=backoff)
    except NotFoundError:
        return None


def granted(connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> frozenset[str]:
    """The namespaces whose service accounts an administrator has given the tool's rights.

    Raises KubeError: ForbiddenError if that may not be read.
    """
    target = Target("list", _BINDINGS)

    def ask() -> _Bindings:
        query = {"labelSelector": f"{NAME}={OURS}"}
        answer = connection.request("GET", _BINDINGS.path(), target, query=query, read_timeout=_TIMEOUT)
        return _decode(answer.body, _Bindings, target)

    bindings = retry(ask, wait=wait, backoff=backoff).items
    subjects = (s for b in bindings if b.role_ref.name.endswith(_ROLES) for s in b.subjects or ())
    return frozenset(s.namespace for s in subjects if s.kind == "ServiceAccount" and s.namespace)


def _list(
    connection: Connection,
    resource: Resource,
    namespace: str,
    query: dict[str, str],
    wait: Wait,
    backoff: Backoff,
) -> Iterable[Found]:
    target = Target("list", resource, namespace)

    def ask() -> list[Found]:
        answer = connection.request(
            "GET", resource.path(namespace), target, query=query, read_timeout=_TIMEOUT
        )
        now = _now(answer.headers.get("Date", ""))
        return [_found(item, now) for item in _decode(answer.body, _List, target).items]

    return retry(ask, wait=wait, backoff=backoff)


def _decode(body: bytes, type_: type[T], target: Target) -> T:
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.DecodeError as e:
        raise ResponseError(f"{target}: cannot be read: {e}", target=target, code=200) from e


def _found(item: _Item, now: float) -> Found:
    meta, spec = item.metadata, item.spec
    holder = spec.holder_identity if spec is not None else ""
    if spec is not None and spec.renew_time:
        try:
            if now - datetime.fromisoformat(spec.renew_time).timestamp() > _LONG_AGO:
                holder = ""
        except ValueError:
            pass
    return Found(Place(meta.namespace, meta.name), meta.resource_version, meta.annotations or {}, holder)


def _now(date: str) -> float:
    """The API server's time, by which every machine that it serves can be judged; else our own."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return time.time()
