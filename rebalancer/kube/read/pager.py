"""LIST of one kind, page by page, as bytes.

No resourceVersion is sent: with "0" the server ignores the limit and answers with one body. A continue token
that expired (410) ends the attempt; the list starts again from its beginning, because going on with the
token that the server offers would mix two states of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import DEFAULT_BACKOFF, Backoff, Wait, retry
from rebalancer.kube.client.status import quoted
from rebalancer.kube.errors import ResponseError, Target
from rebalancer.kube.resources import Resource


class ListMeta(Struct, frozen=True, rename="camel"):
    """metav1.ListMeta."""

    resource_version: str = ""
    resume: str = msgspec.field(name="continue", default="")


class Page(Struct, frozen=True, eq=False):
    """One page; the items keep the whole body alive, so decode and drop them."""

    kind: str = ""
    metadata: ListMeta = ListMeta()
    # Go writes an empty list of items as null.
    items: list[Raw] | None = None
    size: int = 0
    """Bytes of the decompressed body."""


_DECODER = msgspec.json.Decoder(Page)


def list_target(resource: Resource, namespace: str = "") -> Target:
    """What a list asks for."""
    return Target("list", resource, namespace or resource.within)


def pages(
    connection: Connection,
    resource: Resource,
    *,
    wait: Wait,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    limit: int = 500,
    backoff: Backoff = DEFAULT_BACKOFF,
    gzip: bool = False,
    read_timeout: float | None = None,
) -> Iterator[Page]:
    """The pages of a list in the server's order. `labels`, `fields`: selectors as kubectl's -l and
    --field-selector take them. `read_timeout`: seconds of silence; None: the connection's.

    Each page is retried by itself. Raises ExpiredError when the state that the list began with is compacted
    away, else what `Connection.request` raises once `backoff` is used up.
    """
    target = list_target(resource, namespace)
    query: dict[str, str | int] = {"limit": limit}
    if labels:
        query["labelSelector"] = labels
    if fields:
        query["fieldSelector"] = fields
    while True:
        page = retry(
            lambda: _page(connection, resource, target, namespace, query, gzip, read_timeout),
            wait=wait,
            backoff=backoff,
        )
        yield page
        if not page.metadata.resume:
            return
        query["continue"] = page.metadata.resume


def _page(
    connection: Connection,
    resource: Resource,
    target: Target,
    namespace: str,
    query: dict[str, str | int],
    gzip: bool,
    read_timeout: float | None,
) -> Page:
    answer = connection.request(
        "GET",
        resource.path(namespace),
        target,
        query=query,
        accept=resource.accept,
        gzip=gzip,
        read_timeout=read_timeout,
    )
    try:
        page = _DECODER.decode(answer.body)
    except msgspec.DecodeError as e:
        raise ResponseError(
            f"{target}: the answer is no list: {e}: {quoted(answer.body)}",
            f"is {connection.who} really an API server, with no proxy in between that answers for it?",
            target=target,
            code=answer.code,
        ) from e
    if not page.kind.endswith("List"):
        raise ResponseError(
            f"{target}: the answer is a {page.kind or 'nameless thing'}, not a list",
            f"is {connection.who} really an API server?",
            target=target,
            code=answer.code,
        )
    return msgspec.structs.replace(page, size=len(answer.body))
