"""An answer that is read as it comes: lines of a watch, a list that is too large to be held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from urllib3.exceptions import HTTPError

from rebalancer.kube.client.sockets import shut
from rebalancer.kube.errors import KubeError

_PIECE = 65536
_LONGEST_LINE = 64 * 2**20
"""Bytes; etcd holds no object of more than a few MiB, so a longer line is no event."""


class Stream:
    """The body of a 2xx answer. `failed` turns what reading raises into a KubeError."""

    def __init__(self, answer: Any, failed: Callable[[Exception], KubeError]) -> None:
        self._answer = answer
        self._failed = failed

    def batches(self) -> Iterator[list[bytes]]:
        """Complete lines, as many at a time as have come. Ends where the server ends the body.

        A body that ends within a line has been cut. Raises KubeError.
        """
        rest: list[bytes] = []
        size = 0
        for piece in self.pieces():
            *lines, last = piece.split(b"\n")
            if lines:
                lines[0] = b"".join((*rest, lines[0]))
                rest, size = [], 0
                if complete := [line for line in lines if line]:
                    yield complete
            if last:
                rest.append(last)
                size += len(last)
                if size > _LONGEST_LINE:
                    raise self._failed(ConnectionError(f"a line of more than {_LONGEST_LINE >> 20} MiB"))
        if rest:
            raise self._failed(ConnectionError("cut in the middle of an event"))

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes, decompressed. Ends where the server ends it. Raises KubeError."""
        try:
            if self._answer.chunked:
                yield from self._answer.read_chunked(_PIECE, decode_content=True)
                return
            while piece := self._answer.read1(_PIECE, decode_content=True):
                yield piece
        except (HTTPError, OSError, ValueError) as e:
            raise self._failed(e) from e

    def release(self) -> None:
        """The body was read to its end: the connection may serve another request."""
        self._answer.release_conn()

    def close(self) -> None:
        """Closes the connection as well: what is left of the body is of no use to another request."""
        self._answer.close()

    def abort(self) -> None:
        """Ends it from another thread: whoever reads it gets a KubeError."""
        sock = getattr(self._answer.connection, "sock", None)
        if sock is not None:
            shut(sock)
