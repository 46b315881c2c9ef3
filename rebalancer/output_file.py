"""A file that is written whole or not at all, and whatever else stands at a path that somebody names.

A regular file is replaced in one step, so that nobody reads half of it and a full disk leaves the old one.
Where replacing would destroy something (a device, a pipe, the target of a symbolic link, a file in a
directory that takes no new one), the content is written into what is there, as a shell's `>` does.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from rebalancer.errors import UserError

_NO_NEW_FILE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NOT_REPLACED = frozenset({errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM})
_REMEDIES = {
    errno.ENOSPC: "free some space there, or write elsewhere",
    errno.EDQUOT: "free some space there, or write elsewhere",
    errno.ENOENT: "create its directory first",
    errno.EISDIR: "name a file in it",
    errno.EACCES: "choose a place that you may write to",
    errno.EROFS: "choose a place that can be written to",
    errno.ELOOP: "its symbolic links lead in a circle",
}


@contextmanager
def output_file(
    path: str,
    stdout: Callable[[], BinaryIO] | None = None,
    *,
    private: bool = False,
    compress: bool = True,
) -> Iterator[IO[bytes]]:
    """What to write the content of `path` to; compressed if the path ends with .gz, unless the caller does
    that (`compress` False).

    `path` may be "-" where `stdout` says what that is. `private`: a new file is for its owner's eyes only; a
    file that exists keeps its mode. An exception inside the block leaves a regular file as it was. Raises
    UserError where it cannot be written.
    """
    if path == "-" and stdout is not None:
        yield stdout()
        stdout().flush()
        return
    if not path:
        raise UserError("the name of the output file is empty", "name a file, or leave the option out")
    try:
        with _raw(path, private) as raw:
            if compress and path.lower().endswith(".gz"):
                # Neither name nor time in the header: the same content gives the same file.
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed:
                    yield packed  # type: ignore[misc]
            else:
                yield raw
    except OSError as e:
        raise unwritable(path, e) from e


def unwritable(what: str, error: OSError) -> UserError:
    """The error as a person wants to read it."""
    reason = (error.strerror or str(error)).lower()
    return UserError(f"{what}: cannot be written: {reason}", _REMEDIES.get(error.errno or 0, ""))


@contextmanager
def _raw(path: str, private: bool) -> Iterator[IO[bytes]]:
    try:
        there: os.stat_result | None = Path(path).stat()
    except FileNotFoundError:
        there = None
    if there is not None and (not stat.S_ISREG(there.st_mode) or _descriptor(path)):
        with _in_place(path) as file:
            yield file
        return
    final = Path(os.path.realpath(path))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{final.name[:200]}.", dir=final.parent)
    except OSError as e:
        if there is None or e.errno not in _NO_NEW_FILE:
            raise
        with _in_place(path) as file:
            yield file
        return
    made = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _like(handle, there, private)
            yield file
        try:
            made.replace(final)
        except OSError as e:
            # A file that is mounted by itself can be written, not replaced.
            if there is None or e.errno not in _NOT_REPLACED:
                raise
            with _in_place(path) as file:
                file.write(made.read_bytes())
    finally:
        made.unlink(missing_ok=True)


def _descriptor(path: str) -> bool:
    """Whether it stands for something that is open already: /dev/stdout, a shell's >(command)."""
    return os.path.abspath(path).startswith(("/dev/", "/proc/"))


@contextmanager
def _in_place(path: str) -> Iterator[IO[bytes]]:
    """What is there already, emptied if it is a file. A directory is an error."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC), "wb") as file:
        yield file


def _like(handle: int, there: os.stat_result | None, private: bool) -> None:
    """Mode and, where that is allowed, owner of the file that is replaced; else those of a new file."""
    if there is not None:
        os.fchmod(handle, stat.S_IMODE(there.st_mode))
        try:
            os.fchown(handle, there.st_uid, there.st_gid)
        except OSError:
            return
    elif not private:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(handle, 0o666 & ~mask)
