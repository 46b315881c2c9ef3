"""Findings for a terminal, and as JSON."""

from __future__ import annotations

from collections import Counter

import msgspec

from rebalancer.report.lint.diagnostic import Diagnostic, Linted
from rebalancer.report.output import harmless
from rebalancer.report.wording.text import clean, plural


def to_text(linted: Linted) -> str:
    """Each with its remedy, then how many."""
    lines = [*(line for d in linted.diagnostics for line in _told(d)), _summary(linted)]
    return "\n".join(map(clean, lines)) + "\n"


def to_json(linted: Linted) -> str:
    """A document of `rebalancer/v1`."""
    document = {
        "apiVersion": "rebalancer/v1",
        "kind": "Lint",
        "findings": linted.diagnostics,
        "workloads": linted.workloads,
        "files": linted.files,
        "ignored": linted.ignored,
        "notes": linted.notes,
    }
    return harmless(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"


def _told(d: Diagnostic) -> list[str]:
    whose = f" {d.object}" if d.object else ""
    head = f"{d.file}:{d.line}: {d.severity.value} {d.code}{whose}: {' '.join(d.message.split())}"
    return [head, *(f"    {line}" for line in d.remedy.split("\n") if line)]


def _summary(linted: Linted) -> str:
    counts = Counter(d.severity.value for d in linted.diagnostics)
    told = [plural(counts[s], s) for s in ("error", "warning") if counts[s]]
    told += [plural(counts["info"], "note")] if counts["info"] else []
    where = f"{plural(linted.workloads, 'workload')} in {plural(linted.files, 'file')}"
    ignored = f", {linted.ignored:,} ignored" if linted.ignored else ""
    return f"{', '.join(told) or 'nothing found'}: {where}{ignored}"
