"""A cluster's objects as the API server gave them: kept while a snapshot is read, or passed on undecoded."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rebalancer.bulk_work import bulk_work
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import Wait
from rebalancer.kube.read.snapshot import Keep, server_version, transfer
from rebalancer.kube.read.transfer import Begun, Items, ReadOptions
from rebalancer.kube.resources import RESOURCES, Resource
from rebalancer.model.snapshot import KindRead

_FAST = 1


class Copied(Struct, frozen=True):
    """How the objects were read that `copy` passed on: `began` in seconds of the epoch."""

    began: float
    server_version: str
    reads: tuple[KindRead, ...]
    warnings: tuple[str, ...]

    def objects(self, kind: str) -> int:
        """How many of a kind there were."""
        return sum(r.objects for r in self.reads if r.kind == kind)


def copy(
    connection: Connection, *, now: Callable[[], float], wait: Wait, options: ReadOptions, into: Keep
) -> Copied:
    """Passes every object on as it comes, without looking into it. Raises KubeError."""
    version = server_version(connection, wait=wait, backoff=options.backoff)
    began = now()
    reads: list[KindRead] = []
    warnings: list[str] = []
    with bulk_work():
        for part in transfer(connection, options, version, wait=wait):
            if isinstance(part, Begun):
                into.begin(part.resource)
            elif isinstance(part, Items):
                into.add(part.resource, part.items)
            else:
                reads.append(part.read)
                warnings += (part.warning,) if part.warning else ()
    return Copied(began, version, tuple(reads), tuple(warnings))


class Capture:
    """Holds pages compressed: 150,000 pods are a gigabyte of JSON, and a tenth of that packed."""

    def __init__(self) -> None:
        self._pages: dict[str, list[bytes]] = {}

    def begin(self, resource: Resource) -> None:
        """Forgets what a list that expired had brought."""
        self._pages[resource.kind] = []

    def add(self, resource: Resource, items: Sequence[Raw]) -> None:
        """Keeps a page."""
        page = b"[" + b",".join(bytes(item) for item in items) + b"]"
        self._pages[resource.kind].append(zlib.compress(page, _FAST))

    def objects(self) -> Iterator[dict[str, Any]]:
        """Every object, each with its kind, which the items of a list lack; kind by kind in a fixed order."""
        for kind, resource in RESOURCES.items():
            named = {"apiVersion": resource.api_version, "kind": kind}
            for page in self._pages.get(kind, ()):
                for item in msgspec.json.decode(zlib.decompress(page)):
                    yield {**named, **item, **named}
