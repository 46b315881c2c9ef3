"""Finds brake, ledger or lease of the cluster's installation, in whatever namespace they are."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import DEFAULT_BACKOFF, Backoff, Wait, retry
from rebalancer.kube.coordination.lease import LEASES
from rebalancer.kube.coordination.ledger import CONFIG_MAPS
from rebalancer.kube.coordination.place import Component, Place, selector_of
from rebalancer.kube.errors import ResponseError, Target

_TIMEOUT = 15.0


class _Item(Struct, frozen=True):
    metadata: Place


class _List(Struct, frozen=True):
    items: list[_Item] = []


def find(
    connection: Connection, component: Component, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF
) -> list[Place]:
    """Where the cluster has it: usually one place or none.

    Raises KubeError: ForbiddenError if it may not be listed.
    """
    resource = LEASES if component == "lease" else CONFIG_MAPS
    target = Target("list", resource)

    def ask() -> list[Place]:
        answer = connection.request(
            "GET",
            resource.path(""),
            target,
            query={"labelSelector": selector_of(component)},
            read_timeout=_TIMEOUT,
        )
        try:
            return [item.metadata for item in msgspec.json.decode(answer.body, type=_List).items]
        except msgspec.DecodeError as e:
            raise ResponseError(f"{target}: cannot be read: {e}", target=target, code=200) from e

    return retry(ask, wait=wait, backoff=backoff)
