"""Lists: options, pages with continue tokens, and which version of the collection a list shows."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from rebalancer.sandbox import objects
from rebalancer.sandbox.objects import FieldTest, LabelSelector, Object, matches, parse_fields, parse_labels
from rebalancer.sandbox.registry import Store
from rebalancer.sandbox.resources import (
    ApiError,
    Resource,
    expired,
    too_large_version,
    watch_too_old,
)
from rebalancer.sandbox.storage import Event, Record

_TOO_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)
_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."


@dataclass(frozen=True, slots=True)
class Options:
    """ListOptions of a query string. `version` None: not given. `timeout` in seconds, 0: none."""

    labels: LabelSelector
    fields: tuple[FieldTest, ...]
    limit: int
    token: str
    version: int | None
    match: str
    watch: bool
    timeout: int
    bookmarks: bool
    initial_events: bool | None

    def selects(self, record: Record) -> bool:
        obj = record.obj
        return matches(self.labels, obj["metadata"].get("labels")) and all(test(obj) for test in self.fields)

    @property
    def selective(self) -> bool:
        return bool(self.labels or self.fields)


def _flag(text: str | None) -> bool:
    return (text or "").lower() in ("1", "true", "t")


def parse(query: Mapping[str, str], resource: Resource) -> Options:
    """ApiError 400 for selectors that do not parse."""
    version = query.get("resourceVersion")
    initial = query.get("sendInitialEvents")
    return Options(
        labels=parse_labels(query.get("labelSelector") or ""),
        fields=parse_fields(query.get("fieldSelector") or "", resource),
        limit=max(int(query.get("limit") or 0), 0),
        token=query.get("continue") or "",
        version=int(version) if version else None,
        match=query.get("resourceVersionMatch") or "",
        watch=_flag(query.get("watch")),
        timeout=int(query.get("timeoutSeconds") or 0),
        bookmarks=_flag(query.get("allowWatchBookmarks")),
        initial_events=_flag(initial) if initial is not None else None,
    )


class Page(NamedTuple):
    """Records in key order and the list's own metadata."""

    records: list[Record]
    metadata: dict[str, Any]


def _token(version: int, start: str) -> str:
    data = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def _read_token(text: str) -> tuple[int, str]:
    data = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return int(data["rv"]), str(data["start"]).removesuffix("\0").lstrip("/")


def page(store: Store, resource: Resource, namespace: str | None, options: Options) -> Page:
    """ApiError 410 for a version that is forgotten, 504 for one that has not happened."""
    with store.lock:
        collection = store.collection(resource)
        now = store.revision
        limit, version, after, slash = options.limit, now, "", "/"
        if options.version is None and not options.token:
            collection.progress = now
        if options.token:
            version, start = _read_token(options.token)
            after, slash = f"{namespace}/{start}" if namespace else start, ""
            if version < 0:
                version = now  # the inconsistent way on that a 410 offered
            elif version < collection.floor:
                raise expired(_TOO_OLD_TOKEN, _token(-1, f"{start}\0"))
        elif options.version is not None and options.version > now:
            raise too_large_version(options.version, now)
        elif options.version == 0:
            limit = 0  # served from the watch cache, which takes no limit
        elif options.match == "Exact" or (options.version and limit and not options.match):
            version = options.version or now
            if version < collection.floor:
                raise expired(_TOO_OLD_LIST)
        found = (
            collection.scan(namespace, after)
            if version >= now
            else collection.scan_at(version, namespace, after)
        )
        if options.selective:
            found = (record for record in found if options.selects(record))
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if not limit:
            return Page(list(found), metadata)
        records = list(islice(found, limit))
        rest = sum(1 for _ in found)
    return (
        Page(records, metadata)
        if not rest
        else _more(records, metadata, rest, version, slash, namespace, options)
    )


