"""LIST of one kind out of the API server's own cache: one body, handed out in pages while it comes.

With resourceVersion=0 a server answers from memory, neither pages nor asks etcd, and takes a third of the
time. What it has may be some moments old, which is why no eviction may rest on it. From 1.33 on the body is
streamed object by object (KEP-5116); an older server would hold all of it at once, so there lists are paged.

The body is cut where one object seems to end and the next one to begin. Whether that is so, the decoder says:
a cut within an object leaves brackets open.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.status import quoted
from rebalancer.kube.errors import ResponseError, Target
from rebalancer.kube.read.pager import ListMeta, Page, list_target
from rebalancer.kube.resources import Resource

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
    """The body is large and cannot be cut: it has to be asked for in pages."""


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
    body = ListBody(target, connection.who)
    try:
        for piece in stream.pieces():
            if (page := body.feed(piece)) is not None:
                yield page
        yield body.end()
        stream.release()
    finally:
        stream.close()


class ListBody:
    """Pieces of a list's JSON in, whole items out; holds what is no whole item yet."""

    def __init__(self, target: Target, who: str) -> None:
        self._target = target
        self._who = who
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
        if not kind.endswith("List"):
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
        if not head.kind.endswith("List"):
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
