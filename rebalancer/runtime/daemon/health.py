"""HTTP for probes: /healthz, /readyz, /metrics, answered by a thread of their own."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rebalancer.errors import UserError
from rebalancer.kube.connection import steady

log = logging.getLogger(__name__)

Check = Callable[[], str]
"""What is wrong, "" if nothing."""
Metrics = Callable[[str], tuple[bytes, str]]
"""Body and content type, for an Accept header."""
_TIMEOUT = 10.0
"""Seconds that a client may take to send its request."""


class HealthServer:
    """Listens between `start` and `stop`.

    `healthz`, `readyz`: what is wrong; 503 then, with the words in the body. `metrics`: None = 404.
    """

    def __init__(
        self, address: tuple[str, int], *, healthz: Check, readyz: Check, metrics: Metrics | None = None
    ) -> None:
        self._address = address
        self._checks = {"/healthz": healthz, "/livez": healthz, "/readyz": readyz}
        self._metrics = metrics
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that is listened on, also where 0 was asked for."""
        return self._server.server_address[1] if self._server is not None else self._address[1]

    def start(self) -> HealthServer:
        """Raises UserError where the address cannot be had."""
        host, port = self._address
        try:
            self._server = _Server(self._address, self._handler())
        except (OSError, OverflowError) as e:
            raise UserError(
                f"cannot listen on {host}:{port} for probes: {getattr(e, 'strerror', None) or e}",
                "is another one running? see health.address",
            ) from e
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="health", daemon=True
        )
        self._thread.start()
        log.info("probes and metrics on %s:%d", host or "*", self.port)
        return self

    def stop(self) -> None:
        """Ends the server and its thread."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join(2)
            self._server.server_close()

    def answer(self, path: str, accept: str = "") -> tuple[int, bytes, str]:
        """(status, body, content type) of a GET with this Accept header."""
        plain = "text/plain; charset=utf-8"
        if path == "/metrics" and self._metrics is not None:
            body, content_type = self._metrics(accept)
            return 200, body, content_type
        check = self._checks.get(path)
        if check is None:
            return 404, b"/healthz /readyz /metrics\n", plain
        problem = check()
        return (503, f"{problem}\n".encode(), plain) if problem else (200, b"ok\n", plain)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            """One request."""

            timeout = _TIMEOUT
            protocol_version = "HTTP/1.1"
            server_version, sys_version = "rebalancer", ""

            def do_GET(self) -> None:
                """Probes and scrapes."""
                try:
                    code, body, content_type = owner.answer(
                        self.path.partition("?")[0], self.headers.get("Accept", "")
                    )
                except Exception:
                    log.exception("%s", self.path)
                    code, body, content_type = 500, b"see the log\n", "text/plain"
                self.send_response(code)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Probes come every few seconds."""
                log.debug(format, *args)

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0] or (not address[0] and socket.has_dualstack_ipv6()):
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """An IPv6 socket for all addresses listens on those of IPv4 too."""
        if self.address_family == socket.AF_INET6 and not self.server_address[0]:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A client that went away is no error."""
        log.debug("a probe's connection broke", exc_info=True)


# Signs of life of the cycle, for the liveness probe.


class Heartbeat:
    """`hung` says whether there was no sign of life for longer than `patience`. All times in seconds.

    A cycle uses its clock all the time, also while it waits: each use by the thread of the cycle is a sign of
    life. Between two cycles no signs are expected, until the next cycle is due.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._worker: int | None = None
        self.expect_nothing(None)

    def works_here(self) -> None:
        """From now on, only signs of the calling thread count."""
        self._worker = threading.get_ident()
        self.beat()

    def beat(self) -> None:
        """A sign of life."""
        if threading.get_ident() == self._worker:
            self.expect_nothing(None)

    def expect_nothing(self, until: float | None) -> None:
        """Nothing is expected until that time of the monotonic clock. None: the time is not known."""
        self._last, self._due = steady(), until

    def hung(self) -> str:
        """For how long nothing has happened although it should have, "" if all is well."""
        silent = steady() - max(self._last, self._due or self._last)
        return f"the loop has not moved for {silent:.0f} s" if silent > self.patience else ""
