"""The API with what tests need beside it: users and rights, faults, patches, and a log of all requests."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response

from rebalancer.sandbox import handlers, listing
from rebalancer.sandbox.handlers import RequestPath
from rebalancer.sandbox.registry import Store
from rebalancer.sandbox.resources import ApiError, expired
from rebalancer.sandbox.server import CACHE, Api, failure, target_of
from tests.support.sandbox import openapi, strict
from tests.support.sandbox.authority import Access, Authority, User
from tests.support.sandbox.faults import Action, Cut, Delay, Faults, Gone, Reply, Until
from tests.support.sandbox.patch_verb import patch
from tests.support.sandbox.sabotage import Broken, Hung, sabotaged


class GuardedApi(Api):
    """A request is identified, perhaps sabotaged, authorized, then answered, and logged in any case.

    `fresh_timeout`: seconds that a list waits for a version to come.
    """

    verbs: ClassVar[Mapping[str, handlers.Handler]] = {**strict.VERBS, "patch": patch}

    def __init__(
        self, store: Store, authority: Authority, faults: Faults, fresh_timeout: float, **options: Any
    ) -> None:
        super().__init__(store, **options)
        self._fresh_timeout = fresh_timeout
        self.authority = authority
        self.faults = faults
        self.log: list[Access] = []

    async def endpoint(self, request: Request) -> Response:
        """As `Api.endpoint`."""
        target = target_of(request)
        fields = request.query_params.get("fieldSelector") or ""
        name = _name(target, fields)
        access = Access("", target.verb, target.group, target.resource, target.subresource, target.namespace,
                        name, request.url.path, limit=_limit(request), fields=fields,
                        dry_run=request.query_params.get("dryRun") == "All")  # fmt: skip
        transport = request.scope.get("sandbox.transport")
        action: Action | None = None
        try:
            user = self._user(request)
            access = access._replace(user=user.name)
            action = self.faults.take(access)
            if isinstance(action, Reply):
                await asyncio.sleep(action.after)
                response = _reply(action)
            else:
                if early := await _before(action, transport, target):
                    self.log.append(access)
                    return early
                self.authority.check(user, access)
                response = await super().endpoint(request)
        except ApiError as error:
            response = failure(error)
        size = len(getattr(response, "body", b""))
        self.log.append(access._replace(code=response.status_code, size=size))
        return sabotaged(response, action, transport)

    async def respond(self, request: Request, target: RequestPath) -> Response:
        """As `Api.respond`."""
        if target.verb == "watch" and target.served is not None:
            strict.check_options(request.query_params, target.served)
        if target.verb == "list":
            await self._wait_for(request.query_params)
        return await super().respond(request, target)

    async def _wait_for(self, query: Mapping[str, str]) -> None:
        """Waits a moment for a version that other writers may be about to make."""
        version, now = query.get("resourceVersion") or "", asyncio.get_running_loop().time
        until = now() + self._fresh_timeout
        while (
            version.isdigit()
            and not query.get("continue")
            and int(version) > self.store.revision
            and now() < until
        ):
            await asyncio.sleep(0.02)

    def _user(self, request: Request) -> User:
        return self.authority.identify(request.headers, request.headers.getlist("impersonate-group"))

    def user_name(self, request: Request) -> str:
        return self._user(request).name

    def allows(self, request: Request, spec: Mapping[str, Any]) -> bool:
        """As `Api.allows`."""
        user = self._user(request)
        wanted = spec.get("resourceAttributes") or {}
        other = spec.get("nonResourceAttributes") or {}
        verb = wanted.get("verb") or other.get("verb", "")
        access = Access(user.name, verb, wanted.get("group", ""), wanted.get("resource", ""),
                        wanted.get("subresource", ""), wanted.get("namespace", ""), wanted.get("name", ""),
                        other.get("path", ""))  # fmt: skip
        return self.authority.allows(user, access)

    def meta(self, parts: list[str], host: str) -> dict[str, Any]:
        """As `Api.meta`, and OpenAPI."""
        match parts:
            case ["openapi", "v3"]:
                return openapi.openapi_index()
            case ["openapi", "v3", "api", version]:
                return openapi.openapi("", version)
            case ["openapi", "v3", "apis", group, version]:
                return openapi.openapi(group, version)
        return super().meta(parts, host)


def _name(target: RequestPath, fields: str) -> str:
    """For a list of one name, RBAC sees that name."""
    if target.name or not fields.startswith("metadata.name="):
        return target.name
    return fields.removeprefix("metadata.name=") if "," not in fields else ""


def _limit(request: Request) -> int:
    said = request.query_params.get("limit") or ""
    return int(said) if said.isdigit() else 0


async def _before(action: Action | None, transport: Any, target: RequestPath) -> Response | None:
    """What a fault does before the request is handled."""
    match action:
        case Delay(seconds, None):
            if math.isinf(seconds):
                return Hung(transport)
            await asyncio.sleep(seconds)
        case Until(met):
            while not met():
                await asyncio.sleep(0.02)
        case Cut("before", _, None):
            return Broken(transport)
        case Gone() if target.verb != "watch":
            raise expired(action.message)
    return None


def _reply(action: Reply) -> Response:
    payload = action.payload()
    body = payload if isinstance(payload, bytes) else listing.encode(payload)
    return Response(body, action.code, {**CACHE, "content-type": "application/json", **action.headers})
