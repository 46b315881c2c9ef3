"""The server in a thread of its own: `with ApiServer(objects=[...]) as server: ... server.url`."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

import uvicorn

from rebalancer.sandbox.api.objects import Object
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.server.app import Api
from rebalancer.sandbox.server.watch import Bell


class ApiServer:
    """An API server on loopback over a `Store`.

    objects         what the cluster consists of at first (Lists count as their items)
    store           instead of `objects`: one that exists already
    port            0: any free one
    version         of Kubernetes, as /version gives it
    fresh_timeout   seconds that a list waits for a resourceVersion to come
    bookmark_every  seconds between bookmarks of a watch
    progress_notify whether bookmarks come although nothing happens (`watch.stream`)
    tls             (certificate file, key file) to serve HTTPS

    Whoever reaches it is the administrator: it listens on loopback alone.
    """

    protocol: ClassVar[type[asyncio.Protocol] | Literal["h11"]] = "h11"

    def __init__(
        self,
        objects: Iterable[Object] = (),
        *,
        store: Store | None = None,
        port: int = 0,
        version: str = "1.36.2",
        fresh_timeout: float = 0.2,
        bookmark_every: float = 60.0,
        progress_notify: bool = True,
        history: int = 10_000,
        seed: int | None = None,
        clock: Callable[[], float] = time.time,
        tls: tuple[str, str] | None = None,
    ) -> None:
        self.store = store or Store(objects, clock=clock, seed=seed, history=history)
        self.api = self.make_api(
            version=version,
            fresh_timeout=fresh_timeout,
            bookmark_every=bookmark_every,
            progress_notify=progress_notify,
        )
        self._port = port
        self._tls = tls
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        if self._socket is None:
            raise RuntimeError("the server has not been started")
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._socket.getsockname()[1]}"

    def make_api(self, **options: Any) -> Api:
        """The application over `store`; a subclass may give another."""
        return Api(self.store, **options)

    def kubeconfig(self, path: str | Path, *, user: Mapping[str, str] | None = None) -> Path:
        """Write a kubeconfig for this server; `user` is how its user signs in. Its path."""
        cluster: dict[str, Any] = {"server": self.url}
        if self._tls:
            cluster["certificate-authority"] = str(Path(self._tls[0]).resolve())
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sandbox",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "sandbox", "user": {**(user or {})}}],
            "contexts": [
                {
                    "name": "sandbox",
                    "context": {"cluster": "sandbox", "user": "sandbox", "namespace": "default"},
                }
            ],
        }
        target = Path(path)
        target.write_text(json.dumps(config, indent=2), encoding="utf-8")  # JSON is YAML
        return target

    def start(self) -> Self:
        """Returns once connections are accepted; OSError where the port is taken."""
        # With the protocol named, asyncio turns Nagle's algorithm off: 40 ms less for every write.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", self._port))
        self._socket.listen(256)
        self._port = self._socket.getsockname()[1]  # started again, it is found where it was
        config = uvicorn.Config(
            self.api.app,
            interface="asgi3",
            http=self.protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=1,
            ssl_certfile=self._tls[0] if self._tls else None,
            ssl_keyfile=self._tls[1] if self._tls else None,
        )
        self._server = uvicorn.Server(config)
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="sandbox-api", daemon=True)
        self._thread.start()
        while not self._server.started:
            ready.wait(0.01)
            if not self._thread.is_alive():
                raise RuntimeError("the server did not start")
            time.sleep(0.005)
        return self

    def _run(self, ready: threading.Event) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self.api.bell = Bell(self.store, self._loop)
            ready.set()
            assert self._server is not None
            assert self._socket is not None
            await self._server.serve(sockets=[self._socket])

        asyncio.run(serve())

    def stop(self) -> None:
        """End watches and connections; at most some seconds."""
        if self._server is None or self._thread is None or self._loop is None:
            return
        bell = self.api.bell
        if bell is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(bell.close)
        self._server.should_exit = True
        self._thread.join(10)
        if self._socket is not None:
            self._socket.close()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
