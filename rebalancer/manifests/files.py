"""Paths → texts: a file, every manifest of a directory, or standard input; each may be gzipped."""

from __future__ import annotations

import gzip
import io
import mmap
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, TypeAlias

from msgspec import Struct

from rebalancer.errors import UserError

Buffer: TypeAlias = bytes | bytearray | mmap.mmap
SUFFIXES = (".json", ".yaml", ".yml")
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
_BYTE_ORDER_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


class ManifestError(UserError):
    """A file cannot be read as a cluster. The message begins with the file and the position, if that is
    known."""


class Text(Struct, frozen=True, eq=False):
    """The uncompressed content of a file. `name` is how errors name it ("stdin" for `-`)."""

    name: str
    data: Buffer


def texts(paths: Iterable[str | os.PathLike[str]], stdin: BinaryIO | None = None) -> Iterator[Text]:
    """The texts of files and directories, each read when it is asked for.

    Directories are read recursively, in the order of names. `-` is `stdin` (default: that of the process).
    Raises ManifestError.
    """
    for path in paths:
        if not os.fspath(path):
            raise ManifestError("the name of a file is empty", "is a variable unset? . is this directory")
        if os.fspath(path) == "-":
            yield Text("stdin", _stream("stdin", stdin if stdin is not None else sys.stdin.buffer))
            continue
        for file in _files(Path(path)):
            yield Text(str(file), _read(file))


def _files(path: Path) -> list[Path]:
    """The path itself, or the manifests below it. Hidden entries are left out: in a mounted ConfigMap they
    are the same files a second time."""
    if not path.is_dir():
        return [path]
    if not (found := manifests_in(path)):
        raise ManifestError(
            f"{path}: no manifest in this directory",
            f"it is searched for {', '.join(SUFFIXES)} and their .gz",
        )
    return found


def manifests_in(path: Path) -> list[Path]:
    """The manifests below a directory, in the order of names; hidden entries are left out."""
    found: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        found += (
            Path(folder, n)
            for n in sorted(names)
            if not n.startswith(".") and n.lower().removesuffix(".gz").endswith(SUFFIXES)
        )
    return found


def _read(file: Path) -> Buffer:
    try:
        with file.open("rb", buffering=0) as stream:
            if not file.is_file() or not os.fstat(stream.fileno()).st_size:  # a pipe: <(kubectl get …)
                return _stream(str(file), stream)
            # Memory-mapped, so that the gigabyte of a large cluster is not copied into this process.
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            return _utf8(str(file), _unpacked(str(file), stream) if data[:2] == _GZIP else data)
    except OSError as e:
        raise ManifestError(f"{file}: {(e.strerror or str(e)).lower()}") from e


def _stream(name: str, stream: IO[bytes] | io.RawIOBase) -> Buffer:
    """Reads standard input or a pipe as a whole, because it cannot seek."""
    data = stream.read()
    return _utf8(name, _unpacked(name, io.BytesIO(data)) if data.startswith(_GZIP) else data)


def _unpacked(name: str, stream: IO[bytes] | io.RawIOBase) -> bytearray:
    """The content of a gzip stream. It is recognised by its first bytes, not by the file's name."""
    data = bytearray()  # one growing buffer: joining chunks would hold a large cluster twice
    try:
        with gzip.GzipFile(fileobj=stream) as unpacked:
            while chunk := unpacked.read(_CHUNK):
                data += chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        what = str(e).rstrip(".").lower()
        raise ManifestError(f"{name}: bad gzip after {len(data)} bytes of content: {what}") from e
    return data


def _utf8(name: str, data: Buffer) -> Buffer:
    """The text as UTF-8 without byte order mark. PowerShell's `>` writes UTF-16."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data[:4].startswith(mark):
            try:
                return bytes(data).decode(encoding).encode()
            except UnicodeDecodeError as e:
                raise ManifestError(f"{name}: byte {e.start} is no {encoding}") from e
    return data
