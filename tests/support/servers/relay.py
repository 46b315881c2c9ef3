"""A TCP relay that can stop relaying: both directions go silent, nothing is closed, nothing is lost."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit


class Relay:
    """Between clients and the server at `url`, from `with` to its end.

    While it is `cut`, what arrives is kept, and delivered once it is healed, also if its sender has given up
    by then: as a network does that retransmits, or a proxy that was stuck. A `tunnel` is asked for with
    CONNECT, as from a proxy for HTTPS.
    """

    def __init__(self, url: str, *, tunnel: bool = False) -> None:
        self._tunnel = tunnel
        parts = urlsplit(url)
        self._server = (parts.hostname or "", parts.port or 0)
        self._open = threading.Event()
        self._open.set()
        self._end = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._pattern = b""
        self._skip = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def is_cut(self) -> bool:
        """Whether it is silent now."""
        return not self._open.is_set()

    def cut(self) -> None:
        """Silent from now on."""
        self._open.clear()

    def cut_at(self, pattern: bytes, *, skip: int = 0) -> None:
        """Silent from the first request that contains `pattern` on, after `skip` of them: it is kept, too."""
        with self._lock:
            self._pattern, self._skip = pattern, skip

    def heal(self) -> None:
        """Relays again, what it kept first."""
        self._open.set()

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._end.set()
            kept = self._sockets.copy()
        self._open.set()
        for sock in (self._listener, *kept):
            _close(sock)

    def _accept(self) -> None:
        while not self._end.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._keep(client):
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        self._open.wait()
        try:
            if self._tunnel:
                _answer_connect(client)
            server = socket.create_connection(self._server, timeout=5)
            if not self._keep(server):
                return
            server.settimeout(None)
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # no server, a client that left, or the end of the relay
            _close(client)
            return
        threading.Thread(target=self._pump, args=(server, client), daemon=True).start()
        self._pump(client, server, watched=True)

    def _keep(self, sock: socket.socket) -> bool:
        """Whether the relay still runs; if not, closes `sock`, which no end of the relay would."""
        with self._lock:
            if not self._end.is_set():
                self._sockets.append(sock)
                return True
        _close(sock)
        return False

    def _pump(self, source: socket.socket, sink: socket.socket, *, watched: bool = False) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                if watched:
                    self._look(piece)
                self._open.wait()
                sink.sendall(piece)
        self._open.wait()
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _look(self, piece: bytes) -> None:
        with self._lock:
            if not self._pattern or self._pattern not in piece:
                return
            if self._skip:
                self._skip -= 1
                return
            self._pattern = b""
            self.cut()


def _answer_connect(client: socket.socket) -> None:
    asked = b""
    while not asked.endswith(b"\r\n\r\n"):
        if not (piece := client.recv(65536)):
            raise ConnectionError("the client left before its CONNECT was whole")
        asked += piece
    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")


def _close(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        sock.close()
