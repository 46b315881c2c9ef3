"""An API server for benchmarks, a process of its own: it sends bytes that were encoded beforehand.

`python -m tests.perf.processes.server PODS [balanced]` prints its address once it is ready. So what a
benchmark measures is the client. A list with resourceVersion=0 comes as one body in chunks of one object, as
kube-apiserver streams it from 1.33 on (KEP-5116); others are paged by `limit` and `continue`. Besides:

    POST /bench/change?pods=N        N pods get another version; all watches hear of it, as fast as it goes
    POST /bench/change?pods=N&moved  and are on another node of their zone
    GET  /bench/requests             how many requests came for what, and the bytes that were sent
"""

from __future__ import annotations

import gzip
import json
import queue
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from rebalancer.kube.resources import RESOURCES, Resource
from tests.perf.clusters.realistic import Size, objects

Lines = queue.SimpleQueue[bytes]
"""Of watch events, for one watch."""
_TOGETHER = 300
"""Objects that are handed to the socket at a time."""
_VERSION = 5_000_000


class Stock:
    """Every object of the cluster, encoded; and who watches."""

    def __init__(self, size: Size) -> None:
        self.items: dict[str, list[bytes]] = {kind: [] for kind in RESOURCES}
        for kind, item in objects(size):
            self.items[kind].append(item)
        self.version = _VERSION
        self.requests: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._packed: dict[tuple[str, int, int], bytes] = {}
        self._lock = threading.Lock()
        self._watchers: dict[str, list[Lines]] = {kind: [] for kind in RESOURCES}

    def counted(self, what: str, size: int) -> None:
        """Remembers a request and the bytes of its answer."""
        with self._lock:
            self.requests[what] += 1
            self.sent[what] += size

    def watch(self, kind: str) -> Lines:
        """A queue of lines for one watch."""
        mine: Lines = queue.SimpleQueue()
        self._watchers[kind].append(mine)
        return mine

    def unwatch(self, kind: str, mine: Lines) -> None:
        """The watch is over."""
        self._watchers[kind].remove(mine)

    def change(self, number: int, *, moved: bool) -> int:
        """So many pods, spread over the cluster, get a new version, and perhaps another node; the last
        version."""
        pods, nodes = self.items["Pod"], len(self.items["Node"])
        step = max(1, len(pods) // max(1, number))
        events: list[bytes] = []
        for i in range(number):
            at = i * step % len(pods)
            self.version += 1
            before, _, rest = pods[at].partition(b'"resourceVersion":"')
            changed = b"".join(
                (before, b'"resourceVersion":"%d"' % self.version, rest[rest.index(b'"') + 1 :])
            )
            if moved:
                before, name, rest = changed.partition(b'"nodeName":"node-')
                changed = b"%b%b%05d%b" % (before, name, (int(rest[:5]) + 3) % nodes, rest[5:])
            pods[at] = changed
            events.append(
                b'{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1",' + changed[1:] + b"}\n"
            )
        for mine in self._watchers["Pod"]:
            for start in range(0, len(events), 50):
                mine.put(b"".join(events[start : start + 50]))
        return self.version

    def page(self, resource: Resource, start: int, limit: int, *, packed: bool) -> bytes:
        """A page of a list."""
        key = resource.kind, start, limit
        with self._lock:
            if packed and key in self._packed:
                return self._packed[key]
        items = self.items[resource.kind]
        following = start + limit if limit and start + limit < len(items) else 0
        more = f',"continue":"{following}","remainingItemCount":{len(items) - following}' if following else ""
        body = b"".join(
            (self.head(resource, more), b",".join(items[start : start + limit] if limit else items), b"]}\n")
        )
        if packed:
            body = gzip.compress(body, 1)
            with self._lock:
                self._packed[key] = body
        return body

    def head(self, resource: Resource, more: str = "") -> bytes:
        """The beginning of a list."""
        kind = "PartialObjectMetadata" if resource.metadata_only else resource.kind
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        if resource.metadata_only:
            version = "meta.k8s.io/v1"
        return (
            f'{{"kind":"{kind}List","apiVersion":"{version}","metadata":'
            f'{{"resourceVersion":"{self.version}"{more}}},"items":['
        ).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers one connection's requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stock: Stock

    def do_GET(self) -> None:
        """Lists, watches, the version, what was asked for so far."""
        url = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        resource = PATHS.get(url.path)
        if url.path == "/version":
            self._json(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.2"})
        elif url.path == "/bench/requests":
            self._json(200, {"requests": self.stock.requests, "sent": self.stock.sent})
        elif "/serviceaccounts/" in url.path:
            # Each that a template names is there.
            self.stock.counted("get serviceaccounts", 0)
            self._json(200, {"metadata": {"name": url.path.rpartition("/")[2]}})
        elif resource is None:
            self.stock.counted("other", 0)
            self._json(404, {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"kind": "x"}})
        elif query.get("watch"):
            self._watch(resource, query)
        elif query.get("resourceVersion") == "0":
            self._whole(resource)
        else:
            packed = "gzip" in self.headers.get("Accept-Encoding", "")
            limit, start = int(query.get("limit", 0)), int(query.get("continue", 0))
            body = self.stock.page(resource, start, limit, packed=packed)
            self.stock.counted(f"list {resource.plural}", len(body))
            self._body(200, body, packed=packed)

    def do_POST(self) -> None:
        """What the benchmark wants to happen."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}
        version = self.stock.change(int(query["pods"]), moved="moved" in query)
        self._json(200, {"version": str(version)})

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _whole(self, resource: Resource) -> None:
        size = self._chunks(self._list_chunks(resource))
        self.stock.counted(f"list {resource.plural}", size)

    def _list_chunks(self, resource: Resource) -> Iterator[bytes]:
        yield self.stock.head(resource)
        for i, item in enumerate(self.stock.items[resource.kind]):
            yield b"," + item if i else item
        yield b"]}\n"

    def _watch(self, resource: Resource, query: dict[str, str]) -> None:
        mine = self.stock.watch(resource.kind)
        self.stock.counted(f"watch {resource.plural}", 0)
        try:
            self._chunks(self._watch_chunks(resource, mine, initial="sendInitialEvents" in query))
        except OSError:
            self.close_connection = True
        finally:
            self.stock.unwatch(resource.kind, mine)

    def _watch_chunks(self, resource: Resource, mine: Lines, *, initial: bool) -> Iterator[bytes]:
        kind = "PartialObjectMetadata" if resource.metadata_only else resource.kind
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        start = f'{{"kind":"{kind}","apiVersion":"{version}",'.encode()
        if initial:
            for item in self.stock.items[resource.kind]:
                yield b"".join((b'{"type":"ADDED","object":', start, item[1:], b"}\n"))
            yield self._bookmark(start, {"k8s.io/initial-events-end": "true"})
        yield b""
        while True:
            try:
                yield mine.get(timeout=30)
            except queue.Empty:
                yield self._bookmark(start, {})
            if mine.empty():
                yield b""

    def _bookmark(self, start: bytes, annotations: dict[str, str]) -> bytes:
        meta = {"resourceVersion": str(self.stock.version), "annotations": annotations}
        return b"".join(
            (b'{"type":"BOOKMARK","object":', start, b'"metadata":', json.dumps(meta).encode(), b"}}\n")
        )

    def _chunks(self, chunks: Iterable[bytes]) -> int:
        """Sends a body in chunks; an empty one says: send what there is."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        parts: list[bytes] = []
        size = 0
        for chunk in chunks:
            if chunk:
                parts += (b"%x\r\n" % len(chunk), chunk, b"\r\n")
                size += len(chunk)
            if parts and (len(parts) >= 3 * _TOGETHER or not chunk):
                self.wfile.write(b"".join(parts))
                parts.clear()
        self.wfile.write(b"".join((*parts, b"0\r\n\r\n")))
        return size

    def _json(self, code: int, value: object) -> None:
        self._body(code, json.dumps(value).encode())

    def _body(self, code: int, body: bytes, *, packed: bool = False) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)


PATHS = {r.path(): r for r in RESOURCES.values()}


class Server(ThreadingHTTPServer):
    """Threads that end with the process."""

    daemon_threads = True
    request_queue_size = 64


def main() -> None:
    """Serves until it is ended."""
    size = Size(int(sys.argv[1]), balanced="balanced" in sys.argv)
    Handler.stock = Stock(size)
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
