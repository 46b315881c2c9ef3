"""The API over HTTP, and what clients ask before anything else: groups, resources and the version.

The server runs in a thread of its own: `with ApiServer(objects=[...]) as server: ... server.url`."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rebalancer.sandbox import handlers, listing
from rebalancer.sandbox.handlers import RequestPath, decoded, parse
from rebalancer.sandbox.listing import Bell
from rebalancer.sandbox.objects import Object
from rebalancer.sandbox.registry import Store
from rebalancer.sandbox.resources import GROUPS, RESOURCES, ApiError, Resource, Subresource, unknown_path

# What clients ask before anything else: groups, resources and the version.


def _versions(group: str) -> list[str]:
    return list(dict.fromkeys(r.version for r in RESOURCES if r.group == group))


def api_versions(address: str) -> dict[str, Any]:
    """/api"""
    servers = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": servers}


def _group(name: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{name}/{v}", "version": v} for v in _versions(name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def api_groups() -> dict[str, Any]:
    """/apis"""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in GROUPS]}


def api_group(name: str) -> dict[str, Any]:
    """/apis/NAME; ApiError 404."""
    if name not in GROUPS:
        raise unknown_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def _storage_hash(resource: Resource) -> str:
    digest = hashlib.sha256(f"{resource.api_version}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _verbs(of: Resource | Subresource, answered: Collection[str]) -> list[str]:
    return [verb for verb in of.verbs if verb in answered]


def resource_list(group: str, version: str, answered: Collection[str]) -> dict[str, Any]:
    """/api/v1 or /apis/GROUP/VERSION; ApiError 404. `answered`: the verbs that this server has."""
    found: list[dict[str, Any]] = []
    for resource in RESOURCES:
        if (resource.group, resource.version) != (group, version):
            continue
        others = {"shortNames": list(resource.short), "categories": list(resource.categories)}
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": _verbs(resource, answered),
            **{name: given for name, given in others.items() if given},
        }
        if "list" in resource.verbs:
            entry["storageVersionHash"] = _storage_hash(resource)
        found.append(entry)
        for sub in resource.subresources:
            entry = {
                "name": f"{resource.plural}/{sub.name}",
                "singularName": "",
                "namespaced": resource.namespaced,
            }
            if sub.group:
                entry |= {"group": sub.group, "version": sub.version}
            found.append({**entry, "kind": sub.kind, "verbs": _verbs(sub, answered)})
    if not found:
        raise unknown_path()
    result: dict[str, Any] = {"kind": "APIResourceList"}
    if group:
        result["apiVersion"] = "v1"  # the core list comes without it
    word = f"{group}/{version}" if group else version
    return {**result, "groupVersion": word, "resources": sorted(found, key=lambda entry: str(entry["name"]))}


def version_info(version: str) -> dict[str, Any]:
    """/version for a version like "1.36.2"."""
    major, minor, *_ = version.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{version}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


# The application: reads a request, lets its verb be answered, and writes the answer or the refusal.

CACHE = {"cache-control": "no-cache, private"}
_GZIP_FROM = 128 * 1024  # as the server: small answers are not worth it
_WRITES = ("create", "update", "patch", "delete")


class Api:
    """The application's state. `bookmark_every`: seconds between bookmarks of a watch; `progress_notify`: as
    `listing.stream`.

    Every request is the administrator's. A subclass may come in between at `endpoint` and `respond`, and
    answer to more `verbs`.
    """

    verbs: ClassVar[Mapping[str, handlers.Handler]] = handlers.VERBS

    def __init__(
        self,
        store: Store,
        *,
        version: str = "1.36.2",
        bookmark_every: float = 60.0,
        progress_notify: bool = True,
    ) -> None:
        self.store = store
        self.version = version
        self.bookmark_every, self.progress_notify = bookmark_every, progress_notify
        self.bell: Bell | None = None
        self._answered = {*self.verbs, "watch"}

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What uvicorn calls. All paths are the endpoint's, and so are errors: a router had no work."""
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    async def endpoint(self, request: Request) -> Response:
        """The answer to a request, refusals included."""
        try:
            return await self.respond(request, target_of(request))
        except ApiError as error:
            return failure(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            # A defect of the sandbox must look like a server's, not like a cut connection.
            logging.getLogger(__name__).exception("%s %s", request.method, request.url.path)
            return failure(ApiError(500, "InternalError", f"Internal error occurred: {error!r}"))

    async def respond(self, request: Request, target: RequestPath) -> Response:
        """The answer to a request that is well-formed and allowed. Raises ApiError."""
        if not target.resource:
            return self._meta(request)
        resource = target.served
        if resource is None:
            raise unknown_path()
        if target.resource == "selfsubjectaccessreviews":
            return await self._review(request)
        if target.resource == "selfsubjectreviews":
            kind = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {}}
            info = {"userInfo": {"username": self.user_name(request)}}
            return self.json(request, 201, listing.encode({**kind, "status": info}))
        form = listing.Form(listing.negotiate(request.headers.get("accept", "")), resource)
        call = handlers.Call(self.store, resource, target, request.query_params, form, request.headers)
        if target.verb == "watch":
            lines = handlers.watch(
                call, self.bell, bookmark_every=self.bookmark_every, progress_notify=self.progress_notify
            )
            return StreamingResponse(lines, headers={**CACHE, "content-type": "application/json"})
        if target.verb in _WRITES:
            call.body = await body_of(request)
        code, body = handlers.handle(call, self.verbs)
        return self.json(request, code, body)

    def json(self, request: Request, code: int, body: bytes) -> Response:
        """A body of JSON, compressed where that is worth it."""
        headers = {**CACHE, "content-type": "application/json"}
        if len(body) > _GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            headers |= {"content-encoding": "gzip", "vary": "Accept-Encoding"}
        return Response(body, code, headers)

    async def _review(self, request: Request) -> Response:
        spec = decoded(await body_of(request), "SelfSubjectAccessReview").get("spec") or {}
        kind = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        status = {"allowed": self.allows(request, spec)}
        answer = {**kind, "metadata": {}, "spec": spec, "status": status}
        return self.json(request, 201, listing.encode(answer))

    def allows(self, request: Request, spec: Mapping[str, Any]) -> bool:
        """Whether whoever asks may do what the SelfSubjectAccessReview's `spec` says."""
        del request, spec
        return True

    def user_name(self, request: Request) -> str:
        """Who asks."""
        del request
        return "sandbox"

    def _meta(self, request: Request) -> Response:
        path = request.url.path.rstrip("/")
        parts = path.split("/")[1:]
        if parts and parts[0] in ("livez", "readyz", "healthz"):
            return Response("ok", headers={**CACHE, "content-type": "text/plain; charset=utf-8"})
        return self.json(request, 200, listing.encode(self.meta(parts, request.headers.get("host", ""))))

    def meta(self, parts: list[str], host: str) -> dict[str, Any]:
        """What is at a path that names no resource: the version, and discovery. Raises ApiError 404."""
        match parts:
            case ["version"]:
                return version_info(self.version)
            case ["api"]:
                return api_versions(host)
            case ["apis"]:
                return api_groups()
            case ["apis", group]:
                return api_group(group)
            case ["api", version]:
                return resource_list("", version, self._answered)
            case ["apis", group, version]:
                return resource_list(group, version, self._answered)
        raise unknown_path()


def target_of(request: Request) -> RequestPath:
    """What a request names, and its verb."""
    watch = (request.query_params.get("watch") or "").lower() in ("1", "true")
    return parse(request.method, request.url.path, watch=watch)


def failure(error: ApiError) -> Response:
    """A refusal as the client gets it."""
    headers = {**CACHE, "content-type": "application/json"}
    if error.retry_after:
        headers["retry-after"] = str(error.retry_after)
    return Response(listing.encode(error.status()), error.code, headers)


async def body_of(request: Request) -> bytes:
    """The body, decompressed."""
    data = await request.body()
    if request.headers.get("content-encoding") == "gzip":
        data = gzip.decompress(data)
    return data


class ApiServer:
    """An API server on loopback over a `Store`.

    objects         what the cluster consists of at first (Lists count as their items)
    store           instead of `objects`: one that exists already
    port            0: any free one
    version         of Kubernetes, as /version gives it
    bookmark_every  seconds between bookmarks of a watch
    progress_notify whether bookmarks come although nothing happens (`listing.stream`)
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
            proxy_headers=False,
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
            for connection in list(self._server.server_state.connections):  # what outlived the time for it
                connection.transport.abort()
            await asyncio.sleep(0)  # the loop closes what was aborted in its next round

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