def _more(
    records: list[Record],
    metadata: dict[str, Any],
    rest: int,
    version: int,
    slash: str,
    namespace: str | None,
    options: Options,
) -> Page:
    last = records[-1].key
    if namespace:
        last = last.split("/", 1)[1]
    metadata["continue"] = _token(version, f"{slash}{last}\0")
    if not options.selective:  # as the server: the rest is counted by key, not by selector
        metadata["remainingItemCount"] = rest
    return Page(records, metadata)


# The forms that one object or list can be asked for in: whole, or metadata only.

encode = msgspec.json.Encoder().encode
PLAIN, PARTIAL = "json", "partial"
_AS = {
    "": PLAIN,
    "PartialObjectMetadata": PARTIAL,
    "PartialObjectMetadataList": PARTIAL,
}
_META = {"apiVersion": "meta.k8s.io/v1"}


def negotiate(accept: str) -> str:
    """The first form of an Accept header that is served; ApiError 406 where none is."""
    for media in (accept or "*/*").split(","):
        name, *rest = (part.strip() for part in media.split(";"))
        params = dict(part.split("=", 1) for part in rest if "=" in part)
        if name in ("application/json", "*/*", "application/*"):
            if "as" in params and (params.get("g"), params.get("v")) != ("meta.k8s.io", "v1"):
                continue
            if (form := _AS.get(params.get("as", ""))) is not None:
                return form
    message = "only the following media types are accepted: application/json"
    raise ApiError(406, "NotAcceptable", message, {})


