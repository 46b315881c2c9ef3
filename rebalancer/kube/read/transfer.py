"""Lists one after the other, in a thread of their own, so that decoding goes on while more comes.

One list at a time is polite: the server's flow control sees one request of ours, and its memory holds one
answer. What has come and is not decoded yet is bounded: the thread waits while `_AHEAD` pages lie there.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from msgspec import Raw, Struct

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import DEFAULT_BACKOFF, Backoff, Wait, retry
from rebalancer.kube.errors import ExpiredError, ForbiddenError, KubeError, NotFoundError
from rebalancer.kube.read.pager import Page, pages
from rebalancer.kube.read.served import ADD_ON_PATIENCE, with_discovery
from rebalancer.kube.read.whole import UndividedError, whole
from rebalancer.kube.resources import RESOURCES, Resource
from rebalancer.model.snapshot import KindRead

log = logging.getLogger(__name__)
_RELISTS = 3
_AHEAD = 4
"""Pages: a megabyte each out of the server's cache, some five megabytes with 500 pods."""
_LOOK = 0.2
"""Seconds after which a thread that nobody reads from any more notices it."""


class ReadOptions(Struct, frozen=True, kw_only=True):
    """How a cluster is read.

    `page_size` objects a page (500 to 2,000 are sensible: 8 kB a pod), `backoff` between tries, `kinds` what
    to read, `namespaces` restricts namespaced kinds to these (all if empty). `may_be_old`: lists may come out
    of the API server's cache, some moments old, which is three times as fast; never where evictions rest on
    it. `add_on_patience`: seconds of silence in an add-on's list, and after which it is not tried again.
    """

    page_size: int = 500
    backoff: Backoff = DEFAULT_BACKOFF
    kinds: frozenset[str] = frozenset(RESOURCES)
    namespaces: tuple[str, ...] = ()
    may_be_old: bool = False
    add_on_patience: float = ADD_ON_PATIENCE


class Begun(Struct, frozen=True):
    """The list of a kind begins, or begins anew: what came for it before does not count."""

    resource: Resource


class Items(Struct, frozen=True, eq=False):
    """Some objects of a kind."""

    resource: Resource
    items: Sequence[Raw]


class Ended(Struct, frozen=True, eq=False):
    """All of a kind has come, or cannot: then `warning` says so."""

    read: KindRead
    warning: str = ""


Part: TypeAlias = Begun | Items | Ended


