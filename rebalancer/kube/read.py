"""One state of the cluster, read over HTTP: all kinds at the same time, page by page."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import (
    ExpiredError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    Target,
)
from rebalancer.kube.head import first_of, malformed
from rebalancer.kube.pager import pages
from rebalancer.kube.resources import RESOURCES, Resource
from rebalancer.kube.retry import DEFAULT_BACKOFF, Backoff, Wait, retry
from rebalancer.kube.status import quoted
from rebalancer.model.decode import MALFORMED, Decoder, Object
from rebalancer.model.snapshot import KindRead, Snapshot, build_snapshot

log = logging.getLogger(__name__)
_RELISTS = 3


class ReadOptions(Struct, frozen=True, kw_only=True):
    """How a cluster is read.

    `page_size` objects a page (500 to 2,000 are sensible: 8 kB a pod), `workers` lists at a time, `backoff`
    for each page, `kinds` what to read, `namespaces` restricts namespaced kinds to these (all if empty).
    """

    page_size: int = 500
    workers: int = 4
    backoff: Backoff = DEFAULT_BACKOFF
    kinds: frozenset[str] = frozenset(RESOURCES)
    namespaces: tuple[str, ...] = ()


_DEFAULTS = ReadOptions()


class Keep(Protocol):
    """Takes the objects as bytes; called from several threads, for each kind from one."""

    def begin(self, resource: Resource) -> None:
        """The list of a kind begins; what was added for it before has expired."""
        ...

    def add(self, resource: Resource, items: Sequence[Raw]) -> None:
        """A page of it."""
        ...


class Listing(Struct, frozen=True, eq=False):
    """All objects of one kind as of one moment, and how they were read."""

    kind: str
    objects: tuple[Object, ...] = ()
    warnings: tuple[str, ...] = ()
    read: KindRead | None = None
    known: bool = True


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
    warned about, nodes and pods excepted. `now` gives the epoch in seconds, `wait` sleeps between tries.
    `keep` is given the objects as they came.

    Raises KubeError: the first one that any list ended with.
    """
    reader = _Reader(connection, wait, options, keep)
    version = server_version(connection, wait=wait, backoff=options.backoff)
    wanted = [r for kind, r in RESOURCES.items() if kind in options.kinds]
    # Of everything that may be old at the end, ages are the harmless part: the clock is read first.
    began = now()
    with ThreadPoolExecutor(max_workers=options.workers, thread_name_prefix="list") as pool:
        futures = [pool.submit(reader.kind, r) for r in wanted]
        try:
            listings = [f.result() for f in futures]
        except BaseException:
            reader.abandon()
            for f in futures:
                f.cancel()
            raise
    snapshot = build_snapshot(
        (o for listing in listings for o in listing.objects),
        now=began,
        source=f"cluster {connection.who}",
        server_version=version,
        kinds=(listing.kind for listing in listings if listing.known),
        refused=(listing.kind for listing in listings if not listing.known),
        warnings=(w for listing in listings for w in listing.warnings),
        reads=(listing.read for listing in listings if listing.read is not None),
    )
    log.info("read %d nodes and %d pods from %s", len(snapshot.nodes), len(snapshot.pods), connection.who)
    return snapshot


def server_version(connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> str:
    """The server's version as "1.36"; its git version where it does not say major and minor."""
    target = Target("get", say="get /version")

    def ask() -> _Version:
        answer = connection.request("GET", "/version", target)
        try:
            return msgspec.json.decode(answer.body, type=_Version)
        except msgspec.DecodeError as e:
            raise ResponseError(
                f"{target}: {e}: {quoted(answer.body)}",
                f"is {connection.who} really an API server?",
                target=target,
                code=answer.code,
            ) from e

    version = retry(ask, wait=wait, backoff=backoff)
    if version.major and version.minor:
        # Some providers write "28+".
        return f"{version.major}.{version.minor.rstrip('+')}"
    return version.git_version.removeprefix("v")


class _Version(Struct, frozen=True, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class _Reader:
    """Lists kinds with one decoder, so that equal pod templates are one object, whatever list had them."""

    def __init__(
        self, connection: Connection, wait: Wait, options: ReadOptions, keep: Keep | None = None
    ) -> None:
        self._connection = connection
        self._options = options
        self._keep = keep
        self._sleep = wait
        self._decoder = Decoder()
        self._decoding = threading.Lock()
        self._abandoned = threading.Event()
        self._began = time.monotonic()

    def abandon(self) -> None:
        """No further page, and no further try."""
        self._abandoned.set()

    def kind(self, resource: Resource) -> Listing:
        """The whole list of a kind, begun anew when it expired under way."""
        meter = _Meter(resource.kind, time.monotonic() - self._began)
        for _ in range(_RELISTS):
            try:
                return self._list(resource, meter)
            except ExpiredError as e:
                log.info("%s; starting the list again", e.message)
                last: KubeError = e
            except (ForbiddenError, NotFoundError) as e:
                if not resource.without:
                    raise
                why = resource.unknown(e)
                return Listing(resource.kind, warnings=(why,), read=meter.read(0, known=False), known=False)
        raise last

    def _list(self, resource: Resource, meter: _Meter) -> Listing:
        namespaces: Iterable[str] = ("",)
        if resource.namespaced and self._options.namespaces:
            namespaces = self._options.namespaces
        objects: list[Object] = []
        broken: list[str] = []
        if self._keep is not None:
            self._keep.begin(resource)
        for namespace in namespaces:
            for page in pages(
                self._connection,
                resource,
                wait=meter.counting(self._wait),
                namespace=namespace,
                limit=self._options.page_size,
                backoff=self._options.backoff,
                gzip=self._connection.options.gzip,
            ):
                meter.pages += 1
                meter.bytes += page.size
                if self._keep is not None:
                    self._keep.add(resource, page.items or ())
                # Decoding holds the interpreter anyway; one at a time keeps templates interned.
                with self._decoding:
                    self._decode(resource.kind, page.items or (), objects, broken)
        return Listing(resource.kind, tuple(objects), first_of(broken), meter.read(len(objects)))

    def _decode(self, kind: str, items: Iterable[Raw], objects: list[Object], broken: list[str]) -> None:
        for raw in items:
            try:
                objects.append(self._decoder.decode(kind, raw))
            except MALFORMED as e:
                broken.append(malformed(kind, raw, e))

    def _wait(self, seconds: float) -> bool:
        return self._abandoned.is_set() or self._sleep(seconds)


class _Meter:
    """Counts what one kind takes; by the machine's clock, as nothing depends on it."""

    def __init__(self, kind: str, started: float) -> None:
        self.pages = self.bytes = self.retries = 0
        self._kind = kind
        self._started = started
        self._began = time.monotonic()

    def counting(self, wait: Wait) -> Wait:
        """`wait`, which is called before each further try."""

        def counted(seconds: float) -> bool:
            self.retries += 1
            return wait(seconds)

        return counted

    def read(self, objects: int, *, known: bool = True) -> KindRead:
        """The figures."""
        return KindRead(
            kind=self._kind,
            objects=objects,
            pages=self.pages,
            bytes=self.bytes,
            retries=self.retries,
            started=self._started,
            seconds=time.monotonic() - self._began,
            known=known,
        )
