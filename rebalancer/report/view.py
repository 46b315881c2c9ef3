"""A report cut down to some namespaces: what is theirs, judged over the whole cluster."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from rebalancer.report.document import FindingReport, Report

_NAMESPACED = 3
"""Parts of Kind/namespace/name."""


def in_namespaces(report: Report, names: Collection[str]) -> Report:
    """The report without what belongs to other namespaces; findings about nodes stay.

    Nodes, pods and zones are the whole cluster's. A plan evicts in these namespaces only (see
    `PolicyOptions.namespaces_include`), so that its figures need no other count.
    """
    kept = [i for i, c in enumerate(report.constraints) if c.namespace in names]
    index = {old: new for new, old in enumerate(kept)}
    return replace(
        report,
        summary=replace(report.summary, constraints=len(kept)),
        constraints=tuple(report.constraints[i] for i in kept),
        evictions=tuple(
            replace(
                e,
                fixes=tuple(
                    replace(f, constraint=index[f.constraint]) for f in e.fixes if f.constraint in index
                ),
            )
            for e in report.evictions
        ),
        blocked=tuple(b for b in report.blocked if b.namespace in names),
        findings=tuple(f for f in report.findings if _shown(f, names)),
        risks=tuple(r for r in report.risks if r.namespace in names),
        namespaces=tuple(n for n in report.namespaces if n.namespace in names),
    )


def _shown(finding: FindingReport, names: Collection[str]) -> bool:
    parts = finding.object.split("/")
    return len(parts) != _NAMESPACED or parts[1] in names
