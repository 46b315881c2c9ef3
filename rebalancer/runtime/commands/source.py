"""Where the cluster comes from: files, or the API server."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Raw, Struct
from msgspec.structs import replace

from rebalancer.manifests import read_objects, read_snapshot
from rebalancer.manifests.writing import Reading, SnapshotFile, plain, snapshot_file, stripped, write_snapshot
from rebalancer.manifests.writing import redact as redacted
from rebalancer.model.snapshot import Snapshot, check_readable, warned
from rebalancer.policy.replace_first import asked_for
from rebalancer.runtime.cycle.clock import SystemClock

if TYPE_CHECKING:
    from rebalancer.kube.connection import Connection
    from rebalancer.kube.reading import Keep
    from rebalancer.kube.resources import Resource
    from rebalancer.planner import PlanOptions


class Source(Struct, frozen=True, kw_only=True):
    """Which cluster is looked at.

    `snapshots`: files, directories or "-"; empty = the live cluster, found as kubectl finds it. `now`
    (seconds since the epoch) sets the clock; None = the snapshot's own, or the present. `namespaces`: the
    only ones that are read of a live cluster; empty = all.
    """

    snapshots: tuple[str, ...] = ()
    now: float | None = None
    kubeconfig: str = ""
    context: str = ""
    impersonate: str = ""
    groups: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    def clock(self) -> float:
        """The time that is to be taken for now, of a live cluster."""
        return time.time() if self.now is None else self.now


class Loaded(Struct, frozen=True, eq=False):
    """A snapshot, and the name of the cluster it is of ("" where a file does not tell)."""

    snapshot: Snapshot
    cluster: str = ""


class _Counted:
    """Tells how many objects have come; a list that begins anew is counted anew."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._come: dict[str, int] = {}

    def begin(self, resource: Resource) -> None:
        self._come[resource.kind] = 0

    def add(self, resource: Resource, items: Sequence[Raw]) -> None:
        self._come[resource.kind] += len(items)
        self._tell(f"{sum(self._come.values()):,} objects, {resource.plural}")


def load_snapshot(source: Source, tell: Callable[[str], None] = lambda _: None) -> Loaded:
    """The cluster now, or as the files have it. `tell` is called as it is read, with how far that has come.

    Raises UserError (ManifestError, KubeError), also where too much of it could not be read.
    """
    if source.snapshots:
        loaded = Loaded(read_snapshot(source.snapshots, now=source.now))
    else:
        loaded = read_live(source, _Counted(tell))
    check_readable(loaded.snapshot)
    return loaded


def read_live(source: Source, keep: Keep | None = None) -> Loaded:
    """The live cluster, perhaps some moments old, for those who evict nothing; `keep` is given its objects as
    they come. Raises KubeError."""
    from rebalancer.kube import reading
    from rebalancer.kube.lists import ReadOptions

    with connected(source) as connection:
        clock = SystemClock(server=connection.time)
        snapshot = reading.read_snapshot(
            connection,
            now=clock.now if source.now is None else source.clock,
            wait=threading.Event().wait,
            options=ReadOptions(may_be_old=True, namespaces=source.namespaces),
            keep=keep,
        )
        if source.now is None:
            snapshot = warned(snapshot, clock.doubt(), clock.latest() - clock.now())
        return Loaded(snapshot, connection.context)


def with_label_users(source: Source, snapshot: Snapshot, planning: PlanOptions) -> PlanOptions:
    """The options with what else asks for labels of pods in a live cluster, where some may be replaced
    first."""
    if source.snapshots or not asked_for(snapshot, planning.policy):
        return planning
    from rebalancer.kube.reading import label_users

    with connected(source) as connection:
        found = label_users(connection, wait=threading.Event().wait, namespaces=source.namespaces)
    return replace(planning, policy=replace(planning.policy, label_users=found))


@contextmanager
def connected(source: Source) -> Iterator[Connection]:
    """A connection to the live cluster. Raises ConfigurationError."""
    from rebalancer.kube.config import ClusterOptions
    from rebalancer.kube.connection import Connection

    connection = Connection(
        ClusterOptions(
            kubeconfig=source.kubeconfig,
            context=source.context,
            impersonate=source.impersonate,
            impersonate_groups=source.groups,
        )
    )
    try:
        yield connection
    finally:
        connection.close()


# A cluster, live or from files, as a snapshot together with the objects it was read from.


class Captured(Struct, frozen=True, eq=False):
    """`objects` gives the API objects anew each time it is called."""

    snapshot: Snapshot
    objects: Callable[[], Iterator[dict[str, Any]]]


def capture(source: Source) -> Captured:
    """Reads the cluster that `source` means. Raises UserError (ManifestError, KubeError)."""
    if source.snapshots:
        return _files(source)
    from rebalancer.kube.reading import Capture

    kept = Capture()
    loaded = read_live(source, kept)
    return Captured(loaded.snapshot, kept.objects)


class Written(Struct, frozen=True):
    """What is in a file now."""

    objects: int
    nodes: int
    pods: int
    warnings: tuple[str, ...]


def write_captured(source: Source, path: str, *, redact: bool, stdout: Callable[[], BinaryIO]) -> Written:
    """The cluster into a file, live ones object by object as they come. Raises UserError."""
    if not source.snapshots and not redact:
        return _stream(source, path, stdout)
    captured = capture(source)
    found = captured.snapshot
    reading = Reading(
        captured_at=found.now,
        kinds=found.kinds,
        refused=found.refused,
        server_version=found.server_version,
        redacted=redact,
    )
    objects = redacted(captured.objects) if redact else plain(captured.objects())
    count = write_snapshot(path, objects, reading, stdout=stdout)
    return Written(count, len(found.nodes), len(found.pods), found.warnings)


def _stream(source: Source, path: str, stdout: Callable[[], BinaryIO]) -> Written:
    from rebalancer.kube.lists import ReadOptions
    from rebalancer.kube.reading import copy

    class Into:
        """Strips what nothing reads; a list that begins anew is written once."""

        def __init__(self, file: SnapshotFile) -> None:
            self._file = file
            self._kind = ""

        def begin(self, resource: Resource) -> None:
            if resource.kind == self._kind:
                self._file.take_back(resource.plural)
            else:
                self._file.mark()
            self._kind = resource.kind

        def add(self, resource: Resource, items: Sequence[Raw]) -> None:
            for raw in items:
                self._file.add(stripped(raw, resource.kind, resource.api_version))

    with connected(source) as connection, snapshot_file(path, stdout=stdout) as file:
        copied = copy(
            connection,
            now=source.clock,
            wait=threading.Event().wait,
            options=ReadOptions(may_be_old=True, namespaces=source.namespaces),
            into=Into(file),
        )
        file.end(
            Reading(
                captured_at=copied.began,
                kinds=[r.kind for r in copied.reads if r.known],
                refused=[r.kind for r in copied.reads if not r.known],
                server_version=copied.server_version,
            )
        )
        return Written(file.count, copied.objects("Node"), copied.objects("Pod"), copied.warnings)


def _files(source: Source) -> Captured:
    # Standard input can be read once only.
    piped = sys.stdin.buffer.read() if "-" in source.snapshots else b""
    snapshot = read_snapshot(source.snapshots, now=source.now, stdin=io.BytesIO(piped))
    return Captured(snapshot, lambda: read_objects(source.snapshots, io.BytesIO(piped)))
