"""The sandbox's API server with users, rights, faults, patches and a log of its requests."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from rebalancer import sandbox
from rebalancer.kube.config_maps import labels_of
from rebalancer.sandbox.objects import Object
from tests.support.sandbox.app import GuardedApi
from tests.support.sandbox.authority import ADMIN, Access, Authority, Rule, User
from tests.support.sandbox.faults import Faults

BRAKE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "rebalancer-brake", "namespace": "default", "labels": labels_of("brake")},
}


class _Protocol(H11Protocol):
    """Lets the application see its connection: faults must be able to cut it. Sets the Date of answers."""

    of: ApiServer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        inner = self.app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["sandbox.transport"] = transport
            if self.of.ahead is None:
                self.cycle.default_headers = []
            elif self.of.ahead:
                date = formatdate(time.time() + self.of.ahead, usegmt=True)
                self.cycle.default_headers = [(b"date", date.encode())]
            await inner(scope, receive, send)

        self.app = app


class ApiServer(sandbox.ApiServer):
    """As the sandbox's, and:

    tokens          bearer token → User, beside `admin_token`
    rules           user or group name → Rules (or dicts as in a Role); RBAC objects count too
    authenticate    whether requests without a token are anonymous, instead of the admin's
    fresh_timeout   seconds that a list waits for a resourceVersion to come
    ahead           by how many seconds the Date of answers is; None: they have none; may be changed
    brake           whether the namespace `default` has the ConfigMap that every installation has
    """

    api: GuardedApi

    def __init__(
        self,
        objects: Iterable[Object] = (),
        *,
        tokens: Mapping[str, User] | None = None,
        rules: Mapping[str, Iterable[Rule | Mapping[str, Any]]] | None = None,
        authenticate: bool = False,
        brake: bool = True,
        ahead: float | None = 0.0,
        seed: int | None = None,
        fresh_timeout: float = 0.2,
        **options: Any,
    ) -> None:
        self.admin_token = secrets.token_hex(16)
        self.faults = Faults(seed or 0)
        self._users = {self.admin_token: ADMIN, **(tokens or {})}
        self._rules = rules or {}
        self._authenticate = authenticate
        self.ahead = ahead
        self._fresh_timeout = fresh_timeout
        super().__init__(objects, seed=seed, **options)
        if brake and "store" not in options:
            self.store.create(BRAKE)

    @property
    def protocol(self) -> type[asyncio.Protocol]:  # type: ignore[override]
        """Knows this server."""
        return type("_Protocol", (_Protocol,), {"of": self})

    def make_api(self, **options: Any) -> GuardedApi:
        """As `sandbox.ApiServer.make_api`."""
        authority = Authority(self.store, self._users, self._rules, authenticate=self._authenticate)
        return GuardedApi(self.store, authority, self.faults, self._fresh_timeout, **options)

    @property
    def authority(self) -> Authority:
        """Who may do what; its tokens and rules may be changed."""
        return self.api.authority

    @property
    def accesses(self) -> list[Access]:
        """Every request so far, in the order of their answers (watches: when they began)."""
        return list(self.api.log)

    def kubeconfig(
        self, path: str | Path, *, user: Mapping[str, str] | None = None, token: str | None = None
    ) -> Path:
        """As the sandbox's, with a token: the admin's by default.

        kubectl sends tokens over HTTPS only: without `tls` it is anonymous.
        """
        return super().kubeconfig(path, user=user or {"token": token or self.admin_token})
