"""LIST of one kind, page by page, as bytes.

No resourceVersion is sent: with "0" the server ignores the limit and answers with one body. A continue token
that expired (410) ends the attempt; the list starts again from its beginning, because going on with the
token that the server offers would mix two states of the cluster.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from rebalancer.kube.connection import DEFAULT_BACKOFF, Backoff, Connection, Wait, begun_anew, retry
from rebalancer.kube.errors import (
    PROXY,
    ExpiredError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    Target,
    TransportError,
    quoted,
)
from rebalancer.kube.resources import RESOURCES, Resource
from rebalancer.model.decode import MALFORMED
from rebalancer.model.snapshot import KindRead


class ListMeta(Struct, frozen=True, rename="camel"):
    """metav1.ListMeta."""

    resource_version: str = ""
    resume: str = msgspec.field(name="continue", default="")
    left: int | None = msgspec.field(name="remainingItemCount", default=None)


class Page(Struct, frozen=True, eq=False):
    """One page; the items keep the whole body alive, so decode and drop them."""

    kind: str = ""
    metadata: ListMeta = ListMeta()
    # Go writes an empty list of items as null.
    items: list[Raw] | None = None
    size: int = 0
    """Bytes of the decompressed body."""


_DECODER = msgspec.json.Decoder(Page)
PAGE = 500
"""Objects of a page, if not said otherwise."""


def list_target(resource: Resource, namespace: str = "") -> Target:
    """What a list asks for."""
    return Target("list", resource, namespace or resource.within)


def pages(
    connection: Connection,
    resource: Resource,
    *,
    wait: Wait,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    limit: int = PAGE,
    backoff: Backoff = DEFAULT_BACKOFF,
    gzip: bool = False,
    read_timeout: float | None = None,
) -> Iterator[Page]:
    """The pages of a list in the server's order. `labels`, `fields`: selectors as kubectl's -l and
    --field-selector take them. `read_timeout`: seconds of silence; None: the connection's.

    Each page is retried by itself. Raises ExpiredError when the state that the list began with is compacted
    away, else what `Connection.request` raises once `backoff` is used up.
    """
    target = list_target(resource, namespace)
    query: dict[str, str | int] = {"limit": limit}
    if labels:
        query["labelSelector"] = labels
    if fields:
        query["fieldSelector"] = fields
    seen = set[str]()
    while True:
        page = retry(
            lambda: _page(connection, resource, target, namespace, query, gzip, read_timeout),
            wait=wait,
            backoff=backoff,
        )
        yield page
        token = page.metadata.resume
        if not token and not page.metadata.left:
            return
        if not token or token in seen:
            say = (
                f"{target}: a page leads {'back to an earlier one' if token else 'nowhere'}, and more is left"
            )
            raise ResponseError(say, PROXY, target=target, code=200)
        seen.add(token)
        query["continue"] = token


def _page(
    connection: Connection,
    resource: Resource,
    target: Target,
    namespace: str,
    query: dict[str, str | int],
    gzip: bool,
    read_timeout: float | None,
) -> Page:
    answer = connection.request(
        "GET",
        resource.path(namespace),
        target,
        query=query,
        accept=resource.accept,
        gzip=gzip,
        read_timeout=read_timeout,
    )
    try:
        page = _DECODER.decode(answer.body)
    except msgspec.DecodeError as e:
        raise ResponseError(
            f"{target}: the answer is no list: {e}: {quoted(answer.body)}",
            f"is {connection.who} really an API server, with no proxy in between that answers for it?",
            target=target,
            code=answer.code,
        ) from e
    if page.kind not in resource.lists:
        raise ResponseError(
            f"{target}: the answer is a {page.kind or 'nameless thing'}, not a list of them",
            f"is {connection.who} really an API server?",
            target=target,
            code=answer.code,
        )
    return msgspec.structs.replace(page, size=len(answer.body))


# LIST of one kind out of the API server's own cache: one body, handed out in pages while it comes.
#
# With resourceVersion=0 a server answers from memory, neither pages nor asks etcd, and takes a third of the
# time. What it has may be some moments old, which is why no eviction may rest on it. From 1.33 on the body
# is streamed object by object (KEP-5116); an older server would hold all of it at once, so there lists are
# paged.
#
# The body is cut where one object seems to end and the next one to begin. Whether that is so, the decoder
# says: a cut within an object leaves brackets open.

_SEAM = b'},{"metadata":{'
"""Between two items of a typed list, as Go writes it; within strings the quotation mark would be escaped."""
_ITEMS = b'"items":['
_BLOCK = 1 << 20
"""Bytes that are cut at a time."""
_MOST = 64 << 20
"""Bytes that may have come without a seam among them."""
_TRIES = 4
"""Seams that are tried from the last one backwards, before more bytes are waited for."""

_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_page = msgspec.json.Decoder(Page).decode


class UndividedError(Exception):
    """The body is large, and cannot be cut or does not come to its end: it has to be asked for in pages."""


def whole(
    connection: Connection, resource: Resource, *, gzip: bool = False, read_timeout: float | None = None
) -> Iterator[Page]:
    """The pages of a list in the server's order; the version is in the last one only. `read_timeout`:
    seconds of silence; None: the connection's.

    Nothing is retried: what was handed out cannot be taken back. Raises UndividedError, and what
    `Connection.stream` and reading from it raise.
    """
    target = list_target(resource)
    stream = connection.stream(
        resource.path(),
        target,
        query={"resourceVersion": 0},
        accept=resource.accept,
        gzip=gzip,
        read_timeout=read_timeout or connection.options.read_timeout,
    )
    body, begun = ListBody(target, connection.who, resource.lists), False
    try:
        for piece in stream.pieces():
            if (page := body.feed(piece)) is not None:
                begun = True
                yield page
        yield body.end()
        stream.release()
    except (TransportError, ResponseError) as e:
        if begun:  # a busy server ends what takes longer than a minute, and would again
            raise UndividedError from e
        raise
    finally:
        stream.close()


class ListBody:
    """Pieces of a list's JSON in, whole items out; holds what is no whole item yet."""

    def __init__(self, target: Target, who: str, lists: Collection[str]) -> None:
        self._target = target
        self._who = who
        self._lists = lists
        self._pieces: list[bytes | bytearray] = []
        self._size = 0
        self._cut_at = _BLOCK
        self._head: Page | None = None

    def feed(self, piece: bytes) -> Page | None:
        """The items that are complete, if enough has come."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size < self._cut_at:
            return None
        data = bytearray().join(self._pieces)
        if self._head is None:
            data = self._after_head(data)
        items, data = self._cut(data)
        held = self._size - len(data)
        self._pieces, self._size = [data], len(data)
        if self._size > _MOST:
            raise UndividedError
        # Where nothing could be cut, the next try waits until twice as much has come.
        self._cut_at = self._size + (_BLOCK if items else max(_BLOCK, self._size))
        return Page(self._kind, ListMeta(), items, held) if items else None

    def end(self) -> Page:
        """The last items, and the version of the list."""
        data = b"".join(self._pieces)
        try:
            last = _decode_page(b'{"items":' + data if self._head is not None else data)
        except msgspec.DecodeError as e:
            raise self._no_list(str(e), data) from e
        kind = self._kind or last.kind
        if kind not in self._lists:
            raise self._no_list(f"it is a {kind or 'nameless thing'}", data)
        meta = last.metadata if last.metadata.resource_version or self._head is None else self._head.metadata
        return Page(kind, meta, last.items, len(data))

    @property
    def _kind(self) -> str:
        return self._head.kind if self._head is not None else ""

    def _after_head(self, data: bytearray) -> bytearray:
        """What follows the list's own fields, from the bracket of its items on; all of it if that is not
        clear."""
        at = data.find(_ITEMS)
        if at < 0:
            return data
        try:
            head = _decode_page(bytes(data[:at]) + _ITEMS + b"]}")
        except msgspec.DecodeError:
            return data
        if head.kind not in self._lists:
            return data
        self._head = head
        return data[at + len(_ITEMS) - 1 :]

    def _cut(self, data: bytearray) -> tuple[list[Raw], bytearray]:
        """The whole items at the beginning, and the rest, which begins with a bracket again."""
        seam = len(data)
        for _ in range(_TRIES if self._head is not None else 0):
            seam = data.rfind(_SEAM, 0, seam)
            if seam < 0:
                break
            comma = seam + 1
            data[comma] = ord("]")
            try:
                items = _decode_items(memoryview(data)[: comma + 1])
            except msgspec.DecodeError:
                data[comma] = ord(",")
                continue
            rest = data[comma:]
            rest[0] = ord("[")
            return items, rest
        return [], data

    def _no_list(self, why: str, data: bytes) -> ResponseError:
        return ResponseError(
            f"{self._target}: the answer is no list: {why}: {quoted(data)}",
            f"is {self._who} really an API server, with no proxy in between that answers for it?",
            target=self._target,
            code=200,
        )


# Whether a kind that may not be read is there at all.
#
# An API server asks for the right before it says that it does not serve a kind. What it serves it tells
# everybody.

ADD_ON_PATIENCE = 10.0
"""Seconds of silence, of an add-on that may hang by itself: no plan waits for it any longer."""


def with_discovery(
    connection: Connection, resource: Resource, error: KubeError, patience: float
) -> KubeError:
    """The error that a list ended with; NotFoundError where it was forbidden, of an add-on that is not
    served."""
    return unless_unserved(connection, resource, error, patience) if resource.add_on else error


def unless_unserved(
    connection: Connection, resource: Resource, error: KubeError, patience: float = ADD_ON_PATIENCE
) -> KubeError:
    """The error that a list ended with; NotFoundError where it was forbidden, of what is not served.
    `patience`: seconds of silence, for who serves it may hang."""
    if not isinstance(error, ForbiddenError):
        return error
    path = f"/apis/{resource.group}/{resource.version}"
    try:
        connection.request("GET", path, Target("get", say=f"get {path}"), read_timeout=patience)
    except NotFoundError as e:
        return e
    except KubeError:
        return error
    return error


# Lists one after the other, in a thread of their own, so that decoding goes on while more comes.
#
# One list at a time is polite: the server's flow control sees one request of ours, and its memory holds one
# answer. What has come and is not decoded yet is bounded: the thread waits while `_AHEAD` pages lie there.

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
        how = self._whole if self._options.may_be_old else self._paged
        try:
            # Begun anew when it expired under way.
            begun_anew(lambda: how(resource, meter), ExpiredError, _RELISTS)
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
            log.info("%s: one body that cannot be had whole; pages instead", resource.qualified)
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


# What can be read of any object, whatever its kind and however malformed the rest of it.

_MOST_NAMED = 5
"""Malformed objects of a kind that are named one by one; the rest is counted."""


class HeadMeta(Struct, frozen=True, rename="camel"):
    """The part of metadata that names an object and its version."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Head(Struct, frozen=True):
    """An object's metadata."""

    metadata: HeadMeta = HeadMeta()


_HEAD_DECODER = msgspec.json.Decoder(Head)


def head(raw: bytes | Raw) -> HeadMeta:
    """The metadata. Raises msgspec.DecodeError."""
    return _HEAD_DECODER.decode(raw).metadata


def malformed(kind: str, raw: bytes | Raw, why: Exception) -> str:
    """The sentence about an object that is left out."""
    try:
        meta = head(raw)
    except MALFORMED:
        meta = HeadMeta()
    name = "/".join(p for p in (meta.namespace, meta.name) if p) or "without a name"
    return f"{kind} {name} is malformed and left out: {why}"


def first_of(broken: list[str]) -> tuple[str, ...]:
    """The first few sentences, and how many more there are."""
    rest = len(broken) - _MOST_NAMED
    return (
        *broken[:_MOST_NAMED],
        *((f"… and {rest} more malformed objects of that kind",) if rest > 0 else ()),
    )
