"""metadata.managedFields, as far as annotations go: which client has set which one.

Rule: structured-merge-diff as the API server uses it for updates: what a write changes belongs to its manager
from then on; what it removes belongs to nobody.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def tracked(old: Json, new: Json, manager: str) -> list[Json]:
    """The managedFields of the new metadata. `manager`: who writes; "" for somebody who is not told of."""
    before, after = old.get("annotations") or {}, new.get("annotations") or {}
    changed = {f"f:{k}" for k in {*before, *after} if before.get(k) != after.get(k)}
    owned = {
        entry["manager"]: set(entry["fieldsV1"]["f:metadata"]["f:annotations"]) - changed
        for entry in old.get("managedFields") or ()
    }
    if manager:
        there = {field for field in changed if field[2:] in after}
        owned[manager] = owned.get(manager, set()) | there
    return [
        {
            "manager": name,
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {field: {} for field in sorted(fields)}}},
        }
        for name, fields in sorted(owned.items())
        if fields
    ]
