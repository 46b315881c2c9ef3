"""Bytes of lists and watches → changes of one kind's store, decoded once, sharing what is alike."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec
from msgspec import Raw

from rebalancer.kube.read.head import HeadMeta, head, malformed
from rebalancer.kube.watch.request import Watch, WatchEvent
from rebalancer.kube.watch.store import Change
from rebalancer.model.decode import MALFORMED, Decoder
from rebalancer.model.kinds import WORKLOADS, Object
from rebalancer.model.snapshot import Identity, identity

_SWEEP_AFTER = 5000
"""Parts remembered beyond twice what is in use, before those out of use are forgotten."""


class Changes:
    """Decodes for one store; not for several threads."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._decoder = Decoder()
        self._sweep_at = _SWEEP_AFTER

    def listed(self, raw: bytes | Raw) -> Change:
        """An object as it is now; one that cannot be read is a change to nothing, with the reason."""
        try:
            value = self._decoder.decode(self._kind, raw)
        except MALFORMED as e:
            try:
                key = self._key(head(raw))
            except MALFORMED:
                key = ("", "?")
            return key, None, malformed(self._kind, raw, e)
        return identity(value), value, ""

    def event(self, watch: Watch, event: WatchEvent) -> tuple[Change, str]:
        """An event that is no bookmark, and its version. Raises ResponseError where it is neither."""
        try:
            meta = head(event.object)
        except msgspec.DecodeError as e:
            raise watch.garbage(str(e)) from e
        if not meta.name or not meta.resource_version:
            raise watch.garbage("an event without a name or a version")
        if event.type == "DELETED":
            return (self._key(meta), None, ""), meta.resource_version
        return self.listed(event.object), meta.resource_version

    def bookmark(self, watch: Watch, event: WatchEvent) -> str:
        """The version that a bookmark tells. Raises ResponseError where it tells none."""
        try:
            version = head(event.object).resource_version
        except msgspec.DecodeError as e:
            raise watch.garbage(str(e)) from e
        if not version:
            raise watch.garbage("a bookmark without a version")
        return version

    def forget(self, live: Callable[[], Collection[Object]]) -> None:
        """Forgets what only objects of the past shared; seldom, as it looks at every object."""
        if self._decoder.entries > self._sweep_at:
            self._decoder.keep(live())
            self._sweep_at = 2 * self._decoder.entries + _SWEEP_AFTER

    def _key(self, meta: HeadMeta) -> Identity:
        """`model.snapshot.identity`, of an object that need not be decoded."""
        kind = self._kind
        if kind in WORKLOADS:
            return meta.namespace, meta.name, kind
        return (meta.namespace or "default" if kind == "Pod" else meta.namespace), meta.name
