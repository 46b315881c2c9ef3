"""The report of several clusters: by context, or by the files of a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.manifests.files import SUFFIXES, manifests_in
from rebalancer.report import Report
from rebalancer.report.fleet.document import ClusterReport, FleetReport, build_fleet, of_cluster
from rebalancer.runtime.commands.source import Source

Named = tuple[str, Source]


def sources_of(contexts: str, like: Source) -> list[Named]:
    """A source for each context of a list a,b,c. Raises UserError if one is named twice, or none is."""
    names = [c.strip() for c in contexts.split(",") if c.strip()]
    if not names:
        raise UserError("--contexts names no context", "for example --contexts prod-eu,prod-us")
    if twice := {n for n in names if names.count(n) > 1}:
        raise UserError(f"--contexts names {min(twice)} twice")
    return [(name, replace(like, context=name)) for name in names]


def sources_in(folder: Path, like: Source) -> list[Named]:
    """A source for each snapshot in a directory: a file, or a folder of files that are one cluster."""
    try:
        entries = sorted(e for e in folder.iterdir() if not e.name.startswith("."))
    except OSError as e:
        why = e.strerror.lower() if e.strerror else str(e)
        raise UserError(f"{folder}: {why}", "--fleet takes a directory of snapshots") from e
    found = [e for e in entries if (manifests_in(e) if e.is_dir() else _is_manifest(e))]
    if not found:
        raise UserError(
            f"{folder}: no snapshot in this directory",
            f"it is searched for {', '.join(SUFFIXES)} and their .gz",
        )
    return [(_name(e), replace(like, snapshots=(str(e),))) for e in found]


def fleet_report(
    sources: Iterable[Named], report_of: Callable[[Source], Report], *, generated_at: float
) -> FleetReport:
    """One cluster after the other; one that cannot be read is an entry with its error."""
    entries = []
    for name, source in sources:
        try:
            entries.append(of_cluster(name, report_of(source)))
        except UserError as e:
            entries.append(ClusterReport(name=name, error=str(e)))
    return build_fleet(entries, generated_at=generated_at)


def _is_manifest(file: Path) -> bool:
    return file.name.removesuffix(".gz").endswith(SUFFIXES)


def _name(entry: Path) -> str:
    name = entry.name.removesuffix(".gz") if entry.is_file() else entry.name
    return next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)
