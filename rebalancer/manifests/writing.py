"""A cluster into one file that `read_snapshot` reads back to the same snapshot."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec

from rebalancer.errors import UserError
from rebalancer.manifests.kinds import CAPTURED_AT, CAPTURED_KINDS, SERVER_VERSION, is_read

Json = dict[str, Any]
REDACTED = "rebalancer/redacted"
"""Annotation of a List: names in it are pseudonyms."""
_DUMPED = "kubectl.kubernetes.io/last-applied-configuration"


def plain(objects: Iterable[Json]) -> Iterator[Json]:
    """The objects of the kinds that are read, without what nothing reads: managed fields, applied copies.

    Everything else stays as the API server gave it, environment variables too.
    """
    for obj in objects:
        if not is_read(str(obj.get("kind")), str(obj.get("apiVersion") or "")):
            continue
        metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and _DUMPED in annotations:
            metadata["annotations"] = {k: v for k, v in annotations.items() if k != _DUMPED}
        yield {**obj, "metadata": metadata}


def write_snapshot(
    path: str,
    objects: Iterable[Json],
    *,
    captured_at: float,
    kinds: Iterable[str],
    server_version: str,
    redacted: bool = False,
    stdout: Callable[[], BinaryIO],
) -> int:
    """Writes a List with the time, version and kinds of the reading; the number of its objects.

    Compressed if the path ends with .gz; "-" is `stdout()`. The same content gives the same bytes. A file
    appears only when it is complete. Raises UserError where it cannot be written.
    """
    annotations = {CAPTURED_KINDS: ",".join(sorted(kinds))}
    if captured_at > 0:
        time = datetime.fromtimestamp(captured_at, UTC).isoformat().replace("+00:00", "Z")
        annotations[CAPTURED_AT] = time
    if server_version:
        annotations[SERVER_VERSION] = server_version
    if redacted:
        annotations[REDACTED] = "true"
    encode = msgspec.json.encode
    with _target(path, stdout) as file:
        head = {"apiVersion": "v1", "kind": "List", "metadata": {"annotations": annotations}}
        file.write(encode(head)[:-1] + b',"items":[')
        count = 0
        for obj in objects:
            file.write((b",\n" if count else b"\n") + encode(obj))
            count += 1
        file.write(b"\n]}\n")
    return count


@contextmanager
def _target(path: str, stdout: Callable[[], BinaryIO]) -> Iterator[IO[bytes]]:
    if path == "-":
        yield stdout()
        stdout().flush()
        return
    final = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{final.name}.", dir=final.parent)
    except OSError as e:
        raise _unwritable(path, e) from e
    try:
        with os.fdopen(handle, "wb") as file:
            if final.name.lower().endswith(".gz"):
                # Neither name nor time in the header: the same cluster gives the same file.
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6) as packed:
                    yield packed  # type: ignore[misc]
            else:
                yield file
        Path(name).replace(final)
    except OSError as e:
        raise _unwritable(path, e) from e
    finally:
        Path(name).unlink(missing_ok=True)


def _unwritable(path: str, error: OSError) -> UserError:
    return UserError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}")
