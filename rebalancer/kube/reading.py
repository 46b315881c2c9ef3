"""One state of the cluster, read over HTTP: kind after kind, decoded while the next part comes."""

from __future__ import annotations

import logging
import re
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from rebalancer.bulk_work import bulk_work
from rebalancer.kube.connection import DEFAULT_BACKOFF, Backoff, Connection, Wait, begun_anew, retry
from rebalancer.kube.errors import (
    PROXY,
    ExpiredError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    Target,
    quoted,
)
from rebalancer.kube.lists import (
    PAGE,
    Begun,
    HeadMeta,
    Items,
    Page,
    ReadOptions,
    Transfer,
    first_of,
    head,
    malformed,
    pages,
)
from rebalancer.kube.resources import (
    ENDPOINT_SLICES,
    LABEL_USERS,
    LIMIT_RANGES,
    NAMED,
    RESOURCES,
    Resource,
    kinds_within,
)
from rebalancer.model.decode import MALFORMED, Decoder
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import KindRead, Object, Snapshot, build_snapshot, unclear
from rebalancer.model.workload import (
    LimitRange,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    Service,
    ServiceAccount,
    VerticalPodAutoscaler,
    Workload,
)
from rebalancer.policy.options import LabelUser, LabelUsers

log = logging.getLogger(__name__)
T = TypeVar("T")
_STREAMS = (1, 33)


_DEFAULTS = ReadOptions()


class Keep(Protocol):
    """Takes the objects as bytes, kind after kind."""

    def begin(self, resource: Resource) -> None:
        """The list of a kind begins; what was added for it before does not count."""
        ...

    def add(self, resource: Resource, items: Sequence[Raw]) -> None:
        """Some of its objects."""
        ...


class _Kind:
    """What has come of one kind."""

    def __init__(self) -> None:
        self.objects: list[Object] = []
        self.broken: list[str] = []

    def decode(self, decoder: Decoder, kind: str, items: Iterable[Raw]) -> None:
        for raw in items:
            try:
                self.objects.append(decoder.decode(kind, raw))
            except MALFORMED as e:
                self.broken.append(malformed(kind, raw, e))


def read_snapshot(
    connection: Connection,
    *,
    now: Callable[[], float],
    wait: Wait,
    options: ReadOptions = _DEFAULTS,
    keep: Keep | None = None,
) -> Snapshot:
    """The cluster now.

    Every kind is consistent in itself; different kinds are some seconds apart, which is why each eviction is
    looked at again before it is sent. A kind that is forbidden or not served is left out of `kinds` and
    warned about, nodes and pods excepted. Of an add-on that is not served there are no objects.
    `now` gives the epoch in seconds, `wait` sleeps between tries. `keep` is given the objects as they came.

    Raises KubeError: the first one that any list ended with.
    """
    version = server_version(connection, wait=wait, backoff=options.backoff)
    # Of everything that may be old at the end, ages are the harmless part: the clock is read first.
    began = now()
    # One decoder, so that equal pod templates are one object, whatever list had them.
    decoder = Decoder()
    found: dict[str, _Kind] = {}
    reads: list[KindRead] = []
    warnings: list[str] = []
    with bulk_work():
        for part in transfer(connection, options, version, wait=wait):
            if isinstance(part, Begun):
                found[part.resource.kind] = _Kind()
                if keep is not None:
                    keep.begin(part.resource)
            elif isinstance(part, Items):
                if keep is not None:
                    keep.add(part.resource, part.items)
                found[part.resource.kind].decode(decoder, part.resource.kind, part.items)
            else:
                kind = found.setdefault(part.read.kind, _Kind())
                reads.append(replace(part.read, objects=len(kind.objects), unreadable=len(kind.broken)))
                warnings += (part.warning,) if part.warning else first_of(kind.broken)
        snapshot = build_snapshot(
            (o for kind in found.values() for o in kind.objects),
            now=began,
            source=f"cluster {connection.who}",
            server_version=version,
            kinds=(r.kind for r in reads if r.known),
            refused=unclear(reads).union(r.kind for r in reads if not r.known),
            read_namespaces=options.namespaces,
            warnings=warnings,
            reads=reads,
        )
    log.info("read %d nodes and %d pods from %s", len(snapshot.nodes), len(snapshot.pods), connection.who)
    return snapshot


