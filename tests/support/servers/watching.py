"""A watch cache over the sandbox, with times short enough for tests, and what it is compared with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rebalancer.kube.connection import Backoff, Connection
from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.reflector import WatchOptions
from tests.support.sandbox import ApiServer
from tests.support.waiting import until

QUICK = WatchOptions(
    timeout=(2, 3),
    silence=0.8,
    healthy=0.4,
    page_size=3,
    backoff=Backoff(tries=2, first=0.05, cap=0.4),
)
BOOKMARK_EVERY = 0.2
STALE_AFTER = 1.5
FEW = frozenset({"Node", "Pod", "PodDisruptionBudget", "ReplicaSet", "Namespace"})


@contextmanager
def watching(
    connection: Connection, options: WatchOptions = QUICK, *, ready: bool = True, **more: Any
) -> Iterator[WatchCache]:
    """A running cache of a few kinds, synced if `ready`."""
    cache = WatchCache(connection, options=options, **{"stale_after": STALE_AFTER, "kinds": FEW, **more})
    cache.start()
    try:
        if ready:
            assert cache.wait_ready(120)
        yield cache
    finally:
        cache.stop()


def truth(server: ApiServer, kind: str = "Pod") -> dict[str, str]:
    """Name → version of what the server has."""
    return {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in server.store.list(kind)}


def seen(cache: WatchCache) -> dict[str, str] | None:
    """The same of the cache's pods; None while it refuses to tell."""
    try:
        return {p.name: p.resource_version for p in cache.snapshot(0.0).pods}
    except CacheNotReadyError:
        return None


def caught_up(cache: WatchCache, server: ApiServer, timeout: float = 120.0) -> float:
    """Seconds until the cache has what the server has."""
    return until(lambda: seen(cache) == truth(server), timeout)


def touch(server: ApiServer, name: str, **annotations: str) -> None:
    """Somebody changes a pod."""

    def change(pod: dict[str, Any]) -> None:
        pod["metadata"].setdefault("annotations", {}).update(annotations or {"touched": str(time.time_ns())})

    server.store.modify("Pod", name, "default", change)


_FOLLOWED = ("Node", "Pod", "PodDisruptionBudget", "ReplicaSet", "StatefulSet")


def in_step(cache: WatchCache, server: ApiServer, timeout: float = 30.0) -> bool:
    """Waits until the cache has what a cycle follows, as the server has it; False if it does not come."""

    def there() -> bool:
        newest = {s.kind: (int(s.version or 0), s.objects) for s in cache.status()}
        for kind in _FOLLOWED:
            found = server.store.list(kind)
            version = max((int(o["metadata"]["resourceVersion"]) for o in found), default=0)
            if newest[kind][0] < version or newest[kind][1] != len(found):
                return False
        return True

    end = time.monotonic() + timeout
    while not there():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True
