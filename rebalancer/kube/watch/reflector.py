"""List, then watch, of one kind, for as long as the daemon runs, whatever happens to the server.

- A list is paged, or streamed where the server offers it, and waits for those of other kinds; it becomes
  visible as a whole.
- A watch goes on where the one before it ended. Before it does, the server is asked whether its history has
  come that far: one that lost history would answer the watch with silence.
- While somebody is about to act on it, a kind is followed closely (`follow_closely`): by short watches, one
  after the other. A watch first brings what happened since the version that it begins with. So nothing is
  missing of the time before it, even if the connection before it was half open, once a bookmark has come, 2 s
  before its end, or the server has ended it in time. The end has to do where nothing happens: no bookmark is
  sent then, for a server sends only one that is newer than the version that the watch began with. All this
  costs as much in a large cluster as in a small one.
- 410, a lost history, the same garbage twice: a new list. Everything else: the watch again.
- Every attempt that ends soon, well or badly, makes the next one wait longer; a proxy that accepts watches
  and closes them is a fault like any other.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import msgspec
from msgspec import Raw, Struct

from rebalancer.kube.connection import Backoff, Connection, Wait
from rebalancer.kube.errors import (
    ExpiredError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    StatusError,
)
from rebalancer.kube.lists import ADD_ON_PATIENCE, HeadMeta, head, malformed, pages, with_discovery
from rebalancer.kube.resources import Resource
from rebalancer.kube.watch.store import Change, KindStore, Watch, WatchEvent, initial_end, version_known
from rebalancer.model.decode import LOOKED_INTO, MALFORMED, Decoder, unknown_field
from rebalancer.model.snapshot import WORKLOADS, Identity, Object, identity

# Bytes of lists and watches → changes of one kind's store, decoded once, sharing what is alike.

_SWEEP_AFTER = 5000
"""Parts remembered beyond twice what is in use, before those out of use are forgotten."""


class Changes:
    """Decodes for one store; not for several threads.

    `newer`: whether the server is newer than all known versions. `unknown`: a field of one of the objects so
    far that no known version has, or that they were not searched for one; "" if there is none.
    """

    def __init__(self, kind: str, newer: Callable[[], bool] = lambda: False) -> None:
        self._kind = kind
        self._newer = newer
        self.unknown = ""
        self._decoder = Decoder()
        self._sweep_at = _SWEEP_AFTER

    def listed(self, raw: bytes | Raw) -> Change:
        """An object as it is now; one that cannot be read is a change to nothing, with the reason."""
        if not self.unknown and self._kind in LOOKED_INTO:
            self.unknown = unknown_field(self._kind, raw) if self._newer() else "read as of a known version"
        try:
            value = self._decoder.decode(self._kind, raw)
        except MALFORMED as e:
            try:
                key = self._key(head(raw))
            except MALFORMED:
                key = ("", "?")
            return key, None, malformed(self._kind, raw, e)
        return identity(value), value, ""

    def event(self, watch: Watch, event: WatchEvent) -> tuple[Change, str]:
        """An event that is no bookmark, and its version. Raises ResponseError where it is neither."""
        try:
            meta = head(event.object)
        except msgspec.DecodeError as e:
            raise watch.garbage(str(e)) from e
        if not meta.name or not meta.resource_version:
            raise watch.garbage("an event without a name or a version")
        if event.type == "DELETED":
            return (self._key(meta), None, ""), meta.resource_version
        return self.listed(event.object), meta.resource_version

    def bookmark(self, watch: Watch, event: WatchEvent) -> str:
        """The version that a bookmark tells. Raises ResponseError where it tells none."""
        try:
            version = head(event.object).resource_version
        except msgspec.DecodeError as e:
            raise watch.garbage(str(e)) from e
        if not version:
            raise watch.garbage("a bookmark without a version")
        return version

    def forget(self, live: Callable[[], Collection[Object]]) -> None:
        """Forgets what only objects of the past shared; seldom, as it looks at every object."""
        if self._decoder.entries > self._sweep_at:
            self._decoder.keep(live())
            self._sweep_at = 2 * self._decoder.entries + _SWEEP_AFTER

    def _key(self, meta: HeadMeta) -> Identity:
        """`model.snapshot.identity`, of an object that need not be decoded."""
        kind = self._kind
        if kind in WORKLOADS:
            return meta.namespace, meta.name, kind
        return (meta.namespace or "default" if kind == "Pod" else meta.namespace), meta.name


# How kinds are watched.


class WatchOptions(Struct, frozen=True, kw_only=True):
    """How kinds are watched; all times in seconds.

    `timeout`: the server ends a watch after a random time between these. `silence`: without a byte for so
    long the connection is dead. It is longer than `timeout`, as a server has no bookmark for a watch that
    began with the newest version it knows of this kind. `list_silence`: the same of a streaming list, in
    which there is always something to come; `add_on_patience`: of any list of a kind that a cluster need not
    have. `healthy`: what lasts that long
    counts as success. `backoff`: between attempts, those of a kind that may not be read included, and within
    a list between the tries of a page. `turn`: a list waits no longer for those of other kinds.
    `streaming`: lists are streamed where offered.
    `close_timeout`, `close_silence`: the same of a watch that follows closely.
    """

    timeout: tuple[int, int] = (90, 140)
    silence: float = 150.0
    list_silence: float = 30.0
    add_on_patience: float = ADD_ON_PATIENCE
    healthy: float = 10.0
    page_size: int = 500
    backoff: Backoff = Backoff(tries=3, first=0.5, cap=30.0)
    turn: float = 10.0
    streaming: bool = True
    close_timeout: int = 3
    close_silence: float = 6.0


class Offer:
    """Whether this server offers streaming lists: learned once, for all kinds."""

    def __init__(self, streaming: bool) -> None:
        self.streaming = streaming


# A whole list of one kind, paged or streamed, with what of it cannot be read.

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


# Lists of all kinds but add-ons, one after the other: the server's flow control and memory see one long
# list of ours.

_LOOK = 0.1
"""Seconds after which a thread that waits notices that it is to end."""


class Turns:
    """Who asks first lists first. `patience`: seconds after which the next in line waits no longer for a list
    that hangs, or is very large; all others wait for that next one."""

    def __init__(self, stop: threading.Event, patience: float) -> None:
        self._stop = stop
        self._patience = patience
        self._changed = threading.Condition()
        self._line: list[object] = []

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While it lasts, others wait."""
        me = object()
        with self._changed:
            self._line.append(me)
            head, since = self._line[0], time.monotonic()
            while self._line[0] is not me and not self._stop.is_set():
                self._changed.wait(min(_LOOK, self._patience))
                if self._line[0] is not head:
                    head, since = self._line[0], time.monotonic()
                elif self._line[1] is me and time.monotonic() - since >= self._patience:
                    self._line.remove(head)
        try:
            yield
        finally:
            with self._changed:
                if me in self._line:  # unless somebody lost patience
                    self._line.remove(me)
                self._changed.notify_all()


