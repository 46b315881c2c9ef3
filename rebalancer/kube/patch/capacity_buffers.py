"""PodTemplates and CapacityBuffers, applied on the server's side under a field manager of their own.

By it what was applied here is told from what somebody else made, or changed, with the same labels: only what
is nobody else's is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rebalancer.errors import UserError
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import Backoff
from rebalancer.kube.errors import NotFoundError, Target
from rebalancer.kube.read.pager import pages
from rebalancer.kube.resources import Resource

MANAGER = "rebalancer-room"
_GROUP = "autoscaling.x-k8s.io"
_RESOURCES = {
    "PodTemplate": Resource("PodTemplate", "", "v1", "podtemplates"),
    "CapacityBuffer": Resource("CapacityBuffer", _GROUP, "v1beta1", "capacitybuffers"),
}
_TIMEOUT = 15.0
_ONCE = Backoff(tries=1)


class _ManagedFields(Struct, frozen=True):
    manager: str = ""
    subresource: str = ""


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str
    managed_fields: tuple[_ManagedFields, ...] = ()
    owner_references: tuple[Raw, ...] = ()


class _Object(Struct, frozen=True):
    metadata: _Metadata


class Found(Struct, frozen=True, kw_only=True):
    """A buffer or template in the cluster. `ours`: it was applied here, nobody else has written to it
    but its status, and it has no owner."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    ours: bool

    def __str__(self) -> str:
        """As messages name it."""
        return f"{self.kind}/{self.namespace}/{self.name}"


def apply(connection: Connection, obj: dict[str, Any]) -> None:
    """Makes the cluster have it. Raises KubeError; UserError where the cluster does not know the kind."""
    resource = _RESOURCES[obj["kind"]]
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    try:
        connection.request(
            "PATCH",
            resource.path(namespace, name),
            Target("patch", resource, namespace, name),
            query={"fieldManager": MANAGER},
            body=obj,
            read_timeout=_TIMEOUT,
            content_type="application/apply-patch+yaml",
        )
    except NotFoundError as e:
        if obj["kind"] != "CapacityBuffer":
            raise
        raise UserError(
            f"the cluster has no {_RESOURCES['CapacityBuffer'].plural}.{_GROUP} of version v1beta1",
            "its autoscaler has to offer them; -o capacitybuffer prints what would be created",
        ) from e


def found(connection: Connection, labels: str, namespaces: Collection[str]) -> list[Found]:
    """The buffers with these labels, then the templates, in these namespaces; empty = in all. None where the
    cluster does not know buffers. Raises KubeError."""
    try:
        return [
            o for kind in ("CapacityBuffer", "PodTemplate") for o in _of(connection, kind, labels, namespaces)
        ]
    except NotFoundError:
        return []


def _of(connection: Connection, kind: str, labels: str, namespaces: Collection[str]) -> Iterator[Found]:
    for namespace in namespaces or ("",):
        for page in pages(
            connection,
            _RESOURCES[kind],
            wait=lambda _: True,
            namespace=namespace,
            labels=labels,
            backoff=_ONCE,
            read_timeout=_TIMEOUT,
        ):
            yield from (_found(kind, raw) for raw in page.items or ())


def _found(kind: str, raw: Raw) -> Found:
    meta = msgspec.json.decode(raw, type=_Object).metadata
    writers = {f.manager for f in meta.managed_fields if f.subresource != "status"}
    return Found(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        ours=writers == {MANAGER} and not meta.owner_references,
    )


def remove(connection: Connection, there: Found) -> None:
    """Deletes it, as it was when it was found. Raises KubeError; ConflictError if it has changed since."""
    resource = _RESOURCES[there.kind]
    try:
        connection.request(
            "DELETE",
            resource.path(there.namespace, there.name),
            Target("delete", resource, there.namespace, there.name),
            body={"preconditions": {"uid": there.uid, "resourceVersion": there.version}},
            read_timeout=_TIMEOUT,
        )
    except NotFoundError:
        return
