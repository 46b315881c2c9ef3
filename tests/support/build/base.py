"""What all builders share: metadata, short label keys, flattening."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, Self
from uuid import NAMESPACE_OID, uuid5

from tests.support.scheduler.plain import HOSTNAME, REGION, ZONE, Json

CREATED = "2026-01-01T00:00:00Z"
KEYS = {"zone": ZONE, "hostname": HOSTNAME, "region": REGION, "rack": "topology.example/rack"}


def uid_of(kind: str, namespace: str, name: str) -> str:
    """The uid of a built object: the same for the same name."""
    return str(uuid5(NAMESPACE_OID, f"{kind}/{namespace}/{name}"))


def metadata(kind: str, namespace: str, name: str) -> Json:
    """Metadata of a live object."""
    meta = {
        "name": name,
        "uid": uid_of(kind, namespace, name),
        "creationTimestamp": CREATED,
        "resourceVersion": "1",
    }
    return {**meta, "namespace": namespace} if namespace else meta


def reference(api_version: str, kind: str, namespace: str, name: str) -> Json:
    """An owner reference to a built controller."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid_of(kind, namespace, name),
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Builder:
    """One API object in the making."""

    def __init__(self, api_version: str, kind: str, name: str, *, namespace: str = "default") -> None:
        self.object: Json = {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": metadata(kind, namespace, name),
        }

    def annotated(self, annotations: Mapping[str, str]) -> Self:
        """With annotations."""
        self.object["metadata"].setdefault("annotations", {}).update(annotations)
        return self

    def build(self) -> list[Json]:
        """The object, and those that come with it."""
        return [deepcopy(self.object)]


def flatten(things: Any) -> list[Json]:
    """API objects out of builders, dicts and nested lists."""
    if isinstance(things, Builder):
        return things.build()
    if isinstance(things, Mapping):
        return [dict(things)]
    if isinstance(things, Iterable):
        return [o for thing in things for o in flatten(thing)]
    raise TypeError(f"no builder, dict or list: {things!r}")
