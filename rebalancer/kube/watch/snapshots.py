"""Snapshots of what the stores of all kinds have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from rebalancer.kube.watch.joined import JoinedStore
from rebalancer.kube.watch.store import KindStore
from rebalancer.model.kinds import PLAIN, WORKLOADS, Object
from rebalancer.model.object_meta import ObjectMeta
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Identity, KindRead, Snapshot, assemble, unclear
from rebalancer.model.workload import Workload


class Snapshots:
    """Makes them; what has not changed since the last one is not made again.

    `source`: whose they are. `namespaces`: the only ones whose objects are watched; empty = all.
    """

    def __init__(
        self,
        stores: Mapping[str, KindStore | JoinedStore],
        source: Callable[[], str],
        namespaces: tuple[str, ...],
    ) -> None:
        self._stores = stores
        self._source = source
        self._namespaces = namespaces
        self._last: tuple[object, Snapshot] | None = None
        self._merged: tuple[tuple[int, ...], dict[Identity, Object]] = ((), {})
        self._making = threading.Lock()

    def of(self, now: float, server_version: str) -> Snapshot:
        """The cluster at this moment; see `WatchCache.snapshot`."""
        state = tuple((s.generation, s.synced, s.warnings()) for s in self._stores.values()), server_version
        with self._making:
            last = self._last
        reads = self._reads()
        if last is None or last[0] != state:
            last = state, self._assembled(now, server_version, unclear(reads))
            with self._making:
                self._last = last
        return replace(last[1], now=now, reads=reads)

    def _reads(self) -> tuple[KindRead, ...]:
        return tuple(
            KindRead(
                kind=s.kind,
                objects=s.objects,
                unreadable=s.malformed,
                known=not s.denied,
                age=s.age or 0.0,
            )
            for s in (store.status() for store in self._stores.values())
        )

    def _assembled(self, now: float, server_version: str, doubted: frozenset[str]) -> Snapshot:
        known: list[str] = []
        by: dict[type, Mapping[Identity, Any]] = {}
        workloads: list[tuple[int, Mapping[Identity, Object]]] = []
        for kind, store in self._stores.items():
            generation, objects = store.sorted()
            if objects is None:
                continue
            known.append(kind)
            if kind in WORKLOADS:
                workloads.append((generation, objects))
            else:
                by[_type_of(kind)] = objects
        by[Workload] = self._workloads(workloads)
        return assemble(
            by,
            now=now,
            source=self._source(),
            server_version=server_version,
            kinds=known,
            refused=(self._stores.keys() - set(known)) | doubted,
            read_namespaces=self._namespaces,
            warnings=(w for s in self._stores.values() for w in s.warnings()),
        )

    def _workloads(self, parts: list[tuple[int, Mapping[Identity, Object]]]) -> Mapping[Identity, Object]:
        """Six kinds in one order, kept as long as none of them changes."""
        generations = tuple(g for g, _ in parts)
        with self._making:
            if self._merged[0] != generations:
                every = [item for _, objects in parts for item in objects.items()]
                self._merged = generations, dict(sorted(every, key=itemgetter(0)))
            return self._merged[1]


def _type_of(kind: str) -> type:
    if kind == "Pod":
        return Pod
    return ObjectMeta if kind == "ControllerRevision" else PLAIN[kind]