def transfer(connection: Connection, options: ReadOptions, version: str, *, wait: Wait) -> Transfer:
    """The lists of all kinds that are wanted; out of the server's cache only where it streams them."""
    if options.may_be_old and not streams_lists(version):
        options = replace(options, may_be_old=False)
    kinds = options.kinds & kinds_within(options.namespaces)
    wanted = (r for kind, r in RESOURCES.items() if kind in kinds)
    return Transfer(connection, wanted, options, wait=wait)


def streams_lists(version: str) -> bool:
    """Whether a server of this version ("1.36.2") sends lists object by object (KEP-5116: from 1.33 on)."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= _STREAMS


def server_version(connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> str:
    """The server's version as "1.36.2", with what a vendor adds; "1.36" where it says no more."""
    target = Target("get", say="get /version")

    def ask() -> _Version:
        answer = connection.request("GET", "/version", target)
        return connection.decoded(answer.body, _Version, target)

    version = retry(ask, wait=wait, backoff=backoff)
    if version.git_version:
        return version.git_version.removeprefix("v")
    # Some providers write "28+".
    return f"{version.major}.{version.minor.rstrip('+')}" if version.major and version.minor else ""


class _Version(Struct, frozen=True, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


# Single objects and small lists, read fresh and decoded: what is looked at around an eviction.

_READ_TIMEOUT = 15.0
"""Seconds; one object is small, and an eviction waits for it."""
_RELISTS = 3
Named = RuntimeClass | PriorityClass | ServiceAccount
"""What templates name."""
_NAMED: dict[str, Any] = {
    "ServiceAccount": ServiceAccount,
    "RuntimeClass": RuntimeClass,
    "PriorityClass": PriorityClass,
}
_MOST_REMEMBERED = 20_000
"""Parts that objects may share; beyond it they are forgotten, as a daemon reads for months."""


class Objects:
    """Reads objects of one cluster. Safe to use from several threads.

    All methods retry what may be retried and raise KubeError; an object that the model cannot read is a
    ResponseError here, because a decision about this very object hangs on it. `namespaces`: those in which
    objects may be looked for; empty = all. `could_read`: what could be read before, and is remembered for
    longer than this object lives.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        wait: Wait,
        backoff: Backoff = DEFAULT_BACKOFF,
        namespaces: Collection[str] = (),
        could_read: set[tuple[str, str]] | None = None,
    ) -> None:
        self._connection = connection
        self._namespaces = tuple(namespaces)
        self._wait = wait
        self._backoff = backoff
        self._decoder = Decoder(runs=True)
        self._decoding = threading.Lock()
        self._no_sizing = False
        self._could_read = could_read if could_read is not None else set()

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name; None if there is none."""
        found = self._get("Pod", namespace, name)
        return found if isinstance(found, Pod) else None

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        """The owner of that kind and name; None if there is none, or if the kind is not one that is read."""
        if kind not in RESOURCES:
            return None
        found = self._get(kind, namespace, name)
        return found if isinstance(found, Workload) else None

    def named(self, kind: str, namespace: str, name: str) -> Named | Literal[False] | None:
        """The object of that name, of a kind in `NAMED`; False if there is none, None where that cannot be
        seen: it may not be read (`_unless_refused`)."""
        resource = NAMED[kind]
        target = Target("get", resource, namespace, name)
        where = resource.path(namespace, name)

        def ask() -> Named:
            answer = self._connection.request(
                "GET", where, target, accept=resource.watch_accept, read_timeout=_READ_TIMEOUT
            )
            try:
                found: Named = msgspec.json.decode(answer.body, type=_NAMED[kind])
                _ = found.takes if isinstance(found, RuntimeClass) else None
            except MALFORMED as e:
                raise ResponseError(f"{target}: cannot be read: {e}", PROXY, target=target, code=200) from e
            return found

        def read() -> Named | Literal[False]:
            try:
                return retry(ask, wait=self._wait, backoff=self._backoff)
            except NotFoundError as e:
                e.unless_none(target)
                return False

        return self._unless_refused(kind, namespace, read)

    def _unless_refused(self, kind: str, namespace: str, read: Callable[[], T]) -> T | None:
        """What is read; None where it is refused, and always was. A refusal of what could be read before is
        an error: nobody sees what has changed since."""
        try:
            found = read()
        except ForbiddenError:
            if (kind, namespace) in self._could_read:
                raise
            return None
        self._could_read.add((kind, namespace))
        return found

    def budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        """All budgets of a namespace."""
        _, found = self._list("PodDisruptionBudget", namespace)
        return tuple(o for o in found if isinstance(o, PodDisruptionBudget))

    def services(self, namespace: str) -> tuple[Service, ...]:
        """All Services of a namespace."""
        _, found = self._list("Service", namespace)
        return tuple(o for o in found if isinstance(o, Service))

    def quotas(self, namespace: str) -> tuple[ResourceQuota, ...]:
        """All quotas of a namespace."""
        _, found = self._list("ResourceQuota", namespace)
        return tuple(o for o in found if isinstance(o, ResourceQuota))

    def vertical_autoscalers(self, namespace: str) -> tuple[VerticalPodAutoscaler, ...]:
        """All VerticalPodAutoscalers of a namespace; none where they are not served."""
        if self._no_sizing:
            return ()
        try:
            _, found = self._list("VerticalPodAutoscaler", namespace)
        except NotFoundError:
            self._no_sizing = True
            return ()
        return tuple(o for o in found if isinstance(o, VerticalPodAutoscaler))

    def limit_ranges(self, namespace: str) -> tuple[LimitRange, ...] | None:
        """All LimitRanges of a namespace; None where they may not be read (`_unless_refused`)."""
        target = Target("list", LIMIT_RANGES, namespace)

        def read() -> tuple[LimitRange, ...]:
            every = (raw for page in self._pages(LIMIT_RANGES, namespace) for raw in page.items or ())
            return tuple(self._connection.decoded(raw, LimitRange, target) for raw in every)

        return self._unless_refused(LIMIT_RANGES.kind, namespace, read)

    def serving(self, namespace: str, service: str) -> frozenset[str]:
        """The uids of the pods that a Service sends to, by its EndpointSlices. Raises NotFoundError where
        these are not served."""
        slices, chosen = ENDPOINT_SLICES, f"kubernetes.io/service-name={service}"
        target = Target("list", slices, namespace)
        found: set[str] = set()
        for page in self._pages(slices, namespace, chosen):
            for raw in page.items or ():
                every = self._connection.decoded(raw, _EndpointSlice, target).endpoints or ()
                found |= {e.target_ref.uid for e in every if e.conditions.ready is not False}
        return frozenset(found)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return tuple(o for o in self._list("Node")[1] if isinstance(o, Node))

    def pods(self, namespace: str, labels: str = "", fields: str = "") -> tuple[Pod, ...]:
        """The pods of a namespace that selectors (kubectl's -l and --field-selector) select."""
        return self.pods_as_of(namespace, labels, fields)[1]

    def pods_as_of(self, namespace: str, labels: str = "", fields: str = "") -> tuple[str, tuple[Pod, ...]]:
        """The version of the cluster, and the pods of a namespace that selectors select in it."""
        version, found = self._list("Pod", namespace, labels, fields)
        return version, tuple(o for o in found if isinstance(o, Pod))

    def newest(self, kind: str, fields: str, namespace: str = "") -> HeadMeta | None:
        """Of the objects that a field selector selects (in a namespace) the one that changed last."""
        found = self.heads(kind, namespace, fields=fields)
        return max(
            found,
            key=lambda m: int(m.resource_version) if m.resource_version.isdecimal() else 0,
            default=None,
        )

    def heads(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[HeadMeta]:
        """The objects that both selectors select; of more than `PAGE` the first, and so many at least. Only
        metadata is asked for. A list without resourceVersion is consistent, also where watches are behind.
        """
        found: list[HeadMeta] = []
        within = (namespace,) if namespace else self._namespaces
        for resource in replace(RESOURCES[kind], metadata_only=True).parts(within):
            for page in self._pages(resource, labels=labels, fields=fields):
                found += (head(raw) for raw in page.items or ())
                if len(found) >= PAGE:
                    break
        return found

    def _get(self, kind: str, namespace: str, name: str) -> Object | None:
        resource = RESOURCES[kind]
        target = Target("get", resource, namespace, name)

        def ask() -> Object:
            answer = self._connection.request(
                "GET", resource.path(namespace, name), target, read_timeout=_READ_TIMEOUT
            )
            return self._decode(kind, answer.body, target)

        try:
            found = retry(ask, wait=self._wait, backoff=self._backoff)
        except NotFoundError as e:
            if not e.kind:
                raise  # the API itself is missing, which says nothing about the object
            return None
        if isinstance(found, Pod | Workload) and (found.namespace, found.name) != (namespace, name):
            say = f"{target}: the answer is about {found.namespace}/{found.name}"
            raise ResponseError(say, PROXY, target=target, code=200)
        return found

    def _pages(
        self, resource: Resource, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Iterator[Page]:
        return pages(
            self._connection,
            resource,
            wait=self._wait,
            namespace=namespace,
            labels=labels,
            fields=fields,
            backoff=self._backoff,
        )

    def _list(
        self, kind: str, namespace: str = "", labels: str = "", fields: str = ""
    ) -> tuple[str, list[Object]]:
        resource = RESOURCES[kind]
        target = Target("list", resource, namespace)

        def once() -> tuple[str, list[Object]]:
            found: list[Object] = []
            version = ""
            for page in self._pages(resource, namespace, labels, fields):
                version = page.metadata.resource_version
                found += (self._decode(kind, raw, target) for raw in page.items or ())
            return version, found

        return begun_anew(once, ExpiredError, _RELISTS)

    def _decode(self, kind: str, raw: bytes | msgspec.Raw, target: Target) -> Object:
        try:
            with self._decoding:
                if self._decoder.entries > _MOST_REMEMBERED:
                    self._decoder.keep(())
                return self._decoder.decode(kind, raw)
        except MALFORMED as e:
            raise ResponseError(
                f"{target}: cannot be read: {e}: {quoted(bytes(raw))}",
                f"is {self._connection.who} really an API server?",
                target=target,
                code=200,
            ) from e


class _Target(Struct, frozen=True):
    uid: str = ""


class _Conditions(Struct, frozen=True):
    ready: bool | None = None


class _Endpoint(Struct, frozen=True, rename="camel"):
    target_ref: _Target = _Target()
    conditions: _Conditions = _Conditions()


class _EndpointSlice(Struct, frozen=True):
    endpoints: tuple[_Endpoint, ...] | None = None


PodReader = Callable[[str, str], Pod | None]
"""`Objects.pod`, for those who need no more."""


# What else selects pods by labels: read where pods may be replaced first.


class _Discovered(Struct, frozen=True):
    versions: tuple[dict[str, str], ...] = ()
    resources: tuple[HeadMeta, ...] = ()


class _LabelUser(Struct, frozen=True):
    metadata: HeadMeta
    spec: Raw = Raw()
    specs: Raw = Raw()


def label_users(
    connection: Connection,
    *,
    wait: Wait,
    namespaces: Collection[str] = (),
    backoff: Backoff = DEFAULT_BACKOFF,
) -> LabelUsers:
    """The objects of all kinds in `LABEL_USERS` that are served; `namespaces`: of these alone, if there are
    any. What cannot be read, for whatever reason, is `unread`."""
    found: list[LabelUser] = []
    unread: list[str] = []
    versions: dict[str, dict[str, str] | Exception] = {}
    for resource in LABEL_USERS:
        try:
            if resource.group not in versions:
                versions[resource.group] = _versions(connection, resource.group, wait, backoff)
            there = versions[resource.group]
            if not isinstance(there, dict):
                raise there
            if (version := there.get(resource.plural)) is None:
                continue
            for part in replace(resource, version=version).parts(namespaces):
                for page in pages(connection, part, wait=wait, backoff=backoff):
                    for raw in page.items or ():
                        user = msgspec.json.decode(raw, type=_LabelUser)
                        spec = (bytes(user.spec) + bytes(user.specs)).decode()
                        name = user.metadata.name
                        found.append(LabelUser(resource.kind, user.metadata.namespace, name, spec))
        except (KubeError, *MALFORMED) as e:
            log.info("%s cannot be read: %s", resource.qualified, e)
            unread.append(resource.qualified)
    return LabelUsers(tuple(sorted(found, key=lambda u: (u.kind, u.namespace, u.name))), tuple(unread))


def _versions(connection: Connection, group: str, wait: Wait, backoff: Backoff) -> dict[str, str] | Exception:
    """Plural → the first version of the group that has it, as the server prefers them; or why that cannot be
    known. Empty where the group is not served."""

    def discovered(path: str) -> _Discovered:
        target = Target("get", say=f"get {path}")
        answer = retry(lambda: connection.request("GET", path, target), wait=wait, backoff=backoff)
        return msgspec.json.decode(answer.body, type=_Discovered)

    there: dict[str, str] = {}
    try:
        try:
            versions = discovered(f"/apis/{group}").versions
        except NotFoundError:
            return {}
        for version in versions:
            for one in discovered(f"/apis/{group}/{version['version']}").resources:
                there.setdefault(one.name, version["version"])
    except (KubeError, *MALFORMED) as e:
        return e
    return there


# A cluster's objects as the API server gave them: kept while a snapshot is read, or passed on undecoded.

_FAST = 1


class Copied(Struct, frozen=True):
    """How the objects were read that `copy` passed on: `began` in seconds of the epoch."""

    began: float
    server_version: str
    reads: tuple[KindRead, ...]
    warnings: tuple[str, ...]

    def objects(self, kind: str) -> int:
        """How many of a kind there were."""
        return sum(r.objects for r in self.reads if r.kind == kind)


def copy(
    connection: Connection, *, now: Callable[[], float], wait: Wait, options: ReadOptions, into: Keep
) -> Copied:
    """Passes every object on as it comes, without looking into it. Raises KubeError."""
    version = server_version(connection, wait=wait, backoff=options.backoff)
    began = now()
    reads: list[KindRead] = []
    warnings: list[str] = []
    with bulk_work():
        for part in transfer(connection, options, version, wait=wait):
            if isinstance(part, Begun):
                into.begin(part.resource)
            elif isinstance(part, Items):
                into.add(part.resource, part.items)
            else:
                reads.append(part.read)
                warnings += (part.warning,) if part.warning else ()
    return Copied(began, version, tuple(reads), tuple(warnings))


class Capture:
    """Holds pages compressed: 150,000 pods are a gigabyte of JSON, and a tenth of that packed."""

    def __init__(self) -> None:
        self._pages: dict[str, list[bytes]] = {}

    def begin(self, resource: Resource) -> None:
        """Forgets what a list that expired had brought."""
        self._pages[resource.kind] = []

    def add(self, resource: Resource, items: Sequence[Raw]) -> None:
        """Keeps a page."""
        page = b"[" + b",".join(bytes(item) for item in items) + b"]"
        self._pages[resource.kind].append(zlib.compress(page, _FAST))

    def objects(self) -> Iterator[dict[str, Any]]:
        """Every object, each with its kind, which the items of a list lack; kind by kind in a fixed order."""
        for kind, resource in RESOURCES.items():
            named = {"apiVersion": resource.api_version, "kind": kind}
            for page in self._pages.get(kind, ()):
                for item in msgspec.json.decode(zlib.decompress(page)):
                    yield {**named, **item, **named}


# What the scheduler has said lately of pods that it found no node for: its FailedScheduling events.

_EVENTS = Resource("Event", "", "v1", "events")
_REASON = "FailedScheduling"


class FailedScheduling(Struct, frozen=True):
    """The last such event of a pod. `uid` "" where the event does not name it; `at`: seconds of the epoch."""

    namespace: str
    pod: str
    uid: str
    message: str
    at: float


class _Object(Struct, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Series(Struct, frozen=True, rename="camel"):
    last_observed_time: datetime | None = None


class _Meta(Struct, frozen=True, rename="camel"):
    creation_timestamp: datetime | None = None


class _Event(Struct, frozen=True, rename="camel"):
    metadata: _Meta = _Meta()
    involved_object: _Object = _Object()
    reason: str = ""
    message: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: _Series | None = None

    @property
    def at(self) -> float:
        """When it was last seen: an event that goes on keeps its name and gets a later time."""
        series = self.series.last_observed_time if self.series is not None else None
        seen = [t for t in (series, self.last_timestamp, self.event_time) if t is not None]
        at = max(seen, default=self.metadata.creation_timestamp)
        return at.timestamp() if at is not None else 0.0


_decode = msgspec.json.Decoder(_Event).decode


def refusals(connection: Connection, *, since: float, wait: Wait) -> list[FailedScheduling]:
    """The refusals at or after a time, in seconds of the epoch; of each pod the last. Raises KubeError."""
    last: dict[tuple[str, str], FailedScheduling] = {}
    for found in _read(connection, wait):
        key = found.namespace, found.pod
        if found.at >= since and (key not in last or found.at > last[key].at):
            last[key] = found
    return [last[key] for key in sorted(last)]


def _read(connection: Connection, wait: Wait) -> Iterator[FailedScheduling]:
    for page in pages(connection, _EVENTS, wait=wait, fields=f"reason={_REASON}"):
        for raw in page.items or ():
            try:
                event = _decode(raw)
            except msgspec.ValidationError:
                continue  # of somebody else's making: the scheduler's own can be read
            about = event.involved_object
            if event.reason == _REASON and about.kind == "Pod":
                yield FailedScheduling(about.namespace, about.name, about.uid, event.message, event.at)
