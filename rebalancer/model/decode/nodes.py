"""JSON of a node → `Node`, with what nodes have in common as one object in all of them.

A node lists up to fifty images and half a dozen conditions. They are three quarters of its memory, and most
nodes of a cluster have the same ones.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import force_setattr

from rebalancer.model.node import Condition, ContainerImage, Node

T = TypeVar("T", Condition, ContainerImage)


class NodeDecoder:
    """Decodes nodes. Remembers their images and conditions until `forget`."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Node).decode
        self._shared: dict[Condition | ContainerImage, Condition | ContainerImage] = {}

    @property
    def entries(self) -> int:
        """How many values are remembered."""
        return len(self._shared)

    def forget(self) -> None:
        """Remembers nothing; nodes that are decoded later share among themselves."""
        self._shared.clear()

    def node(self, raw: bytes | Raw) -> Node:
        """A Node from its JSON. Raises msgspec.DecodeError."""
        found = self._decode(raw)
        status = found.status
        # Nobody has seen the node yet.
        force_setattr(status, "images", self._one_each(status.images))
        force_setattr(status, "conditions", self._one_each(status.conditions))
        return found

    def _one_each(self, values: tuple[T, ...]) -> tuple[T, ...]:
        remember = self._shared.setdefault
        return tuple([remember(v, v) for v in values])  # type: ignore[misc]
