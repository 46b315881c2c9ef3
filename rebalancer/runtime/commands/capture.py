"""A cluster, live or from files, as a snapshot together with the objects it was read from."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Raw, Struct

from rebalancer.model.snapshot import Snapshot
from rebalancer.runtime.commands.source import Source, connected, read_live

if TYPE_CHECKING:
    from rebalancer.kube.resources import Resource


class Captured(Struct, frozen=True, eq=False):
    """`objects` gives the API objects anew each time it is called."""

    snapshot: Snapshot
    objects: Callable[[], Iterator[dict[str, Any]]]


def capture(source: Source) -> Captured:
    """Reads the cluster that `source` means. Raises UserError (ManifestError, KubeError)."""
    if source.snapshots:
        return _files(source)
    from rebalancer.kube.read.capture import Capture

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
    from rebalancer.manifests.redaction.redact import redact as redacted
    from rebalancer.manifests.writing import Reading, plain, write_snapshot

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
    from rebalancer.kube.read.capture import copy
    from rebalancer.kube.read.transfer import ReadOptions
    from rebalancer.manifests.writing import Reading, SnapshotFile, snapshot_file, stripped

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
    from rebalancer.manifests import read_objects, read_snapshot

    # Standard input can be read once only.
    piped = sys.stdin.buffer.read() if "-" in source.snapshots else b""
    snapshot = read_snapshot(source.snapshots, now=source.now, stdin=io.BytesIO(piped))
    return Captured(snapshot, lambda: read_objects(source.snapshots, io.BytesIO(piped)))
