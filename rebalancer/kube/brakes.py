"""Annotations by which people pause evictions: of the lease for all, of a namespace for its pods."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import ForbiddenError, NotFoundError, ResponseError, Target
from rebalancer.kube.lease import LEASES
from rebalancer.kube.resources import RESOURCES, Resource
from rebalancer.kube.retry import DEFAULT_BACKOFF, Backoff, Wait, retry

log = logging.getLogger(__name__)


_TIMEOUT = 10.0
_REFUSALS = 3
"""After so many in a row the right to look is taken to be missing."""


class _Meta(Struct, frozen=True):
    annotations: dict[str, str] = {}


class _Object(Struct, frozen=True):
    metadata: _Meta = _Meta()


class Brakes:
    """Reads annotations fresh. What may not be read cannot brake: that is told once, by name."""

    def __init__(self, connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> None:
        self._connection = connection
        self._wait = wait
        self._backoff = backoff
        self._forbidden: set[str] = set()

    def lease(self, namespace: str, name: str) -> Mapping[str, str]:
        """Annotations of a Lease; none where there is no such lease. Raises KubeError."""
        return self._annotations(LEASES, namespace, name)

    def namespace(self, name: str) -> Mapping[str, str]:
        """Annotations of a namespace. Raises KubeError."""
        return self._annotations(RESOURCES["Namespace"], "", name)

    def _annotations(
        self, resource: Resource, namespace: str, name: str, tried: int = 1
    ) -> Mapping[str, str]:
        target = Target("get", resource, namespace, name)
        key = str(target)
        if key in self._forbidden:
            return {}

        def ask() -> bytes:
            path = resource.path(namespace, name)
            return self._connection.request("GET", path, target, read_timeout=_TIMEOUT).body

        try:
            body = retry(ask, wait=self._wait, backoff=self._backoff)
            return msgspec.json.decode(body, type=_Object).metadata.annotations
        except NotFoundError:
            return {}
        except ForbiddenError as e:
            if tried < _REFUSALS:
                # An API server that has just been started refuses everything for a moment, and a brake that
                # is on must not be let go for that.
                if self._wait(self._backoff.delay(tried, e.retry_after)):
                    raise
                return self._annotations(resource, namespace, name, tried + 1)
            self._forbidden.add(key)
            log.warning("a pause of %s cannot be seen: %s", f"{namespace}/{name}".strip("/"), e)
            return {}
        except msgspec.DecodeError as e:
            raise ResponseError(f"{target}: cannot be read: {e}", target=target, code=200) from e
