"""Findings as GitLab reads them: a Code Quality report."""

from __future__ import annotations

import json

from rebalancer.report.lint.diagnostic import Linted
from rebalancer.report.lint.sarif import fingerprint
from rebalancer.report.output import harmless

_SEVERITIES = {"error": "major", "warning": "minor", "info": "info"}


def to_gitlab(linted: Linted) -> str:
    """A list of issues; two of one field of an object differ by their number."""
    seen: dict[str, int] = {}
    issues = []
    for d in linted.diagnostics:
        mark = fingerprint(d)
        again = seen[mark] = seen.get(mark, 0) + 1
        issues.append(
            {
                "description": d.sentence,
                "check_name": d.code,
                "fingerprint": mark if again == 1 else f"{mark}-{again}",
                "severity": _SEVERITIES[d.severity.value],
                "location": {"path": d.file, "lines": {"begin": d.line}},
            }
        )
    return harmless(json.dumps(issues, indent=2)) + "\n"
