"""The report's constraints as CSV, for spreadsheets: a row for each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from rebalancer.report.document import Report
from rebalancer.report.wording import text

_COLUMNS = (
    "namespace",
    "workloads",
    "topologyKey",
    "whenUnsatisfiable",
    "maxSkew",
    "skew",
    "excess",
    "residualExcess",
    "status",
    "inScope",
    "domains",
    "after",
    "worstDomainLoss",
    "bestDomainLoss",
    "evictions",
    "reasons",
    "selector",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(report: Report) -> str:
    """Comma-separated, with a head. No cell is a formula."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns())
    writer.writerows(rows(report))
    return buffer.getvalue()


def columns() -> tuple[str, ...]:
    """The head."""
    return _COLUMNS


def rows(report: Report) -> Iterator[list[object]]:
    """A row for each constraint."""
    evictions = [0] * len(report.constraints)
    for e in report.evictions:
        for f in e.fixes:
            evictions[f.constraint] += 1
    for c, moves in zip(report.constraints, evictions, strict=True):
        row = (
            c.namespace,
            " ".join(c.workloads),
            c.topology_key,
            c.when_unsatisfiable,
            c.max_skew,
            c.skew,
            c.excess,
            c.residual_excess,
            c.status,
            str(c.in_scope).lower(),
            text.counts(c.domains),
            text.counts(c.after),
            c.worst_domain_loss,
            c.best_domain_loss,
            moves,
            " ".join(r.code for r in c.reasons),
            c.selector or "",
        )
        yield [cell(v) if isinstance(v, str) else v for v in row]


def cell(words: str) -> str:
    """Text that no spreadsheet takes for a formula, and no terminal for a command."""
    plain = text.clean(words)
    return f"'{plain}" if plain.startswith(_FORMULA) else plain
