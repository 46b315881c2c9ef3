"""Builds the image's root: the interpreter, what it links to, and the program. No shell, no pip, no packager.

`python root.py PROGRAM TARGET`: PROGRAM, a virtual environment, is copied to the same path below TARGET. The
interpreter that runs this is the one that it was made with.
"""

from __future__ import annotations

import compileall
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

UNUSED = (
    "__pycache__",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "*tkinter*",
)
"""Of the standard library: installers, editors, tests, windows."""
OPENED_LATER = ("libgcc_s.so.1",)
"""Libraries that no file links to: glibc opens it when a thread ends."""
USERS = "root:x:0:0:root:/:/sbin/nologin\nrebalancer:x:65532:65532:rebalancer:/tmp:/sbin/nologin\n"
GROUPS = "root:x:0:\nrebalancer:x:65532:\n"


def main(program: Path, target: Path) -> None:
    """Copies all that a start needs."""
    interpreter, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    copy(interpreter, target)
    shutil.copytree(library, below(target, library), ignore=shutil.ignore_patterns(*UNUSED, "config-*"))
    shutil.copytree(program, below(target, program), symlinks=True)
    for tool in (below(target, program) / "bin").iterdir():
        tool.unlink()
    (below(target, program) / "bin" / "python").symlink_to(interpreter)
    for file in libraries([interpreter, *shared(below(target, library)), *shared(program)]):
        if not below(target, file).exists():
            copy(file, target)
    for file in (Path("/etc/ld.so.cache"), Path("/etc/ssl/certs/ca-certificates.crt")):
        if file.exists():
            copy(file, target)
    (target / "etc").mkdir(exist_ok=True)
    (target / "etc" / "passwd").write_text(USERS)
    (target / "etc" / "group").write_text(GROUPS)
    (target / "tmp").mkdir(exist_ok=True)
    (target / "tmp").chmod(0o1777)
    # Bytecode that does not depend on times: nothing is written when it starts.
    compileall.compile_dir(
        below(target, library),
        quiet=2,
        stripdir=str(target),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def below(target: Path, path: Path) -> Path:
    """The place of an absolute path in the image."""
    return target / path.relative_to("/")


def copy(file: Path, target: Path) -> None:
    """A file to its own place; in place of a link what it leads to."""
    place = below(target, file)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, place)


def shared(folder: Path) -> Iterator[Path]:
    """The shared objects below a folder."""
    return (f for f in sorted(folder.rglob("*.so*")) if f.is_file())


def libraries(files: Iterable[Path]) -> list[Path]:
    """What these files are linked to, the loader too, and what is opened later."""
    found: set[Path] = set()
    for file in files:
        said = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout
        found |= {Path(p) for p in re.findall(r"(?:=> |^\s+)(/\S+)", said, re.MULTILINE)}
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    for name in OPENED_LATER:
        found |= {Path(p) for p in re.findall(rf"{re.escape(name)} .*=> (/\S+)", cache)[:1]}
    return sorted(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