class Form:
    """One way of writing objects of one resource."""

    def __init__(self, kind: str, resource: Resource) -> None:
        self.kind = kind
        self.resource = resource

    def one(self, record: Record) -> bytes:
        if self.kind == PARTIAL:
            return encode(_partial(record.obj))
        if self.resource.group == "events.k8s.io":
            return encode(objects.to_new(record.obj))
        return record.full(self.resource)

    def obj(self, obj: Object) -> bytes:
        """An object that is not stored (a dry run's)."""
        return self.one(Record("", obj, 0))

    def page(self, page: Page) -> bytes:
        if self.kind == PARTIAL:
            items: list[bytes] = [encode(_partial(record.obj)) for record in page.records]
            kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        else:
            kind, version = f"{self.resource.kind}List", self.resource.api_version
            if self.resource.group == "events.k8s.io":
                items = [encode(objects.to_new(record.obj)) for record in page.records]
            else:
                items = [record.item() for record in page.records]
        head = f'{{"kind":"{kind}","apiVersion":"{version}","metadata":'.encode()
        return b"".join((head, encode(page.metadata), b',"items":[', b",".join(items), b"]}\n"))

    def event(self, kind: str, record: Record) -> bytes:
        """One line of a watch."""
        body = self.one(record)
        return b"".join((b'{"type":"', kind.encode(), b'","object":', body.rstrip(), b"}\n"))

    def bookmark(self, rv: int, *, end_of_initial: bool = False) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(rv)}
        if end_of_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind = {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
        zero: Object = {**kind, "metadata": metadata}
        if self.kind == PARTIAL:
            zero |= {"kind": "PartialObjectMetadata", **_META}
        else:
            zero |= self.resource.zero
        return encode({"type": "BOOKMARK", "object": zero}) + b"\n"


def _partial(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", **_META, "metadata": obj["metadata"]}


def error_event(error: ApiError) -> bytes:
    return encode({"type": "ERROR", "object": error.status()}) + b"\n"


# Watches: changes from history, then new ones as they come, with bookmarks, until time or server ends.

_NEVER = 365 * 86400.0


class Bell:
    """Carries "something changed" from the threads that write to the event loop's watchers."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._pending: set[str] = set()
        self.closed = False
        self._end = store.subscribe(self._rung)

    def _rung(self, event: Event) -> None:
        # Under the store's lock. One wake-up for many changes is enough: watchers read history.
        storage = event.resource.storage
        if storage not in self._pending and not self.closed:
            self._pending.add(storage)
            self._loop.call_soon_threadsafe(self._wake, storage)

    def _wake(self, storage: str) -> None:
        self._pending.discard(storage)
        for waiter in self._waiting.get(storage, ()):
            waiter.set()

    def join(self, storage: str) -> asyncio.Event:
        waiter = asyncio.Event()
        self._waiting.setdefault(storage, set()).add(waiter)
        return waiter

    def leave(self, storage: str, waiter: asyncio.Event) -> None:
        self._waiting[storage].discard(waiter)

    def close(self) -> None:
        """End every watch; called in the loop."""
        self.closed = True
        self._end()
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.set()


def _shown(event: Event, options: Options) -> tuple[str, Record] | None:
    """What a watcher with selectors sees: entering the selection is ADDED, leaving it DELETED."""
    if not options.selective:
        return event.type, event.record
    before = event.old is not None and options.selects(event.old)
    after = event.type != "DELETED" and options.selects(event.record)
    if before and after:
        return "MODIFIED", event.record
    if after:
        return "ADDED", event.record
    if not before or event.old is None:
        return None
    if event.type == "DELETED":
        return "DELETED", event.record
    # Left the selection: the old state, at the version of the change.
    old = event.old.obj
    gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(event.rv)}}
    return "DELETED", Record(event.old.key, gone, event.rv)


async def stream(
    store: Store,
    bell: Bell,
    resource: Resource,
    namespace: str | None,
    options: Options,
    form: Form,
    *,
    bookmark_every: float,
    progress_notify: bool,
) -> AsyncIterator[bytes]:
    """Lines of a watch. `bookmark_every` in seconds; one more comes 2 s before the timeout.

    As the real one, the server sends no bookmark that is not newer than the version that the watch began with
    (`process` of cache_watcher.go). `progress_notify`: there always is a newer one, as where other kinds
    are written all the time and etcd tells of its progress (kubeadm's does, every 5 s).
    """
    loop = asyncio.get_running_loop()
    collection = store.collection(resource)
    prefix = f"{namespace}/" if namespace else ""
    end = loop.time() + (options.timeout or _NEVER)
    waiter = bell.join(resource.storage)
    try:
        version, first = _start(store, resource, namespace, options, form)
        for line in first:
            yield line
        if version is None:
            return
        began, next_bookmark = version, loop.time() + bookmark_every
        final_bookmark = end - 2 if options.timeout > 2 else end + 1
        while not bell.closed:
            waiter.clear()
            with store.lock:
                behind = version < collection.floor
                news = [] if behind else collection.since(version)
                current, progress = store.revision, collection.progress
            if behind:
                yield error_event(watch_too_old(version, collection.floor))
                return
            for event in news:
                if prefix and not event.record.key.startswith(prefix):
                    continue
                if (shown := _shown(event, options)) is not None:
                    yield form.event(*shown)
            version = max(version, current)
            now = loop.time()
            if options.bookmarks and now >= min(next_bookmark, final_bookmark):
                if progress_notify or progress > began:
                    yield form.bookmark(current if progress_notify else progress)
                if now >= final_bookmark:
                    final_bookmark = end + 1
                next_bookmark = now + bookmark_every
            if now >= end:
                return
            marks = min(next_bookmark, final_bookmark) if options.bookmarks else end
            try:
                async with asyncio.timeout(max(min(end, marks) - now, 0.001)):
                    await waiter.wait()
            except TimeoutError:
                continue
    finally:
        bell.leave(resource.storage, waiter)


def _start(
    store: Store, resource: Resource, namespace: str | None, options: Options, form: Form
) -> tuple[int | None, list[bytes]]:
    """(version to go on from, None to end; the first lines)."""
    with store.lock:
        collection, now = store.collection(resource), store.revision
        version = options.version or 0
        initial = options.initial_events if options.initial_events is not None else version == 0
        if not initial:
            if version and version < collection.floor:
                return None, [error_event(watch_too_old(version, collection.floor))]
            return version or now, []
        if options.initial_events:
            collection.progress = now
        records = [r for r in collection.scan(namespace) if not options.selective or options.selects(r)]
    lines = [form.event("ADDED", record) for record in records]
    if options.initial_events and options.bookmarks:
        lines.append(form.bookmark(now, end_of_initial=True))
    return now, lines
