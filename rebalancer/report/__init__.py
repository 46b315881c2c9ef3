"""A plan as something to read: terminal, JSON, YAML, HTML, Markdown and more, all from `document`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rebalancer.report.building import build_report
    from rebalancer.report.document import Report
    from rebalancer.report.exports import render, write

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
        from rebalancer.report import exports

        return getattr(exports, name)
    raise AttributeError(name)
