"""The drill as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.report.drilled.document import DrillReport, FailureReport, LossReport
from rebalancer.report.drilled.words import headline
from rebalancer.report.terminal.columns import columns
from rebalancer.report.wording.text import clean, listing, plural, short_key

_WORKLOADS = 5
"""Workloads that are named of one failure."""

_HONOR = (
    "What is down counts as empty, and keeps the others at maxSkew; nodeTaintsPolicy: Honor leaves it out."
)

_MANNER = {
    "silent": "nodes fall silent, and stay in the API: StatefulSets do not replace their pods (HELD)",
    "removed": "nodes are deleted, and their pods with them",
}


def to_table(report: DrillReport) -> str:
    """The worst failures in a table, then why pods stay Pending, and which budgets stay breached."""
    return "\n".join(clean(line).rstrip() for line in _lines(report)) + "\n"


def section(report: DrillReport) -> Iterator[str]:
    """The lines of a section of the report, indented."""
    yield f"  {headline(report)}"
    if report.worst:
        yield from _worst(report)


def _worst(report: DrillReport) -> list[str]:
    after = ["AFTER THE PLAN"] if report.planned else []
    rows = [["IF IT FAILS", "NODES", "LOST", "PENDING", *after, "HELD", "GONE", "BUDGETS BREACHED"]]
    rows += (_row(f, planned=report.planned) for f in report.worst)
    return columns(rows)


def _lines(report: DrillReport) -> Iterator[str]:
    yield headline(report)
    tried = ", ".join(map(_asked, report.keys))
    yield f"{report.source} · {tried} · {_MANNER[report.manner]}"
    if report.waiting:
        yield f"{plural(report.waiting, 'pod')} found no node before, and are not counted."
    if not report.worst:
        return
    yield ""
    more = f" of {len(report.failures):,}" if len(report.failures) > len(report.worst) else ""
    yield f"The worst {len(report.worst)}{more}"
    yield from _worst(report)
    for failure in report.worst:
        yield from _failure(failure)


def _row(f: FailureReport, *, planned: bool) -> list[str]:
    after = [f"{f.planned_pending:,}"] if planned else []
    breached = f"{f.budgets:,}" + (f", {f.lasting:,} to stay" if f.lasting else "")
    cells = (f"{n:,}" for n in (f.nodes, f.lost, f.pending))
    return [f.name, *cells, *after, f"{f.held:,}", f"{f.gone:,}", breached]


def _failure(f: FailureReport) -> Iterator[str]:
    missing = [w for w in f.workloads if w.lost > w.replaced]
    if not missing:
        return
    yield ""
    yield f.name
    for w in missing[:_WORKLOADS]:
        yield f"  {w.workload}: {_loss(w)}"
        if w.why:
            yield f"    {w.why}"
    if len(missing) > _WORKLOADS:
        left = missing[_WORKLOADS:]
        yield f"  and {plural(len(left), 'more workload')} with {sum(w.pending for w in left):,} pods Pending"
    if any(w.counts_dead for w in missing):
        yield f"  {_HONOR}"
    stay = [b for b in f.breached if b.after < b.needed]
    if stay:
        told = (f"{b.budget} ({b.after} of {b.needed} needed)" for b in stay)
        yield f"  budgets that stay breached: {listing(told, _WORKLOADS)}"


def _loss(w: LossReport) -> str:
    said = [f"loses {w.lost:,} of {plural(w.pods, 'pod')}"]
    if w.pending:
        said.append(f"{w.pending:,} Pending")
    if w.held:
        said.append(f"{w.held:,} not made again yet")
    if w.gone:
        said.append(f"{w.gone:,} made again by nobody")
    return ", ".join(said)


def _asked(key: str) -> str:
    """What was asked for: every node, every zone, or zone b."""
    name, _, value = key.partition("=")
    short = short_key(name)
    return f"{short} {value}" if value else f"every {short}"
