"""The application: reads a request, lets its verb be answered, and writes the answer or the refusal."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rebalancer.sandbox.api.errors import ApiError, unknown_path
from rebalancer.sandbox.kubectl import discovery
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.server import forms, handlers
from rebalancer.sandbox.server.bodies import decoded
from rebalancer.sandbox.server.requests import RequestPath, parse
from rebalancer.sandbox.server.watch import Bell

CACHE = {"cache-control": "no-cache, private"}
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_GZIP_FROM = 128 * 1024  # as the server: small answers are not worth it
_WRITES = ("create", "update", "patch", "delete", "deletecollection")


class Api:
    """The application's state. `fresh_timeout`: seconds that a list waits for a version to come;
    `bookmark_every`: seconds between bookmarks of a watch; `progress_notify`: as `watch.stream`.

    Every request is the administrator's. A subclass may come in between at `endpoint` and `respond`, and
    answer to more `verbs`.
    """

    verbs: ClassVar[Mapping[str, handlers.Handler]] = handlers.VERBS

    def __init__(
        self,
        store: Store,
        *,
        version: str = "1.36.2",
        fresh_timeout: float = 0.2,
        bookmark_every: float = 60.0,
        progress_notify: bool = True,
    ) -> None:
        self.store = store
        self.version = version
        self.fresh_timeout = fresh_timeout
        self.bookmark_every, self.progress_notify = bookmark_every, progress_notify
        self.bell: Bell | None = None
        self._answered = {*self.verbs, "watch"}
        self.app = Starlette(routes=[Route("/{path:path}", self.endpoint, methods=_METHODS)])

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
        form = forms.Form(
            forms.negotiate(request.headers.get("accept", "")),
            resource,
            self.store.clock,
            request.query_params.get("includeObject", ""),
        )
        call = handlers.Call(self.store, resource, target, request.query_params, form, request.headers)
        if target.verb == "watch":
            lines = handlers.watch(
                call, self.bell, bookmark_every=self.bookmark_every, progress_notify=self.progress_notify
            )
            return StreamingResponse(lines, headers={**CACHE, "content-type": "application/json"})
        if target.verb in _WRITES:
            call.body = await body_of(request)
        if target.verb == "list":
            await self._fresh(call)
        code, body = handlers.handle(call, self.verbs)
        return self.json(request, code, body)

    async def _fresh(self, call: handlers.Call) -> None:
        """Wait a moment for a version that other writers may be about to make."""
        until = asyncio.get_running_loop().time() + self.fresh_timeout
        while call.is_ahead() and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)

    def json(self, request: Request, code: int, body: bytes) -> Response:
        """A body of JSON, compressed where that is worth it."""
        headers = {**CACHE, "content-type": "application/json"}
        if len(body) > _GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            headers |= {"content-encoding": "gzip", "vary": "Accept-Encoding"}
        return Response(body, code, headers)

    async def _review(self, request: Request) -> Response:
        body, media = await body_of(request), request.headers.get("content-type", "")
        spec = decoded(body, media, "SelfSubjectAccessReview").get("spec") or {}
        kind = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        status = {"allowed": self.allows(request, spec)}
        answer = {**kind, "metadata": {}, "spec": spec, "status": status}
        return self.json(request, 201, forms.encode(answer))

    def allows(self, request: Request, spec: Mapping[str, Any]) -> bool:
        """Whether whoever asks may do what the SelfSubjectAccessReview's `spec` says."""
        del request, spec
        return True

    def _meta(self, request: Request) -> Response:
        path = request.url.path.rstrip("/")
        accept = request.headers.get("accept", "")
        parts = path.split("/")[1:]
        if parts and parts[0] in ("livez", "readyz", "healthz"):
            return Response("ok", headers={**CACHE, "content-type": "text/plain; charset=utf-8"})
        if path in ("/api", "/apis") and discovery.AGGREGATED in accept:
            word = "v2" if "v=v2;" in accept + ";" or "v=v2," in accept else "v2beta1"
            body = discovery.aggregated(core=path == "/api", version=word, answered=self._answered)
            media = f"application/json;g={discovery.AGGREGATED};v={word};as=APIGroupDiscoveryList"
            return Response(forms.encode(body), headers={"cache-control": "public", "content-type": media})
        return self.json(request, 200, forms.encode(self.meta(parts, request.headers.get("host", ""))))

    def meta(self, parts: list[str], host: str) -> dict[str, Any]:
        """What is at a path that names no resource: the version, and discovery. Raises ApiError 404."""
        match parts:
            case ["version"]:
                return discovery.version_info(self.version)
            case ["api"]:
                return discovery.api_versions(host)
            case ["apis"]:
                return discovery.api_groups()
            case ["apis", group]:
                return discovery.api_group(group)
            case ["api", version]:
                return discovery.resource_list("", version, self._answered)
            case ["apis", group, version]:
                return discovery.resource_list(group, version, self._answered)
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
    return Response(forms.encode(error.status()), error.code, headers)


async def body_of(request: Request) -> bytes:
    """The body, decompressed."""
    data = await request.body()
    if request.headers.get("content-encoding") == "gzip":
        data = gzip.decompress(data)
    return data
