"""Metadata of Kubernetes objects."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class OwnerReference(Struct, frozen=True, rename="camel"):
    """A reference to an owner; at most one of an object's owners is its controller."""

    kind: str
    name: str
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Struct, frozen=True, rename="camel", eq=False):
    """Object metadata, as far as the tool reads it. Cluster-scoped objects have no namespace."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object, if any."""
        return next((o for o in self.owner_references if o.controller), None)
