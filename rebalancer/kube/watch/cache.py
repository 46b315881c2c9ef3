"""The watch cache: every kind a plan rests on, kept up to date, and a snapshot of it at any time.

A snapshot is made only from kinds that are synced and fresh; otherwise the cache says which are not, and why.
A kind that may not be read is a warning with its consequence, nodes and pods excepted.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from msgspec.structs import replace

from rebalancer.engine.version import ServerVersion
from rebalancer.kube.connection import Connection, steady
from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.reading import server_version
from rebalancer.kube.resources import RESOURCES, Resource, kinds_within
from rebalancer.kube.watch.reflector import Offer, Reflector, Turns, WatchOptions
from rebalancer.kube.watch.store import Change, Feed, KindStatus, KindStore, version_of
from rebalancer.model.decode import LOOKED_INTO
from rebalancer.model.node import Node, NodeClaim, NodePool, ObjectMeta
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import (
    PLAIN,
    WORKLOADS,
    Identity,
    KindRead,
    Object,
    Snapshot,
    assemble,
    unclear,
)
from rebalancer.model.storage import CSIDriver, CSINode, StorageClass, VolumeAttachment
from rebalancer.model.workload import (
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    Service,
    VerticalPodAutoscaler,
    Workload,
)

# One kind that is watched namespace by namespace, as if it were watched as a whole.


class JoinedStore:
    """Answers as a `KindStore` of the whole kind would; each part has a reflector of its own.

    It is as good as its worst part: known where all are, as old as the oldest. `parts` in the order of their
    namespaces, so that their objects are in the order of identities.
    """

    def __init__(self, resource: Resource, parts: Sequence[KindStore]) -> None:
        self.resource = resource
        self.parts = tuple(parts)
        self._of = {part.resource.within: part for part in parts}

    def follow(self) -> Feed:
        """What changes from now on, for one more reader."""
        return JoinedFeed([(part, part.follow()) for part in self.parts])

    def forget(self, feed: Feed) -> None:
        """The reader is gone."""
        assert isinstance(feed, JoinedFeed)
        for part, own in feed.own:
            part.forget(own)

    def sorted(self) -> tuple[int, Mapping[Identity, Object] | None]:
        """The objects by identity in order, with a number that differs whenever they do; None: not known."""
        found = [part.sorted() for part in self.parts]
        joined: dict[Identity, Object] = {}
        for _, objects in found:
            joined |= objects or {}
        known = all(objects is not None for _, objects in found)
        return sum(generation for generation, _ in found), joined if known else None

    @property
    def known(self) -> bool:
        """Whether it can be said which objects there are."""
        return all(part.known for part in self.parts)

    @property
    def synced(self) -> bool:
        """Whether the objects are known."""
        return all(part.synced for part in self.parts)

    @property
    def generation(self) -> int:
        """A number that differs whenever the objects do: those of the parts only grow."""
        return sum(part.generation for part in self.parts)

    def find(self, key: Identity) -> Object | None:
        """One object."""
        part = self._of.get(key[0])
        return part.find(key) if part is not None else None

    def has_come_to(self, key: Identity, version: str) -> bool:
        """Whether the watch has brought this version of an object, or a later one."""
        part = self._of.get(key[0])
        return part is not None and part.has_come_to(key, version)

    def by_identity(self) -> dict[Identity, Any]:
        """All objects, a copy, in any order."""
        return dict(item for part in self.parts for item in part.by_identity().items())

    def every(self) -> list[Object]:
        """All objects in any order."""
        return [o for part in self.parts for o in part.every()]

    def warnings(self) -> tuple[str, ...]:
        """What a snapshot has to say about this kind."""
        return tuple(dict.fromkeys(text for part in self.parts for text in part.warnings()))

    def status(self) -> KindStatus:
        """How the watch of this kind is doing."""
        every = [part.status() for part in self.parts]
        return replace(
            every[0],
            synced=all(s.synced for s in every),
            denied=any(s.denied for s in every),
            age=_last([s.age for s in every]),
            as_of=_first([s.as_of for s in every]),
            objects=sum(s.objects for s in every),
            malformed=sum(s.malformed for s in every),
            lists=sum(s.lists for s in every),
            watches=sum(s.watches for s in every),
            failures=max(s.failures for s in every),
            error=next((s.error for s in every if s.error is not None), None),
        )


class JoinedFeed(Feed):
    """The feeds of all parts; changes of different namespaces have no order."""

    def __init__(self, own: Sequence[tuple[KindStore, Feed]]) -> None:
        self.own = tuple(own)

    def take(self) -> tuple[list[Change], bool]:
        """The changes in their order, and whether earlier ones were lost."""
        taken = [feed.take() for _, feed in self.own]
        return [c for changes, _ in taken for c in changes], any(lost for _, lost in taken)


def _known(times: list[float | None]) -> Iterator[float]:
    yield from (t for t in times if t is not None)


def _last(times: list[float | None]) -> float | None:
    return None if None in times else max(_known(times))


def _first(times: list[float | None]) -> float | None:
    return None if None in times else min(_known(times))


# Snapshots of what the stores of all kinds have.


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


T = TypeVar("T")
log = logging.getLogger(__name__)
_DEFAULTS = WatchOptions()
_POLL = 0.02
_STALE_AFTER = 300.0
"""Seconds without a sign of life of a kind: twice what a dead connection takes to be found out."""


class WatchCache:
    """Watches with threads of its own between `start` and `stop`, over a connection of its own.

    `kinds`: what is watched. `namespaces`: the only ones whose objects are; empty = all.
    `stale_after`, `monotonic`: seconds. `seed`: of the jitter.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        options: WatchOptions = _DEFAULTS,
        stale_after: float = _STALE_AFTER,
        kinds: frozenset[str] = frozenset(RESOURCES),
        namespaces: Collection[str] = (),
        monotonic: Callable[[], float] = steady,
        seed: int | None = None,
    ) -> None:
        self._source = connection
        self._connection: Connection | None = None
        self._options = options
        self._stale_after = stale_after
        self._monotonic = monotonic
        self._seed = seed
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._reflectors: dict[str, list[Reflector]] = {}
        self._namespaces = tuple(sorted(namespaces))
        watched = kinds & kinds_within(namespaces)
        self._stores = {k: self._store(r) for k, r in RESOURCES.items() if k in watched}
        self._version, self._newer = "", False
        self._snapshots = Snapshots(self._stores, lambda: f"cluster {connection.who}", self._namespaces)
        self._nodes: tuple[int, tuple[Node, ...]] = (-1, ())
        self._reading = threading.Lock()

    def start(self) -> WatchCache:
        """Begins to list; returns at once. Raises ConfigurationError."""
        connection = self._connection = self._source.twin()
        offer, turns = Offer(self._options.streaming), Turns(self._stop, self._options.turn)
        rng = random.Random(self._seed)

        def version() -> None:
            self._version = server_version(connection, wait=self._stop.wait, backoff=self._options.backoff)
            self._newer = ServerVersion.parse(self._version).newer_by > 0

        # Pods, the longest list, last: the others need not wait for it.
        for kind, store in sorted(self._parts(), key=lambda part: part[0] == "Pod"):
            reflector = Reflector(
                connection,
                store,
                self._options,
                offer=offer,
                turns=turns,
                stop=self._stop,
                monotonic=self._monotonic,
                rng=random.Random(rng.random()),
                # Asked anew with every watch of the nodes, as a control plane is upgraded under way.
                before=version if kind == "Node" else (lambda: None),
                newer=lambda: self._newer,
            )
            self._reflectors.setdefault(kind, []).append(reflector)
            thread = threading.Thread(target=reflector.run, name=f"watch-{kind}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self, timeout: float = 2.0) -> None:
        """Ends the threads, also those that wait for the server; at most `timeout` seconds."""
        self._stop.set()
        if self._connection is not None:
            self._connection.abort()
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if left := [t.name for t in self._threads if t.is_alive()]:
            log.warning("still at work, and left to the end of the process: %s", ", ".join(left))

    # -- health

    def status(self) -> tuple[KindStatus, ...]:
        """Every kind, in the order of RESOURCES."""
        return tuple(s.status() for s in self._stores.values())

    def not_ready(self) -> CacheNotReadyError | None:
        """Why no plan may be made from it now; None if one may."""
        why = {s.kind: text for s in self.status() if (text := s.why_not(self._stale_after))}
        if not why:
            return None
        texts = [*why.values()]
        more = f"; and {len(texts) - 3} more kinds" if len(texts) > 3 else ""
        return CacheNotReadyError(
            f"the cluster is not known well enough to act: {'; '.join(texts[:3])}{more}",
            kinds=tuple(why),
        )

    def check(self) -> None:
        """Raises CacheNotReadyError unless a plan may be made now."""
        if (error := self.not_ready()) is not None:
            raise error

    def check_known(self, kinds: Collection[str]) -> None:
        """Raises CacheNotReadyError where one of these kinds, which were known, is refused by now: what was
        known of it is forgotten, which is not the same as none."""
        for kind, store in self._stores.items():
            if kind in kinds and not store.known:
                say = f"{kind} objects are not known any more: {store.status().error}"
                raise CacheNotReadyError(say, kinds=(kind,))

    def wait_ready(self, timeout: float) -> bool:
        """Waits until it is ready, at most `timeout` seconds; whether it is."""
        return self.wait_for(lambda: self.not_ready() is None, timeout, self._stop.is_set)

    # -- currency

    def follow_closely(self, kinds: Iterable[str], seconds: float) -> None:
        """Keeps these kinds current within a few seconds, for so many seconds; see `Reflector`."""
        for kind in kinds:
            for reflector in self._reflectors.get(kind, ()):
                reflector.follow_closely(seconds)

    def monotonic(self) -> float:
        """Seconds of the clock by which `behind` and `wait_current` go."""
        return self._monotonic()

    def behind(self, kinds: Iterable[str], as_of: float) -> str:
        """What of these kinds may be older than the server had it at that time; "" if nothing is."""
        return next((text for k in kinds if (text := self._stores[k].status().why_behind(as_of))), "")

    def wait_current(
        self, kinds: Collection[str], as_of: float, patience: float, stopping: Callable[[], bool]
    ) -> str:
        """Waits until nothing of these kinds is `behind`, at most `patience` seconds; what still is, then."""
        if late := self.behind(kinds, as_of):
            self.follow_closely(kinds, patience)
            self.wait_for(lambda: not self.behind(kinds, as_of), patience, stopping)
            late = self.behind(kinds, as_of)
        return late

    def has_come_to(self, kind: str, namespace: str, name: str, version: str) -> bool:
        """Whether the watch has brought this version of an object, which was read by itself, or a later
        one."""
        return self._stores[kind].has_come_to((namespace, name), version)

    def version_of(self, kind: str, namespace: str, name: str) -> str:
        """The version of an object that the watch has; "" if it has none."""
        key = (namespace, name, kind) if kind in WORKLOADS else (namespace, name)
        found = self._stores[kind].find(key) if kind in self._stores else None
        return version_of(found) if found is not None else ""

    def names(self, kind: str, namespace: str) -> frozenset[str]:
        """The names of all objects of a kind that the watch has in a namespace; "" for a kind without."""
        every = self._stores[kind].by_identity() if kind in self._stores else ()
        return frozenset(key[1] for key in every if key[0] == namespace)

    def refresh(self, patience: float, stopping: Callable[[], bool]) -> None:
        """Waits until every kind that is known is confirmed as of now, at most `patience` seconds; but for
        add-ons, for which nothing waits."""
        known = [k for k, store in self._stores.items() if store.synced and not store.resource.add_on]
        self.wait_current(known, self._monotonic(), patience, stopping)

    def wait_for(self, condition: Callable[[], bool], patience: float, stopping: Callable[[], bool]) -> bool:
        """Waits for the watches to bring something about, at most `patience` seconds; whether they have."""
        until = self._monotonic() + patience
        while not condition():
            if self._monotonic() >= until or stopping() or self._stop.wait(_POLL):
                return False
        return True

    # -- reading

    def snapshot(self, now: float) -> Snapshot:
        """The cluster as the watches have it; `now` in seconds of the epoch. Raises CacheNotReadyError.

        As long as nothing changes, its fields are the same objects as those of the last one, but for `now`
        and `reads`.
        """
        self.check()
        return self._snapshots.of(now, self._version)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name. Raises CacheNotReadyError, as all of these."""
        found = self._find("Pod", (namespace, name))
        return found if isinstance(found, Pod) else None

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        """The owner of that kind and name."""
        found = self._find(kind, (namespace, name, kind)) if kind in self._stores else None
        return found if isinstance(found, Workload) else None

    def workloads(self, namespace: str = "") -> tuple[Workload, ...]:
        """All workloads of a namespace, "" for all; none of kinds that may not be read."""
        stores = [self._stores[k] for k in sorted(WORKLOADS & self._stores.keys())]
        every = (o for store in stores for o in store.every())
        return tuple(o for o in every if isinstance(o, Workload) and namespace in ("", o.namespace))

    def budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        """All budgets of a namespace; none where they may not be read."""
        return tuple(b for b in self._every(PodDisruptionBudget) if b.metadata.namespace == namespace)

    def quotas(self, namespace: str) -> tuple[ResourceQuota, ...]:
        """All quotas of a namespace; none where they may not be read."""
        return tuple(q for q in self._every(ResourceQuota) if q.metadata.namespace == namespace)

    def services(self, namespace: str) -> tuple[Service, ...]:
        """All Services of a namespace, "" for all; none where they may not be read."""
        return tuple(s for s in self._every(Service) if namespace in ("", s.metadata.namespace))

    def vertical_autoscalers(self, namespace: str) -> tuple[VerticalPodAutoscaler, ...]:
        """All vertical autoscalers of a namespace; none where they may not be read."""
        return tuple(v for v in self._every(VerticalPodAutoscaler) if v.metadata.namespace == namespace)

    def node_claims(self) -> tuple[NodeClaim, ...]:
        """All of Karpenter's claims; none where they may not be read."""
        return self._every(NodeClaim)

    def node_pools(self) -> tuple[NodePool, ...]:
        """All of Karpenter's pools; none where they may not be read."""
        return self._every(NodePool)

    def attachments(self) -> tuple[VolumeAttachment, ...]:
        """All volumes that are attached to nodes; none where they may not be read."""
        return self._every(VolumeAttachment)

    def namespaces(self) -> tuple[Namespace, ...]:
        """All namespaces; none where they may not be read."""
        return self._every(Namespace)

    def classes(self) -> list[Object]:
        """All StorageClasses, CSINodes, CSIDrivers and PriorityClasses; none of what may not be read."""
        kinds: tuple[type[Object], ...] = (StorageClass, CSINode, CSIDriver, PriorityClass)
        return [o for kind in kinds for o in self._every(kind)]

    def nodes(self) -> tuple[Node, ...]:
        """All nodes; the same tuple as long as none of them changes."""
        self.check()
        with self._reading:
            store = self._stores["Node"]
            if self._nodes[0] != store.generation:
                generation, objects = store.sorted()
                every = (objects or {}).values()
                self._nodes = generation, tuple(o for o in every if isinstance(o, Node))
            return self._nodes[1]

    def pods(self) -> Mapping[Identity, Pod]:
        """All pods by namespace and name, as of now."""
        self.check()
        return self._stores["Pod"].by_identity()

    def follow(self, kind: str) -> Feed:
        """The changes of a kind that is always watched, from now on."""
        return self._stores[kind].follow()

    def forget(self, kind: str, feed: Feed) -> None:
        """Ends `follow`."""
        self._stores[kind].forget(feed)

    @property
    def server_version(self) -> str:
        """The server's, as it said when nodes were watched last."""
        return self._version

    def unknown_field(self) -> str:
        """A field of a pod or a node that no known version has, or that none was searched for; "" if there
        has been none since the start."""
        found = (r.unknown_field for kind in LOOKED_INTO for r in self._reflectors.get(kind, ()))
        return next((f for f in found if f), "")

    def generation(self, kind: str) -> int:
        """A number that differs whenever the objects of the kind do; of one that is not watched always 0."""
        return self._stores[kind].generation if kind in self._stores else 0

    def _store(self, resource: Resource) -> KindStore | JoinedStore:
        parts = [KindStore(part, self._monotonic) for part in resource.parts(self._namespaces)]
        return JoinedStore(resource, parts) if len(parts) > 1 else parts[0]

    def _parts(self) -> Iterator[tuple[str, KindStore]]:
        """Every store that has a reflector of its own."""
        for kind, store in self._stores.items():
            for part in store.parts if isinstance(store, JoinedStore) else (store,):
                yield kind, part

    def _every(self, kind: type[T]) -> tuple[T, ...]:
        """All objects of a kind whose type has its name."""
        self.check()
        return tuple(o for o in self._stores[kind.__name__].every() if isinstance(o, kind))

    def _find(self, kind: str, key: Identity) -> Object | None:
        self.check()
        return self._stores[kind].find(key)
