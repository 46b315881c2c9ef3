"""Which objects name which owners, so that dependents are found without a search."""

from __future__ import annotations

from rebalancer.sandbox.api.resources import Resource
from rebalancer.sandbox.storage.history import Record


class OwnerIndex:
    """Which objects name a uid among their owners."""

    def __init__(self) -> None:
        self._dependents: dict[str, set[tuple[Resource, str]]] = {}

    def of(self, uid: str) -> list[tuple[Resource, str]]:
        """Resource and key of each dependent, by key."""
        return sorted(self._dependents.get(uid, ()), key=lambda found: found[1])

    def note(self, resource: Resource, new: Record | None, old: Record | None) -> None:
        """A change from `old` to `new`; None for what is not there."""
        before, after = _owners(old), _owners(new)
        if old is not None:
            for uid in before - after:
                found = self._dependents[uid]
                found.discard((resource, old.key))
                if not found:
                    del self._dependents[uid]
        if new is not None:
            for uid in after - before:
                self._dependents.setdefault(uid, set()).add((resource, new.key))


def _owners(record: Record | None) -> set[str]:
    if record is None:
        return set()
    return {owner["uid"] for owner in record.obj["metadata"].get("ownerReferences") or () if "uid" in owner}
