"""Watches: changes from history, then new ones as they come, with bookmarks, until time or server ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from rebalancer.sandbox.api.errors import watch_too_old
from rebalancer.sandbox.api.resources import Resource
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.server.forms import Form, error_event
from rebalancer.sandbox.server.listing import Options
from rebalancer.sandbox.storage.history import Event, Record

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
