"""What has happened, and those who notice it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

from msgspec import Struct


class Happening(Struct, frozen=True):
    """Something for which a cycle is worth while: what, in words; `key`: equal for what is the same again.

    `steady`: it is no use to wait longer where the last cycle that it started could do nothing.
    """

    key: Hashable
    what: str
    steady: bool = False


class Source(Protocol):
    """Notices one kind of thing. Asked about once a second between cycles, each thing is told once.

    Raises CacheNotReadyError where the watches are not current.
    """

    def news(self, now: float) -> Iterable[Happening]:
        """What has happened since it was last asked. `now`: seconds of a monotonic clock."""
        ...