class Transfer:
    """Lists `resources` in their order. Iterating gives their parts, in the thread of who iterates.

    Raises KubeError there: the first one that a kind ended with which nothing can be decided without.
    """

    def __init__(
        self, connection: Connection, resources: Iterable[Resource], options: ReadOptions, *, wait: Wait
    ) -> None:
        self._connection = connection
        self._resources = tuple(resources)
        self._options = options
        self._sleep = wait
        self._abandoned = threading.Event()
        self._parts: queue.Queue[Part | Exception | None] = queue.Queue(_AHEAD)
        self._began = time.monotonic()

    def __iter__(self) -> Iterator[Part]:
        thread = threading.Thread(target=self._run, name="lists", daemon=True)
        thread.start()
        try:
            while (part := self._parts.get()) is not None:
                if isinstance(part, Exception):
                    raise part
                yield part
        finally:
            self._abandoned.set()

    def _run(self) -> None:
        try:
            for resource in self._resources:
                self._kind(resource)
            self._put(None)
        except _AbandonedError:
            return
        except Exception as e:
            with suppress(_AbandonedError):
                self._put(e)

    def _kind(self, resource: Resource) -> None:
        meter = _Meter(resource.kind, time.monotonic() - self._began)
        try:
            self._again(resource, meter)
        except KubeError as failed:
            e = with_discovery(self._connection, resource, failed, self._options.add_on_patience)
            if resource.add_on and isinstance(e, NotFoundError):
                self._put(Ended(meter.read()))
            elif resource.add_on or (resource.without and isinstance(e, ForbiddenError | NotFoundError)):
                self._put(Ended(meter.read(known=False), resource.unknown(e)))
            else:
                raise
        else:
            self._put(Ended(meter.read()))

    def _again(self, resource: Resource, meter: _Meter) -> None:
        """The list, begun anew when it expired under way."""
        for tried in range(1, _RELISTS + 1):
            try:
                if self._options.may_be_old:
                    self._whole(resource, meter)
                else:
                    self._paged(resource, meter)
                return
            except ExpiredError as e:
                if tried == _RELISTS:
                    raise
                log.info("%s; starting the list again", e.message)

    def _whole(self, resource: Resource, meter: _Meter) -> None:
        def once() -> None:
            self._pass_on(
                resource,
                meter,
                lambda part: whole(
                    self._connection,
                    part,
                    gzip=self._connection.options.gzip,
                    read_timeout=self._silence(resource),
                ),
            )
            meter.requests += 1

        try:
            retry(once, wait=self._waiting(resource, meter), backoff=self._options.backoff)
        except UndividedError:
            log.info("%s: one body that cannot be cut; pages instead", resource.qualified)
            self._paged(resource, meter)

    def _paged(self, resource: Resource, meter: _Meter) -> None:
        def paged(part: Resource) -> Iterator[Page]:
            for page in pages(
                self._connection,
                part,
                wait=self._waiting(resource, meter),
                limit=self._options.page_size,
                backoff=self._options.backoff,
                gzip=self._connection.options.gzip,
                read_timeout=self._silence(resource),
            ):
                meter.requests += 1
                yield page

        self._pass_on(resource, meter, paged)

    def _pass_on(
        self, resource: Resource, meter: _Meter, listed: Callable[[Resource], Iterable[Page]]
    ) -> None:
        meter.objects = 0
        self._put(Begun(resource))
        for part in resource.parts(self._options.namespaces):
            for page in listed(part):
                meter.bytes += page.size
                if page.items:
                    meter.objects += len(page.items)
                    self._put(Items(resource, page.items))

    def _put(self, part: Part | Exception | None) -> None:
        while not self._abandoned.is_set():
            try:
                self._parts.put(part, timeout=_LOOK)
                return
            except queue.Full:
                continue
        raise _AbandonedError

    def _silence(self, resource: Resource) -> float:
        """Seconds after which a list is taken for dead."""
        patience = self._connection.options.read_timeout
        return min(patience, self._options.add_on_patience) if resource.add_on else patience

    def _waiting(self, resource: Resource, meter: _Meter) -> Wait:
        """Waits before each further try, and counts it; of an add-on there is none once it has taken long."""

        def wait(seconds: float) -> bool:
            late = resource.add_on and meter.seconds() + seconds > self._options.add_on_patience
            return late or self._wait(seconds)

        return meter.counting(wait)

    def _wait(self, seconds: float) -> bool:
        return self._abandoned.is_set() or self._sleep(seconds)


class _AbandonedError(Exception):
    """Nobody reads on."""


class _Meter:
    """Counts what one kind takes; by the machine's clock, on which only the patience with add-ons depends."""

    def __init__(self, kind: str, started: float) -> None:
        self.requests = self.bytes = self.retries = self.objects = 0
        self._kind = kind
        self._started = started
        self._began = time.monotonic()

    def counting(self, wait: Wait) -> Wait:
        """`wait`, which is called before each further try."""

        def counted(seconds: float) -> bool:
            self.retries += 1
            return wait(seconds)

        return counted

    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._began

    def read(self, *, known: bool = True) -> KindRead:
        """The figures."""
        return KindRead(
            kind=self._kind,
            objects=self.objects,
            pages=self.requests,
            bytes=self.bytes,
            retries=self.retries,
            started=self._started,
            seconds=self.seconds(),
            known=known,
        )
