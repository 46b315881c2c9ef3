"""The recordings in `recorded/`: what real schedulers answered, set by set and version by version.

A set is a folder with `cases.jsonl` and a `verdicts-VERSION.jsonl` for each version that was asked, all in
the same order, compressed or not. RECORDING.md describes the documents.
"""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

Json = dict[str, Any]

RECORDED = Path(__file__).parent / "recorded"
_OPEN: dict[str, Callable[[Path, str], IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}  # type: ignore[dict-item]


class Recorded(NamedTuple):
    """One cluster, and what a scheduler of this version answered."""

    set: str
    version: str
    case: Json
    verdict: Json

    @property
    def family(self) -> str:
        """The kind of cluster: the case's id without its number."""
        name: str = self.case["id"]
        stem, _, number = name.rpartition("-")
        return stem if number.isdigit() else name


def read_lines(path: Path) -> Iterator[Json]:
    """The documents of a JSON Lines file, compressed or not."""
    with _OPEN.get(path.suffix, open)(path, "rt") as lines:
        for line in lines:
            yield msgspec.json.decode(line)


def sets() -> list[str]:
    """The names of the sets."""
    return sorted(folder.name for folder in RECORDED.iterdir() if folder.is_dir())


def versions(set_: str | None = None) -> list[str]:
    """The versions that were asked in a set, or in any, the oldest first."""
    found = {
        path.name.removeprefix("verdicts-").partition(".jsonl")[0]
        for path in RECORDED.glob(f"{set_ or '*'}/verdicts-*")
    }
    return sorted(found, key=lambda v: [int(n) for n in v.split(".")])


def recorded(set_: str, version: str) -> Iterator[Recorded]:
    """All clusters of a set with the answers of one version."""
    (cases,) = (RECORDED / set_).glob("cases.jsonl*")
    (verdicts,) = (RECORDED / set_).glob(f"verdicts-{version}.jsonl*")
    for case, verdict in zip(read_lines(cases), read_lines(verdicts), strict=True):
        assert case["id"] == verdict["id"], f"{case['id']} beside {verdict['id']}"
        yield Recorded(set_, version, case, verdict)


def families(set_: str, version: str) -> dict[str, list[Recorded]]:
    """The clusters of a set by kind."""
    found: dict[str, list[Recorded]] = {}
    for one in recorded(set_, version):
        found.setdefault(one.family, []).append(one)
    return found