# Whether a kind is followed closely at present, and the end of a watch that is too long for that.


class Attention:
    """Shared by the reflector of a kind and by those who are about to act on that kind.

    `monotonic`: seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._long: Watch | None = None
        self._cut: Watch | None = None

    def ask(self, seconds: float) -> None:
        """Asks to follow closely for so long; ends a long watch that is open. From any thread."""
        with self._lock:
            self._until = max(self._until, self._monotonic() + seconds)
            self._cut, self._long = self._long or self._cut, None
            cut = self._cut
        if cut is not None:
            cut.abort()

    def close(self) -> bool:
        """Whether to follow closely now."""
        return self._monotonic() < self._until

    def lasting(self, watch: Watch) -> bool:
        """A long watch begins, which `ask` may end; False if it is not to begin, because `ask` was called."""
        with self._lock:
            if self.close():
                return False
            self._long = watch
            return True

    def cut(self, watch: Watch) -> bool:
        """Whether `ask` has ended this watch."""
        return self._cut is watch

    def over(self) -> None:
        """The watch has ended."""
        with self._lock:
            self._long = self._cut = None


log = logging.getLogger(__name__)
_LOUD = 3
"""Failures in a row after which it is no hiccup any more."""


class Reflector:
    """Keeps one store. `run` is for a thread; once `stop` is set and the connection aborted it returns."""

    def __init__(
        self,
        connection: Connection,
        store: KindStore,
        options: WatchOptions,
        *,
        offer: Offer,
        turns: Turns,
        stop: threading.Event,
        monotonic: Callable[[], float],
        rng: random.Random,
        before: Callable[[], object] = lambda: None,
        newer: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connection = connection
        self._store = store
        self._resource = store.resource
        self._options = options
        self._offer = offer
        self._turns = turns
        self._stop = stop
        self._monotonic = monotonic
        self._rng = rng
        self._before = before
        self._changes = Changes(store.resource.kind, newer)
        self._version = ""
        self._failures = 0
        self._began = 0.0
        self._told = ""
        self._garbage = self._behind = 0
        self._attention = Attention(monotonic)
        self._confirmed = self._orderly = False
        """Of the session before: the server has just shown its history; it ended as it should, but soon."""

    @property
    def unknown_field(self) -> str:
        """See `Changes.unknown`."""
        return self._changes.unknown

    def follow_closely(self, seconds: float) -> None:
        """For so long, confirm the store every few seconds (`KindStore.confirmed`). From any thread."""
        self._attention.ask(seconds)

    def run(self) -> None:
        """Until `stop`. Survives everything, also a defect of its own, which it logs."""
        while not self._stop.is_set():
            self._began = self._monotonic()
            error: KubeError | None = None
            try:
                self._session()
            except KubeError as e:
                error = with_discovery(self._connection, self._resource, e, self._options.add_on_patience)
            except Exception as e:
                log.exception("watching %s", self._resource.qualified)
                error = KubeError(
                    f"watching {self._resource.qualified}: {e!r}", "this is a defect; report it"
                )
                self._version = ""
            if self._stop.is_set():
                return
            if self._stop.wait(self._after(error, self._monotonic() - self._began)):
                return

    def _session(self) -> None:
        """One list, if there is need of one, and one watch."""
        confirmed, self._confirmed = self._confirmed, False
        if not confirmed:
            self._before()
        if self._version:
            if not confirmed:
                self._resume()
        elif self._offer.streaming and self._failures < 2:
            try:
                with self._turn():
                    self._watch("")
                return
            except StatusError as e:
                if e.code not in (400, 422) or self._version:
                    raise
                log.info("no streaming lists here, pages instead: %s", e.message)
                self._offer.streaming = False
            self._list()
        else:
            self._list()
        self._watch(self._version)

    def _resume(self) -> None:
        if version_known(self._connection, self._resource, self._version):
            self._behind = 0
            return
        # A replica of the API server that lags says the same: only who says it twice has lost history.
        self._behind += 1
        message = f"watch {self._resource.plural}: the server is behind version {self._version}"
        if self._behind > 1:
            self._behind, self._version = 0, ""
            message += ": its history was lost; everything is listed again"
        raise KubeError(message, "was etcd restored from a backup?")

    def _turn(self) -> AbstractContextManager[None]:
        """While it lasts, others do not list. An add-on's list is short, and if it hangs nobody waits."""
        return nullcontext() if self._resource.add_on else self._turns.turn()

    def _list(self) -> None:
        with self._turn():
            self._store.listing()
            began = self._monotonic()
            found = paged(self._connection, self._resource, self._options, self._changes, self._stop.wait)
            self._swap(found, began)

    def _watch(self, version: str) -> None:
        """Until its end. From "" it is a streaming list, which ends with the last of what there is."""
        close, began = bool(version) and self._attention.close(), self._monotonic()
        watch = Watch(
            self._connection,
            self._resource,
            version,
            timeout=self._options.close_timeout if close else self._rng.randint(*self._options.timeout),
            silence=self._options.close_silence if close else self._silence(lists=not version),
        )
        try:
            if not version:
                self._streamed(watch, began)
                self._confirmed = True
                return
            self._store.watching()
            if close:
                self._follow(watch, watch.batches(), began)
            elif self._attention.lasting(watch):
                for batch in watch.batches():
                    self._apply(watch, batch)
            else:
                self._confirmed = True
        except KubeError:
            if not self._attention.cut(watch):
                raise
        finally:
            self._orderly |= self._confirmed or self._attention.cut(watch)
            self._attention.over()
            watch.close()

    def _silence(self, *, lists: bool) -> float:
        """Seconds without a byte after which a watch is taken for dead; `lists`: one that lists."""
        bounds = [self._options.silence]
        if lists:
            bounds.append(self._options.list_silence)
            if self._resource.add_on:
                bounds.append(self._options.add_on_patience)
        return min(bounds)

    def _follow(self, watch: Watch, batches: Iterable[list[WatchEvent]], began: float) -> None:
        """Events until a bookmark, or the end in time: there is nothing more of the time before the watch."""
        for batch in batches:
            if self._apply(watch, batch):
                self._store.confirmed(began)
                self._confirmed = True
                if self._attention.close():
                    return
        if not self._confirmed and self._monotonic() - began >= self._options.close_timeout:
            # A server that has lost history ends a watch like that, too; the next session asks (`_resume`).
            self._store.confirmed(began)
            self._orderly = True

    def _streamed(self, watch: Watch, began: float) -> None:
        """Reads a streaming list to its end. What comes after it is for a watch, whose silence may last."""
        self._store.listing()
        found = streamed(watch, self._changes)
        if found is None:
            self._offer.streaming = False
            raise watch.garbage("the end of a streaming list that was none")
        self._swap(found, began)

    def _apply(self, watch: Watch, batch: Iterable[WatchEvent]) -> bool:
        """Puts events into the store; whether a bookmark was among them."""
        changes: list[Change] = []
        version, bookmark = self._version, False
        try:
            for event in batch:
                if event.type == "BOOKMARK":
                    version, bookmark = self._changes.bookmark(watch, event), True
                    continue
                change, version = self._changes.event(watch, event)
                changes.append(change)
        finally:
            if version != self._version or changes:
                self._garbage = 0
            self._version = version
            self._store.apply(changes, version)
        self._changes.forget(self._store.every)
        if self._failures and self._monotonic() - self._began >= self._options.healthy:
            self._well()
        return bookmark

    def _well(self) -> None:
        if self._failures >= _LOUD:
            level = logging.INFO if self._resource.without else logging.WARNING
            log.log(level, "%s: in touch again", self._resource.qualified)
        self._failures = 0
        self._told = ""
        self._store.failed(None, 0)

    def _swap(self, found: Listing, as_of: float) -> None:
        self._store.swap(found.objects, found.broken, found.version, as_of)
        self._version, self._garbage = found.version, 0
        self._changes.forget(self._store.every)

    def _tell(self, error: KubeError) -> None:
        """Loud once, and for the kinds that matter: in an outage all kinds say the same, again and again."""
        again, self._told = error.message == self._told, error.message
        again = again or (self._resource.add_on and isinstance(error, NotFoundError))
        if self._failures == _LOUD and not self._resource.without:
            log.warning("%s", error)
        else:
            log.log(logging.DEBUG if again else logging.INFO, "%s", error)

    def _after(self, error: KubeError | None, lasted: float) -> float:
        """Seconds until the next session, and what it begins with."""
        orderly, self._orderly = self._orderly, False
        if orderly and error is None:
            if self._confirmed and self._failures:
                self._well()
            return 0.0
        if lasted >= self._options.healthy:
            self._failures = 0
        if error is not None or lasted < self._options.healthy:
            self._failures += 1
        if isinstance(error, ExpiredError):
            self._version = ""
        elif isinstance(error, ResponseError):
            self._garbage += 1
            if self._garbage > 1:
                # Whatever is at that place of the history cannot be got past.
                self._version, self._garbage = "", 0
        self._store.failed(error, self._failures)
        if error is not None:
            self._tell(error)
        if isinstance(error, ForbiddenError | NotFoundError) and not error.by_webhook:
            # An API server that starts refuses everything for a moment.
            passing = self._resource.without and self._failures < _LOUD
            if not passing or (self._resource.add_on and isinstance(error, NotFoundError)):
                self._store.deny(error)
                self._version = ""
        if not self._failures:
            return 0.0
        after = getattr(error, "retry_after", None)
        return self._options.backoff.delay(self._failures, after, self._rng.random)
