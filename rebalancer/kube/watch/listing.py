"""A whole list of one kind, paged or streamed, with what of it cannot be read."""

from __future__ import annotations

from collections.abc import Iterable

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import Backoff, Wait
from rebalancer.kube.read.pager import pages
from rebalancer.kube.resources import Resource
from rebalancer.kube.watch.changes import Changes
from rebalancer.kube.watch.options import WatchOptions
from rebalancer.kube.watch.request import Watch, initial_end
from rebalancer.kube.watch.store import Change
from rebalancer.model.kinds import Object
from rebalancer.model.snapshot import Identity

_ONCE = Backoff(tries=1)


class Listing:
    """`objects`, `broken` (why they cannot be read) and the `version` that they are of."""

    def __init__(self) -> None:
        self.objects: dict[Identity, Object] = {}
        self.broken: dict[Identity, str] = {}
        self.version = ""

    def take(self, changes: Iterable[Change]) -> None:
        """What comes later counts, for a streaming list changes while it lasts."""
        for key, value, text in changes:
            if value is not None:
                self.objects[key] = value
                self.broken.pop(key, None)
            else:
                self.objects.pop(key, None)
                if text:
                    self.broken[key] = text


def paged(
    connection: Connection, resource: Resource, options: WatchOptions, changes: Changes, wait: Wait
) -> Listing:
    """A list page by page. Raises KubeError."""
    found = Listing()
    for page in pages(
        connection,
        resource,
        wait=wait,
        limit=options.page_size,
        backoff=_ONCE if resource.add_on else options.backoff,
        gzip=connection.options.gzip,
        read_timeout=options.add_on_patience if resource.add_on else None,
    ):
        found.version = page.metadata.resource_version
        found.take(changes.listed(raw) for raw in page.items or ())
    return found


def streamed(watch: Watch, changes: Changes) -> Listing | None:
    """A streaming list up to its end; None if the watch ends without one. Raises KubeError."""
    found = Listing()
    for batch in watch.batches():
        end = next((i for i, e in enumerate(batch) if initial_end(e)), len(batch))
        found.take(changes.event(watch, e)[0] for e in batch[:end] if e.type != "BOOKMARK")
        if end < len(batch):
            found.version = changes.bookmark(watch, batch[end])
            return found
    return None
