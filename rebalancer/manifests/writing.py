"""Writes a cluster into one file, from which `read_snapshot` reads the same snapshot."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any, BinaryIO

import msgspec
from msgspec import Raw, Struct

from rebalancer.errors import UserError
from rebalancer.manifests.documents import CAPTURED_AT, CAPTURED_KINDS, REFUSED_KINDS, SERVER_VERSION, is_read
from rebalancer.model.pod import DELETION_COST, cost_writer, without_own_cost
from rebalancer.output_file import output_file

Json = dict[str, Any]
REDACTED = "rebalancer/redacted"
"""Annotation of a List: the names in it are pseudonyms."""
_DUMPED = "kubectl.kubernetes.io/last-applied-configuration"
_BLOCK = 1 << 20
"""Bytes that are compressed at a time."""
_LEVEL = 3
"""Of gzip: twice as fast as its usual 6, for a file that is a fifth larger."""

_encode = msgspec.json.encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_annotations = msgspec.json.Decoder(dict[str, str]).decode


class Reading(Struct, frozen=True, kw_only=True):
    """What a file says of how the cluster was read.

    `captured_at` in seconds of the epoch, 0 if it is not known. `kinds` were read, and `refused` may not be
    read. All other kinds are unknown.
    """

    captured_at: float
    kinds: Iterable[str]
    refused: Iterable[str]
    server_version: str
    redacted: bool = False


def plain(objects: Iterable[Json]) -> Iterator[Json]:
    """The objects of the kinds that are read, without managed fields and last-applied-configuration.

    Without managed fields nobody could tell that a deletion cost is this tool's, so that is left out as well.
    Everything else stays as the API server sent it, environment variables included.
    """
    for obj in objects:
        if not is_read(str(obj.get("kind")), str(obj.get("apiVersion") or "")):
            continue
        metadata = without_own_cost(obj["metadata"])
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and _DUMPED in annotations:
            metadata["annotations"] = {k: v for k, v in annotations.items() if k != _DUMPED}
        yield {**obj, "metadata": metadata}


def stripped(raw: bytes | Raw, kind: str, api_version: str) -> bytes:
    """The same for an item of a typed list, which has neither kind nor apiVersion. Its other fields are not
    decoded.
    """
    fields = _fields(raw)
    metadata = _fields(fields.get("metadata", b"{}"))
    managed = metadata.pop("managedFields", b"null")
    annotated = bytes(metadata.get("annotations", b""))
    dropped = {_DUMPED} if _DUMPED.encode() in annotated else set()
    if DELETION_COST.encode() in annotated and cost_writer(managed) is not None:
        dropped.add(DELETION_COST)
    if dropped:
        kept = {k: v for k, v in _annotations(metadata["annotations"]).items() if k not in dropped}
        metadata["annotations"] = Raw(_encode(kept))
    named = {"apiVersion": Raw(_encode(api_version)), "kind": Raw(_encode(kind))}
    return _encode({**named, **fields, **named, "metadata": metadata})


def write_snapshot(
    path: str, objects: Iterable[Json], reading: Reading, *, stdout: Callable[[], BinaryIO]
) -> int:
    """Writes a List of these objects, as `snapshot_file` does. Returns the number of objects."""
    with snapshot_file(path, stdout=stdout) as file:
        for obj in objects:
            file.add(_encode(obj))
        file.end(reading)
        return file.count


@contextmanager
def snapshot_file(path: str, *, stdout: Callable[[], BinaryIO]) -> Iterator[SnapshotFile]:
    """A List to be written, object by object; `end` completes it.

    The file is compressed if the path ends with .gz; "-" is `stdout()`. The same content gives the same
    bytes. The file appears only when it is complete, and only its owner may read it. Raises UserError if it
    cannot be written.
    """
    with output_file(path, stdout, private=True, compress=False) as raw:
        yield SnapshotFile(raw, path)


class SnapshotFile:
    """What has been written so far; `count` objects of it."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file = file
        self._path = path
        self._packed = path.lower().endswith(".gz")
        self._parts: list[bytes] = [b'{"apiVersion":"v1","kind":"List","items":[']
        self._size = 0
        self._mark = (0, 0)
        self.count = 0

    def add(self, obj: bytes) -> None:
        """An object as JSON, with kind and apiVersion."""
        self._parts += (b",\n" if self.count else b"\n", obj)
        self.count += 1
        self._size += len(obj)
        if self._size >= _BLOCK:
            self._flush()

    def mark(self) -> None:
        """What follows may have to be taken back."""
        self._flush()
        self._mark = (self._file.tell() if self._file.seekable() else -1, self.count)

    def take_back(self, what: str) -> None:
        """Forgets what came since `mark`, a list of `what`. Raises UserError where it has gone into a
        pipe."""
        at, count = self._mark
        if count == self.count:
            return
        if at < 0:
            raise UserError(
                f"{self._path}: the list of {what} broke off, and what was written cannot be taken back",
                "write to a file, or try again",
            )
        self._parts, self._size, self.count = [], 0, count
        self._file.flush()
        self._file.seek(at)
        self._file.truncate()

    def end(self, reading: Reading) -> None:
        """Completes it with what is said of the reading."""
        says = {
            CAPTURED_KINDS: ",".join(sorted(reading.kinds)),
            REFUSED_KINDS: ",".join(sorted(reading.refused)),
        }
        if reading.captured_at > 0:
            time = datetime.fromtimestamp(reading.captured_at, UTC).isoformat().replace("+00:00", "Z")
            says[CAPTURED_AT] = time
        if reading.server_version:
            says[SERVER_VERSION] = reading.server_version
        if reading.redacted:
            says[REDACTED] = "true"
        # Last, as which kinds may be read is known at the end only.
        self._parts.append(b'\n],"metadata":' + _encode({"annotations": says}) + b"}\n")
        self._flush()

    def _flush(self) -> None:
        if not self._parts:
            return
        block = b"".join(self._parts)
        # A gzip file may have any number of members, so that one can be taken back. No time in their headers:
        # the same cluster gives the same file.
        self._file.write(gzip.compress(block, _LEVEL, mtime=0) if self._packed else block)
        self._parts, self._size = [], 0
