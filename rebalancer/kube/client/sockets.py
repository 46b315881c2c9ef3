"""The open sockets of one connection pool, so that a thread blocked in a read can be set free by another."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any
from weakref import WeakSet

from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class Sockets:
    """Knows every socket that the pools of its managers opened. Thread-safe."""

    def __init__(self) -> None:
        self._open: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()
        self.aborted = False

    def track(self, manager: Any) -> None:
        """Makes a urllib3.PoolManager report its sockets here."""
        pools: dict[str, type] = {}
        for scheme, pool in (("http", HTTPConnectionPool), ("https", HTTPSConnectionPool)):
            connection = pool.ConnectionCls
            reporting = type(f"Tracked{connection.__name__}", (_Reporting, connection), {"sockets": self})
            pools[scheme] = type(f"Tracked{pool.__name__}", (pool,), {"ConnectionCls": reporting})
        manager.pool_classes_by_scheme = pools

    def opened(self, sock: socket.socket) -> None:
        """A socket was connected."""
        with self._lock:
            self._open.add(sock)
            late = self.aborted
        if late:
            shut(sock)

    def abort(self) -> None:
        """Ends every read and write at work, for good: sockets that are connected later end at once."""
        with self._lock:
            self.aborted = True
            every = list(self._open)
        for sock in every:
            shut(sock)


class _Reporting:
    """Mixed into urllib3's connections."""

    sockets: Sockets

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        sock = getattr(self, "sock", None)
        if sock is not None:
            self.sockets.opened(sock)


def shut(sock: socket.socket) -> None:
    """Ends reads and writes at work on a socket, whichever thread they are in."""
    # Of the plain class: SSLSocket's own would pull the TLS state from under the thread that reads.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
