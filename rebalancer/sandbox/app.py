"""The API over HTTP: a request is identified, logged, perhaps sabotaged, authorized, then handled."""

from __future__ import annotations

import asyncio
import gzip
import logging
import math
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rebalancer.sandbox import discovery, forms, handlers
from rebalancer.sandbox.auth import Access, Authority
from rebalancer.sandbox.bodies import decoded
from rebalancer.sandbox.errors import ApiError, expired, unknown_path
from rebalancer.sandbox.faults import Action, Cut, Delay, Faults, Gone, Reply
from rebalancer.sandbox.requests import Target, parse
from rebalancer.sandbox.sabotage import Broken, Hung, sabotaged
from rebalancer.sandbox.store import Store
from rebalancer.sandbox.watch import Bell

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_CACHE = {"cache-control": "no-cache, private"}
_GZIP_FROM = 128 * 1024  # as the server: small answers are not worth it


class Api:
    """The application's state. `fresh_timeout`: seconds that a list waits for a version to come;
    `bookmark_every`: seconds between bookmarks of a watch."""

    def __init__(
        self,
        store: Store,
        authority: Authority,
        faults: Faults,
        *,
        version: str = "1.36.2",
        fresh_timeout: float = 0.2,
        bookmark_every: float = 60.0,
    ) -> None:
        self.store = store
        self.authority = authority
        self.faults = faults
        self.version = version
        self.fresh_timeout = fresh_timeout
        self.bookmark_every = bookmark_every
        self.log: list[Access] = []
        self.bell: Bell | None = None
        self.app = Starlette(routes=[Route("/{path:path}", self.endpoint, methods=_METHODS)])

    async def endpoint(self, request: Request) -> Response:
        query = request.query_params
        watch = (query.get("watch") or "").lower() in ("1", "true")
        target = parse(request.method, request.url.path, watch=watch)
        action: Action | None = None
        access = Access("", target.verb, target.group, target.resource, target.subresource, target.namespace,
                        _name(target, query.get("fieldSelector") or ""), request.url.path)  # fmt: skip
        try:
            user = self.authority.identify(request.headers, request.headers.getlist("impersonate-group"))
            access = access._replace(user=user.name)
            action = self.faults.take(access)
            if isinstance(action, Reply):
                response = _reply(action)
            else:
                if early := await _before(action, request, target):
                    self.log.append(access)
                    return early
                self.authority.check(user, access)
                response = await self._respond(request, target)
        except ApiError as error:
            response = failure(error)
        except ClientDisconnect:
            response = Response(status_code=499)
        except Exception as error:
            # A defect of the sandbox must look like a server's, not like a cut connection.
            logging.getLogger(__name__).exception("%s %s", request.method, request.url.path)
            response = failure(ApiError(500, "InternalError", f"Internal error occurred: {error!r}"))
        self.log.append(access._replace(code=response.status_code))
        return sabotaged(response, action, request.scope.get("sandbox.transport"))

    async def _respond(self, request: Request, target: Target) -> Response:
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
            lines = handlers.watch(call, self.bell, self.bookmark_every)
            return StreamingResponse(lines, headers={**_CACHE, "content-type": "application/json"})
        if target.verb in ("create", "update", "patch", "delete", "deletecollection"):
            call.body = await body_of(request)
        if target.verb == "list":
            await self._fresh(call)
        code, body = handlers.handle(call)
        return self._json(request, code, body)

    async def _fresh(self, call: handlers.Call) -> None:
        """Wait a moment for a version that other writers may be about to make."""
        until = asyncio.get_running_loop().time() + self.fresh_timeout
        while call.is_ahead() and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)

    def _json(self, request: Request, code: int, body: bytes) -> Response:
        headers = {**_CACHE, "content-type": "application/json"}
        if len(body) > _GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            headers |= {"content-encoding": "gzip", "vary": "Accept-Encoding"}
        return Response(body, code, headers)

    async def _review(self, request: Request) -> Response:
        review = decoded(
            await body_of(request), request.headers.get("content-type", ""), "SelfSubjectAccessReview"
        )
        user = self.authority.identify(request.headers, request.headers.getlist("impersonate-group"))
        wanted = (review.get("spec") or {}).get("resourceAttributes") or {}
        path = ((review.get("spec") or {}).get("nonResourceAttributes") or {}).get("path", "")
        verb = wanted.get("verb") or ((review.get("spec") or {}).get("nonResourceAttributes") or {}).get(
            "verb", ""
        )
        access = Access(user.name, verb, wanted.get("group", ""), wanted.get("resource", ""),
                        wanted.get("subresource", ""), wanted.get("namespace", ""), wanted.get("name", ""),
                        path)  # fmt: skip
        allowed = self.authority.allows(user, access)
        kind = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        answer = {**kind, "metadata": {}, "spec": review.get("spec") or {}, "status": {"allowed": allowed}}
        return self._json(request, 201, forms.encode(answer))

    def _meta(self, request: Request) -> Response:
        """Everything that is no resource: health, version, discovery, OpenAPI."""
        path = request.url.path.rstrip("/")
        parts = path.split("/")[1:]
        if parts[0] in ("livez", "readyz", "healthz"):
            return Response("ok", headers={**_CACHE, "content-type": "text/plain; charset=utf-8"})
        accept = request.headers.get("accept", "")
        body: dict[str, Any]
        if path in ("/api", "/apis") and discovery.AGGREGATED in accept:
            word = "v2" if "v=v2;" in accept + ";" or "v=v2," in accept else "v2beta1"
            body = discovery.aggregated(core=path == "/api", version=word)
            media = f"application/json;g={discovery.AGGREGATED};v={word};as=APIGroupDiscoveryList"
            return Response(forms.encode(body), headers={"cache-control": "public", "content-type": media})
        match parts:
            case ["version"]:
                body = discovery.version_info(self.version)
            case ["api"]:
                body = discovery.api_versions(request.headers.get("host", ""))
            case ["apis"]:
                body = discovery.api_groups()
            case ["apis", group]:
                body = discovery.api_group(group)
            case ["api", version]:
                body = discovery.resource_list("", version)
            case ["apis", group, version]:
                body = discovery.resource_list(group, version)
            case ["openapi", "v3"]:
                body = discovery.openapi_index()
            case ["openapi", "v3", "api", version]:
                body = discovery.openapi("", version)
            case ["openapi", "v3", "apis", group, version]:
                body = discovery.openapi(group, version)
            case _:
                raise unknown_path()
        return self._json(request, 200, forms.encode(body))


