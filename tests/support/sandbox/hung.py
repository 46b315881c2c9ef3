"""A watch cache that hangs, as seen at API servers: kubernetes #97294, etcd #15402."""

from __future__ import annotations

from rebalancer.sandbox.storage import Collection, Event
from tests.support.sandbox.api_server import ApiServer


class _Hung(Collection):
    """Brings nothing new to watches, and does not know it. Lists and gets are answered as they should be."""

    def since(self, rv: int) -> list[Event]:  # noqa: ARG002
        return []

    def __setattr__(self, name: str, value: object) -> None:
        if name != "progress":
            super().__setattr__(name, value)


def hang(server: ApiServer, kind: str) -> None:
    """From now on watches of this kind are accepted, bring nothing, and are ended in time."""
    server.store.collection(kind).__class__ = _Hung
