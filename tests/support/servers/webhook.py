"""A receiver of webhooks: keeps what was posted, and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.waiting import until


class Hook:
    """`bodies` that were taken. `answers`: statuses to give first, then 200. While `held` is not set, no
    answer is given."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.requests = 0
        self.answers: list[int] = []
        self.held = threading.Event()
        self.held.set()
        self.url = ""

    def file(self, folder: Path, name: str = "url") -> Path:
        """A file that holds the URL, with a secret in its path."""
        path = folder / name
        path.write_text(f"{self.url}/T0/B0/s3cr3t\n")
        return path

    def wait(self, count: int) -> None:
        """Until so many bodies have been taken."""
        until(lambda: len(self.bodies) >= count)


@contextmanager
def hook() -> Iterator[Hook]:
    """One that listens on a loopback port."""
    it = Hook()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                it.requests += 1
                status = it.answers.pop(0) if it.answers else 200
            it.held.wait(60)
            with lock:
                if status == 200:
                    it.bodies.append(body)
                    it.paths.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that went away is what the tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    it.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield it
    finally:
        it.held.set()
        server.shutdown()
        server.socket.close()
        thread.join()