def _name(target: Target, fields: str) -> str:
    """For a list of one name, RBAC sees that name."""
    if target.name or not fields.startswith("metadata.name="):
        return target.name
    return fields.removeprefix("metadata.name=") if "," not in fields else ""


async def _before(action: Action | None, request: Request, target: Target) -> Response | None:
    """What a fault does before the request is handled."""
    match action:
        case Delay(seconds, None):
            if math.isinf(seconds):
                return Hung(request.scope.get("sandbox.transport"))
            await asyncio.sleep(seconds)
        case Cut("before", _, None):
            return Broken(request.scope.get("sandbox.transport"))
        case Gone() if target.verb != "watch":
            raise expired(action.message)
    return None


def _reply(action: Reply) -> Response:
    payload = action.payload()
    body = payload if isinstance(payload, bytes) else forms.encode(payload)
    return Response(body, action.code, {**_CACHE, "content-type": "application/json", **action.headers})


def failure(error: ApiError) -> Response:
    headers = {**_CACHE, "content-type": "application/json"}
    if error.retry_after:
        headers["retry-after"] = str(error.retry_after)
    return Response(forms.encode(error.status()), error.code, headers)


async def body_of(request: Request) -> bytes:
    data = await request.body()
    if request.headers.get("content-encoding") == "gzip":
        data = gzip.decompress(data)
    return data
