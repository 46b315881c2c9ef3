"""A plan as something to read: terminal, JSON, YAML, HTML, Markdown and more.

document   the content of the report; its JSON is a public interface
building   builds it from a plan
wording/   figures and sentences that every format shares, and the escaping of hostile names
terminal/  the report for a terminal
html/      the report as a page
exports/   Markdown, CSV, openreports.io
formats    the names of the formats; output: the report in one of them
explain/   the content of `explain`, and the same for a terminal
simulation the content of `simulate`
drilled/   the content of `drill`, and the same for a terminal
fleet/     the reports of several clusters as one
lint/      findings in the formats of CI systems
failing_domains/  what a failure would cost workloads and namespaces
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rebalancer.report.building import build_report
    from rebalancer.report.document import Report
    from rebalancer.report.output import render, write

__all__ = ["Report", "build_report", "render", "write"]


def __getattr__(name: str) -> Any:
    """Imports the report when it is used, because the command line needs only the names of the formats."""
    if name == "Report":
        from rebalancer.report.document import Report

        return Report
    if name == "build_report":
        from rebalancer.report.building import build_report

        return build_report
    if name in ("render", "write"):
        from rebalancer.report import output

        return getattr(output, name)
    raise AttributeError(name)
