"""A cluster's objects as the API server gave them, kept while a snapshot is read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from rebalancer.kube.resources import RESOURCES, Resource

_FAST = 1


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
            group = f"{resource.group}/" if resource.group else ""
            named = {"apiVersion": f"{group}{resource.version}", "kind": kind}
            for page in self._pages.get(kind, ()):
                for item in msgspec.json.decode(zlib.decompress(page)):
                    yield {**named, **item, **named}
