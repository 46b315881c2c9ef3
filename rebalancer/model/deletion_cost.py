"""`controller.kubernetes.io/pod-deletion-cost`: which of its pods a ReplicaSet gives up first.

Rule: kubernetes pkg/apis/core/helper, ``GetDeletionCostFromPodAnnotations``; KEP-2255.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""The pod that costs less goes first."""
MANAGER = "rebalancer-scale-in"
"""The field manager under which this tool writes it. What another one wrote is not ours."""

_NUMBER = re.compile(r"-[0-9]+|0|[1-9][0-9]*")
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1


def cost_of(written: str | None) -> int:
    """What the controller makes of an annotation: 0 where it is absent, or no number of 32 bits."""
    if written is None or not _NUMBER.fullmatch(written):
        return 0
    cost = int(written)
    return cost if _LEAST <= cost <= _MOST else 0


class _Entry(Struct, frozen=True, rename="camel"):
    manager: str = ""
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw(b"{}"))


def written_by_us(managed_fields: bytes | msgspec.Raw) -> bool:
    """Whether this tool alone has set a pod's deletion cost, by its metadata.managedFields (JSON)."""
    field = f'"f:{DELETION_COST}"'.encode()
    if MANAGER.encode() not in bytes(managed_fields):
        return False
    entries = msgspec.json.decode(managed_fields, type=tuple[_Entry, ...])
    return {e.manager for e in entries if field in bytes(e.fields_v1)} == {MANAGER}


def without_own_cost(metadata: dict[str, Any]) -> dict[str, Any]:
    """A pod's metadata without managed fields, and so without the cost that this tool has written: without
    them nobody could tell whose it is."""
    bare = {k: v for k, v in metadata.items() if k != "managedFields"}
    annotations = metadata.get("annotations") or {}
    if DELETION_COST in annotations and written_by_us(msgspec.json.encode(metadata.get("managedFields"))):
        bare["annotations"] = {k: v for k, v in annotations.items() if k != DELETION_COST}
    return bare
