"""A plan as something to read: terminal, JSON, YAML, Markdown.

document   the report's content, the one place where it is built; its JSON is an interface
text       words and figures that every format shares; what makes hostile names harmless
table      the document for a terminal
markdown   the document for pull requests and chat
formats    the formats by name
output     the report in a format
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rebalancer.report.document import Report, build_report
    from rebalancer.report.output import render

__all__ = ["Report", "build_report", "render"]


def __getattr__(name: str) -> Any:
    """Loads the planner's types when they are asked for: the command line needs only the formats' names."""
    if name in ("Report", "build_report"):
        from rebalancer.report import document

        return getattr(document, name)
    if name == "render":
        from rebalancer.report.output import render

        return render
    raise AttributeError(name)
