"""A collector for tests: OTLP over real HTTP, with every way in which one can misbehave."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


class Seen(Struct):
    """A span as it arrived; times in nanoseconds."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    error: str | None
    resource: dict[str, Any]


class Collector:
    """What arrived. `delay` seconds before each answer, `status` of it; `drip`: one byte of it a second."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.metrics: set[str] = set()
        self.requests = 0
        self.headers: list[dict[str, str]] = []
        self.delay = 0.0
        self.status = 200
        self.drip = False
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        """Decodes a request."""
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                about = values(resource.resource.attributes)
                for scope in resource.scope_spans:
                    self.spans += [_seen(s, about) for s in scope.spans]
        elif path == "/v1/metrics":
            for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics |= {m.name for s in metrics.scope_metrics for m in s.metrics}

    def roots(self) -> list[Seen]:
        """Spans without a parent, in order of time."""
        return sorted((s for s in self.spans if not s.parent), key=lambda s: s.start)

    def below(self, span: Seen, name: str = "") -> list[Seen]:
        """Children of a span, in order of time; those of one name."""
        found = [s for s in self.spans if s.parent == span.id and s.name.startswith(name)]
        return sorted(found, key=lambda s: s.start)


@contextmanager
def collector() -> Iterator[Collector]:
    """One that listens on a loopback port."""
    it = Collector()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            with lock:
                it.requests += 1
                it.headers.append({k.lower(): v for k, v in self.headers.items()})
                if it.status == 200:
                    it.take(self.path, body)
            time.sleep(it.delay)
            self.send_response(it.status)
            self.send_header("Content-Length", "30" if it.drip else "0")
            self.end_headers()
            for _ in range(30 if it.drip else 0):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(1)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that went away is what the tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    it.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield it
    finally:
        server.shutdown()
        # Not server_close: it would wait for handlers that are slow on purpose.
        server.socket.close()
        thread.join()


def values(attributes: Any) -> dict[str, Any]:
    """Attributes of the wire as plain values."""
    return {kv.key: _value(kv.value) for kv in attributes if isinstance(kv, KeyValue)}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(v) for v in value.array_value.values]
    return getattr(value, kind) if kind else None


def _seen(span: Any, resource: dict[str, Any]) -> Seen:
    return Seen(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=values(span.attributes),
        events=[(e.name, values(e.attributes)) for e in span.events],
        error=span.status.message if span.status.code == 2 else None,
        resource=resource,
    )
