"""A /metrics endpoint on a loopback port, a real Prometheus that scrapes it, and what queries consist of."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.processes.daemon_process import free_port

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")

_NAME = re.compile(r"\b((?:rebalancer|target)_[a-z0-9_]+)")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
_MATCHERS = re.compile(r"\b(rebalancer_[a-z0-9_]+)\{([^}]*)\}")


def metric_names(expression: str) -> set[str]:
    """Metrics that a query reads."""
    return set(_NAME.findall(expression))


def label_names(expression: str) -> set[str]:
    """Labels that it groups by or matches, except those that Prometheus adds."""
    found = {name.strip() for group in _GROUPING.findall(expression) for name in group.split(",")}
    for _, matchers in _MATCHERS.findall(expression):
        found |= {re.split(r"=~|!~|!=|=", m)[0].strip() for m in matchers.split(",") if m.strip()}
    return found - {"job", "instance", "le", ""}


@contextmanager
def endpoint(exposition: Callable[[], tuple[bytes, str]]) -> Iterator[int]:
    """Serves /metrics; the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, kind = exposition()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Prometheus:
    """The HTTP API of a running one."""

    def __init__(self, port: int) -> None:
        self._api = f"http://127.0.0.1:{port}/api/v1"

    def __call__(self, expression: str) -> list[Any]:
        """The vector of now."""
        return self._ask("query", query=expression)

    def over(self, expression: str, seconds: float, step: float = 1.0) -> list[Any]:
        """The matrix of the last seconds."""
        now = time.time()
        return self._ask("query_range", query=expression, start=now - seconds, end=now, step=step)

    def _ask(self, what: str, **parameters: Any) -> list[Any]:
        url = f"{self._api}/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
        return found


@contextmanager
def prometheus(target: int, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the port each second, and has done so three times."""
    assert PROMETHEUS
    port = free_port()
    config = folder / "prometheus.yaml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: rebalancer, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
    )
    with subprocess.Popen(
        [
            PROMETHEUS,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        query = Prometheus(port)
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    if query("count_over_time(rebalancer_build_info[1m]) >= 3"):
                        break
                except OSError:
                    assert process.poll() is None, "prometheus does not start"
                assert time.monotonic() < deadline, "prometheus does not scrape"
                time.sleep(0.2)
            yield query
        finally:
            process.terminate()
            process.wait(10)
